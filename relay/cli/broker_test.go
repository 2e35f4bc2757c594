package cli_test

import (
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// onBroker runs f on a channel of its own.
func (r *rig) onBroker(f func(*amqp.Channel) error) error {
	r.t.Helper()
	conn, err := amqp.Dial(r.amqp)
	if err != nil {
		return err
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	return f(channel)
}

// queue names a partition's queue.
func (r *rig) queue(n int) string { return fmt.Sprintf("%s.%d", r.exchange, n) }

// declare makes the exchange, of any type, and with bind one queue on it.
func (r *rig) declare(kind string, bind bool) {
	r.t.Helper()
	err := r.onBroker(func(channel *amqp.Channel) error {
		if err := channel.ExchangeDeclare(r.exchange, kind, true, false, false, false, nil); err != nil || !bind {
			return err
		}
		if _, err := channel.QueueDeclare(r.queue(0), true, false, false, false, nil); err != nil {
			return err
		}
		return channel.QueueBind(r.queue(0), "1", r.exchange, false, nil)
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) dropTopology() {
	r.t.Helper()
	err := r.onBroker(func(channel *amqp.Channel) error {
		for n := range 4 {
			if _, err := channel.QueueDelete(r.queue(n), false, false, false); err != nil {
				return err
			}
		}
		return channel.ExchangeDelete(r.exchange, false, false)
	})
	if err != nil {
		r.t.Error(err)
	}
}

// take takes the ready messages out of partition n, and all of them: the
// broker has confirmed what the relay has settled, and gives it in order.
func (r *rig) take(n int) []amqp.Delivery {
	r.t.Helper()
	var list []amqp.Delivery
	err := r.onBroker(func(channel *amqp.Channel) error {
		ready, err := channel.QueueDeclarePassive(r.queue(n), true, false, false, false, nil)
		if err != nil || ready.Messages == 0 {
			return err
		}
		// What comes behind those that are ready now goes back.
		deliveries, err := channel.Consume(r.queue(n), "", false, true, false, false, nil)
		if err != nil {
			return err
		}
		for len(list) < ready.Messages {
			select {
			case d, ok := <-deliveries:
				if !ok {
					return errors.New("the deliveries ended")
				}
				if list = append(list, d); len(list)%500 == 0 { // a quorum queue gives 2000 ahead
					if err := d.Ack(true); err != nil {
						return err
					}
				}
			case <-time.After(patience):
				return fmt.Errorf("%d of %d messages came", len(list), ready.Messages)
			}
		}
		if len(list)%500 == 0 {
			return nil
		}
		return list[len(list)-1].Ack(true)
	})
	if err != nil {
		r.t.Fatalf("queue %s: %v", r.queue(n), err)
	}
	return list
}

// messageIDs are those of deliveries, in order.
func messageIDs(list []amqp.Delivery) []string {
	var ids []string
	for _, d := range list {
		ids = append(ids, d.MessageId)
	}
	return ids
}

// wantEvents compares deliveries with the events of these numbers: each once,
// numbered from 1 in the order of their commits, and each aggregate's in order.
func (r *rig) wantEvents(list []amqp.Delivery, first, last int) {
	r.t.Helper()
	number, behind := map[string]int64{}, map[string]int64{}
	for i, sequence := range r.sequences(list) {
		m := list[i]
		if was, again := number[m.MessageId]; again {
			r.t.Fatalf("event %s came twice, with sequence %d and %d", m.MessageId, was, sequence)
		}
		number[m.MessageId] = sequence
		if sequence <= behind[m.RoutingKey] {
			r.t.Fatalf("event %s of aggregate %s has sequence %d and comes behind %d", m.MessageId, m.RoutingKey, sequence, behind[m.RoutingKey])
		}
		behind[m.RoutingKey] = sequence
	}
	for n := first; n <= last; n++ {
		if got, want := number[idText(n)], int64(n-first+1); got != want {
			r.t.Fatalf("event %d of %d to %d has sequence %d, want %d (0: it did not come)", n, first, last, got, want)
		}
	}
	if len(list) != last-first+1 {
		r.t.Errorf("%d events came, want those from %d to %d", len(list), first, last)
	}
}

// sequences are the numbers of deliveries, in order.
func (r *rig) sequences(list []amqp.Delivery) []int64 {
	var numbers []int64
	for _, d := range list {
		number, ok := d.Headers["sequence"].(int64)
		if !ok {
			r.t.Fatalf("message %s has the sequence %T", d.MessageId, d.Headers["sequence"])
		}
		numbers = append(numbers, number)
	}
	return numbers
}
