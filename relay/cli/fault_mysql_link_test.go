package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// TestFaultMySQLStalled: nothing, or nothing from the server, passes the link any
// more, and no connection is closed. The relay must notice within its read
// timeout: with one of an hour the test waits in vain.
func TestFaultMySQLStalled(t *testing.T) {
	t.Parallel()
	stall := func(ways ...relaytest.Direction) (finish func()) {
		r := newRig(t).begun()
		p := r.toSource()
		d := r.start("--partitions", "1")
		l := r.underLoad(1)
		l.grown(d, 90)
		for _, way := range ways {
			p.Stall(way)
		}
		l.grown(d, 90)
		written := l.end(t)
		return func() {
			d.until("the relay has noticed", func() bool { return d.ended() > 0 })
			r.insert(r.db, written+1, written+50)
			for _, way := range ways {
				p.Flow(way)
			}
			d.settled()
			d.stop()
			r.wantEvents(r.take(0), 1, written+50)
		}
	}
	both, halfOpen := stall(relaytest.Up, relaytest.Down), stall(relaytest.Down)
	both() // it takes the read timeout; meanwhile that of the other passes
	halfOpen()
}

// halfOpenToServer: nothing reaches the server any more, and what its log says
// still comes. (Not on the server of all tests: their DDL in the log can make
// the relay ask for the table's definition, which takes an answer.)
func halfOpenToServer(t *testing.T, server *mysqld) {
	r := rigOn(t, databaseOn(t, server.root()), schema.SQL).begun()
	p := r.toSource()
	d := r.start("--partitions", "1")
	r.insert(r.db, 1, 50)
	d.settled()
	p.Stall(relaytest.Up)
	r.insert(r.db, 51, 100)
	d.settled()
	p.Flow(relaytest.Up)
	r.insert(r.db, 101, 150)
	d.settled()
	d.stop()
	r.wantEvents(r.take(0), 1, 150)
}

// TestFaultMySQLCut cuts the link after a number of bytes that a seed gives,
// in either direction: in the greeting, in a query, within an event, between
// two events of a transaction. Seen to fail with a lost connection taken for a
// setting that does not fit (Server.explain: the relay ends with 78), and with
// what has come of a transaction taken for all of it (assembler.next: the rest
// is lost).
func TestFaultMySQLCut(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	// The bytes of a session are counted: on a server of all tests they are not its alone.
	r := rigOn(t, databaseOn(t, relaytest.PrivateMySQL(t)), schema.SQL).begun()
	p := r.toSource()
	last := 0
	more := func() { // most of a session's bytes, and then a transaction that is soon looked up by the next
		r.bulk(last+1, last+100, 1000)
		r.insert(r.db, last+101, last+110)
		last += 110
	}
	relay := func() *daemon {
		more()
		return r.start("--partitions", "1")
	}
	whole := map[relaytest.Direction]int64{relaytest.Up: p.Passed(relaytest.Up), relaytest.Down: p.Passed(relaytest.Down)}
	d := relay()
	d.settled()
	for way, before := range whole { // bytes of a session
		whole[way] = p.Passed(way) - before
	}
	d.stop()
	for _, way := range []relaytest.Direction{relaytest.Up, relaytest.Down} {
		offsets := []int64{1}
		for range 7 {
			offsets = append(offsets, 1+random.Int64N(whole[way]*9/10))
		}
		for _, at := range offsets {
			cut := p.Passed(way) + at
			p.CutAfter(way, at)
			d := relay()
			d.until(fmt.Sprintf("the link is cut after %d bytes, direction %d", at, way), func() bool { return p.Passed(way) >= cut })
			d.settled()
			d.stop()
			if text := d.text(); strings.Contains(text, "[mysql]") { // the driver's own words, were they let through
				t.Errorf("the log is not one of JSON lines:\n%s", text)
			}
		}
	}
	r.wantEvents(r.take(0), 1, last)
}
