package relay

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/exchange"
)

// TestBoardReady tells why a relay is not ready, in the order of what matters
// most.
func TestBoardReady(t *testing.T) {
	t.Parallel()
	b := newBoard()
	steps := []struct {
		do     func()
		reason string
		ok     bool
	}{
		{func() {}, "not yet following MySQL", false},
		{func() { b.connected(true, false) }, "not yet connected to RabbitMQ", false},
		{func() { b.connected(true, true); b.show(snapshot{following: true}) }, "following and publishing", true},
		{func() { b.show(snapshot{following: true, reason: "the broker blocks publishing: memory"}) }, "the broker blocks publishing: memory", false},
		{func() { b.failed(errBroken) }, "broken by the test", false},
		{func() { b.connected(true, false) }, "broken by the test", false},
		{func() { b.connected(true, true); b.show(snapshot{following: true}) }, "following and publishing", true},
		{func() { b.show(snapshot{ending: true}) }, "the session ends: what is in flight is being settled", false},
		{func() { b.stop() }, "stopping", false},
	}
	for i, step := range steps {
		step.do()
		if reason, ok := b.ready(); reason != step.reason || ok != step.ok {
			t.Errorf("step %d: ready is %q, %v, want %q, %v", i, reason, ok, step.reason, step.ok)
		}
	}
}

// TestBoardLag reads a backlog of transactions without outbox rows: the relay
// is behind although nothing is unsettled, and then it has caught up.
func TestBoardLag(t *testing.T) {
	t.Parallel()
	tr := begin(t, trialConfig{})
	tr.broker.confirmAll()
	lag := func() float64 { return tr.metrics()["relay_lag_seconds"] }
	behind := time.Hour
	foreign := func(number int64) *binlog.Tx {
		tx := whole(number)
		tx.CommittedAt = time.Now().Add(-behind)
		return tx
	}
	number := int64(10)
	tr.until("the lag is an hour", func() bool {
		number++
		tr.give(foreign(number))
		return lag() >= 3600
	})
	tr.until("the lag is 0 when nothing comes any more", func() bool { return lag() == 0 })
	behind = 0
	for deadline := time.Now().Add(600 * time.Millisecond); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		number++
		tr.give(foreign(number))
		if got := lag(); got > 5 {
			t.Fatalf("the lag is %v while the relay keeps up", got)
		}
	}
}

// TestBoardCounts compares the figures after a known history.
func TestBoardCounts(t *testing.T) {
	t.Parallel()
	tr := begin(t, trialConfig{})
	tr.give(whole(11, "a-1", "b-1"), whole(12), part(13, false, "c-1"), whole(13))
	tr.wantSent("a-1", "b-1", "c-1")
	tr.until("three are in flight", func() bool { return tr.metrics()["relay_events_in_flight"] == 3 })
	tr.broker.decide(&exchange.ReturnError{})
	tr.broker.decide(exchange.ErrNacked)
	tr.wantSent("a-1", "b-1", "c-1", "a-1", "b-1")
	tr.broker.confirmAll()
	tr.until("all is settled", func() bool { return tr.metrics()["relay_events_in_flight"] == 0 })
	got := tr.metrics()
	want := map[string]float64{
		"relay_events_published_total": 5,
		"relay_events_confirmed_total": 3,
		"relay_events_returned_total":  1,
		"relay_events_nacked_total":    1,
		"relay_transactions_total":     3,
		"relay_publish_seconds":        3,
		"relay_broker_blocked":         0,
		"relay_build_info":             1,
	}
	for name := range got {
		if _, asked := want[name]; !asked {
			delete(got, name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}
