package exchange

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/schema"
)

const (
	pumpWrite = 64 << 10 // bytes from which on the frames are written
	pumpKeep  = 1 << 20  // bytes of a buffer that is used again
)

// pump sends what Publish queued, and pauses while the broker blocks: a write
// that the broker does not read would hold up the heartbeats. What is queued
// while it writes goes out with the next write.
func (p *Publisher) pump() {
	var taken []*schema.Event
	var buffer []byte
	for {
		select {
		case <-p.wake:
		case <-p.down:
			return
		case <-p.stop:
			return
		}
		p.mu.Lock()
		taken, p.queue = p.queue, taken[:0]
		p.mu.Unlock()
		for left := taken; len(left) > 0; {
			if !p.awaitUnblocked() {
				return
			}
			var n int
			if buffer, n = p.frames(buffer[:0], left); len(buffer) > 0 {
				if _, err := p.link.tap.Write(buffer); err != nil {
					p.link.wire.Close() // and so the reader and watch hear of it
					return
				}
			}
			left = left[n:]
		}
		clear(taken) // events are not held longer than need be
		if cap(buffer) > pumpKeep {
			buffer = nil
		}
	}
}

func (p *Publisher) awaitUnblocked() bool {
	p.mu.Lock()
	unblocked := p.unblocked
	p.mu.Unlock()
	select {
	case <-p.stop:
		return false
	case <-p.down:
		return false
	default:
	}
	select {
	case <-unblocked:
		return true
	case <-p.down:
		return false
	case <-p.stop:
		return false
	}
}

// frames puts the frames of the first events into the buffer, as many as make a
// write, and notes that they are sent: the broker can answer as soon as they
// are written. An event that no message can carry has its receipt at once.
//
// A write is on one channel, and behind a full one the next channel takes its
// turn: so the broker's answers are for many events, too, and who sends little
// uses one channel.
func (p *Publisher) frames(buffer []byte, events []*schema.Event) (_ []byte, n int) {
	var bad []Receipt
	c := p.channels[p.next]
	for n < len(events) && len(buffer) < pumpWrite {
		ev := events[n]
		err := p.limit.check(ev)
		if err == nil {
			buffer, err = p.message.append(buffer, c.id, ev)
		}
		if n++; err != nil {
			bad = append(bad, Receipt{Event: ev, Err: err})
		}
	}
	if len(buffer) >= pumpWrite {
		p.next = (p.next + 1) % len(p.channels)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ev := range events[:n] {
		if len(bad) > 0 && bad[0].Event == ev {
			p.settled, bad = append(p.settled, bad[0]), bad[1:]
			continue
		}
		c.flights = append(c.flights, ev)
	}
	p.hand()
	return buffer, n
}

// frame takes a frame of a channel of ours. The client library's goroutine that
// reads calls it.
func (p *Publisher) frame(typ byte, id uint16, payload []byte) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	at := int(p.channels[0].id) - int(id)
	if p.ended || at < 0 || at >= len(p.channels) {
		return nil
	}
	c, r := p.channels[at], frameReader{rest: payload}
	if typ == frameHeader {
		return c.endReturn(r)
	}
	switch method := r.uint32(); method {
	case basicAck, basicNack:
		return c.answer(r, method == basicAck, func(receipt Receipt) { p.settled = append(p.settled, receipt) })
	case basicReturn:
		return c.beginReturn(r)
	case confirmOk:
		if p.opened++; p.opened == len(p.channels) {
			close(p.ready)
		}
	case channelClose:
		select {
		case p.refusal <- closing(r):
		default: // another one was first
		}
	case channelOpenOk, channelCloseOk:
	default:
		return errFrame("method %d.%d on channel %d, which it has no reason for", method>>16, method&0xffff, id)
	}
	return nil
}

// deliver hands over what the broker has answered.
func (p *Publisher) deliver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hand()
}

// hand is deliver with the lock held.
func (p *Publisher) hand() {
	if len(p.settled) == 0 || p.ended {
		return
	}
	select {
	case before := <-p.receipts:
		p.settled = append(before, p.settled...)
	default:
	}
	p.receipts <- p.settled // has room: nobody else puts anything in
	p.settled = nil
}

// end closes Receipts, and sets Err.
func (p *Publisher) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hand()
	var doubt []*schema.Event
	for _, c := range p.channels {
		for _, ev := range c.flights {
			if ev != nil {
				doubt = append(doubt, ev)
			}
		}
	}
	slices.SortStableFunc(doubt, func(a, b *schema.Event) int { return cmp.Compare(a.Sequence, b.Sequence) })
	p.err = p.endError(doubt)
	p.ended = true
	close(p.receipts)
}

// endError says why the channels ended, with the events in doubt.
func (p *Publisher) endError(doubt []*schema.Event) error {
	select {
	case <-p.stop:
		return ErrClosed
	default:
	}
	var reply *amqp.Error
	if errors.As(p.cause, &reply) && reply.Server {
		switch reply.Code {
		case amqp.NotFound:
			if p.partitions > 0 { // the next Dial declares it
				return fmt.Errorf("exchange: exchange %q at %s was deleted: %w", p.exchange, p.link.endpoint, reply)
			}
			return exchangeMissing(p.link.endpoint, p.exchange, reply)
		case amqp.AccessRefused:
			return p.link.refusal(reply)
		case amqp.PreconditionFailed, amqp.ContentTooLarge:
			// On this channel only a message over the broker's limit does that.
			if err := p.limit.learn(reply, doubt); err != nil {
				return err
			}
		}
	}
	p.limit.forget()    // the broker may come back with another one
	if p.cause == nil { // the library closed it without a reason
		return fmt.Errorf("exchange: connection to %s was lost", p.link.endpoint)
	}
	return fmt.Errorf("exchange: connection to %s was lost: %w", p.link.endpoint, p.cause)
}
