package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rs/zerolog"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

const (
	lookInterval  = time.Second      // between looks at the oldest pending row
	auditInterval = 5 * time.Second  // between looks for rows without a status
	holdInterval  = 10 * time.Second // between signs of life to the server, while the broker has a batch
	stampLimit    = 30 * time.Second // to stamp what was confirmed

	mostRefused = 1000 // aggregates that a claim passes over
)

// pollSession is one try at polling: it ends with its first error. One goroutine
// does everything in it, the server's part and the broker's in turn.
type pollSession struct {
	outbox   *binlog.Poller
	broker   Publisher
	interval time.Duration
	drain    time.Duration
	// declares: the queues are the relay's own, declared by each session.
	declares bool
	board    *board
	pulse    *pulse
	reload   <-chan struct{} // to end and begin anew
	log      zerolog.Logger

	// Of the batch that the broker has:
	lanes     *lanes
	published map[*schema.Event]*item // in flight
	outgoing  []*schema.Event         // to be published before the session waits
	confirmed []string                // ids of those to be stamped
	unstamped bool                    // they could not be
	ending    bool                    // nothing more is sent
	cause     error                   // why; nil: it was told to stop

	refused map[string]*refusal // by aggregate, whose first pending event the broker did not take
	why     error               // of the last one
	warned  time.Time           // of refusals

	oldest   time.Time // when the oldest pending row was created; with none, or while that is not known, when there was none
	caughtUp bool      // there was none
	looked   time.Time // for that
	audited  time.Time // for rows without a status
	reported time.Time // when report last did
	events   int       // confirmed since then
}

// refusal is an event that the broker has returned or nacked: it stays pending.
type refusal struct {
	tries int
	at    time.Time // before which nothing of its aggregate is sent
}

// run polls until ctx ends, or an error. The batch that the broker has by then is
// settled and stamped.
func (s *pollSession) run(ctx context.Context) error {
	defer s.pulse.run(false)
	for {
		again, err := s.poll(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}
		s.show(true)
		s.report(time.Now())
		wait := s.interval
		if again {
			wait = 0
		}
		select {
		case <-time.After(wait):
		case _, ok := <-s.broker.Receipts():
			if !ok {
				return cmp.Or(s.broker.Err(), errReceipts)
			}
			return errors.New("relay: a receipt for an event that is not in flight; this is a fault in the relay, please report it")
		case <-s.reload:
			return errReload
		case <-ctx.Done():
			return nil
		}
	}
}

// poll carries one batch, and tells whether another may follow at once.
func (s *pollSession) poll(ctx context.Context) (again bool, err error) {
	s.pulse.run(false) // while it asks the server, whose answer has a limit
	if err := s.look(ctx); err != nil {
		return false, err
	}
	if _, blocked := s.broker.Blocked(); blocked { // rows are of more use to another poller
		return false, nil
	}
	now := time.Now()
	batch, err := s.outbox.Claim(ctx, s.waiting(now)...)
	if err != nil || ctx.Err() != nil { // nothing is sent, and a claim that the end fell into may have lost its connection
		return false, err
	}
	s.pulse.run(true)
	why, held := s.carry(ctx, batch, now)
	s.pulse.run(false)
	if !held {
		return false, why
	}
	stamping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stampLimit)
	defer cancel()
	if err := s.outbox.Settle(stamping, s.confirmed); err != nil {
		s.unstamped = len(s.confirmed) > 0
		err = errors.Join(why, err)
		if ctx.Err() != nil && len(s.confirmed) > 0 {
			err = fmt.Errorf("%w: stopped, but %d confirmed events could not be stamped and are sent again: %w", ErrUnavailable, len(s.confirmed), err)
		}
		return false, err
	}
	return batch.Full && len(s.confirmed) > 0, why
}

// carry publishes a batch, each event behind the one before it of its aggregate,
// until all are settled that can be. It returns why the session ends, if it does,
// and whether the rows are still held, so that they may be stamped. The batch was
// claimed at that time.
func (s *pollSession) carry(ctx context.Context, batch binlog.Batch, claimed time.Time) (why error, held bool) {
	s.lanes, s.published, s.confirmed, s.ending, s.cause = newLanes(Strict), map[*schema.Event]*item{}, nil, false, nil
	s.admit(batch, claimed)
	tick := time.NewTicker(saveInterval)
	defer tick.Stop()
	var deadline <-chan time.Time // of the drain; nil: not draining
	stopping, signOfLife := ctx.Done(), time.Now()
	for len(s.published) > 0 {
		s.pulse.turn()
		if s.send(); s.ending && deadline == nil {
			deadline = time.After(s.drain)
		}
		select {
		case receipts, ok := <-s.broker.Receipts():
			if !ok {
				return s.undrained(ctx, errors.Join(s.cause, cmp.Or(s.broker.Err(), errReceipts))), true
			}
			for now := time.Now(); len(receipts) > 0; receipts = receipts[1:] {
				if err := s.settle(receipts[0], now); err != nil {
					s.stop(err)
				}
			}
		case now := <-tick.C:
			s.show(!s.ending)
			s.report(now)
			if now.Sub(signOfLife) < holdInterval {
				continue
			}
			signOfLife = now
			if err := s.outbox.Hold(context.WithoutCancel(ctx)); err != nil {
				return errors.Join(s.cause, err), false
			}
		case <-s.reload:
			s.stop(errReload)
		case <-stopping:
			stopping = nil
			s.log.Info().Int("in_flight", len(s.published)).Msg("stopping: settling what is in flight")
			s.stop(nil)
		case <-deadline:
			return s.undrained(ctx, errors.Join(s.cause, fmt.Errorf("relay: the broker took longer than the drain timeout of %s", s.drain))), true
		}
	}
	return s.cause, true
}

// stop sends nothing more, and settles what is in flight.
func (s *pollSession) stop(because error) {
	if !s.ending {
		s.ending, s.cause = true, because
	}
}

// undrained is the end of a batch with events in flight. To a relay that was told
// to stop it is a failure.
func (s *pollSession) undrained(ctx context.Context, cause error) error {
	if ctx.Err() == nil {
		return cause
	}
	return fmt.Errorf("%w: stopped with %d events in flight that were not confirmed: they are pending and sent again: %w", ErrUnavailable, len(s.published), cause)
}

// admit takes in the batch, up to the first event that cannot be relayed.
func (s *pollSession) admit(batch binlog.Batch, now time.Time) {
	there := map[string]bool{}
	for i := range batch.Events {
		e := &batch.Events[i]
		if e.Bad != nil {
			s.cause = e.Bad // once those before it are settled
			break
		}
		there[e.AggregateID] = true
		if r := s.refused[e.AggregateID]; r != nil && now.Before(r.at) {
			continue
		}
		if it := (&item{event: e}); s.lanes.enter(it) {
			s.publish(it)
		}
	}
	if batch.Full || s.cause != nil {
		return
	}
	for aggregate, r := range s.refused { // another poller's by now, or gone
		if !there[aggregate] && !now.Before(r.at) {
			delete(s.refused, aggregate)
		}
	}
}

func (s *pollSession) publish(it *item) {
	s.published[it.event] = it
	if s.outgoing = append(s.outgoing, it.event); len(s.outgoing) >= sendAtOnce {
		s.send()
	}
}

// send gives the publisher what is to go out.
func (s *pollSession) send() {
	if len(s.outgoing) > 0 {
		s.broker.Publish(s.outgoing...)
		s.board.published.Add(float64(len(s.outgoing)))
		s.outgoing = nil
	}
}

// settle takes a receipt in. After an error nothing more is sent.
func (s *pollSession) settle(receipt exchange.Receipt, now time.Time) error {
	it := s.published[receipt.Event]
	if it == nil {
		return fmt.Errorf("relay: a receipt for event %s, which is not in flight; this is a fault in the relay, please report it", receipt.Event.ID)
	}
	delete(s.published, receipt.Event)
	var bad *schema.BadEventError
	switch {
	case errors.As(receipt.Err, &bad):
		s.lanes.drop(it)
		return receipt.Err
	case receipt.Err != nil:
		return s.refuse(it, receipt.Err, now)
	}
	s.confirmed = append(s.confirmed, it.event.ID)
	delete(s.refused, it.event.AggregateID)
	s.board.confirm(it, now)
	s.events++
	if next := s.lanes.leave(it); next != nil && !s.ending {
		s.publish(next)
	}
	it.event.Payload, it.event.Headers = nil, nil
	return nil
}

// refuse leaves an event that the broker has returned or nacked pending, and what
// follows it in its aggregate, for a while that grows.
func (s *pollSession) refuse(it *item, why error, now time.Time) error {
	s.lanes.drop(it)
	r := s.refused[it.event.AggregateID]
	if r == nil {
		r = new(refusal)
		s.refused[it.event.AggregateID] = r
	}
	r.at = now.Add(min(firstRetry<<min(r.tries, 10), lastRetry))
	r.tries++
	s.why = why
	if time.Since(s.warned) > reportInterval { // a queue that is full now and then is one trouble
		s.warned = now
		s.log.Warn().Err(why).Str("id", it.event.ID).Msg("the broker refuses events: they stay pending, and are sent again until it takes them")
	}
	s.board.refuse(why)
	var returned *exchange.ReturnError
	if s.declares && r.tries == returnTries && errors.As(why, &returned) {
		return why // its queue is gone: the next session declares it
	}
	return nil
}

// waiting are the aggregates of which nothing is sent now: claimed, they would
// keep others out of the batch.
func (s *pollSession) waiting(now time.Time) (list []string) {
	for aggregate, r := range s.refused {
		if now.Before(r.at) && len(list) < mostRefused {
			list = append(list, aggregate)
		}
	}
	return list
}

// look looks at the table now and then, for the lag and for rows that no poll
// finds.
func (s *pollSession) look(ctx context.Context) error {
	now := time.Now()
	if now.Sub(s.audited) > auditInterval {
		if err := s.outbox.Unstamped(ctx); err != nil {
			return err
		}
		s.audited = now
	}
	if now.Sub(s.looked) < lookInterval {
		return nil
	}
	created, pending, err := s.outbox.Oldest(ctx)
	if err != nil {
		return err
	}
	s.looked, s.caughtUp = now, !pending
	switch {
	case !pending, created.IsZero() && s.oldest.IsZero():
		s.oldest = now
	case !created.IsZero():
		s.oldest = created
	}
	return nil
}

// show puts the session's state where metrics, health and the page see it.
func (s *pollSession) show(following bool) {
	reason := ""
	text, blocked := s.broker.Blocked()
	if blocked {
		reason = "the broker blocks publishing: " + text
	} else if len(s.refused) > 0 {
		reason = "the broker refuses events: " + s.why.Error()
	}
	s.board.show(snapshot{
		following: following, ending: !following, blocked: blocked, reason: reason,
		inFlight: len(s.published), caughtUp: s.caughtUp, newest: s.oldest,
	})
}

// report tells once a minute how many events that minute had.
func (s *pollSession) report(now time.Time) {
	if s.reported.IsZero() {
		s.reported = now
	}
	if now.Sub(s.reported) < reportInterval {
		return
	}
	s.reported = now
	s.log.Info().Int("events", s.events).Int("in_flight", len(s.published)).Float64("lag_seconds", s.board.lagSeconds()).Msg("relaying")
	s.events = 0
}
