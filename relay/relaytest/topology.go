package relaytest

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// The relay and the consumers speak to the broker by package exchange. Here is
// what only a test does there: look, put a mark into a queue, and clean up.

// markAggregate is the aggregate id of end marks.
const markAggregate = "relaytest-end-mark"

// partitionQueues names the queues that a relay declares for its exchange.
func partitionQueues(exchange string, partitions int) []string {
	queues := make([]string, partitions)
	for i := range queues {
		queues[i] = fmt.Sprintf("%s.%d", exchange, i)
	}
	return queues
}

// onBroker runs f with a channel of its own, which a refusal closes.
func onBroker(url string, f func(*amqp.Channel) error) error {
	conn, err := amqp.DialConfig(url, amqp.Config{Dial: amqp.DefaultDial(answerLimit)})
	if err != nil {
		return fmt.Errorf("relaytest: broker: %w: run \"make up\"", err)
	}
	defer conn.Close()
	channel, err := conn.Channel()
	if err != nil {
		return fmt.Errorf("relaytest: broker: %w", err)
	}
	return f(channel)
}

// queuesExist reports whether every queue has been declared.
func queuesExist(url string, queues []string) (bool, error) {
	err := onBroker(url, func(channel *amqp.Channel) error {
		for _, queue := range queues {
			if _, err := channel.QueueDeclarePassive(queue, true, false, false, false, nil); err != nil {
				return err
			}
		}
		return nil
	})
	var refusal *amqp.Error
	if errors.As(err, &refusal) && refusal.Code == amqp.NotFound {
		return false, nil
	}
	return err == nil, err
}

// markEnds puts a mark behind everything in each queue, past the exchange. A
// consumer that has met it has seen all that was in its queue.
func markEnds(ctx context.Context, url string, queues []string) error {
	return onBroker(url, func(channel *amqp.Channel) error {
		if err := channel.Confirm(false); err != nil {
			return err
		}
		for _, queue := range queues {
			mark := amqp.Publishing{
				DeliveryMode: amqp.Persistent,
				MessageId:    "end-" + queue,
				Headers: amqp.Table{
					"aggregate_id": markAggregate,
					"created_at":   time.Now().UTC().Format(time.RFC3339Nano),
					"sequence":     int64(0),
				},
			}
			confirm, err := channel.PublishWithDeferredConfirmWithContext(ctx, "", queue, true, false, mark)
			if err != nil {
				return err
			}
			if stored, err := confirm.WaitContext(ctx); err != nil {
				return err
			} else if !stored {
				return fmt.Errorf("relaytest: queue %s refuses the end mark", queue)
			}
		}
		return nil
	})
}

// removeTopology deletes the exchange and the queues, those that exist.
func removeTopology(url, exchange string, queues []string) error {
	return onBroker(url, func(channel *amqp.Channel) error {
		for _, queue := range queues {
			if _, err := channel.QueueDelete(queue, false, false, false); err != nil {
				return fmt.Errorf("relaytest: delete queue %s: %w", queue, err)
			}
		}
		if err := channel.ExchangeDelete(exchange, false, false); err != nil {
			return fmt.Errorf("relaytest: delete exchange %s: %w", exchange, err)
		}
		return nil
	})
}
