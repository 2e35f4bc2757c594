package cli_test

import (
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// TestFaultRelayStopWithoutServer: SIGTERM while a server is away, and the
// relay waits to try again. It ends, with 0: nothing is in flight. A wait that
// does not look at the signal would go on for ever.
func TestFaultRelayStopWithoutServer(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]func(*rig) proxy{"broker": (*rig).toBroker, "mysql": (*rig).toSource} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t).begun()
			p := away(r)
			d := r.start("--partitions", "1")
			r.insert(r.db, 1, 5)
			d.settled()
			p.away()
			r.insert(r.db, 6, 10)
			d.until("it has tried, and tried again", func() bool { return d.ended() >= 3 })
			d.stop()
			p.Accept()
			r.wantEvents(append(r.take(0), r.relayed()...), 1, 10)
		})
	}
}

// TestFaultRelayStopMySQLDeadInFlight: MySQL is gone and the broker is slow to
// confirm when SIGTERM comes. What is in flight is settled and saved all the
// same: nothing comes twice.
func TestFaultRelayStopMySQLDeadInFlight(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	source, broker := r.toSource(), r.toBroker()
	address := freeAddress(t)
	d := r.start("--partitions", "1", "--listen", address)
	d.settled()
	broker.Stall(relaytest.Down)
	r.insert(r.db, 1, 10)
	d.until("ten are in flight", func() bool { return metric(t, address, "relay_events_in_flight") == 10 })
	source.away()
	if err := d.Terminate(); err != nil {
		t.Fatal(err)
	}
	d.until("it settles", func() bool { return strings.Contains(d.text(), "settling what is in flight") || d.ended() > 0 })
	broker.Flow(relaytest.Down)
	d.wantCode(0)
	source.Accept()
	r.wantEvents(append(r.take(0), r.relayed()...), 1, 10)
}

// TestFaultRelayStopTwice: a second SIGTERM ends a relay at once that is still
// settling; what it had in flight comes again. With a main that goes on to catch
// signals it ends with 75, when the broker is given up.
func TestFaultRelayStopTwice(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	broker := r.toBroker()
	address := freeAddress(t)
	d := r.start("--partitions", "1", "--drain-timeout", "10m", "--listen", address)
	r.insert(r.db, 1, 2)
	d.settled()
	broker.Stall(relaytest.Down)
	r.insert(r.db, 3, 5)
	d.until("three are in flight", func() bool { return metric(t, address, "relay_events_in_flight") == 3 })
	if err := d.Terminate(); err != nil {
		t.Fatal(err)
	}
	d.until("it settles", func() bool { return strings.Contains(d.text(), "settling what is in flight") })
	relaytest.Wait(t, patience, "a second SIGTERM ends it", func() bool {
		if err := d.Terminate(); err != nil {
			t.Fatal(err)
		}
		select {
		case <-d.Done():
			return true
		case <-time.After(10 * time.Millisecond):
			return false
		}
	})
	if code := d.Wait(); code != -1 { // not by the signal: the broker's silence, later, ends it too
		t.Errorf("it ended with %d", code)
	}
	if got := r.state().Sequence; got != 2 {
		t.Errorf("the checkpoint is at sequence %d, want 2", got)
	}
	r.flags = nil // past the proxy
	r.judge(r.relayed(), 5)
}
