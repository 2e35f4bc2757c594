package cli_test

import (
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// TestSourceCut: MySQL goes away and comes back. What was in flight is settled
// and saved before another session begins, so that nothing comes twice.
func TestSourceCut(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	p := r.toSource()
	address := freeAddress(t)
	d := r.start("--partitions", "1", "--listen", address)
	d.until("it follows", func() bool { code, _ := get(address, "/readyz"); return code == 200 })
	for round := range 3 {
		first := round*2000 + 1
		r.backlog(first, first+1999)
		d.until("some of it is relayed", func() bool { return r.state().Sequence >= int64(first) })
		p.away()
		d.until("it says why it is not ready", func() bool {
			code, body := get(address, "/readyz")
			return code == 503 && strings.Contains(body, p.Addr())
		})
		p.Accept()
	}
	d.settled()
	if got := metric(t, address, `relay_reconnects_total{side="source"}`); got < 3 {
		t.Errorf("relay_reconnects_total is %v after three cuts", got)
	}
	d.stop()
	r.wantEvents(r.take(0), 1, 6000)
}

// TestFrozen: neither server says a word any more, and nothing is in flight.
// SIGTERM ends the relay all the same.
func TestFrozen(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	source, broker := r.toSource(), r.toBroker()
	d := r.start("--partitions", "1")
	r.insert(r.db, 1, 5)
	d.settled()
	source.freeze()
	broker.freeze()
	began := time.Now()
	d.stop()
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %s", took)
	}
}

// TestFrozenInFlight: the broker does not confirm what was sent. SIGTERM ends
// the relay with 75 after the drain timeout, and the next start sends it.
func TestFrozenInFlight(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	broker := r.toBroker()
	address := freeAddress(t)
	d := r.start("--partitions", "1", "--drain-timeout", "1s", "--listen", address)
	r.insert(r.db, 1, 2)
	d.settled()
	broker.freeze()
	r.insert(r.db, 3, 5)
	d.until("three are in flight", func() bool { return metric(t, address, "relay_events_in_flight") == 3 })
	d.wantEnd(75)
	if text := d.text(); !strings.Contains(text, "3 events in flight") || !strings.Contains(text, "drain timeout of 1s") {
		t.Errorf("it says\n%s", text)
	}
	if got := r.state().Sequence; got != 2 {
		t.Errorf("the checkpoint is at sequence %d, want 2", got)
	}
	r.flags = nil // past the proxy
	ids := messageIDs(r.relayed())
	for n := 1; n <= 5; n++ {
		if !strings.Contains(strings.Join(ids, " "), idText(n)) {
			t.Errorf("event %d is lost: %v", n, ids)
		}
	}
}

// TestExchangeDeleted while the relay publishes: it is unfit, and loses
// nothing.
func TestExchangeDeleted(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	d := r.start()
	r.insert(r.db, 1, 2)
	d.settled()
	if err := r.onBroker(func(channel *amqp.Channel) error { return channel.ExchangeDelete(r.exchange, false, false) }); err != nil {
		t.Fatal(err)
	}
	r.insert(r.db, 3, 5)
	select {
	case <-d.Done():
	case <-time.After(patience):
		t.Fatal("the relay goes on")
	}
	if code := d.Wait(); code != 78 || !strings.Contains(d.text(), "relay run --partitions 4 declares it") {
		t.Errorf("the relay ended with %d:\n%s", code, d.Tail())
	}
	r.wantEvents(r.relayed(), 1, 5)
}

// TestSilent: something listens where a server should be, and says nothing.
// The relay takes it for one that is away, and gives up in the middle of an
// attempt. Seen to fail with an attempt that has all its time.
func TestSilent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	accepted := make(chan net.Conn, 16)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	source := mustDSN(t, r.dsn)
	source.Addr = listener.Addr().String()
	for _, flags := range [][]string{
		{"--mysql-dsn", source.FormatDSN()},
		{"--amqp-url", (&url.URL{Scheme: "amqp", Host: listener.Addr().String(), Path: "/"}).String()},
	} {
		r.run(append([]string{"run", "--give-up-after", "1s", "--log-level", "error"}, flags...)...).want(t, 75, listener.Addr().String(), "no time is left to connect", "when the server answers: relay run")
		for len(accepted) > 0 {
			(<-accepted).Close()
		}
		d := r.start(flags...)
		conn := <-accepted
		defer conn.Close()
		began := time.Now()
		d.stop()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%v: it took %s to stop", flags, took)
		}
	}
}
