package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// parking is a rig whose rows may be bad, with its first checkpoint made.
func parking(t *testing.T) *rig {
	t.Helper()
	r := rigOn(t, database(t), schema.SQL, "ALTER TABLE outbox MODIFY payload JSON NULL").begun()
	r.flags = []string{"--partitions", "1"}
	return r
}

// row inserts an event; payload is an expression, and NULL makes a bad one.
func (r *rig) row(n, aggregate int, payload string) {
	r.t.Helper()
	r.exec(fmt.Sprintf("INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'%s', %d, 't', %s)", hexID(n), aggregate, payload))
}

// TestParkSameID: a bad row that is deleted and written again, corrected, with
// its id: both events wait, and what comes behind them. Seen to fail where the
// lot knew events by id: the corrected one was neither parked nor sent.
func TestParkSameID(t *testing.T) {
	t.Parallel()
	r := parking(t)
	r.row(1, 1, "NULL")
	r.exec("DELETE FROM outbox WHERE id = x'" + hexID(1) + "'")
	r.row(1, 1, "'{}'")
	r.row(2, 1, "'{}'")
	r.relay("--on-bad-event", "park")
	if got, want := r.parked(), []string{idText(1), idText(1), idText(2)}; !slices.Equal(got, want) {
		t.Errorf("parked %v, want %v", got, want)
	}
	bare := []string{"RELAY_CHECKPOINT=" + r.checkpoint()} // no server is asked, nor the broker for a list
	run(t, bare, "replay", "--parked", "--dry-run").want(t, 0, `"id":"`+idText(1)+`"`)
	run(t, bare, "replay", "--parked", "--dry-run", "--table", r.database()+".another").want(t, 78, "is of table "+r.database()+".outbox")
	run(t, bare, "replay", "--parked").want(t, 64, "--amqp-url is missing")
	run(t, r.replayEnv(), "replay", "--parked").want(t, 3, "kept      "+idText(1), "3 events are still parked")
	r.run("replay", "--parked", "--drop", idText(1)).want(t, 0,
		"dropped   "+idText(1)+" (sequence 1)", "dropped   "+idText(1)+" (sequence 2)", "confirmed "+idText(2)+" (sequence 3)")
	if got := messageIDs(r.take(0)); !slices.Equal(got, []string{idText(2)}) {
		t.Errorf("sent %v", got)
	}
	if state := r.state(); state.Parked != nil {
		t.Errorf("nothing is parked, and the checkpoint has %+v", state.Parked)
	}
}

// TestParkedFileGuarded: whatever becomes of the parked file or of the
// checkpoint beside it, the relay and replay refuse it with 78 and say how to
// go on; a dry run works while a relay runs. Seen to fail without the mark in
// the checkpoint: a file that was moved away lost its events in silence.
func TestParkedFileGuarded(t *testing.T) {
	t.Parallel()
	r := parking(t)
	r.row(1, 1, "NULL")
	r.row(2, 1, "'{}'")
	d := r.start("--on-bad-event", "park")
	d.settled()
	d.until("the checkpoint tells of them", func() bool { p := r.state().Parked; return p != nil && p.Events == 2 })
	r.run("replay", "--parked", "--dry-run").want(t, 0, `{"would":"keep","id":"`+idText(1)+`"`, `{"would":"keep","id":"`+idText(2)+`"`)
	d.stop()

	path := r.checkpoint() + ".parked"
	content := mustRead(t, path)
	put := func(path string, content []byte) {
		if err := os.WriteFile(path, content, 0o640); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(text string) {
		t.Helper()
		for _, command := range [][]string{{"run", "--on-bad-event", "park"}, {"run"}, {"replay", "--parked"}, {"replay", "--parked", "--dry-run"}} {
			got := r.run(command...)
			got.want(t, 78, text, "relay replay --parked --drop-all")
			got.oneLine(t)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	refused("there is no " + path)
	put(path, content[:bytes.IndexByte(content, '\n')+1])
	refused("its end was cut off")
	put(path, bytes.Replace(content, []byte(`"sequence":2`), []byte(`"sequence":3`), 1))
	refused("line 2 has the checksum")
	put(path, content)
	state := mustRead(t, r.checkpoint())
	if err := os.Remove(r.checkpoint()); err != nil {
		t.Fatal(err)
	}
	refused("there is no checkpoint " + r.checkpoint())
	put(r.checkpoint(), state)
	r.run("replay", "--parked", "--table", r.database()+".another").want(t, 78, "is of table "+r.database()+".outbox")

	// A resume leaves the file and what the checkpoint says of it as they are;
	// one that does not fit is taken with --yes alone.
	resume := func(events int64, args ...string) {
		t.Helper()
		d := r.startAs("resume", append(args, "--from-gtid", r.state().GTIDSet, "--on-bad-event", "park")...)
		d.settled()
		d.stop()
		if p := r.state().Parked; p == nil || p.Events != events {
			t.Errorf("behind a resume the checkpoint has %+v, want %d events", p, events)
		}
	}
	resume(2)
	put(path, content[:bytes.IndexByte(content, '\n')+1])
	r.run("resume", "--from-gtid", r.state().GTIDSet, "--on-bad-event", "park").want(t, 78, "its end was cut off", "type it again with --yes")
	refused("relay resume --from-gtid '" + r.state().GTIDSet + "' --yes")
	resume(1, "--yes")

	put(path, content[:100])
	refused("its end was cut off")
	dropped := r.run("replay", "--parked", "--drop-all")
	dropped.want(t, 0, "dropped   1 events", "kept      "+path+".")
	kept := strings.TrimSpace(dropped.stdout[strings.LastIndex(dropped.stdout, path):])
	if got := mustRead(t, kept); !bytes.Equal(got, content[:100]) {
		t.Errorf("%s has %q", kept, got)
	}
	r.row(3, 1, "'{}'")
	if got := messageIDs(r.relayed()); !slices.Equal(got, []string{idText(3)}) {
		t.Errorf("sent %v", got)
	}
}

// TestReplayKilled: kills of a replay cost a window each, which is one event,
// and a stop costs nothing and says how to go on; the same command goes on each
// time, also where it drops what is dropped. Seen to fail where the file was
// written at the end alone: each kill sent everything again; and where what is
// dropped was not remembered: 64.
func TestReplayKilled(t *testing.T) {
	t.Parallel()
	const last, kills = 1200, 3
	r := parking(t)
	r.row(1, 1, "NULL")
	r.exec(fmt.Sprintf("INSERT INTO outbox (id, aggregate_id, topic, payload) WITH RECURSIVE n(n) AS (SELECT 2 UNION ALL SELECT n+1 FROM n WHERE n < %d) SELECT /*+ SET_VAR(cte_max_recursion_depth = 10000) */ UNHEX(LPAD(HEX(n), 32, '0')), 1, 't', '{}' FROM n", last))
	r.relay("--on-bad-event", "park")
	args := []string{"--parked", "--drop", idText(1)}
	for n := range kills {
		d := r.startAs("replay", args...)
		d.until("events are sent", func() bool { return r.ready(0) > 100*(n+1) })
		if err := d.Kill(); err != nil {
			t.Fatal(err)
		}
	}
	d := r.startAs("replay", args...)
	d.until("events are sent", func() bool { return r.ready(0) > 100*(kills+1) })
	d.wantEnd(75)
	if text := d.text(); !strings.Contains(text, "events are still parked in "+r.checkpoint()+".parked; to go on: relay replay --parked") {
		t.Errorf("the stop says:\n%s", text)
	}
	broker := r.toBroker()
	broker.away()
	r.run(append([]string{"replay"}, args...)...).want(t, 75, "events are still parked in", "to go on: relay replay --parked")
	r.flags = r.flags[:len(r.flags)-1]
	r.run(append([]string{"replay"}, args...)...).want(t, 0)
	got := messageIDs(r.take(0))
	var want []string
	for n := 2; n <= last; n++ {
		want = append(want, idText(n))
	}
	if doubled := len(got) - len(want); doubled > kills {
		t.Errorf("%d events were sent twice by %d kills", doubled, kills)
	}
	if !slices.Equal(slices.Compact(got), want) {
		t.Errorf("sent %d events, %d different, want %d in order", len(got), len(slices.Compact(got)), len(want))
	}
	if _, err := os.Stat(r.checkpoint() + ".parked"); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
}

// TestParkTooLarge: the broker tells its limit once, by closing the channel;
// from then on larger events are parked before they are sent. What waits is
// counted once. When the broker comes back with another limit, that one holds.
// Seen to fail where the limit was not learnt: a session was lost for each.
func TestParkTooLarge(t *testing.T) {
	t.Parallel()
	b := relaytest.PrivateRabbitMQ(t)
	limit := func(bytes int) { b.Ctl(t, "eval", fmt.Sprintf("persistent_term:put(max_message_size, %d).", bytes)) }
	r := rigOn(t, database(t), schema.SQL).elsewhere(b.URL)
	limit(5000)
	f := r.try(1, "--on-bad-event", "park")
	const large = 10
	for n := 1; n <= 2*large; n++ {
		size := 10
		if n%2 == 0 {
			size = 5000 + n
		}
		r.row(n, n, fmt.Sprintf("JSON_QUOTE(REPEAT('x', %d))", size))
	}
	r.row(2*large+1, 2, "'{}'") // behind a large one
	f.until("all are dealt with", func() bool {
		return f.metric("relay_events_parked_total") == large+1 && f.metric("relay_parked_events") == large+1 && f.metric("relay_events_confirmed_total") == large
	})
	if lost := f.reconnects(); lost != 1 {
		t.Errorf("%.0f sessions were lost, want 1", lost)
	}
	if logged := strings.Count(f.daemon.text(), `"message":"event parked"`); logged != large {
		t.Errorf("%d bad events are in the log, want %d", logged, large)
	}
	if text := string(mustRead(t, r.checkpoint()+".parked")); strings.Count(text, "the broker takes 5000 at most (max_message_size)") != large || strings.Contains(text, "message size") {
		t.Errorf("the reasons:\n%s", text)
	}
	b.Restart(t, func() { f.unready("") })
	f.ready()
	r.row(100, 100, "JSON_QUOTE(REPEAT('x', 6000))")
	f.until("it takes larger ones", func() bool { return f.metric("relay_events_confirmed_total") == large+1 })
	f.stop()
	r.run("replay", "--parked").want(t, 0)
}
