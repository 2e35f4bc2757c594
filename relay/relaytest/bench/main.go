// Command bench measures the relay against what would do the same work without
// it, side by side, and prints one table: the medians, their spread, the ratio
// of each pair of runs, and the goal beside it, met or not. The raw figures go
// to a JSON file.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
)

// A part measures and adds results. It may fill more than one section.
type part struct {
	sections []string // of the table; -only names them
	measure  func(ctx context.Context, b *bench) error
}

// parts are in the order of the table.
var parts = []part{
	{[]string{"start"}, start}, // first: the broker is busy for a while with what the others leave
	{[]string{"drain", "cpu"}, drain},
	{[]string{"ceiling"}, ceiling},
	{[]string{"catch-up"}, catchUp},
	{[]string{"latency"}, latency},
	{[]string{"memory"}, memory},
	{[]string{"growth"}, growth},
	{[]string{"audit"}, audit},
	{[]string{"prune"}, prune},
}

// roles are what this binary does as a process of its own, so that its CPU time
// is told apart: the first argument names one.
var roles = map[string]func(args []string) error{
	"raw":  publishRaw,
	"stub": serveStub,
}

func main() {
	if len(os.Args) > 1 && roles[os.Args[1]] != nil {
		if err := roles[os.Args[1]](os.Args[2:]); err != nil {
			fmt.Fprintf(os.Stderr, "bench %s: %v\n", os.Args[1], err)
			os.Exit(1)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx)
	stop()
	os.Exit(code)
}

func run(ctx context.Context) int {
	b := &bench{loaded: make(map[loadKey]load), log: log.New(os.Stderr, "bench: ", log.Ltime)}
	var only, path string
	flag.StringVar(&only, "only", "", "sections to measure, as drain,latency (default all of them)")
	flag.IntVar(&b.runs, "runs", 5, "runs of each kind, in pairs")
	flag.IntVar(&b.events, "events", 200_000, "events to drain")
	flag.IntVar(&b.rows, "rows", 5_000_000, "rows to audit")
	flag.BoolVar(&b.quick, "quick", false, "one run of small sizes, to see that it works: no figures to quote")
	flag.StringVar(&path, "json", ".dev/bench.json", "file for the raw figures")
	flag.StringVar(&b.relay, "relay", "bin/relay", "the relay's binary")
	flag.StringVar(&b.profile, "profile", "", "directory for CPU profiles of the relay: the runs are then slower")
	flag.Parse()
	if b.quick {
		b.runs, b.events, b.rows = 1, b.events/20, b.rows/20
	}
	chosen, err := choose(only)
	if err != nil || b.runs < 1 || b.events < 1000 || b.rows < 1000 || flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "bench: -runs %d -events %d -rows %d -only %q %q: want 1 or more, 1000 or more of both (20000 with -quick), sections of the table, and no word besides\n",
			b.runs, b.events, b.rows, only, flag.Args())
		return 64
	}
	_ = mysql.SetLogger(new(mysql.NopLogger)) // fails on nil only
	failed := b.open(ctx)
	if failed == nil {
		failed = b.measure(ctx, chosen)
	}
	if err := b.close(); err != nil {
		failed = errors.Join(failed, err)
	}
	if err := b.report(os.Stdout, path); err != nil {
		failed = errors.Join(failed, err)
	}
	if failed != nil {
		fmt.Fprintln(os.Stderr, "bench:", failed)
		return 1
	}
	return 0
}

// choose returns the parts that fill the sections which only names.
func choose(only string) ([]part, error) {
	if only == "" {
		return parts, nil
	}
	names := strings.Split(only, ",")
	known := make(map[string]bool)
	var chosen []part
	for _, p := range parts {
		wanted := false
		for _, s := range p.sections {
			known[s] = true
			wanted = wanted || slices.Contains(names, s)
		}
		if wanted {
			chosen = append(chosen, p)
		}
	}
	for _, name := range names {
		if !known[name] {
			return nil, fmt.Errorf("no section %q", name)
		}
	}
	return chosen, nil
}

// measure runs the parts. One that fails does not keep the others from being
// measured.
func (b *bench) measure(ctx context.Context, chosen []part) error {
	var failed error
	for _, p := range chosen {
		name := strings.Join(p.sections, ", ")
		began := time.Now()
		b.log.Printf("%s begins", name)
		if err := p.measure(ctx, b); err != nil {
			b.log.Printf("%s: %v", name, err)
			failed = errors.Join(failed, fmt.Errorf("%s: %w", name, err))
		}
		b.log.Printf("%s took %v", name, time.Since(began).Round(time.Second))
		if ctx.Err() != nil {
			return errors.Join(failed, ctx.Err())
		}
	}
	return failed
}
