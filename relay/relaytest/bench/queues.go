package main

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// partitions is how many queues an exchange has here.
const partitions = 4

// queues are an exchange and its queues on the test broker.
type queues struct {
	broker   string
	exchange string
	classic  bool // else they are quorum queues, as the relay declares them
}

func (q queues) names() []string {
	names := make([]string, partitions)
	for i := range names {
		names[i] = fmt.Sprintf("%s.%d", q.exchange, i)
	}
	return names
}

// kind is what the queues are, for the table.
func (q queues) kind() string {
	if q.classic {
		return "classic queues"
	}
	return "quorum queues"
}

// flags are those of `relay run` for the queues.
func (q queues) flags() []string {
	n := partitions
	if q.classic {
		n = 0 // they are there
	}
	return []string{"--exchange", q.exchange, "--partitions", fmt.Sprint(n)}
}

// queues takes a fresh name for them, and removes them at the end. They are
// made by renew.
func (b *bench) queues(classic bool) queues {
	q := queues{broker: b.broker, exchange: freshName(), classic: classic}
	b.cleanup(q.remove)
	return q
}

// on runs f with a channel of its own.
func (q queues) on(f func(*amqp.Channel) error) error {
	conn, err := amqp.Dial(q.broker)
	if err != nil {
		return fmt.Errorf("broker: %w: type: make up", err)
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	return f(channel)
}

func (q queues) remove() error {
	return q.on(func(channel *amqp.Channel) error {
		for _, name := range q.names() {
			if _, err := channel.QueueDelete(name, false, false, false); err != nil {
				return err
			}
		}
		return channel.ExchangeDelete(q.exchange, false, false)
	})
}

// renew makes exchange and queues anew, empty, so that each run begins alike.
func (q queues) renew() error {
	if err := q.remove(); err != nil {
		return err
	}
	return q.on(func(channel *amqp.Channel) error {
		if err := channel.ExchangeDeclare(q.exchange, "x-consistent-hash", true, false, false, false, nil); err != nil {
			return err
		}
		arguments := amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeQuorum, amqp.SingleActiveConsumerArg: true}
		if q.classic {
			arguments = amqp.Table{amqp.QueueTypeArg: amqp.QueueTypeClassic}
		}
		for _, name := range q.names() {
			if _, err := channel.QueueDeclare(name, true, false, false, false, arguments); err != nil {
				return err
			}
			if err := channel.QueueBind(name, "1", q.exchange, false, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// hold waits until the queues hold n messages at least, which a broker that has
// confirmed them soon tells: what was measured has then been delivered.
func (q queues) hold(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return q.on(func(channel *amqp.Channel) error {
		for {
			held := 0
			for _, name := range q.names() {
				found, err := channel.QueueDeclarePassive(name, true, false, false, false, nil)
				if err != nil {
					return err
				}
				held += found.Messages
			}
			if held >= n {
				return nil
			}
			select {
			case <-time.After(50 * time.Millisecond):
			case <-ctx.Done():
				return fmt.Errorf("%d messages were confirmed, and the queues hold %d: %w", n, held, ctx.Err())
			}
		}
	})
}
