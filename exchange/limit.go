package exchange

import (
	"regexp"
	"strconv"
	"sync/atomic"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/schema"
)

const largeWayOut = "next: raise max_message_size in rabbitmq.conf, or keep payloads smaller"

// Limit is what the broker has told of the largest payload that it takes. It
// tells by closing the channel, so what is known to be over the limit is not
// sent. The limit is forgotten when a connection ends for any other reason: the
// broker may come back with another one. Its methods may be called by many
// goroutines.
type Limit struct {
	bytes atomic.Int64 // 0: not told
}

// told finds the limit in RabbitMQ's words: "message size 5007 is larger than
// configured max size 5000", or without "configured".
var told = regexp.MustCompile(`message size \d+ is larger than (?:configured )?max size (\d+)`)

// learn takes the limit from the broker's words, and says which of the events
// in doubt the broker has refused: the first that is over it. Without a number
// it is the largest: if another one was refused, that one is too large as well.
// It returns nil where none can be blamed.
func (l *Limit) learn(reply *amqp.Error, doubt []*schema.Event) error {
	if found := told.FindStringSubmatch(reply.Reason); found != nil {
		limit, err := strconv.ParseInt(found[1], 10, 64)
		if err == nil {
			l.bytes.Store(limit)
		}
		for _, ev := range doubt {
			if err := l.check(ev); err != nil {
				return err
			}
		}
	}
	var largest *schema.Event
	for _, ev := range doubt {
		if largest == nil || len(ev.Payload) > len(largest.Payload) {
			largest = ev
		}
	}
	if largest == nil {
		return nil
	}
	return badEvent(largest, "the broker refuses it, or a smaller one: %s; %s", reply.Reason, largeWayOut)
}

func (l *Limit) forget() { l.bytes.Store(0) }

// check gives a *schema.BadEventError where the event is over the limit.
func (l *Limit) check(ev *schema.Event) error {
	if limit := l.bytes.Load(); limit > 0 && int64(len(ev.Payload)) > limit {
		return badEvent(ev, "its payload has %d bytes, the broker takes %d at most (max_message_size); %s", len(ev.Payload), limit, largeWayOut)
	}
	return nil
}

// identity is what a returned message has that tells it from others in flight:
// two events can have one id.
type identity struct {
	id             string
	sequence, gtid any // as they stand in the headers; nil: absent
}

func identityOf(ev *schema.Event) identity {
	who := identity{id: ev.ID}
	if ev.Sequence > 0 {
		who.sequence = ev.Sequence
	}
	if ev.GTID != "" {
		who.gtid = ev.GTID
	}
	return who
}
