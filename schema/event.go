package schema

import "time"

// Event is one row of the outbox, as it was at its insert, on its way to the
// broker. It is made once, by Table.Event, and not changed after its Sequence
// is set.
type Event struct {
	// ID is the row's primary key as text: BINARY(16) as a lower-case UUID,
	// other binary as hex, text as it is, integers in decimal. It becomes the
	// message_id, by which consumers know a duplicate.
	ID string

	// AggregateID as text. Events of one aggregate keep their commit order.
	AggregateID string

	// AggregateType, EventType, Topic and Version are empty where the table
	// has no such column or the row has NULL there.
	AggregateType string
	EventType     string
	Topic         string
	Version       string

	// Payload is byte for byte what SELECT returns, in UTF-8 for text.
	Payload []byte

	// ContentType follows from the payload column's type: application/json,
	// text/plain;charset=utf-8 or application/octet-stream.
	ContentType string

	// CreatedAt is the row's creation time in UTC, with microseconds; the
	// commit time of its transaction where the table has no such column.
	CreatedAt time.Time

	// Headers is what the row's headers column holds: a JSON object whose
	// values are strings, int64, float64, bool, nil, or JSON text for what is
	// nested and for integers beyond int64. Nil where there is none.
	Headers map[string]any

	// GTID of the transaction that inserted the row, as MySQL prints it;
	// empty for a row that a backfill read from the table.
	GTID string

	// Bad is why the row cannot be relayed as it stands: then only what could
	// be read of it is set. Nil for every other event.
	Bad *BadEventError

	// Sequence grows by one with each event in commit order. The same event
	// carries the same number when it is sent again after a crash. 0: it has
	// none, and comes out of log files.
	Sequence int64
}

// Type is the message type: the topic, or the event type where the table has
// no topic (layout debezium).
func (e *Event) Type() string {
	if e.Topic != "" {
		return e.Topic
	}
	return e.EventType
}
