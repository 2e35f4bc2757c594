package exchange

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rs/zerolog"

	"github.com/outboxrelay/relay/schema"
)

// Consumer consumes one queue with an inbox: each event has its effect once,
// in the order of the queue, however often it is delivered.
type Consumer struct {
	// URL of the broker, amqp:// or amqps://. Required.
	URL string

	// Password overrides the URL's. Defaults to the URL's.
	Password string

	// TLS is used with amqps://. Defaults to what the URL's query says.
	TLS *tls.Config

	// Queue to consume. Required.
	Queue string

	// Prefetch is the number of messages that the broker sends ahead of their
	// acknowledgement. Defaults to 64.
	Prefetch int

	// Inbox remembers what was processed. Required.
	Inbox *Inbox

	// Handle is the effect of an event, in the inbox's transaction: see
	// Inbox.Process. Required.
	Handle func(ctx context.Context, tx *sql.Tx, ev *schema.Event) error

	// OnDuplicate is called with the event of each delivery that had been
	// processed before. Defaults to nothing.
	OnDuplicate func(ev *schema.Event)

	// Logger hears of changes of state. Defaults to silence.
	Logger zerolog.Logger
}

// String shows no secret: neither the password nor the URL.
func (c Consumer) String() string {
	return fmt.Sprintf("queue %q at %s", c.Queue, Address(c.URL))
}

// GoString is String, for %#v.
func (c Consumer) GoString() string { return c.String() }

// Run consumes until ctx ends, and then returns nil. Each message is
// acknowledged after its transaction is committed. An error of Handle ends Run
// with that error, wrapped: the transaction is rolled back and the closed
// connection gives the message back to the queue, as it does with the ones
// prefetched. A message that no relay can have sent ends it with a
// *schema.BadEventError. Other errors are those of Dial, with ErrQueue for a
// queue that does not exist. Run does not reconnect: call it again.
func (c *Consumer) Run(ctx context.Context) error {
	l, closes, deliveries, err := c.open(ctx)
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	defer l.close(true)
	c.Logger.Info().Str("broker", l.endpoint.String()).Str("queue", c.Queue).Msg("consumer connected")
	for {
		select {
		case <-ctx.Done():
			return nil
		case d, ok := <-deliveries:
			if !ok {
				return c.ended(l, closes)
			}
			if err := c.process(ctx, &d); err != nil {
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
		}
	}
}

func (c *Consumer) open(ctx context.Context) (*link, <-chan *amqp.Error, <-chan amqp.Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	l, err := connect(ctx, Config{URL: c.URL, Password: c.Password, TLS: c.TLS}, "relay consumer "+c.Queue)
	if err != nil {
		return nil, nil, nil, err
	}
	closes, deliveries, err := c.consume(ctx, l)
	if err == nil {
		err = l.established(ctx)
	}
	if err != nil {
		l.close(ctx.Err() == nil)
		return nil, nil, nil, err
	}
	return l, closes, deliveries, nil
}

func (c *Consumer) consume(ctx context.Context, l *link) (<-chan *amqp.Error, <-chan amqp.Delivery, error) {
	channel, err := l.Channel()
	if err != nil {
		return nil, nil, l.explain(ctx, "open a channel", err)
	}
	prefetch := c.Prefetch
	if prefetch <= 0 {
		prefetch = 64
	}
	if err := channel.Qos(prefetch, 0, false); err != nil {
		return nil, nil, l.explain(ctx, "set the prefetch count", err)
	}
	closes := channel.NotifyClose(make(chan *amqp.Error, 1))
	deliveries, err := channel.Consume(c.Queue, "", false, false, false, false, nil)
	var reply *amqp.Error
	switch {
	case errors.As(err, &reply) && reply.Server && reply.Code == amqp.NotFound:
		return nil, nil, fmt.Errorf("%w: queue %q does not exist at %s: %w; next: relay run --partitions 4 declares the queues", ErrQueue, c.Queue, l.endpoint, err)
	case err != nil:
		return nil, nil, l.explain(ctx, fmt.Sprintf("consume queue %q", c.Queue), err)
	}
	return closes, deliveries, nil
}

func (c *Consumer) process(ctx context.Context, d *amqp.Delivery) error {
	ev, err := newEvent(d)
	if err != nil {
		return err
	}
	fresh, err := c.Inbox.Process(ctx, ev.ID, func(ctx context.Context, tx *sql.Tx) error {
		return c.Handle(ctx, tx, ev)
	})
	if err != nil {
		return err
	}
	if !fresh && c.OnDuplicate != nil {
		c.OnDuplicate(ev)
	}
	if err := d.Ack(false); err != nil {
		return fmt.Errorf("exchange: acknowledge message id %q: %w", ev.ID, err)
	}
	return nil
}

// ended says why the deliveries ended. Without a word about the channel it was
// the consumer alone that the broker cancelled, which is what it does when the
// queue is deleted.
func (c *Consumer) ended(l *link, closes <-chan *amqp.Error) error {
	select {
	case err := <-closes:
		if err != nil {
			return fmt.Errorf("exchange: connection to %s was lost: %w", l.endpoint, err)
		}
		return fmt.Errorf("exchange: connection to %s was lost", l.endpoint)
	default:
		return fmt.Errorf("exchange: the broker at %s cancelled the consumer of queue %q: was the queue deleted? next: rabbitmqctl list_queues name state", l.endpoint, c.Queue)
	}
}
