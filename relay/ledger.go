package relay

import (
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/schema"
)

// ledger keeps what has been admitted, in commit order, and what of it is
// settled. Its state is what may stand on disk: it covers an event only when
// that one and all before it are settled. It is pure, and used by one
// goroutine.
type ledger struct {
	state    checkpoint.State // GTIDSet apart, which is position's text
	position *binlog.GTIDSet
	last     binlog.GTID  // the newest settled transaction; zero: none yet
	newest   time.Time    // commit time of the newest settled transaction, or creation time in a backfill; before that, of the first admitted
	place    binlog.Place // just behind it

	queue    []*item // admitted and not yet passed by the state
	room     []item  // for those of the transaction roomOf
	roomOf   *binlog.Tx
	sequence int64              // number of the last admitted event
	resumed  checkpoint.Partial // what was settled in part when the relay last stopped
	within   binlog.GTID        // of the transaction that is being admitted
	ordinal  int64              // in it, of the last event that was admitted or skipped
	partly   partly             // since then; state.Partial is what it was when the relay started
	dirty    bool               // the state has moved since it was last saved

	stamps bool     // rows are to be stamped
	covers coverage // since it was last taken
}

// coverage is what the state has come to cover.
type coverage struct {
	ids  []string             // of the rows to be stamped; empty without stamps
	rows *checkpoint.Stamping // the last of a backfill; nil: none
}

// partly is how far a transaction is settled.
type partly struct {
	gtid   binlog.GTID // zero: none is settled in part
	events int64
}

// item is an event on its way, or, without an event, the end of a
// transaction.
type item struct {
	event   *schema.Event // in tx
	number  int64         // of the event, in commit order
	tx      *binlog.Tx
	ordinal int64 // in its transaction, counting from 1
	end     bool
	settled bool
	sent    bool  // and so it was by a confirm
	tries   int   // how often the broker has refused it
	behind  *item // waits for it in its lane; nil: none does
}

func newLedger(state checkpoint.State) (*ledger, error) {
	position, err := binlog.ParseGTIDSet(state.GTIDSet)
	if err != nil {
		return nil, err
	}
	l := &ledger{state: state, position: position, newest: state.CommittedAt, sequence: state.Sequence}
	if state.Partial != nil {
		l.resumed = *state.Partial
	}
	return l, nil
}

// admit numbers the event i of tx and takes it in; nil when it was settled
// before the relay last stopped.
func (l *ledger) admit(tx *binlog.Tx, i int) *item {
	if tx.GTID != l.within {
		l.within, l.ordinal = tx.GTID, 0
	}
	l.ordinal++
	if l.ordinal <= l.resumed.Events && l.resumed.GTID == tx.GTID.String() {
		return nil
	}
	l.sequence++
	if l.newest.IsZero() { // nothing is settled yet: the lag is that of what waits
		l.newest = tx.CommittedAt
	}
	it := l.item(tx)
	*it = item{event: &tx.Events[i], number: l.sequence, tx: tx, ordinal: l.ordinal}
	it.event.Sequence = l.sequence
	l.queue = append(l.queue, it)
	return it
}

// item gives room for one of the transaction: all of them are made at once.
func (l *ledger) item(tx *binlog.Tx) *item {
	if l.roomOf != tx {
		l.room, l.roomOf = make([]item, len(tx.Events)+1), tx
	}
	it := &l.room[0]
	l.room = l.room[1:]
	return it
}

// finish takes in the end of tx when it is the transaction's last part.
func (l *ledger) finish(tx *binlog.Tx) {
	if tx.Last {
		it := l.item(tx)
		*it = item{tx: tx, end: true, settled: true}
		l.queue = append(l.queue, it)
		l.advance()
	}
}

// settle notes that the event needs nothing more: it is parked, or not wanted.
func (l *ledger) settle(it *item) {
	it.settled = true
	l.advance()
}

// park notes what the parked file holds; nil: nothing.
func (l *ledger) park(mark *checkpoint.Parked) {
	if old := l.state.Parked; old != mark && (old == nil || mark == nil || *old != *mark) {
		l.state.Parked, l.dirty = mark, true
	}
}

// held is how much is admitted and not yet covered by the state: events and
// ends of transactions.
func (l *ledger) held() int { return len(l.queue) }

// stuck adds to an error about an event of which transaction it is.
func (l *ledger) stuck(bad *schema.BadEventError, err error) error {
	for _, it := range l.queue {
		if !it.end && (it.event.Bad == bad || identityOf(it.event) == identity{bad.ID, bad.Sequence}) {
			return &binlog.TxError{GTID: it.tx.GTID, Prepared: it.tx.Prepared, Err: err}
		}
	}
	return err
}

// reached tells whether all before the transaction is covered by the state.
func (l *ledger) reached(gtid binlog.GTID) bool {
	return len(l.queue) == 0 || l.queue[0].tx.GTID == gtid
}

// unsettled tells whether anything admitted is not yet covered by the state.
func (l *ledger) unsettled() bool { return len(l.queue) > 0 }

func (l *ledger) advance() {
	n := 0
	for n < len(l.queue) && l.queue[n].settled {
		l.cover(l.queue[n])
		l.queue[n] = nil
		n++
	}
	l.queue = l.queue[n:]
}

// cover moves the state over the item.
func (l *ledger) cover(it *item) {
	l.dirty = true
	tx := it.tx
	if !it.end {
		l.state.Sequence = it.number
		switch {
		case !tx.GTID.IsZero():
			l.partly, l.state.Partial = partly{tx.GTID, it.ordinal}, nil
		case tx.Cursor != "": // the row is all of it
			l.backfilled(tx)
		}
		if l.stamps && it.sent {
			l.covers.ids = append(l.covers.ids, it.event.ID)
			if tx.Cursor != "" {
				l.covers.rows = &checkpoint.Stamping{After: tx.Cursor, Sequence: it.number}
			}
		}
		return
	}
	l.place = tx.Place
	for _, before := range tx.Before {
		l.position.AddRange(before)
	}
	if tx.Definition != nil {
		l.state.Columns = columnsOf(tx.Definition.Columns)
	}
	if !tx.CommittedAt.IsZero() {
		l.newest = tx.CommittedAt
	}
	if tx.GTID.IsZero() {
		l.backfilled(tx)
		return
	}
	l.state.CommittedAt, l.last = tx.CommittedAt, tx.GTID
	l.position.Add(tx.GTID)
	if !tx.Prepared.IsZero() {
		l.position.Add(tx.Prepared)
	}
	if l.partly.gtid == tx.GTID {
		l.partly = partly{}
	}
	if l.state.Partial != nil && l.state.Partial.GTID == tx.GTID.String() {
		l.state.Partial = nil
	}
}

// backfilled moves the place in the table.
func (l *ledger) backfilled(tx *binlog.Tx) {
	switch {
	case tx.Exhausted:
		l.state.Backfill = nil
	case tx.Cursor != "" && l.state.Backfill != nil:
		l.state.Backfill.After = tx.Cursor
	}
}

// confirm notes that the broker has confirmed and routed the event.
func (l *ledger) confirm(it *item) {
	it.sent = true
	l.settle(it)
}

// covered hands over what the state has come to cover since the last call.
func (l *ledger) covered() coverage {
	c := l.covers
	l.covers = coverage{}
	return c
}

// snapshot is the state as it may be saved. The ledger changes nothing in it
// later on.
func (l *ledger) snapshot() checkpoint.State {
	s := l.state
	s.GTIDSet = l.position.String()
	if !l.last.IsZero() {
		s.LastGTID = l.last.String()
	}
	if !l.partly.gtid.IsZero() {
		s.Partial = &checkpoint.Partial{GTID: l.partly.gtid.String(), Events: l.partly.events}
	}
	if s.Backfill != nil {
		b := *s.Backfill
		s.Backfill = &b
	}
	return s
}
