package cli_test

import (
	"net/http"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// bind declares queue n of a kind that its arguments tell, and binds it.
func (r *rig) bind(n int, arguments amqp.Table) {
	r.t.Helper()
	if err := r.onBroker(func(channel *amqp.Channel) error {
		if _, err := channel.QueueDeclare(r.queue(n), true, false, false, false, arguments); err != nil {
			return err
		}
		return channel.QueueBind(r.queue(n), "1", r.exchange, false, nil)
	}); err != nil {
		r.t.Fatal(err)
	}
}

// asDeclared are the arguments with which a relay declares its queues.
func asDeclared() amqp.Table {
	return amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum, amqp.SingleActiveConsumerArg: true}
}

// TestNacks: one of two queues is full most of the time and rejects, while a
// slow consumer drains it. In strict order no event of an aggregate passes a
// refused one, and the aggregates of the other queue flow meanwhile. Seen to
// fail with --order pipelined: out of order.
func TestNacks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.declare("x-consistent-hash", false)
	full := asDeclared()
	full[amqp.QueueMaxLenArg], full[amqp.QueueOverflowArg] = int32(5), amqp.QueueOverflowRejectPublish
	r.bind(0, full)
	r.bind(1, asDeclared())
	f := r.try(0)
	f.partitions = 2
	for range 40 {
		f.writes(5)
	}
	f.unready("the broker refuses events")
	f.truthful("relay_events_nacked_total")
	flowing := f.consume(1, 0)
	// Nobody drains the full queue yet: more than it holds is the other's.
	f.until("the other queue's aggregates flow", func() bool { return f.came(1) >= 40 })
	f.mark(1)
	flowing()
	refused := f.metric("relay_events_nacked_total")
	wait := f.consume(0, 40*time.Millisecond)
	f.settled()
	f.ready()
	f.mark(0)
	wait()
	if again, taken := f.metric("relay_events_nacked_total")-refused, f.came(0); again < float64(taken) {
		t.Errorf("%v refusals to %d events: the queue was not full most of the time", again, taken)
	}
	f.judge(toll{nacked: true, warnings: 3})
}

// truthful wants /readyz to say 503 all the while that refused events are sent
// again, which the counter tells.
func (f *trial) truthful(counter string) {
	f.t.Helper()
	before, lies := f.metric(counter), 0
	f.until("refused events are sent again", func() bool {
		if code, _ := get(f.address, "/readyz"); code == http.StatusOK {
			lies++
		}
		return f.metric(counter) >= before+2*trialAggregates
	})
	if lies > 0 {
		f.t.Errorf("/readyz said %d times that the relay publishes, while the broker refused", lies)
	}
}

// came is how many messages came out of queue n.
func (f *trial) came(n int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.deliveries[f.queue(n)])
}

// TestQueueDeleted while the relay runs, which had been drained: events are
// returned, wait, and go on by themselves when a queue is back, or the binding
// alone that was removed. With partitions a new connection brings the queue
// back. Seen to fail with returns taken for delivered (exchange's verdict
// without its look at p.returned): events are lost.
func TestQueueDeleted(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]struct {
		gone func(*rig, *amqp.Channel) error
		back func(*rig, proxy)
		cuts int
	}{
		"queue declared again by its owner": {
			func(r *rig, channel *amqp.Channel) error {
				_, err := channel.QueueDelete(r.queue(0), false, false, false)
				return err
			},
			func(r *rig, _ proxy) { r.bind(0, asDeclared()) }, 0,
		},
		"queue declared again by the relay": {
			func(r *rig, channel *amqp.Channel) error {
				_, err := channel.QueueDelete(r.queue(0), false, false, false)
				return err
			},
			func(_ *rig, p proxy) { p.Cut() }, 1,
		},
		"binding added later": {
			func(r *rig, channel *amqp.Channel) error {
				return channel.QueueUnbind(r.queue(0), "1", r.exchange, nil)
			},
			func(r *rig, _ proxy) { r.bind(0, asDeclared()) }, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			p := r.toBroker()
			f := r.try(1)
			f.writes(100)
			f.settled()
			f.drain()
			if err := r.onBroker(func(channel *amqp.Channel) error { return fault.gone(r, channel) }); err != nil {
				t.Fatal(err)
			}
			for range 20 {
				f.writes(5)
			}
			f.unready("no queue is bound")
			f.truthful("relay_events_returned_total")
			fault.back(r, p)
			f.judge(toll{cuts: fault.cuts, returned: true, warnings: 1 + fault.cuts})
		})
	}
}

// TestExchangeDeclaredAgain: the exchange is deleted under load, and a relay
// with partitions declares it and its bindings again. (TestExchangeDeleted has
// the relay that declares nothing.) Seen to fail with endError's look at
// partitions taken out: it ends with 78.
func TestExchangeDeclaredAgain(t *testing.T) {
	t.Parallel()
	f := newRig(t).try(2)
	stop := f.load()
	const times = 3
	for n := range times {
		f.flows()
		if err := f.onBroker(func(channel *amqp.Channel) error { return channel.ExchangeDelete(f.exchange, false, false) }); err != nil {
			t.Fatal(err)
		}
		f.until("it is noticed", func() bool { return f.reconnects() > float64(n) })
		f.ready()
	}
	stop()
	// The broker looks for the exchange, and then for its ring of queues: an
	// event between the two, when both go, comes back as unroutable.
	f.judge(toll{cuts: times, mayReturn: true, warnings: 2 * times})
}
