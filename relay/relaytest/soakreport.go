package relaytest

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// How much more a process may hold at the end of its life than at the start.
// The collector lets a heap grow to twice of what is in use, and does not give
// it back at once.
const (
	growGoroutines = 8
	growFiles      = 8
	growResident   = 48 << 20
)

// prefetched is how many messages a consumer holds, which come again when it
// loses its connection.
const prefetched = 64

// SoakReport is what a soak found.
type SoakReport struct {
	Verdict
	Seed   uint64
	Rounds int
	// Faults counts them by kind.
	Faults map[string]int
	// Bound is how many duplicates those faults can explain.
	Bound int

	life    life // the longest
	highest vitals
	peak    int // events confirmed within one save interval, at most
	breaks  int // faults that can end a session
}

// account puts the figures of the soak into the report.
func (s *soak) account(r *SoakReport) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.Seed, r.Rounds, r.Faults, r.breaks = s.config.Seed, s.round, maps.Clone(s.struck), s.breaks
	if s.monitor != nil {
		s.monitor.mu.Lock()
		defer s.monitor.mu.Unlock()
		r.life, r.highest = s.monitor.longest, s.monitor.highest
		r.peak = int(s.monitor.rate * saveInterval.Seconds())
	}
	if s.demo != nil {
		r.Bound = r.breaks * (soakWindow + r.peak + prefetched*len(s.queues))
	}
}

// OK reports whether every promise was kept: those of the Verdict, the bound on
// duplicates, and no growth.
func (r SoakReport) OK() bool {
	return r.Verdict.OK() && r.Duplicates <= r.Bound && !r.Grown()
}

// Grown reports whether the relay held more at the end of its longest life
// than at its start, beyond the margin.
func (r SoakReport) Grown() bool {
	first, last := r.life.first, r.life.last
	return last.goroutines > first.goroutines+growGoroutines || last.files > first.files+growFiles ||
		last.resident > first.resident+growResident
}

// Struck is the number of faults.
func (r SoakReport) Struck() int {
	sum := 0
	for _, n := range r.Faults {
		sum += n
	}
	return sum
}

// WriteTable writes the closing table: a line for each figure, with a few ids
// where a promise was broken.
func (r SoakReport) WriteTable(out io.Writer) error {
	var t table
	t.row("rounds", r.Rounds, nil)
	t.row("faults", r.Struck(), nil)
	for _, name := range slices.Sorted(maps.Keys(r.Faults)) {
		fmt.Fprintf(&t, "    %-32s %6d\n", name, r.Faults[name])
	}
	t.row("committed", r.Committed, nil)
	t.row("rolled back", r.RolledBack, nil)
	t.row("delivered", r.Delivered, nil)
	t.faults(r.Verdict)
	fmt.Fprintf(&t, "  %-22s %8d   of at most %d: %d faults that can end a session, each the window (%d), a save interval (%d), what consumers hold\n",
		"duplicates suppressed", r.Duplicates, r.Bound, r.breaks, soakWindow, r.peak)
	first, last := r.life.first, r.life.last
	fmt.Fprintf(&t, "  the longest-lived relay, %v\n", r.life.length().Round(time.Second))
	t.growth("goroutines", "", first.goroutines, last.goroutines, r.highest.goroutines, growGoroutines)
	t.growth("open files", "", first.files, last.files, r.highest.files, growFiles)
	t.growth("resident memory", " MiB", first.resident>>20, last.resident>>20, r.highest.resident>>20, growResident>>20)
	t.row("seed", int(r.Seed), nil)
	_, err := io.WriteString(out, t.String())
	return err
}

// table is a closing table.
type table struct{ strings.Builder }

// row writes a figure, and the first ids of those that it counts.
func (t *table) row(name string, count int, ids []string) {
	fmt.Fprintf(t, "  %-22s %8d", name, count)
	if len(ids) > 0 {
		fmt.Fprintf(t, "   %s", strings.Join(ids[:min(len(ids), examples)], " "))
	}
	t.WriteByte('\n')
}

// faults writes a row for each promise that can be broken.
func (t *table) faults(v Verdict) {
	t.row("lost", len(v.Lost), v.Lost)
	t.row("phantom", len(v.Phantom), v.Phantom)
	t.row("out of order", len(v.OutOfOrder), v.OutOfOrder)
	t.row("effects applied twice", len(v.AppliedTwice), v.AppliedTwice)
	t.row("effects missing", len(v.Unapplied), v.Unapplied)
	t.row("sequence faults", len(v.SequenceFaults), v.SequenceFaults)
}

func (t *table) growth(name, unit string, first, last, highest, margin int) {
	verdict := "no growth"
	if last > first+margin {
		verdict = "GROWN"
	}
	fmt.Fprintf(t, "    %-18s %4d%[6]s at the start, %[3]d%[6]s at the end, %[4]d%[6]s at most in all; margin %[5]d%[6]s: %[7]s\n",
		name, first, last, highest, margin, unit, verdict)
}
