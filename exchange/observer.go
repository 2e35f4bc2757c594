package exchange

import (
	"context"
	"fmt"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Observer looks at the queues of the partitions, again and again, on a
// connection of its own: one that publishes nothing is answered while the broker
// blocks those that do. It is used by one goroutine.
type Observer struct {
	link    *link
	channel *amqp.Channel // nil: the broker closed the last one
	cfg     Config
}

// Observe connects to the broker. Time limit and errors are those of Dial; ctx
// has no meaning after it. The caller must Close the Observer.
func Observe(ctx context.Context, cfg Config) (*Observer, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	l, err := connect(ctx, cfg, "relay observe "+cfg.Exchange)
	if err != nil {
		return nil, err
	}
	if err := l.established(ctx); err != nil {
		l.close(false)
		return nil, err
	}
	return &Observer{link: l, cfg: cfg}, nil
}

// Queues asks for the queues of the partitions 0 to Config.Partitions-1, and
// declares nothing. A queue that is missing is no error. After an error, or the
// end of ctx, the Observer is of no more use.
func (o *Observer) Queues(ctx context.Context) ([]Queue, error) {
	cut := context.AfterFunc(ctx, func() { o.link.wire.Close() })
	defer cut()
	list := make([]Queue, 0, o.cfg.Partitions)
	for i := range o.cfg.Partitions {
		q, err := o.look(queueName(o.cfg.Exchange, i))
		if err != nil {
			return nil, o.link.explain(ctx, fmt.Sprintf("look at queue %q", q.Name), err)
		}
		list = append(list, q)
	}
	return list, nil
}

func (o *Observer) look(name string) (Queue, error) {
	q := Queue{Name: name}
	if o.channel == nil {
		var err error
		if o.channel, err = o.link.Channel(); err != nil {
			return q, err
		}
	}
	found, err := o.channel.QueueDeclarePassive(name, true, false, false, false, nil)
	if err != nil {
		o.channel = nil // the broker closed it with its answer
		if code := replyCode(err); code != amqp.NotFound && code != amqp.ResourceLocked {
			return q, err
		}
		q.Found = replyCode(err) == amqp.ResourceLocked // of another connection
		return q, nil
	}
	q.Found, q.Messages, q.Consumers = true, found.Messages, found.Consumers
	return q, nil
}

// Close closes the connection, within two seconds.
func (o *Observer) Close() { o.link.close(true) }
