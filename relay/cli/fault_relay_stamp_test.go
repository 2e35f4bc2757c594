package cli_test

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// TestFaultStampKilled: a relay that stamps is killed again and again, in its
// backfill and behind it. What the checkpoint covers is stamped at each kill, each
// event comes under one number, and in the end none is lost and none pending. Seen
// to fail with a checkpoint that is saved before its rows are stamped.
func TestFaultStampKilled(t *testing.T) { onEach(t, testFaultStampKilled) }

func testFaultStampKilled(t *testing.T, on source) {
	random := seeded(t)
	const rows, window = 4_000, 200
	r := stampingRig(t, on.database(t), schema.SQL).begun()
	if err := os.Remove(r.checkpoint()); err != nil {
		t.Fatal(err)
	}
	r.insert(r.db, 1, rows)
	l := r.underLoad(rows + 1)
	inBackfill, announced, behind := 0, 0, int64(0)
	const kills = 5
	for kill := range kills {
		at := int64(kill)*rows/5 + random.Int64N(rows/20)
		d := r.start("--partitions", "1", "--window", fmt.Sprint(window), "--stamp")
		d.until("it is time for a kill", func() bool {
			if !r.exists() {
				return false
			}
			state := r.state()
			return kill < 3 && state.Sequence >= at || kill >= 3 && state.Backfill == nil && state.Sequence > behind
		})
		d.killed()
		state := r.state()
		behind = state.Sequence + 100
		if state.Backfill != nil {
			inBackfill++
			if state.Backfill.Stamping != nil {
				announced++
			}
		}
		if got := r.text("SELECT COUNT(*) FROM outbox WHERE status = 'pending' AND id <= x'" + hexID(int(state.Sequence)) + "'"); got != "0" {
			t.Errorf("kill %d: the checkpoint covers %d events, and %s of them are pending", kill, state.Sequence, got)
		}
	}
	d := r.start("--partitions", "1", "--stamp")
	last := l.end(t)
	d.until("all is stamped", func() bool { return r.pending() == "0" })
	d.stop()
	again := r.judge(r.take(0), last)
	t.Logf("%d events, %d came again; %d of %d kills were in the backfill, %d between stamp and save", last, again, inBackfill, kills, announced)
	if inBackfill == 0 || inBackfill == kills {
		t.Errorf("%d of %d kills were in the backfill", inBackfill, kills)
	}
	if again >= kills*rows { // each kill would have cost all of them
		t.Errorf("%d events came again", again)
	}
}

// TestFaultStampUnsaved: a relay ends when a backfill's rows are stamped and the
// checkpoint is not saved, as a crash just there would end it. The next one goes on
// behind what was announced: those events do not come again, and the others keep
// their numbers. A row that the test holds, and the lock file, make it certain.
// Seen to fail, under other numbers, where the next one takes no notice of that.
func TestFaultStampUnsaved(t *testing.T) { onEach(t, testFaultStampUnsaved) }

func testFaultStampUnsaved(t *testing.T, on source) {
	const rows = 900
	r := stampingRig(t, on.database(t), schema.SQL).begun()
	r.insert(r.db, 1, rows)
	if err := os.Remove(r.checkpoint()); err != nil {
		t.Fatal(err)
	}
	session := r.session("BEGIN", "SELECT id FROM outbox WHERE id = x'"+hexID(1)+"' FOR UPDATE")
	d := r.start("--partitions", "1", "--stamp", "--window", "50")
	var announced checkpoint.State
	d.until("it has announced its stamps", func() bool {
		if r.exists() {
			announced = r.state()
		}
		return announced.Backfill != nil && announced.Backfill.Stamping != nil
	})
	if err := os.Remove(r.checkpoint() + ".lock"); err != nil { // the next save fails
		t.Fatal(err)
	}
	r.on(session, "ROLLBACK")
	if code := d.Wait(); code != 78 {
		t.Fatalf("it ended with %d, want 78:\n%s", code, d.Tail())
	}
	if state := r.state(); state.Sequence != announced.Sequence || r.pending() == fmt.Sprint(rows) {
		t.Fatalf("the checkpoint was saved, or nothing was stamped: %+v", state)
	}
	r.insert(r.db, rows+1, rows+10)
	r.relay("--partitions", "1", "--stamp")
	list, came := r.take(0), map[string]int{}
	r.judge(list, rows+10)
	for _, m := range list {
		came[m.MessageId]++
	}
	for n := 1; n <= int(announced.Backfill.Stamping.Sequence); n++ {
		if came[idText(n)] != 1 {
			t.Errorf("event %d of the %d that were announced came %d times", n, announced.Backfill.Stamping.Sequence, came[idText(n)])
		}
	}
	if got := r.pending(); got != "0" {
		t.Errorf("%s rows are pending", got)
	}
}

// TestFaultStampRefused: without the right to stamp, or a column for it, the relay
// does not begin, and check says why; when it loses the right it ends with 78 and
// has covered nothing that it could not stamp.
func TestFaultStampRefused(t *testing.T) { onEach(t, testFaultStampRefused) }

func testFaultStampRefused(t *testing.T, on source) {
	r := rigOn(t, on.database(t), schema.SQL).begun()
	right := "UPDATE (`status`, `published_at`) ON `" + r.database() + "`.`outbox` TO "
	for _, command := range []struct {
		name string
		code int
	}{{"run", 78}, {"check", 3}} {
		r.run(command.name, "--partitions", "1", "--stamp").want(t, command.code, "type: GRANT "+right+"'"+r.user+"'@'%'")
	}
	// No more than what print grants tells.
	r.exec("GRANT UPDATE (status, published_at) ON " + r.database() + ".outbox TO " + r.user)
	r.run("check", "--partitions", "1", "--stamp").want(t, 0, "grant UPDATE")
	d := r.start("--partitions", "1", "--stamp")
	r.insert(r.db, 1, 10)
	d.until("all is stamped", func() bool { return r.pending() == "0" })
	d.settled()
	covered := r.state().Sequence
	r.exec("REVOKE UPDATE (status, published_at) ON " + r.database() + ".outbox FROM " + r.user)
	r.insert(r.db, 11, 20)
	if code := d.Wait(); code != 78 {
		t.Errorf("it ended with %d, want 78", code)
	}
	if !strings.Contains(d.text(), "type: GRANT SELECT, "+right) {
		t.Errorf("it does not tell the grant:\n%s", d.Tail())
	}
	if got := r.state().Sequence; got != covered {
		t.Errorf("the checkpoint covers %d events, and %d are stamped", got, covered)
	}
	r.exec("GRANT UPDATE (status, published_at) ON " + r.database() + ".outbox TO " + r.user)
	d = r.start("--partitions", "1", "--stamp")
	d.until("all is stamped", func() bool { return r.pending() == "0" })
	d.stop()
	r.judge(r.take(0), 20)
	if got := r.text("SELECT COUNT(*) FROM outbox WHERE published_at BETWEEN created_at AND UTC_TIMESTAMP(6)"); got != "20" {
		t.Errorf("%s rows tell when they were published, want 20", got)
	}
	r.exec("ALTER TABLE outbox DROP COLUMN status")
	got := r.run("run", "--partitions", "1", "--stamp")
	got.want(t, 78, "ALTER TABLE "+r.database()+".outbox ADD COLUMN status")
	got.oneLine(t)
}

// TestStampIdle: a relay's own stamps move its position and nothing else: when it
// has taken them in, it does nothing more.
func TestStampIdle(t *testing.T) {
	t.Parallel()
	r := stampingRig(t, database(t), schema.SQL).begun()
	address := freeAddress(t)
	d := r.start("--partitions", "1", "--stamp", "--listen", address)
	r.insert(r.db, 1, 10)
	d.until("all is stamped", func() bool { return r.pending() == "0" })
	stamps := func() string {
		return r.text("SELECT COUNT_STAR FROM performance_schema.table_io_waits_summary_by_table WHERE object_schema = ? AND object_name = 'outbox'", r.database())
	}
	before := stamps()
	d.settled() // its own stamps, too
	foreign := metric(t, address, "relay_transactions_total") + 2
	for range 2 {
		r.exec("CREATE TABLE more (n INT)", "DROP TABLE more")
		d.settled()
	}
	d.until("the transactions behind the stamps are read", func() bool { return metric(t, address, "relay_transactions_total") >= foreign })
	if got := stamps(); got != before {
		t.Errorf("the outbox was touched %s times, %s before it was idle", got, before)
	}
	if got := metric(t, address, "relay_events_published_total"); got != 10 {
		t.Errorf("%v events were published, want 10", got)
	}
	d.stop()
}

// TestFaultTopicsKilled: a relay whose topics were widened is killed again and
// again while it sends what it had passed over. Nothing is lost, and what it had
// sent before does not come again. Seen to fail where the topics before are not
// kept with the backfill.
func TestFaultTopicsKilled(t *testing.T) { onEach(t, testFaultTopicsKilled) }

func testFaultTopicsKilled(t *testing.T, on source) {
	const rows, window = 4000, 2 // so that the backfill takes longer than some saves
	r := stampingRig(t, on.database(t), schema.SQL).begun()
	r.insert(r.db, 1, rows)
	r.exec("UPDATE outbox SET topic = 'b' WHERE aggregate_id >= 20")
	if err := os.Remove(r.checkpoint()); err != nil {
		t.Fatal(err)
	}
	r.relay("--partitions", "1", "--only-topics", "order.*")
	sent := map[string]bool{}
	for _, id := range messageIDs(r.take(0)) {
		sent[id] = true
	}
	if len(sent) != rows/5 {
		t.Fatalf("%d events came, want %d", len(sent), rows/5)
	}
	stamp := []string{"--partitions", "1", "--window", fmt.Sprint(window), "--stamp"}
	for kill := range 3 {
		d := r.start(stamp...)
		at := int64(rows/5 + (kill+1)*rows/8)
		d.until("it is time for a kill", func() bool { return r.state().Sequence >= at })
		d.killed()
		if b := r.state().Backfill; b == nil || b.TopicsBefore == nil {
			t.Fatalf("killed in the middle, the checkpoint says %+v", b)
		}
	}
	r.insert(r.db, rows+1, rows+100)
	d := r.start(stamp...)
	d.settled()
	d.stop()
	h := relaytest.History{Committed: map[string][]string{}, Deliveries: map[string][]relaytest.Delivery{}}
	for n := 1; n <= rows+100; n++ {
		if id := idText(n); !sent[id] {
			h.Committed[fmt.Sprint(n%100)] = append(h.Committed[fmt.Sprint(n%100)], id)
		}
	}
	list := r.take(0)
	for i, sequence := range r.sequences(list) {
		h.Deliveries["0"] = append(h.Deliveries["0"], relaytest.Delivery{ID: list[i].MessageId, Aggregate: list[i].RoutingKey, Sequence: sequence})
	}
	v := relaytest.Judge(h)
	t.Logf("%d events, %d came again", v.Committed, v.Duplicates)
	if !v.OK() || v.Duplicates >= 3*rows { // each kill would have cost all of them
		t.Errorf("%d lost, %d phantom, %d out of order, %d sequence faults, %d came again", len(v.Lost), len(v.Phantom), len(v.OutOfOrder), len(v.SequenceFaults), v.Duplicates)
	}
	if got := r.text("SELECT COUNT(*) FROM outbox WHERE status = 'pending' AND NOT (topic = 'order.placed' AND id <= x'" + hexID(rows) + "')"); got != "0" {
		t.Errorf("%s rows are pending that were sent with --stamp", got)
	}
}
