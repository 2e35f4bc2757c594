package relay

import (
	"errors"
	"fmt"
	"time"

	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

// publish has the item sent before the session waits again.
func (s *session) publish(it *item) {
	if s.published == nil {
		s.published = map[*schema.Event]*item{}
	}
	s.published[it.event] = it
	if s.outgoing = append(s.outgoing, it.event); len(s.outgoing) >= sendAtOnce {
		s.send()
	}
}

// send gives the publisher what is to go out.
func (s *session) send() {
	if len(s.outgoing) > 0 {
		s.broker.Publish(s.outgoing...)
		s.board.published.Add(float64(len(s.outgoing)))
		clear(s.outgoing)
		s.outgoing = s.outgoing[:0]
	}
}

// settleAll takes in receipts, also those behind an error, which is the first.
func (s *session) settleAll(receipts []exchange.Receipt) (first error) {
	now := time.Now()
	for _, receipt := range receipts {
		if err := s.settle(receipt, now); first == nil {
			first = err
		}
	}
	return first
}

// settle takes a receipt in. After an error the session settles what else is
// in flight and ends.
func (s *session) settle(receipt exchange.Receipt, now time.Time) error {
	it := s.published[receipt.Event]
	if it == nil {
		return fmt.Errorf("relay: a receipt for event %s, which is not in flight; this is a fault in the relay, please report it", receipt.Event.ID)
	}
	delete(s.published, receipt.Event)
	if receipt.Err != nil {
		return s.unsettled(it, receipt.Err)
	}
	s.outstanding--
	if it.tries > 0 {
		s.untaken--
	}
	s.ledger.confirm(it)
	s.board.confirm(it, now)
	s.events++
	if next := s.lanes.leave(it); next != nil {
		s.publish(next)
	}
	it.event.Payload, it.event.Headers = nil, nil // it may wait long for one before it
	return nil
}

// unsettled deals with an event that the broker did not take.
func (s *session) unsettled(it *item, why error) error {
	var bad *schema.BadEventError
	if !errors.As(why, &bad) {
		s.refuse(it, why)
		var returned *exchange.ReturnError
		if s.declares && it.tries == returnTries && errors.As(why, &returned) {
			return why // its queue is gone: the next session declares it
		}
		return nil
	}
	it.event.Bad = bad
	if it.tries > 0 {
		s.untaken--
	}
	aside := append([]*item{it}, s.lanes.drop(it)...)
	s.outstanding -= len(aside)
	if s.lot == nil { // neither it nor what waits for it will settle
		return why
	}
	s.lot.takes(it)
	return s.park(aside)
}

// refuse keeps an event that the broker has returned or nacked, to be sent
// again: it was not delivered, and nothing of its aggregate may pass it.
func (s *session) refuse(it *item, why error) {
	wait := min(firstRetry<<min(it.tries, 10), lastRetry)
	it.tries++
	s.refusal = why
	if it.tries == 1 {
		s.untaken++
	}
	if time.Since(s.warned) > reportInterval { // a queue that is full now and then is one trouble
		s.warned = time.Now()
		s.log.Warn().Err(why).Str("id", it.event.ID).Str("gtid", it.event.GTID).Msg("the broker refuses events: they are sent again until it takes them")
	}
	s.refused = append(s.refused, retry{it, time.Now().Add(wait)})
	s.board.refuse(why)
}

// again sends the refused events whose time has come.
func (s *session) again(now time.Time) {
	later := s.refused[:0]
	for _, r := range s.refused {
		if r.at.After(now) {
			later = append(later, r)
			continue
		}
		s.publish(r.item)
	}
	s.refused = later
}
