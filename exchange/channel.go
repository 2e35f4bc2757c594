package exchange

import (
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/schema"
)

// channel is one on which events are published, in confirm mode. It keeps, by
// delivery tag, what the broker has not answered yet.
type channel struct {
	id      uint16
	first   uint64          // delivery tag of flights[0]; the first of a channel is 1
	flights []*schema.Event // sent; nil: answered

	// Returns that came, and whose messages are not answered yet.
	returned map[identity][]ReturnError
	coming   *ReturnError // the return whose header is to come; nil: none
}

func newChannel(id uint16) *channel {
	return &channel{id: id, first: 1, returned: map[identity][]ReturnError{}}
}

// answer takes an ack or a nack (a delivery tag, and whether it is for all
// before it, too) and yields each event that it answers.
func (c *channel) answer(payload frameReader, acked bool, yield func(Receipt)) error {
	tag, multiple := payload.uint64(), payload.uint8()&1 == 1
	last := c.first + uint64(len(c.flights)) - 1
	switch {
	case multiple && tag == 0: // all
		tag = last
	case payload.bad || tag == 0 || tag > last:
		return errFrame("an answer for message %d of channel %d, where %d were sent", tag, c.id, last)
	}
	if tag < c.first {
		return nil // answered before
	}
	at := int(tag - c.first)
	if multiple {
		for i := range at {
			c.settle(i, acked, yield)
		}
	}
	c.settle(at, acked, yield)
	n := 0
	for n < len(c.flights) && c.flights[n] == nil {
		n++
	}
	c.first, c.flights = c.first+uint64(n), c.flights[n:]
	return nil
}

// settle says what an event came to that the broker has answered. A return
// comes before the acknowledgement of its message.
func (c *channel) settle(i int, acked bool, yield func(Receipt)) {
	ev := c.flights[i]
	if ev == nil {
		return
	}
	c.flights[i] = nil
	r := Receipt{Event: ev}
	if !acked {
		r.Err = ErrNacked
	}
	if len(c.returned) > 0 {
		if back := c.takeReturn(identityOf(ev)); back != nil {
			back.ID, back.AggregateID = ev.ID, ev.AggregateID
			r.Err = back
		}
	}
	yield(r)
}

func (c *channel) takeReturn(who identity) *ReturnError {
	list := c.returned[who]
	if len(list) == 0 {
		return nil
	}
	back := list[0]
	if c.returned[who] = list[1:]; len(list) == 1 {
		delete(c.returned, who)
	}
	return &back
}

// beginReturn takes a basic.return: code, text, exchange and routing key.
func (c *channel) beginReturn(payload frameReader) error {
	c.coming = &ReturnError{Code: payload.uint16(), Text: payload.short(), Exchange: payload.short()}
	if payload.bad {
		return errFrame("a return that is cut short")
	}
	return nil
}

// endReturn takes the header of a message that came back, by which it is known
// again. Its body is not looked at.
func (c *channel) endReturn(payload frameReader) error {
	if c.coming == nil {
		return errFrame("a content header on channel %d that belongs to nothing", c.id)
	}
	payload.bytes(12) // class, weight, size
	flags := payload.uint16()
	var who identity
	for _, property := range []struct {
		flag uint16
		read func()
	}{
		{hasContentType, func() { payload.short() }},
		{hasEncoding, func() { payload.short() }},
		{hasHeaders, func() {
			payload.fields(func(name string, value any) {
				switch name {
				case headerSequence:
					who.sequence = value
				case headerGTID:
					who.gtid = value
				}
			})
		}},
		{hasDeliveryMode, func() { payload.uint8() }},
		{hasPriority, func() { payload.uint8() }},
		{hasCorrelation, func() { payload.short() }},
		{hasReplyTo, func() { payload.short() }},
		{hasExpiration, func() { payload.short() }},
		{hasMessageID, func() { who.id = payload.short() }},
	} {
		if flags&property.flag != 0 {
			property.read()
		}
	}
	if payload.bad {
		return errFrame("the header of a return that is cut short")
	}
	c.returned[who] = append(c.returned[who], *c.coming)
	c.coming = nil
	return nil
}

// closing is what a channel.close says.
func closing(payload frameReader) *amqp.Error {
	return &amqp.Error{Code: int(payload.uint16()), Reason: payload.short(), Server: true}
}
