package relaytest

import (
	"testing"
	"time"
)

// TestSoak is the shortest soak that is of use: a few rounds of seeded faults on
// servers of its own. It was seen to fail with a relay that moves its position
// at publish, and with one that takes a nack for a confirm: events are lost.
func TestSoak(t *testing.T) {
	t.Parallel()
	config := SoakConfig{Relay: Build(t), Seed: seed(t), Duration: 10 * time.Second, Longest: 2 * time.Second, Rate: 100}
	report, err := Soak(t.Context(), config, t.Output())
	if tableErr := report.WriteTable(t.Output()); tableErr != nil {
		t.Error(tableErr)
	}
	if err != nil {
		t.Fatal(err)
	}
	if !report.OK() {
		t.Error("a promise was broken: see the table")
	}
	if report.Committed < 100 || report.RolledBack == 0 || report.Rounds == 0 || report.highest.goroutines == 0 {
		t.Errorf("%d events committed, %d rolled back, %d rounds, %d goroutines seen: that proves nothing",
			report.Committed, report.RolledBack, report.Rounds, report.highest.goroutines)
	}
}
