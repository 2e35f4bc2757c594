package relay

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
)

const planted = "hunter2-Planted/Secret"

// described is a board of a relay that was just started.
func described() *board {
	b := newBoard()
	b.describe(Config{
		Source:     binlog.Config{DSN: "relay:" + planted + "@tcp(db.example:3306)/shop", Table: "outbox"},
		Broker:     exchange.Config{URL: "amqp://relay:" + url.PathEscape(planted) + "@mq.example/", Password: planted, Exchange: "outbox", Partitions: 4},
		Checkpoint: "/state/checkpoint.json",
		Window:     100,
	}, checkpoint.State{})
	return b
}

// TestViewStates takes a relay through all its states. It fails with any two
// cases of phase in another order.
func TestViewStates(t *testing.T) {
	t.Parallel()
	b := described()
	old := time.Now().Add(-time.Minute)
	backfill := &checkpoint.Backfill{After: "17", Until: "99"}
	steps := []struct {
		do           func()
		state        state
		tone, reason string
		next         string
	}{
		{func() {}, stateStarting, "busy", "Connecting to the database server at db.example:3306.", ""},
		{func() { b.connected(true, false) }, stateStarting, "busy", "Connecting to RabbitMQ at amqp://mq.example:5672/", ""},
		{func() { b.connected(true, true) }, stateStarting, "busy", "", ""},
		{func() { b.saved(checkpoint.State{Backfill: backfill}); b.show(snapshot{following: true}) }, stateBackfilling, "busy", "at 17 of 99", ""},
		{func() { b.saved(checkpoint.State{}); b.show(snapshot{following: true, newest: old}) }, stateCatchingUp, "busy", "committed 1m0s ago", ""},
		{func() { b.show(snapshot{following: true, newest: old, caughtUp: true}) }, stateFollowing, "good", "published at once", ""},
		{func() { b.show(snapshot{following: true, reason: "the broker blocks: memory", blocked: true}) }, stateBlocked, "bad", "the broker blocks: memory.", "rabbitmq-diagnostics alarms"},
		{func() { b.show(snapshot{following: true, reason: "the queue is full"}) }, stateBlocked, "bad", "the queue is full.", "rabbitmqctl list_queues"},
		{func() { b.show(snapshot{ending: true, reason: "the queue is full"}) }, stateWaiting, "bad", "is being settled.", "relay check"},
		{func() { b.failed(errBroken) }, stateWaiting, "bad", "broken by the test.", "relay check"},
		{func() { b.connected(true, false) }, stateWaiting, "bad", "broken by the test.", "relay check"},
		{func() { b.connected(true, true); b.show(snapshot{following: true, inFlight: 7}) }, stateFollowing, "good", "", ""},
		{func() { b.stop() }, stateStopping, "busy", "7 events in flight", ""},
		{func() { b.stall("the loop that reads the log has not moved for 1m0s") }, stateStalled, "bad", "has not moved for 1m0s.", "systemctl restart relay"},
		{func() { b.stall(""); b.end(nil) }, stateStopped, "bad", "told to stop", "relay run"},
		{func() { b.end(errBroken) }, stateStopped, "bad", "broken by the test.", "relay run"},
	}
	for i, step := range steps {
		step.do()
		v := b.view()
		if v.State != step.state || v.Tone != step.tone || !strings.Contains(v.Reason, step.reason) || !strings.HasPrefix(v.Next, step.next) || step.next == "" && v.Next != "" {
			t.Errorf("step %d: %s (%s): %q, type %q; want %s (%s): %q, type %q", i, v.State, v.Tone, v.Reason, v.Next, step.state, step.tone, step.reason, step.next)
		}
	}
}

// TestViewOfPoller: what has no meaning without a log is not told, nor is a
// command that is not a poller's.
func TestViewOfPoller(t *testing.T) {
	t.Parallel()
	b := described()
	b.polls(500 * time.Millisecond)
	b.connected(true, true)
	old := time.Now().Add(-time.Minute)
	for _, step := range []struct {
		do           func()
		state        state
		reason, next string
		lag          float64
	}{
		{func() { b.show(snapshot{following: true, newest: time.Now(), caughtUp: true}) }, stateFollowing, "at the next poll, 500ms after the last.", "", 0},
		{func() { b.show(snapshot{following: true, newest: old}) }, stateCatchingUp, "oldest pending row was created 1m0s ago", "", 60},
		{func() { b.show(snapshot{following: true, newest: old, caughtUp: true}); b.failed(errBroken) }, stateWaiting, "broken by the test.", "", 60},
		{func() { b.end(errBroken) }, stateStopped, "broken by the test.", "relay poll", 60},
	} {
		step.do()
		v := b.view()
		if v.State != step.state || !strings.Contains(v.Reason, step.reason) || v.Next != step.next || v.Lag == nil || *v.Lag < step.lag || *v.Lag > step.lag+30 {
			t.Errorf("%s: %q, type %q; want %s: %q, type %q, lag %v", v.State, v.Reason, v.Next, step.state, step.reason, step.next, step.lag)
		}
		if v.Interval != 0.5 || v.CommittedAt != nil || v.Runway != nil || v.Behind != nil || v.CheckpointAge != nil || v.GTIDSet != "" {
			t.Errorf("got %+v", v)
		}
	}
}

// TestViewUnknown: what nobody has told is null, and becomes a figure when it is
// told. No secret is in it. Seen to fail: the lag of 0 of a relay that has read
// nothing yet, the runway of +Inf, which JSON does not have.
func TestViewUnknown(t *testing.T) {
	t.Parallel()
	b := described()
	fields := func() map[string]any {
		t.Helper()
		text, err := json.Marshal(b.view())
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "hunter2") {
			t.Errorf("the password is in %s", text)
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		return fields
	}
	for _, name := range []string{"lag_seconds", "lag_bytes", "runway_seconds", "confirmed_per_second", "checkpoint_age_seconds", "committed_at", "queues", "queues_at"} {
		if got, there := fields()[name]; !there || got != nil {
			t.Errorf("%s is %v, want null", name, got)
		}
	}
	b.connected(true, true)
	b.show(snapshot{following: true, newest: time.Now().Add(-time.Hour), place: binlog.Place{File: "binlog.000007", Offset: 4711}})
	b.measured(1000, 2*time.Hour)
	b.saved(checkpoint.State{SavedAt: time.Now(), Parked: &checkpoint.Parked{Events: 3}})
	b.setQueues(depths{list: []exchange.Queue{{Name: "outbox.0", Found: true, Messages: 5}}, at: time.Now()})
	b.sample()
	b.confirms.Add(3)
	b.sample()
	got := fields()
	for name, limits := range map[string][2]float64{
		"lag_seconds": {3600, 3700}, "lag_bytes": {1000, 1000}, "runway_seconds": {3500, 3600}, "confirmed_per_second": {1e-9, 1e12},
		"checkpoint_age_seconds": {0, 60}, "parked": {3, 3}, "log_offset": {4711, 4711}, "confirmed": {3, 3},
	} {
		if value, ok := got[name].(float64); !ok || value < limits[0] || value > limits[1] {
			t.Errorf("%s is %v, want %v", name, got[name], limits)
		}
	}
	b.measured(0, 0)
	if got := fields()["runway_seconds"]; got != -1.0 {
		t.Errorf("the runway is %v where the log is kept for ever, want -1", got)
	}
	b.failed(errBroken)
	if got := fields(); got["lag_bytes"] != nil || got["lag_seconds"] == nil {
		t.Errorf("between sessions lag_bytes is %v, lag_seconds is %v", got["lag_bytes"], got["lag_seconds"])
	}
}
