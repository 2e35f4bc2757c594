package schema

import (
	"errors"
	"fmt"
)

// ErrTable is wrapped by every error that says that a table, as it is
// defined, cannot be an outbox.
var ErrTable = errors.New("schema: table is not an outbox")

// BadEventError is a row that cannot be relayed as it stands: a value is
// missing, of the wrong form, or beyond what a message can carry. The relay
// stops on it rather than pass it over.
type BadEventError struct {
	ID   string // the event's id as far as it is known
	GTID string // of its transaction; empty in a backfill
	// Sequence is the event's, which tells it from another one with its id;
	// 0 where it had none yet.
	Sequence int64
	Broken   bool // the row made no event at all; else no message can carry it
	// Row holds the values of a broken one by column, as far as they are
	// known: what SELECT returns, or as they are stored where they make no
	// sense. It is for the parked file, and in no text.
	Row    map[string][]byte
	Reason string // what is wrong and the value found, without the payload
	// Several: it is about more than one row, and Reason says what to do.
	Several bool
}

func (e *BadEventError) Error() string {
	if e.Several {
		return "schema: events cannot be relayed: " + e.Reason
	}
	return fmt.Sprintf("schema: event id=%q gtid=%q cannot be relayed: %s", e.ID, e.GTID, e.Reason)
}
