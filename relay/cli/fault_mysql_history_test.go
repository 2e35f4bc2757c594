package cli_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// TestFaultMySQLHistory: what can happen to a server's log, what changes the
// whole server, and what others' transactions would disturb; one after the
// other, on a server of their own.
func TestFaultMySQLHistory(t *testing.T) {
	t.Parallel()
	server := newMysqld(t)
	for name, test := range map[string]func(*testing.T, *mysqld){
		"purged while down":             purgedWhileDown,
		"purged while stalled":          purgedWhileStalled,
		"flushed under load":            flushedUnderLoad,
		"slower than net_write_timeout": slowerThanWriteTimeout,
		"cut while idle":                cutWhileIdle,
		"half-open to server":           halfOpenToServer,
	} {
		t.Run(name, func(t *testing.T) { test(t, server) })
	}
}

// wantPurged wants a relay's last words to name what is missing and how to go
// on, and takes that way, while more has been written: all 15 events come.
func (r *rig) wantPurged(text string) {
	r.t.Helper()
	missing := r.text("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_purged, ?)", r.state().GTIDSet)
	_, command, found := strings.Cut(text, "go on behind the gap: relay ")
	if !found || !strings.Contains(text, "purged") || !strings.Contains(text, missing) {
		r.t.Fatalf("of the missing transactions %s it says\n%s", missing, text)
	}
	r.insert(r.db, 11, 15)
	command, _, _ = strings.Cut(command, ";")
	args := strings.Fields(command)
	d := r.startAs(args[0], append(args[1:], "--partitions", "1")...)
	d.settled()
	d.stop()
	ids := messageIDs(r.take(0))
	for n := 1; n <= 15; n++ { // some of them again, from the table, which cannot tell
		if !slices.Contains(ids, idText(n)) {
			r.t.Errorf("event %d is lost: %v", n, ids)
		}
	}
}

// purgedWhileDown: the relay must not go on behind the gap by itself.
func purgedWhileDown(t *testing.T, server *mysqld) {
	r := rigOn(t, databaseOn(t, server.root()), schema.SQL).begun()
	r.insert(r.db, 1, 5)
	r.relay("--partitions", "1")
	r.insert(r.db, 6, 10)
	r.purge()
	got := r.run("run", "--partitions", "1", "--log-level", "error")
	got.want(t, 78)
	got.oneLine(t)
	r.wantPurged(got.stderr)
}

// purgedWhileStalled: the server has sent events that never arrived, and
// purges them; then the link is cut.
func purgedWhileStalled(t *testing.T, server *mysqld) {
	r := rigOn(t, databaseOn(t, server.root()), schema.SQL).begun()
	p := r.toSource()
	d := r.start("--partitions", "1")
	r.insert(r.db, 1, 5)
	d.settled()
	p.Stall(relaytest.Down)
	r.insert(r.db, 6, 10)
	r.purge()
	p.Cut()
	p.Flow(relaytest.Down)
	d.wantCode(78)
	if at := r.state().Sequence; at != 5 {
		t.Errorf("the checkpoint is at sequence %d, want 5", at)
	}
	r.wantPurged(d.text())
}

// flushedUnderLoad: the server begins new log files. A relay that takes a
// file's end for the log's, or counts the server's artificial events, loses or
// doubles something.
func flushedUnderLoad(t *testing.T, server *mysqld) {
	r := rigOn(t, databaseOn(t, server.root()), schema.SQL).begun()
	d := r.start("--partitions", "1")
	l := r.underLoad(1)
	for range 10 {
		l.grown(d, 30)
		r.exec("FLUSH BINARY LOGS")
	}
	last := l.end(t)
	d.settled()
	d.stop()
	if d.ended() != 0 {
		t.Errorf("a session ended:\n%s", d.Tail())
	}
	r.wantEvents(r.take(0), 1, last)
}

// slowerThanWriteTimeout: the broker confirms nothing, the window is full, and
// the server's thread waits to be rid of its events for longer than
// net_write_timeout. It ends, and the relay begins again: by the end of the
// stream, which is behind what the sockets held, and not by its read timeout.
func slowerThanWriteTimeout(t *testing.T, server *mysqld) {
	const rows = 10_000 // of 4 KB: more than sockets hold
	r := rigOn(t, databaseOn(t, server.root()), schema.SQL).begun()
	r.exec("SET GLOBAL net_write_timeout = 2")
	defer r.exec("SET GLOBAL net_write_timeout = 60")
	broker := r.toBroker()
	d := r.start("--partitions", "1", "--window", "200")
	d.settled()
	d.until("one thread feeds it", func() bool { return r.dumps() == "1" })
	thread, _ := r.dump()
	broker.Stall(relaytest.Down)
	r.bulk(1, rows/2, 4000)
	r.bulk(rows/2+1, rows, 4000)
	d.until("the server's thread has ended", func() bool { now, _ := r.dump(); return now != thread })
	if d.ended() != 0 {
		t.Fatalf("the relay's session ended first:\n%s", d.Tail())
	}
	broker.Flow(relaytest.Down)
	d.settled()
	d.stop()
	if d.ended() == 0 || !strings.Contains(d.text(), "unexpected EOF") || strings.Contains(d.text(), "i/o timeout") {
		t.Errorf("no session has ended with the stream:\n%s", d.Tail())
	}
	r.wantEvents(r.take(0), 1, rows)
}

// cutWhileIdle: two cuts, between which nothing is written and the relay follows
// for longer than --give-up-after, are two troubles. Seen to fail with retry's
// steady out: the second cut ends the relay with 75.
func cutWhileIdle(t *testing.T, server *mysqld) {
	const limit = 2 * time.Second
	r := rigOn(t, databaseOn(t, server.root()), schema.SQL).begun()
	p := r.toSource()
	d := r.start("--partitions", "1", "--give-up-after", limit.String())
	for cuts := range 2 {
		d.until("it follows", func() bool { return strings.Count(d.text(), `"message":"following"`) > cuts })
		began := time.Now()
		d.until("it has followed for longer than the limit", func() bool { return time.Since(began) > limit+limit/4 })
		p.Cut()
	}
	d.until("it follows again", func() bool { return strings.Count(d.text(), `"message":"following"`) > 2 })
	d.stop()
}
