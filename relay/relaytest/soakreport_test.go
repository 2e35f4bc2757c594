package relaytest

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func soakReport() SoakReport {
	return SoakReport{
		Verdict: Verdict{Committed: 12, RolledBack: 3, Delivered: 12, Deliveries: 14, Duplicates: 2},
		Seed:    7, Rounds: 2, Faults: map[string]int{"mysql crash": 1, "relay SIGKILL": 2}, Bound: 2, breaks: 3, peak: 10,
		life: life{
			first: vitals{goroutines: 20, files: 15, resident: 23 << 20}, last: vitals{goroutines: 28, files: 23, resident: 71 << 20},
			lastSeen: time.Time{}.Add(90 * time.Second),
		},
		highest: vitals{goroutines: 30, files: 25, resident: 80 << 20},
	}
}

func TestSoakReportOK(t *testing.T) {
	if !soakReport().OK() {
		t.Error("nothing is wrong, and the soak is not OK")
	}
	for name, spoil := range map[string]func(*SoakReport){
		"lost":       func(r *SoakReport) { r.Lost = []string{"e1"} },
		"duplicates": func(r *SoakReport) { r.Duplicates = 3 },
		"goroutines": func(r *SoakReport) { r.life.last.goroutines++ },
		"files":      func(r *SoakReport) { r.life.last.files++ },
		"memory":     func(r *SoakReport) { r.life.last.resident++ },
	} {
		r := soakReport()
		spoil(&r)
		if r.OK() {
			t.Errorf("%s: the soak is OK", name)
		}
	}
}

func TestSoakReportWriteTable(t *testing.T) {
	report := soakReport()
	report.life.last.files++
	var out strings.Builder
	if err := report.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	want := `
  rounds                        2
  faults                        3
    mysql crash                           1
    relay SIGKILL                         2
  committed                    12
  rolled back                   3
  delivered                    12
  lost                          0
  phantom                       0
  out of order                  0
  effects applied twice         0
  effects missing               0
  sequence faults               0
  duplicates suppressed         2   of at most 2: 3 faults that can end a session, each the window (512), a save interval (10), what consumers hold
  the longest-lived relay, 1m30s
    goroutines           20 at the start, 28 at the end, 30 at most in all; margin 8: no growth
    open files           15 at the start, 24 at the end, 25 at most in all; margin 8: GROWN
    resident memory      23 MiB at the start, 71 MiB at the end, 80 MiB at most in all; margin 48 MiB: no growth
  seed                          7
`
	if diff := cmp.Diff(want, "\n"+out.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}
