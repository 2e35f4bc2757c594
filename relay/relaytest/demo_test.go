package relaytest

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestKillTimes(t *testing.T) {
	times := func(seed uint64) []time.Duration {
		return killTimes(rand.New(rand.NewPCG(seed, 0)), 6, 24*time.Second)
	}
	first := times(1)
	if diff := cmp.Diff(first, times(1)); diff != "" {
		t.Errorf("the same seed gives other moments:\n%s", diff)
	}
	if slices.Equal(first, times(2)) {
		t.Error("another seed gives the same moments")
	}
	for i, moment := range first {
		if slot := time.Duration(i) * 4 * time.Second; moment < slot || moment >= slot+4*time.Second {
			t.Errorf("kill %d at %v", i, moment)
		}
	}
	if moments := killTimes(nil, 0, time.Second); len(moments) != 0 {
		t.Errorf("no kills: %v", moments)
	}
}

func TestWriteTable(t *testing.T) {
	report := Report{
		Verdict: Verdict{Committed: 12, RolledBack: 3, Delivered: 11, Deliveries: 13, Duplicates: 2,
			Lost: []string{"e9"}, OutOfOrder: []string{"e1", "e2", "e3", "e4"}},
		Seed: 7, Kills: 6,
	}
	var out strings.Builder
	if err := report.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	want := `
  committed                    12
  rolled back                   3
  kills                         6
  delivered                    11
  lost                          1   e9
  phantom                       0
  out of order                  4   e1 e2 e3
  effects applied twice         0
  effects missing               0
  sequence faults               0
  duplicates suppressed         2
  seed                          7
`
	if diff := cmp.Diff(want, "\n"+out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

func TestScreenWritesLinesToWhatIsNoTerminal(t *testing.T) {
	var out strings.Builder
	s := newScreen(&out)
	s.line("one")
	s.line("two")
	s.close()
	if out.String() != "one\ntwo\n" {
		t.Errorf("wrote %q", out.String())
	}
}
