package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rs/zerolog"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

const (
	// returnTries is how often an event may come back unrouted before the
	// topology is declared again, where the relay declares it: three seconds.
	returnTries = 6

	reportInterval = time.Minute // between log lines that tell how far it is

	saveInterval = 250 * time.Millisecond // between saves of the checkpoint
	slowSave     = 5 * time.Second        // from which on a save holds everything up
	firstRetry   = 100 * time.Millisecond // before a refused event is sent again
	lastRetry    = 10 * time.Second       // the longest such wait

	sendAtOnce = 256 // events that the publisher is given at a time

	// readAhead bounds, in windows, what is held behind an event that is not
	// settled: transactions without events count, too.
	readAhead = 4

	// stampsAhead is how many rows wait to be stamped before nothing new is taken
	// in: a crash would send their events again.
	stampsAhead = 1 << 14
)

// errReload: the relay was told to read its files again and to connect anew.
var errReload = errors.New("relay: connecting anew, with what the files hold now")

// errReceipts: the broker's receipts ended without a word about the reason.
var errReceipts = errors.New("relay: the broker's receipts ended")

// Publisher sends events to the broker. *exchange.Publisher is documented
// with the rules that it keeps.
type Publisher interface {
	Publish(events ...*schema.Event)
	Receipts() <-chan []exchange.Receipt
	Err() error
	Blocked() (reason string, blocked bool)
}

// session is one try at relaying: it ends with its first error. One goroutine,
// that of run, owns everything in it; beside it a reader fetches transactions
// and a saver writes the checkpoint.
type session struct {
	ledger *ledger
	lanes  *lanes
	alarm  <-chan error // from who watches the server
	lot    *lot         // of bad events; nil: they stop the relay
	// condemned are events that the broker closed the channel on.
	condemned map[identity]*schema.BadEventError
	file      *checkpoint.File // nil: the state is not kept
	source    Source
	broker    Publisher
	window    int
	wants     wants
	stamping
	// replays: the source is log files, which end.
	replays bool
	ended   bool // the source has
	// declares: the queues are the relay's own, declared by each session.
	declares bool
	drain    time.Duration
	board    *board
	pulse    *pulse          // nil: nobody wants to know
	reload   <-chan struct{} // to end and begin anew; nil: never
	log      zerolog.Logger

	fetched     []*binlog.Tx            // taken from the reader; the first is being admitted
	next        int                     // its next event
	failed      error                   // that comes behind them; nil: none yet
	outstanding int                     // events admitted and not settled: at most window
	outgoing    []*schema.Event         // to be published before the session waits
	published   map[*schema.Event]*item // in flight
	refused     []retry                 // to be sent again
	untaken     int                     // events that the broker has refused and not taken since
	refusal     error                   // the last one
	warned      time.Time               // of refusals
	saved       chan error              // from the saver; nil: none is at work
	saving      time.Time               // when it began
	arrived     bool                    // a transaction, since show last looked
	reported    time.Time               // when report last did
	// Since then: events settled, and transactions read.
	events, transactions int
}

// retry is an event that the broker refused.
type retry struct {
	item *item
	at   time.Time
}

// run relays until ctx ends, and then settles all that is admitted; or until an
// error, and then takes in what the broker still says of what is in flight, and
// what follows from that. What is settled is saved before it returns.
func (s *session) run(ctx context.Context) error {
	reading, stopReading := context.WithCancel(context.WithoutCancel(ctx))
	feed, readerDone := newFeed(s.window), make(chan struct{})
	go func() {
		defer close(readerDone)
		feed.fill(reading, s.source, s.pulse)
	}()
	defer func() {
		stopReading()
		<-readerDone
	}()
	s.stamping.begin(ctx)
	defer s.giveUp()
	tick := time.NewTicker(saveInterval)
	defer tick.Stop()

	var cause error               // why the session ends; nil: it was told to stop
	var deadline <-chan time.Time // of the drain; nil: not draining
	stop := func(because error) { // stop reading, settle what is in flight
		if deadline == nil {
			cause, deadline = because, time.After(s.drain)
			s.fetched = nil
			stopReading()
			s.stamping.end(s.drain)
		}
	}
	stopping := ctx.Done()
	// going tells whether there is something to do. After an error that is only
	// what is in flight: a refused event is the next session's.
	going := func() bool {
		if cause != nil {
			return len(s.published) > 0
		}
		return deadline == nil && !s.ended || s.outstanding > 0
	}
	s.pulse.run(true)
	defer s.pulse.run(false)
	for going() {
		s.turn()
		if err := s.admit(); err != nil {
			stop(err)
		}
		var incoming <-chan struct{}
		if len(s.fetched) == 0 && deadline == nil && !s.ended {
			switch {
			case s.failed == io.EOF && s.replays:
				s.ended = true
				continue
			case s.failed != nil:
				stop(s.failed)
				continue
			}
			incoming = feed.ready
		}
		s.send()
		select {
		case <-incoming:
			s.fetched, s.failed = feed.take()
			s.next, s.arrived = 0, s.arrived || len(s.fetched) > 0
		case receipts, ok := <-s.broker.Receipts():
			if !ok {
				return s.leave(ctx, s.undrained(ctx, errors.Join(cause, cmp.Or(s.broker.Err(), errReceipts))))
			}
			if err := s.settleAll(receipts); err != nil {
				stop(err)
			}
		case now := <-tick.C:
			if cause == nil {
				s.again(now)
			}
			s.save()
			s.show(deadline == nil)
			s.report(now)
		case err := <-s.saved:
			s.saved = nil
			if err != nil {
				return unsaved(ctx, errors.Join(cause, err))
			}
			if len(s.ledger.covers.ids) >= stampsAhead/2 {
				s.save()
			}
		case err := <-s.alarm:
			stop(err)
		case <-s.reload:
			stop(errReload)
		case <-stopping:
			stopping = nil
			s.log.Info().Int("in_flight", s.outstanding).Msg("stopping: settling what is in flight")
			stop(nil)
		case <-deadline:
			return s.leave(ctx, s.undrained(ctx, errors.Join(cause, fmt.Errorf("relay: the broker took longer than the drain timeout of %s", s.drain))))
		}
	}
	return s.leave(ctx, s.undrained(ctx, cause))
}

// stuck adds to what is wrong with an event of which transaction it is. early:
// events before that are not settled.
func (s *session) stuck(err error) (_ error, early bool) {
	var bad *schema.BadEventError
	if errors.As(err, &bad) && bad.GTID != "" {
		err = s.ledger.stuck(bad, err)
	}
	var tx *binlog.TxError
	return err, errors.As(err, &tx) && !s.ledger.reached(tx.GTID)
}

// undrained is the end of a session with events in flight. To a relay that
// was told to stop it is a failure; another one begins again from the file.
func (s *session) undrained(ctx context.Context, cause error) error {
	if ctx.Err() == nil || s.outstanding == 0 {
		return cause
	}
	return fmt.Errorf("%w: stopped with %d events in flight that were not confirmed, which are sent again at the next start: %w", ErrUnavailable, s.outstanding, cause)
}

// admit takes in the events that were fetched as far as the window lets it, and
// nothing new while the checkpoint cannot be saved.
func (s *session) admit() error {
	var aside []*item // to be parked
	for len(s.fetched) > 0 && s.outstanding < s.window {
		tx := s.fetched[0]
		if s.next == 0 && (s.ledger.held() >= readAhead*s.window || s.savesSlowly() || len(s.ledger.covers.ids) >= stampsAhead) {
			break
		}
		if s.next == len(tx.Events) {
			s.ledger.finish(tx)
			s.board.transaction(tx)
			s.transactions += int(tx.Count())
			s.fetched, s.next = s.fetched[1:], 0
			continue
		}
		if tx.Cursor != "" && !s.wants.row(&tx.Events[s.next]) { // without a number: who carries it may stamp it
			s.next++
			continue
		}
		it := s.ledger.admit(tx, s.next)
		s.next++
		if it == nil {
			continue
		}
		if !s.wants.event(it.event) {
			it.event.Payload, it.event.Headers = nil, nil
			s.ledger.settle(it)
			continue
		}
		if s.replays {
			// Its number is not known, and a new one would make it look newer than
			// what came after it.
			it.event.Sequence = 0
		}
		if bad := s.condemn(it); bad != nil && s.lot == nil {
			return bad
		}
		if s.lot.takes(it) {
			aside = append(aside, it)
			continue
		}
		s.outstanding++
		if s.lanes.enter(it) {
			s.publish(it)
		}
	}
	return s.park(aside)
}

// condemn marks an event that the broker is known not to take.
func (s *session) condemn(it *item) *schema.BadEventError {
	if len(s.condemned) > 0 && it.event.Bad == nil {
		it.event.Bad = s.condemned[identityOf(it.event)]
	}
	return it.event.Bad
}

// park puts items aside, on disk, and settles them: the position may pass them.
func (s *session) park(items []*item) error {
	if len(items) == 0 {
		return nil
	}
	fresh, err := s.lot.add(items)
	if err != nil {
		return err
	}
	s.ledger.park(s.lot.mark())
	for _, it := range items {
		s.ledger.settle(it)
	}
	for _, it := range fresh {
		if bad := it.event.Bad; bad != nil {
			s.log.Warn().Str("id", bad.ID).Str("gtid", bad.GTID).Str("reason", bad.Reason).Str("file", s.lot.path).Msg("event parked")
		}
	}
	s.board.parked.Add(float64(len(fresh)))
	return nil
}

// save writes the state in the background when it has moved.
func (s *session) save() {
	if s.file == nil || !s.ledger.dirty || s.saved != nil {
		return
	}
	s.ledger.dirty = false
	state, covered, saved := s.ledger.snapshot(), s.ledger.covered(), make(chan error, 1)
	s.saved, s.saving = saved, time.Now()
	go func() { saved <- s.write(state, covered) }()
}

// write saves the state, once the rows that it has come to cover are stamped.
func (s *session) write(state checkpoint.State, covered coverage) error {
	if err := s.stamp(covered); err != nil {
		return err
	}
	err := s.file.Save(state)
	if err == nil {
		state.SavedAt = time.Now()
		s.board.saved(state)
	}
	return err
}

// savesSlowly tells whether the checkpoint has been on its way to the disk for
// long: meanwhile nothing new is taken in, since a crash would send it again.
func (s *session) savesSlowly() bool { return s.saved != nil && time.Since(s.saving) > slowSave }

// turn tells the pulse that the loop has come round, unless a save hangs: then
// it gets nowhere. Rows that somebody holds locked are no fault of its own.
func (s *session) turn() {
	if s.saved == nil || s.under.Load() || time.Since(s.saving) < loopLimit {
		s.pulse.turn()
	}
}

// leave saves what is settled, once and for good, and returns why the session
// ends.
func (s *session) leave(ctx context.Context, cause error) error {
	s.stamping.end(s.drain)
	if s.saved != nil {
		if err := <-s.saved; err != nil {
			return unsaved(ctx, errors.Join(cause, err))
		}
		s.saved = nil
	}
	if s.file != nil && s.ledger.dirty {
		if err := s.write(s.ledger.snapshot(), s.ledger.covered()); err != nil {
			return unsaved(ctx, errors.Join(cause, err))
		}
		s.ledger.dirty = false
	}
	s.show(false)
	return cause
}

// unsaved is the end of a session whose checkpoint could not be saved. To a
// relay that was told to stop it is a failure; another one begins again from
// the file.
func unsaved(ctx context.Context, cause error) error {
	if ctx.Err() == nil {
		return cause
	}
	return fmt.Errorf("%w: stopped, but what is settled could not be saved and is sent again at the next start: %w", ErrUnavailable, cause)
}

// report tells once a minute how far the session is, and how many events and
// transactions that minute had.
func (s *session) report(now time.Time) {
	if s.reported.IsZero() {
		s.reported = now
	}
	if now.Sub(s.reported) < reportInterval {
		return
	}
	s.reported = now
	state := s.ledger.snapshot()
	line := s.log.Info().Str("position", state.GTIDSet).Int64("sequence", state.Sequence).
		Int("events", s.events).Int("transactions", s.transactions).Int("in_flight", s.outstanding).
		Float64("lag_seconds", s.board.lagSeconds())
	s.events, s.transactions = 0, 0
	if b := state.Backfill; b != nil {
		line = line.Str("backfill_after", b.After).Str("backfill_until", b.Until)
	} else if !s.ledger.newest.IsZero() {
		line = line.Time("committed_at", s.ledger.newest)
	}
	line.Msg("relaying")
}

// show puts the session's state where metrics, health and the page see it.
func (s *session) show(following bool) {
	reason, next := "", ""
	text, blocked := s.broker.Blocked()
	if blocked {
		reason = "the broker blocks publishing: " + text
	} else if s.untaken > 0 {
		reason = "the broker refuses events: " + s.refusal.Error()
	} else if s.savesSlowly() && s.under.Load() {
		reason, next = fmt.Sprintf("stamps have been waiting since %s for rows that somebody holds locked", s.saving.Format(time.TimeOnly)), "SHOW ENGINE INNODB STATUS"
	} else if s.savesSlowly() {
		next = "df -h"
		reason = fmt.Sprintf("the disk has been at the save of the checkpoint since %s", s.saving.Format(time.TimeOnly))
	}
	// Who reads a backlog without outbox rows has nothing unsettled either.
	caughtUp := !s.ledger.unsettled() && len(s.fetched) == 0 && (!s.arrived || time.Since(s.ledger.newest) < time.Second)
	s.arrived = false
	s.board.show(snapshot{
		following: following,
		ending:    !following,
		blocked:   blocked,
		reason:    reason,
		next:      next,
		inFlight:  s.outstanding,
		caughtUp:  caughtUp,
		newest:    s.ledger.newest,
		place:     s.ledger.place,
	})
}
