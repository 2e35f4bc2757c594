package exchange

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// exchangeType is that of the plugin rabbitmq_consistent_hash_exchange: it
// sends each routing key to one of the bound queues, always the same.
const exchangeType = "x-consistent-hash"

// maxExchangeName leaves room for the number of a partition in the queue's
// name, which is an AMQP short string.
const maxExchangeName = 240

// Topology is what Inspect found at the broker.
type Topology struct {
	Address string // of the broker, without user and password
	Product string // "RabbitMQ"
	Version string // of the broker, as "4.3.6"
	TLS     string // as "TLS 1.3 TLS_AES_128_GCM_SHA256, verified", or "no TLS"

	Exchange string
	Found    bool // the exchange exists

	// ExchangeErr is nil where the exchange exists and is a durable
	// consistent-hash exchange without arguments. Else it is the error that
	// Dial with no partitions would give: it wraps ErrExchange or ErrAuth.
	ExchangeErr error

	// DeclareErr is why Dial with partitions could not declare the exchange; nil
	// where it can, as far as that is known without declaring it.
	DeclareErr error

	Queues []Queue // of the partitions 0 to Config.Partitions-1
}

// Queue is one partition as Inspect found it.
type Queue struct {
	Name      string `json:"name"`
	Found     bool   `json:"found"`
	Messages  int    `json:"messages"` // ready for delivery; those unacknowledged are not counted
	Consumers int    `json:"consumers"`

	// Err is the error that Dial would give: the queue is there, and is not as it
	// is to be, or may not be declared. It wraps ErrQueue or ErrAuth.
	Err error `json:"-"`
}

// Inspect looks at the broker, the exchange and the queues of cfg, and declares
// nothing. An exchange or a queue that is missing is a fact in Topology, not an
// error. Time limit and errors are those of Dial.
func Inspect(ctx context.Context, cfg Config) (Topology, error) {
	if err := checkName(cfg.Exchange); err != nil {
		return Topology{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout+time.Duration(cfg.Partitions)*time.Second)
	defer cancel()
	l, err := connect(ctx, cfg, "relay inspect "+cfg.Exchange)
	if err != nil {
		return Topology{}, err
	}
	defer func() { l.close(ctx.Err() == nil) }()

	t := Topology{
		Address:  l.endpoint.String(),
		Product:  text(l.Properties["product"]),
		Version:  text(l.Properties["version"]),
		TLS:      l.secured.String(),
		Exchange: cfg.Exchange,
	}
	t.Found, t.ExchangeErr = checkExchange(ctx, l, cfg.Exchange)
	if t.ExchangeErr != nil && !errors.Is(t.ExchangeErr, ErrExchange) && !errors.Is(t.ExchangeErr, ErrAuth) {
		return Topology{}, t.ExchangeErr
	}
	for i := range cfg.Partitions {
		q, err := inspectQueue(ctx, l, queueName(cfg.Exchange, i))
		if err != nil {
			return Topology{}, err
		}
		t.Queues = append(t.Queues, q)
	}
	if cfg.Partitions > 0 { // last: the broker ends the connection where it does not know the type
		if t.DeclareErr, err = inspectDeclare(ctx, l, t); err != nil {
			return Topology{}, err
		}
	}
	return t, nil
}

// inspectDeclare returns why the exchange cannot be declared. One that is
// missing must not be: then it asks for its type alone.
func inspectDeclare(ctx context.Context, l *link, t Topology) (refusal, err error) {
	if !t.Found {
		return checkType(l, t.Exchange), nil
	}
	err = declareExchange(ctx, l, t.Exchange)
	if errors.Is(err, ErrExchange) || errors.Is(err, ErrAuth) {
		return err, nil
	}
	return nil, err
}

func inspectQueue(ctx context.Context, l *link, name string) (Queue, error) {
	q, err := lookAtQueue(ctx, l, name)
	if err != nil {
		return q, err
	}
	if q.Found { // the broker compares it only with what is to be declared
		q.Err = declareQueue(ctx, l, name)
	}
	if q.Err != nil && !errors.Is(q.Err, ErrQueue) && !errors.Is(q.Err, ErrAuth) {
		return q, q.Err
	}
	return q, nil
}

func lookAtQueue(ctx context.Context, l *link, name string) (Queue, error) {
	q := Queue{Name: name}
	code, err := l.try(func(ch *amqp.Channel) error {
		found, err := ch.QueueDeclarePassive(name, true, false, false, false, nil)
		q.Messages, q.Consumers = found.Messages, found.Consumers
		return err
	})
	switch code {
	case 0, amqp.NotFound, amqp.ResourceLocked: // the last: of another connection
	default:
		return q, l.explain(ctx, fmt.Sprintf("look at queue %q", name), err)
	}
	q.Found = code != amqp.NotFound
	return q, nil
}

// Depths asks how many messages and consumers queues have, and declares nothing.
// Time limit and errors are those of Dial.
func Depths(ctx context.Context, cfg Config, names []string) ([]Queue, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout+time.Duration(len(names))*time.Second)
	defer cancel()
	l, err := connect(ctx, cfg, "relay depths "+cfg.Exchange)
	if err != nil {
		return nil, err
	}
	defer func() { l.close(ctx.Err() == nil) }()
	var list []Queue
	for _, name := range names {
		q, err := lookAtQueue(ctx, l, name)
		if err != nil {
			return nil, err
		}
		list = append(list, q)
	}
	return list, nil
}

// topology makes what publishing needs: with partitions, the exchange and that
// many queues, which are there already or are declared; with none, the exchange
// has to be there.
func topology(ctx context.Context, l *link, exchange string, partitions int) error {
	if partitions <= 0 {
		_, err := checkExchange(ctx, l, exchange)
		return err
	}
	if err := declareExchange(ctx, l, exchange); err != nil {
		return err
	}
	for i := range partitions {
		if err := declareQueue(ctx, l, queueName(exchange, i)); err != nil {
			return err
		}
		if err := bindQueue(ctx, l, exchange, queueName(exchange, i)); err != nil {
			return err
		}
	}
	return nil
}

// checkQueue refuses a queue that is not there.
func checkQueue(ctx context.Context, l *link, name string) error {
	if len(name) > maxShort {
		return fmt.Errorf("%w: its name has %d bytes, %d are possible at most: %.40q", ErrQueue, len(name), maxShort, name)
	}
	q, err := lookAtQueue(ctx, l, name)
	if err == nil && !q.Found {
		err = fmt.Errorf("%w: queue %q does not exist at %s; next: rabbitmqadmin%s declare queue --name %s --type quorum --durable true",
			ErrQueue, name, l.endpoint, vhostFlag(l.endpoint), name)
	}
	return err
}

// checkExchange tells whether the exchange exists, and with a nil error that it
// is of the right kind. The broker answers the first question only when asked
// passively, and the second, which is about the type, only when asked to
// declare; so the declaration is sent for an exchange that is known to exist.
// A user who may not declare it, which publishing does not need, is believed to
// have chosen the right one.
func checkExchange(ctx context.Context, l *link, exchange string) (found bool, err error) {
	code, err := l.try(func(ch *amqp.Channel) error {
		return ch.ExchangeDeclarePassive(exchange, exchangeType, true, false, false, false, nil)
	})
	switch {
	case code == amqp.NotFound:
		return false, exchangeMissing(l.endpoint, exchange, err)
	case err != nil:
		return false, l.explain(ctx, fmt.Sprintf("look at exchange %q", exchange), err)
	}
	if err := declareExchange(ctx, l, exchange); !errors.Is(err, ErrAuth) {
		return true, err
	}
	return true, nil
}

func declareExchange(ctx context.Context, l *link, exchange string) error {
	code, err := l.try(func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare(exchange, exchangeType, true, false, false, false, nil)
	})
	switch code {
	case 0:
		return nil
	case amqp.CommandInvalid:
		return typeUnknown(l, err)
	case amqp.PreconditionFailed:
		if err := checkType(l, exchange); err != nil {
			return err
		}
		return fmt.Errorf("%w: exchange %q at %s is not a durable %s exchange without arguments: %w; next: choose another name with --exchange, or, when nothing uses it: rabbitmqadmin%s delete exchange --name %s",
			ErrExchange, exchange, l.endpoint, exchangeType, err, vhostFlag(l.endpoint), exchange)
	}
	return l.explain(ctx, fmt.Sprintf("declare exchange %q", exchange), err)
}

// checkType returns an error where the broker does not know the exchange's
// type, and declares nothing: it looks at the type first, and then refuses the
// name, whose beginning is reserved, by another code. RabbitMQ 4 has for an
// unknown type the code of another type, and 3 ends the connection.
func checkType(l *link, exchange string) error {
	code, err := l.try(func(ch *amqp.Channel) error {
		return ch.ExchangeDeclare("amq."+exchange, exchangeType, true, false, false, false, nil)
	})
	if code == amqp.PreconditionFailed || code == amqp.CommandInvalid {
		return typeUnknown(l, err)
	}
	return nil
}

func typeUnknown(l *link, reply error) error {
	return fmt.Errorf("%w: the broker at %s does not know the exchange type %s: %w; next, on each node of the broker: rabbitmq-plugins enable rabbitmq_consistent_hash_exchange",
		ErrExchange, l.endpoint, exchangeType, reply)
}

func declareQueue(ctx context.Context, l *link, queue string) error {
	code, err := l.try(func(ch *amqp.Channel) error {
		_, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{
			amqp.QueueTypeArg:            amqp.QueueTypeQuorum,
			amqp.SingleActiveConsumerArg: true,
		})
		return err
	})
	switch code {
	case 0:
		return nil
	case amqp.PreconditionFailed, amqp.ResourceLocked:
		return fmt.Errorf("%w: queue %q at %s is not a durable quorum queue with a single active consumer: %w; next, when it is empty: rabbitmqadmin%s delete queue --name %s, or declare the topology yourself and run with --partitions 0",
			ErrQueue, queue, l.endpoint, err, vhostFlag(l.endpoint), queue)
	}
	return l.explain(ctx, fmt.Sprintf("declare queue %q", queue), err)
}

func bindQueue(ctx context.Context, l *link, exchange, queue string) error {
	// The routing key of a binding to this type of exchange is its weight.
	if _, err := l.try(func(ch *amqp.Channel) error { return ch.QueueBind(queue, "1", exchange, false, nil) }); err != nil {
		return l.explain(ctx, fmt.Sprintf("bind queue %q to exchange %q", queue, exchange), err)
	}
	return nil
}

// try runs op on a channel of its own, since an error of the broker closes the
// channel. Code is the broker's, 0 without an error, -1 where the error is not
// the broker's.
func (l *link) try(op func(*amqp.Channel) error) (code int, err error) {
	ch, err := l.Channel()
	if err != nil {
		return -1, err
	}
	if err := op(ch); err != nil {
		return replyCode(err), err
	}
	if err := ch.Close(); err != nil {
		return -1, err
	}
	return 0, nil
}

// replyCode is the code of the broker's reply; -1 where the error is not the
// broker's.
func replyCode(err error) int {
	var reply *amqp.Error
	if errors.As(err, &reply) && reply.Server {
		return reply.Code
	}
	return -1
}

// exchangeMissing is the error for an exchange that does not exist.
func exchangeMissing(e endpoint, exchange string, reply error) error {
	return fmt.Errorf("%w: exchange %q does not exist at %s: %w; next: relay run --partitions 4 declares it, or: rabbitmqadmin%s declare exchange --name %s --type %s --durable true",
		ErrExchange, exchange, e, reply, vhostFlag(e), exchange, exchangeType)
}

func vhostFlag(e endpoint) string {
	if e.Vhost == "/" {
		return ""
	}
	return " --vhost " + e.Vhost
}

func checkName(exchange string) error {
	if exchange == "" || len(exchange) > maxExchangeName {
		return fmt.Errorf("%w: its name has %d bytes, 1 to %d are possible: %.40q; next: --exchange outbox", ErrExchange, len(exchange), maxExchangeName, exchange)
	}
	return nil
}

func queueName(exchange string, partition int) string {
	return exchange + "." + strconv.Itoa(partition)
}

// text is the value of a server property, empty where it is no string.
func text(v any) string {
	s, _ := v.(string)
	return s
}
