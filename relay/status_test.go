package relay

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
)

// TestStatusPlace: what is unknown before the first settled transaction is not
// given as 0, nor is a runway that is used up taken for one without end. Both
// were so.
func TestStatusPlace(t *testing.T) {
	const uuid = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	const hour = time.Hour
	for name, test := range map[string]struct {
		behind    string
		committed time.Duration // ago; 0: unknown
		retention time.Duration
		says      []string
		json      map[string]bool
	}{
		"unknown":               {uuid + ":7-9", 0, hour, []string{"3 transactions, for an unknown time", "runway       unknown"}, map[string]bool{}},
		"unknown, kept for all": {uuid + ":7-9", 0, 0, []string{"for an unknown time", "for ever"}, map[string]bool{"runway_seconds": true}},
		"nothing behind":        {"", 0, hour, []string{"0 transactions, 0.0 s", "1 h until"}, map[string]bool{"lag_seconds": true, "runway_seconds": true}},
		"behind":                {uuid + ":7", hour, 3 * hour, []string{"1 transactions, 3600.", "1 h 59 min until"}, map[string]bool{"lag_seconds": true, "runway_seconds": true}},
		"used up":               {uuid + ":7", 3 * hour, hour, []string{"1 transactions, 10800.", "0 s until"}, map[string]bool{"lag_seconds": true, "runway_seconds": true}},
	} {
		t.Run(name, func(t *testing.T) {
			behind, err := binlog.ParseGTIDSet(test.behind)
			if err != nil {
				t.Fatal(err)
			}
			report := Report{State: &checkpoint.State{}}
			if test.committed > 0 {
				report.State.CommittedAt = time.Now().Add(-test.committed)
			}
			report.Source.place(behind, report.State.CommittedAt)
			report.Source.runway(report.State.CommittedAt, binlog.Log{Retention: test.retention})
			var text bytes.Buffer
			report.print(&text, nil)
			for _, want := range test.says {
				if !strings.Contains(text.String(), want) {
					t.Errorf("no %q in\n%s", want, text.String())
				}
			}
			b, err := json.Marshal(report)
			if err != nil {
				t.Fatal(err)
			}
			for _, field := range []string{"lag_seconds", "runway_seconds"} {
				if got := strings.Contains(string(b), `"`+field+`"`); got != test.json[field] {
					t.Errorf("%s is there: %t, in\n%s", field, got, b)
				}
			}
			if strings.Contains(string(b), `"committed_at":null`) != (test.committed == 0) {
				t.Errorf("committed_at in\n%s", b)
			}
		})
	}
}
