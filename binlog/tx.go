package binlog

import (
	"time"

	"github.com/outboxrelay/relay/schema"
)

// Tx is a committed transaction with its outbox inserts, or a part of one
// that is too large to be held. A transaction that wrote nothing to the
// outbox has no events; it moves the position all the same.
type Tx struct {
	GTID GTID
	// Prepared is of the XA PREPARE that this XA COMMIT or ROLLBACK decides; zero
	// of MariaDB, whose XA PREPARE is a transaction without events of its own.
	// With a zero GTID it is one that is not decided yet: such a transaction
	// has no events and does not move the position.
	Prepared GTID

	// CommittedAt is when it was committed on the server where that happened
	// first, in UTC with microseconds: replicas keep it.
	CommittedAt time.Time
	Events      []schema.Event
	// Before are transactions without outbox rows that stand in the log before
	// this one and behind what was handed out last: those of one source in their
	// order. They end where this one does; of one in parts, with its last part.
	Before []GTIDRange
	Last   bool  // false: more parts of the same transaction follow
	Place  Place // just behind it

	// Altered is the beginning of the statement with which this transaction may
	// have changed the outbox table's definition; empty: it has none.
	Altered string
	// Definition is what is known of the table's, behind this transaction; nil:
	// what was known before it.
	Definition *Definition

	// Cursor tells the place in the table that a backfill has reached; empty
	// for what comes from the log.
	Cursor string
	// Exhausted stands for the end of a backfill.
	Exhausted bool
}

// Count is the number of transactions that end with this one: those before it,
// and itself unless it goes on or is only prepared.
func (tx *Tx) Count() (n int64) {
	for _, r := range tx.Before {
		n += r.Count()
	}
	if tx.Last && !tx.GTID.IsZero() {
		n++
	}
	return n
}

// Definition is the outbox table's, as information_schema has it.
type Definition struct {
	Columns []schema.Column // nil: not known
}

// Place is a place in the server's log files.
type Place struct {
	File   string
	Offset uint32
}
