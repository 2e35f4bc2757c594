package binlog

import (
	"errors"
	"fmt"

	"github.com/outboxrelay/relay/schema"
)

// prepared is an XA transaction between its two halves.
type prepared struct {
	gtid   GTID
	events []schema.Event
	size   int
	fault  error // why it cannot be relayed; nil: it can
}

// prepare ends the first half of an XA transaction (MySQL's
// XA_prepare_event: one byte that tells whether it was committed in one
// phase). Its GTID stays out of the position until the outcome is known, so
// that a relay that starts in between reads the rows again.
func (a *assembler) prepare(body []byte) (*Tx, error) {
	g := a.group
	if g == nil || g.xa == "" || len(body) == 0 {
		return nil, fmt.Errorf("%w: XA PREPARE", ErrDamaged)
	}
	if onePhase := body[0] != 0; onePhase {
		return a.commit()
	}
	if err := a.hold(g); err != nil {
		return nil, err
	}
	half := &Tx{Prepared: g.tx.GTID, CommittedAt: g.tx.CommittedAt}
	if g.tx.GTID.sequential() { // a position with what follows has it too: the rows are recalled
		half.GTID, half.Prepared = g.tx.GTID, GTID{}
	}
	a.prepared[g.xa] = prepared{gtid: half.Prepared, events: g.tx.Events, size: g.size, fault: g.fault}
	a.held += g.size
	a.group = nil
	return a.end(half), nil
}

// postpone keeps what is wrong with an XA transaction's first half until it is
// committed: one that is rolled back, or that was decided before the stream
// began, stops nothing.
func (a *assembler) postpone(err error) error {
	g := a.group
	if g == nil || g.xa == "" || !errors.Is(err, ErrUnreadable) && !errors.Is(err, ErrChanged) {
		return err
	}
	if g.fault == nil {
		g.fault = err
	}
	g.tx.Events, g.size = nil, 0
	return nil
}

// hold bounds what undecided XA transactions keep in memory.
func (a *assembler) hold(g *group) error {
	if a.held+g.size > heldBytes {
		return a.unreadable("XA transaction %s: more than %d MiB of events wait for XA COMMIT", g.xa, heldBytes>>20)
	}
	return nil
}

// decide ends an XA transaction: its rows go out under the GTID of XA COMMIT,
// or are dropped.
func (a *assembler) decide(commit bool, xid string) (*Tx, error) {
	if _, ok := a.prepared[xid]; !ok && a.recall != nil {
		if err := a.remember(xid); err != nil {
			return nil, err
		}
	}
	first, ok := a.prepared[xid]
	if !ok && commit && !a.passes() {
		return nil, a.unreadable("XA COMMIT %s of a transaction whose XA PREPARE is no longer in the log; whether it wrote outbox rows can't be seen", xid)
	}
	g := a.group
	g.tx.Prepared, g.decides = first.gtid, true
	if commit && first.fault != nil && !a.passes() {
		return nil, first.fault
	}
	delete(a.prepared, xid)
	a.held -= first.size
	if a.recall != nil {
		a.decided[xid] = true
	}
	if commit {
		g.tx.Events = retitle(first.events, g.tx)
	}
	return a.commit()
}

// remember takes in what was prepared before the stream began.
func (a *assembler) remember(xid string) error {
	earlier, all, err := a.recall(xid)
	if err != nil {
		return err
	}
	for id, half := range earlier {
		if _, known := a.prepared[id]; !known && !a.decided[id] {
			a.prepared[id] = half
			a.held += half.size
		}
	}
	if all {
		a.recall, a.decided = nil, nil
	}
	return nil
}

// retitle puts the events of a prepared transaction under the one that
// committed it.
func retitle(events []schema.Event, tx Tx) []schema.Event {
	gtid := tx.GTID.String()
	for i := range events {
		events[i].GTID = gtid
		if bad := events[i].Bad; bad != nil {
			bad.GTID = gtid
		}
	}
	return events
}
