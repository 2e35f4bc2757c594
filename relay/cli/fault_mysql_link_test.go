//go:build faults

package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// TestFaultMySQLStalled: nothing, or nothing of one direction, passes the link
// any more, and no connection is closed. Where nothing comes from the server
// the relay must notice within its read timeout: with one of an hour the test of
// both ways waits in vain.
func TestFaultMySQLStalled(t *testing.T) {
	t.Parallel()
	for name, ways := range map[string][]relaytest.Direction{
		"both ways":             {relaytest.Up, relaytest.Down},
		"half-open from server": {relaytest.Down},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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
			d.until("the relay has noticed", func() bool { return d.ended() > 0 })
			r.insert(r.db, written+1, written+50)
			for _, way := range ways {
				p.Flow(way)
			}
			d.settled()
			d.stop()
			r.wantEvents(r.take(0), 1, written+50)
		})
	}
	t.Run("half-open to server", func(t *testing.T) { // what the log says still comes
		t.Parallel()
		r := newRig(t).begun()
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
	})
}

// TestFaultMySQLCut cuts the link after a number of bytes that a seed gives,
// in either direction: in the greeting, in a query, within an event. With a
// relay that goes on with half an event, or skips one, the history is not whole.
// Before the driver's own logger was silenced, its lines were between the relay's.
func TestFaultMySQLCut(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	r := newRig(t).begun()
	p := r.toSource()
	const batch = 300
	last := 0
	more := func() {
		r.backlog(last+1, last+batch/2)
		r.insert(r.db, last+batch/2+1, last+batch)
		last += batch
	}
	// No session on a batch is shorter, in bytes.
	for way, shortest := range map[relaytest.Direction]int64{relaytest.Up: 2000, relaytest.Down: 15_000} {
		offsets := []int64{1}
		for range 7 {
			offsets = append(offsets, 1+random.Int64N(shortest))
		}
		for _, at := range offsets {
			more()
			cut := p.Passed(way) + at
			p.CutAfter(way, at)
			d := r.start("--partitions", "1")
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
