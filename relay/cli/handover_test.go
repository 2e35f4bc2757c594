package cli_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// handOver is a table whose writer goes on while relays take it over from each
// other.
type handOver struct {
	*rig
	writer *relaytest.Writer
	stop   context.CancelFunc
	done   sync.WaitGroup
}

// stampingRig makes a rig whose user may do what run --stamp and poll need.
func stampingRig(t testing.TB, root string, ddl ...string) *rig {
	t.Helper()
	r := rigOn(t, root, ddl...)
	r.exec("GRANT UPDATE ON " + r.database() + ".* TO " + r.user)
	return r
}

// newHandOver begins to write events of these topics, of which each aggregate has
// one.
func newHandOver(t *testing.T, on source, topics ...string) *handOver {
	t.Helper()
	h := &handOver{rig: stampingRig(t, on.database(t))}
	h.writer = &relaytest.Writer{DB: h.db, Seed: seeded(t).Uint64(), Aggregates: 24, Rate: 600, Topics: topics}
	if err := h.writer.Schema(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	h.stop = stop
	h.done.Go(func() {
		if err := h.writer.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() {
		stop()
		h.done.Wait()
	})
	return h
}

// runs starts relay run, and polls relay poll, with these topics.
func (h *handOver) runs(topics ...string) *daemon {
	h.t.Helper()
	return h.start(append([]string{"--partitions", "1", "--stamp"}, topics...)...)
}

func (h *handOver) polls(topics ...string) *daemon {
	h.t.Helper()
	return h.startAs("poll", append([]string{"--partitions", "1", "--interval", "200ms"}, topics...)...)
}

// grown waits until so many more events are committed, and some of these topics
// have been stamped since: the relay that carries them is at work.
func (h *handOver) grown(d *daemon, n int, topics ...string) {
	h.t.Helper()
	stamped := func() string {
		return h.text("SELECT COUNT(*) FROM outbox WHERE status = 'published' AND topic IN ('" + strings.Join(topics, "', '") + "')")
	}
	want, before := h.writer.Committed()+n, stamped()
	d.until("the writer goes on", func() bool { return h.writer.Committed() >= want })
	d.until("rows are stamped", func() bool { return stamped() != before })
}

// end ends the writer, waits until all is stamped, stops the relays and judges
// what came: each event once, in the order of its aggregate.
func (h *handOver) end(list ...*daemon) {
	h.t.Helper()
	h.stop()
	h.done.Wait()
	list[0].until("all is stamped", func() bool { return h.text("SELECT COUNT(*) FROM outbox WHERE status = 'pending'") == "0" })
	for _, d := range list {
		d.stop()
	}
	history := h.writer.Log()
	history.Deliveries = map[string][]relaytest.Delivery{}
	for _, m := range h.take(0) {
		history.Deliveries["0"] = append(history.Deliveries["0"], relaytest.Delivery{ID: m.MessageId, Aggregate: m.RoutingKey})
	}
	v := relaytest.Judge(history)
	h.t.Logf("%d committed, %d deliveries, %d of them again", v.Committed, v.Deliveries, v.Duplicates)
	if len(v.Lost)+len(v.Phantom)+len(v.OutOfOrder) > 0 {
		h.t.Errorf("lost %v, phantom %v, out of order %v", v.Lost, v.Phantom, v.OutOfOrder)
	}
	if v.Duplicates > 0 { // there was no fault
		h.t.Errorf("%d events came again", v.Duplicates)
	}
}

// TestHandOver: poll, then run, then poll again, under a writer: nothing is lost,
// nothing comes twice, and each aggregate's order stays. Seen to fail with a run
// that does not stamp, and with one that begins with --start latest.
func TestHandOver(t *testing.T) { onEach(t, testHandOver) }

func testHandOver(t *testing.T, on source) {
	h := newHandOver(t, on)
	d := h.polls()
	h.grown(d, 150, "order.placed")
	d.stop()
	for range 2 {
		d = h.runs() // the second time from its checkpoint
		h.grown(d, 150, "order.placed")
		d.stop()
	}
	d = h.polls()
	h.grown(d, 150, "order.placed")
	h.end(d)
}

// TestHandOverTopic: one type is on run and others on poll; another moves to run,
// and back. Seen to fail where run does not send, of a type that is added, what is
// in the table.
func TestHandOverTopic(t *testing.T) { onEach(t, testHandOverTopic) }

func testHandOverTopic(t *testing.T, on source) {
	h := newHandOver(t, on, "a", "b", "c")
	run, poll := h.runs("--only-topics", "a"), h.polls("--except-topics", "a")
	h.grown(run, 150, "a")
	h.grown(poll, 150, "b")

	poll.stop()
	poll = h.polls("--except-topics", "a,b")
	h.grown(poll, 150, "c") // meanwhile nobody carries b
	run.stop()
	newest := h.text("SELECT CAST(MAX(created_at) AS CHAR) FROM outbox WHERE topic = 'b' AND status = 'pending'")
	run = h.runs("--only-topics", "a,b")
	run.until("what nobody carried is stamped", func() bool {
		return h.text("SELECT COUNT(*) FROM outbox WHERE topic = 'b' AND status = 'pending' AND created_at <= ?", newest) == "0"
	})
	h.grown(run, 150, "b")
	if !strings.Contains(run.text(), `"message":"topics were added`) {
		t.Errorf("it does not tell of the topics that were added:\n%s", run.Tail())
	}

	run.stop()
	run = h.runs("--only-topics", "a")
	h.grown(run, 150, "a")
	poll.stop()
	poll = h.polls("--except-topics", "a")
	h.grown(poll, 150, "b")
	h.end(poll, run)
	if state := h.state(); state.Topics == nil || !slices.Equal(state.Topics.Only, []string{"a"}) {
		t.Errorf("the checkpoint has the topics %+v", state.Topics)
	}
}

// TestRunTopics: what is added to the topics is sent out of the table, in the
// order of the rows, with its sequence growing; what is taken out needs nothing. A
// change while a backfill is under way is refused, with the flags to type.
func TestRunTopics(t *testing.T) { onEach(t, testRunTopics) }

func testRunTopics(t *testing.T, on source) {
	r := rigOn(t, on.database(t), schema.SQL).begun()
	last := 0
	insert := func(topics ...string) {
		for _, topic := range topics {
			last++
			r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'" + hexID(last) + "', 1, '" + topic + "', '{}')")
		}
	}
	step := func(want []int, flags ...string) {
		t.Helper()
		var ids []string
		for _, n := range want {
			ids = append(ids, idText(n))
		}
		if got := messageIDs(r.relayed(flags...)); !slices.Equal(got, ids) {
			t.Errorf("%v: got %v, want %v", flags, got, ids)
		}
	}
	insert("a", "b", "a", "c") // 1 to 4
	step([]int{1, 3}, "--only-topics", "a")
	if got := r.state().Sequence; got != 4 {
		t.Errorf("the sequence is %d, want 4", got)
	}
	insert("b", "a") // 5, 6
	r.exec("UPDATE outbox SET status = 'published' WHERE id = x'" + hexID(2) + "'")
	step([]int{5, 6}, "--only-topics", "a,b") // 2 was published by somebody else
	insert("a", "b")                          // 7, 8
	step([]int{7}, "--only-topics", "a")
	step([]int{4, 5, 8}, "--except-topics", "a")
	step([]int{1, 3, 6, 7})
	if state := r.state(); state.Topics != nil || state.Backfill != nil {
		t.Errorf("the checkpoint has %+v, %+v", state.Topics, state.Backfill)
	}
	r.run("run", "--only-topics", "a,,b").want(t, 64, "an empty glob")
}

// TestTopicsChangedInBackfill: topics do not change while a backfill is under way.
func TestTopicsChangedInBackfill(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	r.insert(r.db, 1, 3000)
	if err := os.Remove(r.checkpoint()); err != nil {
		t.Fatal(err)
	}
	p := r.toBroker()
	d := r.start("--partitions", "1", "--window", "10", "--only-topics", "order.*")
	d.until("the backfill has begun", func() bool { return r.exists() && r.state().Backfill != nil && r.state().Backfill.After != "" })
	p.Stall(relaytest.Down)
	d.killed()
	p.Cut()
	r.flags = nil
	if r.state().Backfill == nil {
		t.Fatal("the backfill has ended too early")
	}
	got := r.run("run", "--partitions", "1")
	got.want(t, 78, "a backfill is under way", "start it as before, with its flags and --only-topics 'order.*'")
	got.oneLine(t)
	got = r.run("resume", "--partitions", "1", "--from-gtid", r.state().GTIDSet, "--dry-run", "--only-topics", "x")
	got.want(t, 0, "backfill")
	r.relay("--partitions", "1", "--only-topics", "order.*")
	r.relay("--partitions", "1")
	if again := r.judge(r.take(0), 3000); again > 3000/2 {
		t.Errorf("%d events came again", again)
	}
}
