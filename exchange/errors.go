package exchange

import (
	"errors"
	"fmt"
)

// Sentinels of this package; test with errors.Is. All but ErrNacked and
// ErrClosed mean that the relay is unfit to run until somebody acts: retrying
// alone does not help. An error of Dial, Inspect, Publisher.Err or Consumer.Run
// that wraps none of them, nor a *schema.BadEventError, is transient: the
// network, a restart of the broker, a missing answer.
var (
	// ErrURL is wrapped where the AMQP URL cannot be read. The error's text
	// never holds the URL.
	ErrURL = errors.New("exchange: AMQP URL is not usable")

	// ErrAuth is wrapped where the broker refuses the login, the vhost (absent,
	// not permitted, or its connection limit reached) or an operation.
	ErrAuth = errors.New("exchange: broker refuses access")

	// ErrTLS is wrapped where the broker's certificate does not verify (but
	// not where it has expired, which passes when it is renewed), where it
	// refuses the client's, where the port that was dialled does not speak TLS,
	// or nothing else, and where the files that the URL names are of no use.
	ErrTLS = errors.New("exchange: TLS with the broker fails")

	// ErrExchange is wrapped where the exchange does not exist, is of another
	// type or durability than the relay needs, or cannot be declared.
	ErrExchange = errors.New("exchange: exchange is not usable")

	// ErrQueue is wrapped where a queue exists with other properties than the
	// relay declares, or where a consumer's queue does not exist.
	ErrQueue = errors.New("exchange: queue is not usable")

	// ErrInbox is wrapped where an inbox cannot be read: its server refuses the
	// user, or there is no table that is one.
	ErrInbox = errors.New("exchange: inbox is not usable")

	// ErrNacked is the receipt of an event that the broker refused: a queue is
	// full and rejects (x-overflow reject-publish), or failed. It was not
	// stored in every queue and may be published again.
	ErrNacked = errors.New("exchange: broker refused the event (nack): is a queue full (x-max-length with x-overflow reject-publish)? next: rabbitmqctl list_queues name messages policy arguments")

	// ErrClosed is Publisher.Err after Close.
	ErrClosed = errors.New("exchange: publisher is closed")
)

// ReturnError is the receipt of an event that the broker routed to no queue.
// It is stored nowhere, whatever the broker acknowledged afterwards.
type ReturnError struct {
	ID          string // of the event
	AggregateID string
	Exchange    string
	Code        uint16 // reply code of basic.return, 312 for NO_ROUTE
	Text        string // the broker's reply text
}

func (e *ReturnError) Error() string {
	return fmt.Sprintf("exchange: event id=%q aggregate_id=%q was returned by exchange %q (%d %s): no queue is bound to it; "+
		"next: relay run --partitions 4, or: rabbitmqadmin declare binding --source %s --destination-type queue --destination QUEUE --routing-key 1",
		e.ID, e.AggregateID, e.Exchange, e.Code, e.Text, e.Exchange)
}
