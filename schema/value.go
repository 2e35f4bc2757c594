package schema

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
)

// Value is one column of a row.
type Value struct {
	Present bool      // false: the row image does not have the column, which is not NULL
	Null    bool      // SQL NULL, or a zero date
	Bytes   []byte    // as SELECT returns it; raw for Binary; not used for Time
	Time    time.Time // of a Time column, in UTC
	Err     error     // what is stored makes no sense; the value is as if NULL
}

// Values is one row, by role. What no column serves is not Present.
type Values [Roles]Value

// Origin is what a row does not tell about itself.
type Origin struct {
	GTID        string    // of the transaction; empty in a backfill
	CommittedAt time.Time // stands in for created_at where the table has none
}

// The headers in which Eventuate Tram keeps what other layouts have columns for
// (its Message and EventMessageHeaders). Every message of an aggregate's events
// has them, commands and replies have only the first.
const (
	eventuatePartition     = "PARTITION_ID" // by which Eventuate orders; an event's is its aggregate's id
	eventuateAggregate     = "event-aggregate-id"
	eventuateAggregateType = "event-aggregate-type"
	eventuateEventType     = "event-type"
)

// Event makes the event of a row. Its Payload aliases the row's bytes, and
// nothing else does. Where something is wrong, its Bad says what, and the rest is
// what could be read.
func (t *Table) Event(row *Values, from Origin) Event { return new(Maker).Event(t, row, from) }

// Maker makes the events of many rows, with little memory for each: texts that
// come again and again are kept, and what is left is one. The zero Maker is
// ready; it is not safe for concurrent use.
type Maker struct {
	names Texts  // topics and types
	text  []byte // of the event that is being made
	event Event  // the last one
}

// Event is Table.Event.
func (m *Maker) Event(t *Table, row *Values, from Origin) Event {
	e := &m.event
	*e = Event{GTID: from.GTID, CreatedAt: from.CommittedAt}
	r := reader{table: t, row: row, event: e, maker: m}
	m.text = m.text[:0]
	r.append(RoleID, true)
	id := len(m.text)
	e.AggregateType = r.name(RoleAggregateType, false)
	e.EventType = r.name(RoleEventType, false)
	e.Topic = r.name(RoleTopic, t.Layout != Debezium)
	r.append(RoleVersion, false)
	version := len(m.text)
	e.Headers = r.headers()
	r.trace()
	e.Payload, e.ContentType = r.payload()
	r.createdAt()
	hasAggregate := t.roles[RoleAggregateID] >= 0
	if hasAggregate {
		r.append(RoleAggregateID, true)
	}
	text := string(m.text)
	e.ID, e.Version, e.AggregateID = text[:id], text[id:version], text[version:]
	if !hasAggregate {
		r.eventuate()
	}
	if r.reason != "" {
		e.Bad = &BadEventError{ID: e.ID, GTID: e.GTID, Broken: true, Row: t.values(row), Reason: r.reason}
	}
	return *e
}

// values is a row by column name, without what is NULL or absent.
func (t *Table) values(row *Values) map[string][]byte {
	values := map[string][]byte{}
	for r := range Role(Roles) {
		c, ok := t.Column(r)
		v := row[r]
		switch {
		case !ok || !v.Present || v.Null:
		case c.Kind == Time && v.Err == nil:
			values[c.Name] = []byte(v.Time.Format(time.RFC3339Nano))
		default:
			values[c.Name] = bytes.Clone(v.Bytes)
		}
	}
	return values
}

// reader reads one row's values; it keeps the first thing that is wrong.
type reader struct {
	table  *Table
	row    *Values
	event  *Event
	maker  *Maker
	reason string
}

func (r *reader) fail(format string, args ...any) {
	if r.reason == "" {
		r.reason = fmt.Sprintf(format, args...)
	}
}

// value returns the role's column and value; nil where there is none to use,
// with the reason noted when one was needed.
func (r *reader) value(role Role, needed bool) (*Column, *Value) {
	at := r.table.roles[role]
	if at < 0 {
		return nil, nil
	}
	c, v := &r.table.Columns[at], &r.row[role]
	switch {
	case v.Err != nil:
		r.fail("column %s: %v", c.Name, v.Err)
	case !v.Present:
		r.fail("column %s is not in the row image: SET GLOBAL binlog_row_image = FULL", c.Name)
	case v.Null && needed:
		r.fail("column %s is NULL", c.Name)
	}
	if !v.Present || v.Null || v.Err != nil {
		return c, nil
	}
	return c, v
}

// text is value for a column that must be text, or be made one.
func (r *reader) text(role Role, needed bool) (*Column, *Value) {
	c, v := r.value(role, needed)
	if v != nil && c.Kind != Binary && !utf8.Valid(v.Bytes) {
		r.fail("column %s is not valid UTF-8", c.Name)
		return c, nil
	}
	return c, v
}

// append adds the role's text to the maker's.
func (r *reader) append(role Role, needed bool) {
	if c, v := r.text(role, needed); v != nil {
		r.maker.text = appendID(r.maker.text, c, v.Bytes)
	}
}

// name is the role's text, which is likely to be one of few.
func (r *reader) name(role Role, needed bool) string {
	if _, v := r.text(role, needed); v != nil {
		return r.maker.names.Get(v.Bytes, nil)
	}
	return ""
}

// IDText is the text of an id: for binary columns a lower-case UUID where it
// is a BINARY(16), or a longer one that has only zeros behind sixteen bytes and
// whose hex no message id could hold (Hibernate's BINARY(255)), else hex; what
// it is for others.
func IDText(c Column, b []byte) string { return string(appendID(nil, &c, b)) }

func appendID(dst []byte, c *Column, b []byte) []byte {
	switch {
	case c.Kind != Binary:
		return append(dst, b...)
	case c.Length == 16 && len(b) == 16, len(b) == c.Length && longUUID(c) && len(bytes.TrimRight(b, "\x00")) <= 16:
		dst = append(hex.AppendEncode(dst, b[:4]), '-')
		dst = append(hex.AppendEncode(dst, b[4:6]), '-')
		dst = append(hex.AppendEncode(dst, b[6:8]), '-')
		dst = append(hex.AppendEncode(dst, b[8:10]), '-')
		return hex.AppendEncode(dst, b[10:16])
	}
	return hex.AppendEncode(dst, b)
}

// longUUID tells whether a BINARY's hex is longer than the 255 bytes of a
// message id.
func longUUID(c *Column) bool { return c.Length > 255/2 }

// ParseID is the reverse of IDText: the value by which a query finds the row.
func ParseID(c Column, id string) (any, error) {
	if c.Kind != Binary {
		return id, nil
	}
	if c.Length == 16 || (longUUID(&c) && len(id) != 2*c.Length) {
		u, err := uuid.Parse(id)
		if err != nil {
			return nil, fmt.Errorf("schema: id %q is not a UUID, and column %s is %s", id, c.Name, c.Type)
		}
		return append(u[:], make([]byte, c.Length-16)...), nil
	}
	b, err := hex.DecodeString(id)
	if err != nil {
		return nil, fmt.Errorf("schema: id %q is not hex, and column %s is %s", id, c.Name, c.Type)
	}
	return b, nil
}

func (r *reader) payload() (body []byte, contentType string) {
	tombstone := r.table.Layout == Debezium && r.row[RolePayload].Null
	c, v := r.value(RolePayload, !tombstone)
	switch {
	case v != nil:
		body = v.Bytes
	case !tombstone:
		return nil, ""
	}
	switch c.Kind {
	case JSON:
		return body, "application/json"
	case Text:
		if !utf8.Valid(body) {
			r.fail("column %s is not valid UTF-8", c.Name)
		}
		if c.Checked {
			return body, "application/json"
		}
		return body, "text/plain;charset=utf-8"
	default:
		return body, "application/octet-stream"
	}
}

func (r *reader) createdAt() {
	c, v := r.value(RoleCreatedAt, false)
	switch {
	case v == nil:
	case c.Kind == Time:
		r.event.CreatedAt = v.Time
	default: // Eventuate: milliseconds since 1970
		ms, err := strconv.ParseInt(string(v.Bytes), 10, 64)
		if err != nil {
			r.fail("column %s: %q is not a time in milliseconds", c.Name, v.Bytes)
			return
		}
		r.event.CreatedAt = time.UnixMilli(ms).UTC()
	}
}

// headers reads a JSON object. Nested values stay JSON text, since a message
// header that holds a table is read by few clients.
func (r *reader) headers() map[string]any {
	c, v := r.value(RoleHeaders, false)
	if v == nil || len(v.Bytes) == 0 {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(v.Bytes))
	var raw map[string]json.RawMessage
	if err := decoder.Decode(&raw); err != nil {
		r.fail("column %s is not a JSON object, as {\"traceparent\": \"…\"}", c.Name)
		return nil
	}
	if _, err := decoder.Token(); err != io.EOF {
		r.fail("column %s has more than one JSON value", c.Name)
		return nil
	}
	if raw == nil { // null
		return nil
	}
	headers := make(map[string]any, len(raw))
	for name, text := range raw {
		headers[name] = headerValue(text)
	}
	return headers
}

// headerValue keeps the text of an integer that int64 cannot hold: float64
// would change its digits.
func headerValue(text json.RawMessage) any {
	n, err := strconv.ParseInt(string(text), 10, 64)
	switch {
	case err == nil:
		return n
	case errors.Is(err, strconv.ErrRange):
		return string(text)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		return string(text)
	}
	switch v := v.(type) {
	case string, bool, float64, nil:
		return v
	default:
		return string(text)
	}
}

// trace adds what Debezium keeps of a span to the headers: the properties that
// its tracing stored, traceparent among them, or the traceparent alone.
func (r *reader) trace() {
	c, v := r.value(RoleTrace, false)
	if v == nil || len(v.Bytes) == 0 {
		return
	}
	text := string(v.Bytes)
	properties, err := parseProperties(text)
	if err != nil {
		r.fail("column %s: %v", c.Name, err)
		return
	}
	if !strings.ContainsAny(text, "=:") {
		properties = map[string]string{"traceparent": strings.TrimSpace(text)}
	}
	for name, value := range properties {
		if r.event.Headers == nil {
			r.event.Headers = map[string]any{}
		}
		r.event.Headers[name] = value
	}
}

// eventuate takes the aggregate from the headers, where Eventuate Tram has
// it; a message without one is an aggregate of its own.
func (r *reader) eventuate() {
	e := r.event
	text := func(name string) string {
		if v := e.Headers[name]; v != nil {
			return fmt.Sprint(v)
		}
		return ""
	}
	e.AggregateID = cmp.Or(text(eventuatePartition), text(eventuateAggregate), e.ID)
	if r.table.roles[RoleAggregateType] < 0 {
		e.AggregateType = text(eventuateAggregateType)
	}
	if r.table.roles[RoleEventType] < 0 {
		e.EventType = text(eventuateEventType)
	}
}
