package cli_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/relay/relaytest"
)

const (
	trialWindow     = 256 // events in flight
	trialAggregates = 20
	endMark         = "end"
)

// trial is a relay under a writer while something fails, and what is known of
// both ends: what was committed, and what came out of the queues.
type trial struct {
	*rig
	*daemon
	address    string // of its metrics
	partitions int
	prefix     string  // of the aggregates' ids
	texts      bool    // ids are texts, not bytes
	failed     float64 // connections before it was ready: servers may be slow
	warned     int     // in the log by then

	drains    int // begun: each has an end mark of its own
	written   int // events, those rolled back included
	committed map[string][]string

	mu         sync.Mutex // for the consumers
	deliveries map[string][]relaytest.Delivery
}

// toll is what a fault may cost, and what it must leave in the metrics and in
// the log.
type toll struct {
	cuts      int  // sessions that ended: each may send a window's events again
	returned  bool // events came back from the exchange
	mayReturn bool // events came back, or none did
	nacked    bool // events were refused
	warnings  int  // at most, and one at least
}

// try starts a relay to so many queues, and waits until it is ready.
func (r *rig) try(partitions int, flags ...string) *trial {
	r.t.Helper()
	f := &trial{rig: r, partitions: partitions, committed: map[string][]string{}, deliveries: map[string][]relaytest.Delivery{}}
	f.again(flags...)
	return f
}

// again starts the trial's relay, after it has ended.
func (f *trial) again(flags ...string) {
	f.t.Helper()
	f.begin("run", flags...)
}

func (f *trial) begin(command string, flags ...string) {
	f.t.Helper()
	f.address = freeAddress(f.t)
	f.daemon = f.startAs(command, append(flags, "--partitions", fmt.Sprint(f.partitions), "--window", fmt.Sprint(trialWindow), "--listen", f.address)...)
	f.ready()
	f.failed, f.warned = 0, 0
	f.failed, f.warned = f.reconnects(), f.warnings()
}

// ready waits until the relay says that it follows and publishes.
func (f *trial) ready() {
	f.t.Helper()
	f.until("it is ready", func() bool { code, _ := get(f.address, "/readyz"); return code == 200 })
}

// unready waits until the relay says that it does not publish, and why.
func (f *trial) unready(why string) {
	f.t.Helper()
	f.until("it is not ready: "+why, func() bool {
		code, body := get(f.address, "/readyz")
		return code == 503 && strings.Contains(body, why)
	})
}

func (f *trial) metric(name string) float64 {
	f.t.Helper()
	return metric(f.t, f.address, name)
}

// reconnects is how often the relay says that the broker's side failed since it
// was ready.
func (f *trial) reconnects() float64 {
	f.t.Helper()
	return f.metric(`relay_reconnects_total{side="broker"}`) - f.failed
}

// warnings counts those of trouble in the log since the relay was ready.
func (f *trial) warnings() int {
	text := f.daemon.text()
	return strings.Count(text, `"level":"warn"`) - strings.Count(text, `"broker blocked publishing"`) - f.warned
}

// write commits a transaction of n events, or rolls it back.
func (f *trial) write(n int, commit bool) error {
	tx, err := f.db.Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // it is committed below, or is to be rolled back
	pending := map[string][]string{}
	for range n {
		f.written++
		key := fmt.Sprint(f.prefix, f.written%trialAggregates)
		var value any = id(f.written)
		if f.texts {
			value = idText(f.written)
		}
		if _, err := tx.Exec("INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (?, ?, 't', '{}')", value, key); err != nil {
			return err
		}
		pending[key] = append(pending[key], idText(f.written))
	}
	if !commit {
		return nil
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	for key, ids := range pending {
		f.committed[key] = append(f.committed[key], ids...)
	}
	return nil
}

// writes commits n events in one transaction.
func (f *trial) writes(n int) {
	f.t.Helper()
	if err := f.write(n, true); err != nil {
		f.t.Fatal(err)
	}
}

// load writes small transactions, some rolled back, until stop is called,
// which returns when the last has ended.
func (f *trial) load() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		pace := time.NewTicker(8 * time.Millisecond)
		defer pace.Stop()
		for {
			select {
			case <-pace.C:
				if err := f.write(1+rand.IntN(4), rand.IntN(8) > 0); err != nil {
					ended <- err
					return
				}
			case <-ctx.Done():
				ended <- nil
				return
			}
		}
	}()
	f.t.Cleanup(cancel)
	return sync.OnceFunc(func() {
		f.t.Helper()
		cancel()
		if err := <-ended; err != nil {
			f.t.Fatal(err)
		}
	})
}

// overfills waits until the load has committed more than a window holds, and
// stops it: what else it would write in a long wait only has to be read again.
func (f *trial) overfills(stop func()) {
	f.t.Helper()
	count := func() (n int) {
		if _, err := fmt.Sscan(f.rig.text("SELECT COUNT(*) FROM outbox"), &n); err != nil {
			f.t.Fatal(err)
		}
		return n
	}
	before := count()
	f.until("the load is more than a window", func() bool { return count() > before+trialWindow })
	stop()
}

// flows waits until the relay has confirmed some more events.
func (f *trial) flows() {
	f.t.Helper()
	before := f.metric("relay_events_confirmed_total")
	f.until("events flow", func() bool { return f.metric("relay_events_confirmed_total") >= before+50 })
}

// judge stops the relay once all is settled, and holds what came out of the
// queues against what was committed.
func (f *trial) judge(cost toll) {
	f.t.Helper()
	f.settled()
	f.ready()
	f.wantMetrics(cost)
	f.stop()
	f.drain()
	f.verdict(cost)
}

// wantMetrics looks at a relay that has settled everything.
func (f *trial) wantMetrics(cost toll) {
	f.t.Helper()
	returned, nacked := f.metric("relay_events_returned_total"), f.metric("relay_events_nacked_total")
	if (returned > 0) != cost.returned && !cost.mayReturn || (nacked > 0) != cost.nacked {
		f.t.Errorf("%v events were returned and %v nacked, want %v and %v", returned, nacked, cost.returned, cost.nacked)
	}
	// The figures of a moment are shown with the next tick.
	for name, want := range map[string]float64{
		"relay_broker_connected": 1, "relay_broker_blocked": 0, "relay_events_in_flight": 0,
	} {
		f.until(name+" is as it must be", func() bool { return f.metric(name) == want })
	}
	// What is published is confirmed, or came back, or was in doubt at a cut.
	doubt := f.metric("relay_events_published_total") - f.metric("relay_events_confirmed_total") - returned - nacked
	if doubt < 0 || doubt > float64(cost.cuts*trialWindow) {
		f.t.Errorf("%v of the events published came to no end, with %d cuts", doubt, cost.cuts)
	}
	if got := f.reconnects(); got < float64(cost.cuts) || (got > 0) != (cost.cuts > 0) {
		f.t.Errorf("relay_reconnects_total is %v after %d cuts", got, cost.cuts)
	}
	if got := f.warnings(); got > cost.warnings || (got > 0) != (cost.warnings > 0) {
		f.t.Errorf("%d warnings, want 1 to %d:\n%s", got, cost.warnings, f.Tail())
	}
}

// verdict judges what came out of the queues until now.
func (f *trial) verdict(cost toll) {
	f.t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	v := relaytest.Judge(relaytest.History{Committed: f.committed, Deliveries: f.deliveries})
	f.t.Logf("%d committed, %d delivered, %d duplicates", v.Committed, v.Delivered, v.Duplicates)
	if !v.OK() || v.Committed == 0 {
		f.t.Errorf("a promise is broken: %+v", v)
	}
	if v.Duplicates > cost.cuts*trialWindow {
		f.t.Errorf("%d duplicates after %d cuts with %d events in flight at most", v.Duplicates, cost.cuts, trialWindow)
	}
}

// drain takes all that is in the queues now.
func (f *trial) drain() {
	f.t.Helper()
	for n := range max(f.partitions, 1) {
		wait := f.consume(n, 0)
		f.mark(n)
		wait()
	}
}

func (f *trial) endMark() string { return fmt.Sprintf("%s-%d", endMark, f.drains) }

// seen tells whether the message came out of the queue before.
func (f *trial) seen(queue, id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.deliveries[queue], func(d relaytest.Delivery) bool { return d.ID == id })
}

// consume takes what comes out of queue n, a message each pause, until the end
// mark; wait waits for that.
func (f *trial) consume(n int, pause time.Duration) (wait func()) {
	f.drains++
	queue, mark, ended := f.queue(n), f.endMark(), make(chan error, 1)
	prefetch := 100
	if pause > 0 {
		prefetch = 1
	}
	go func() {
		ended <- f.onBroker(func(channel *amqp.Channel) error {
			if err := channel.Qos(prefetch, 0, false); err != nil {
				return err
			}
			deliveries, err := channel.Consume(queue, "", false, false, false, false, nil)
			if err != nil {
				return err
			}
			for d := range deliveries {
				// An acknowledgement can be lost when an earlier drain closes its
				// channel: what it had seen then comes again.
				if (d.Redelivered && f.seen(queue, d.MessageId)) || (strings.HasPrefix(d.MessageId, endMark) && d.MessageId != mark) {
					if err := d.Ack(false); err != nil {
						return err
					}
					continue
				}
				if d.MessageId == mark {
					return errors.Join(d.Ack(false), channel.Close())
				}
				sequence, _ := d.Headers["sequence"].(int64)
				aggregate, _ := d.Headers["aggregate_id"].(string)
				f.mu.Lock()
				f.deliveries[queue] = append(f.deliveries[queue], relaytest.Delivery{ID: d.MessageId, Aggregate: aggregate, Sequence: sequence, Redelivered: d.Redelivered})
				f.mu.Unlock()
				if err := d.Ack(false); err != nil {
					return err
				}
				time.Sleep(pause) // it is slow; nobody waits for that
			}
			return errors.New("the deliveries ended")
		})
	}()
	return func() {
		f.t.Helper()
		select {
		case err := <-ended:
			if err != nil {
				f.t.Fatalf("queue %s: %v", queue, err)
			}
		case <-time.After(patience):
			f.t.Fatalf("queue %s: the end mark does not come", queue)
		}
	}
}

// mark puts an end mark into queue n, behind all that was confirmed.
func (f *trial) mark(n int) {
	f.t.Helper()
	err := f.onBroker(func(channel *amqp.Channel) error {
		if err := channel.Confirm(false); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(f.t.Context(), patience)
		defer cancel()
		for { // a full queue refuses it
			confirm, err := channel.PublishWithDeferredConfirm("", f.queue(n), false, false, amqp.Publishing{MessageId: f.endMark(), DeliveryMode: amqp.Persistent})
			if err != nil {
				return err
			}
			if stored, err := confirm.WaitContext(ctx); err != nil || stored {
				return err
			}
		}
	})
	if err != nil {
		f.t.Fatalf("queue %s: end mark: %v", f.queue(n), err)
	}
}

// elsewhere puts the rig on another broker, which goes with all that is in it.
func (r *rig) elsewhere(url string) *rig {
	shared := r.amqp
	r.amqp = url
	r.t.Cleanup(func() { r.amqp = shared })
	return r
}
