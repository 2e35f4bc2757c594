package schema

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var createdAt = time.Date(2024, 1, 2, 3, 4, 5, 678901000, time.UTC)

// cells are the values of a row by their columns' names: text, bytes or a
// time; nil is NULL, and what is not there is not in the row image.
type cells map[string]any

func (c cells) row(t *Table) *Values {
	var row Values
	for r := range Role(Roles) {
		column, ok := t.Column(r)
		if !ok {
			continue
		}
		switch v, present := c[column.Name]; v := v.(type) {
		case nil:
			row[r] = Value{Present: present, Null: present}
		case time.Time:
			row[r] = Value{Present: true, Time: v}
		case string:
			row[r] = Value{Present: true, Bytes: []byte(v)}
		}
	}
	return &row
}

// but is the cells with one changed.
func (c cells) but(name string, v any) cells {
	changed := cells{}
	for n, old := range c {
		changed[n] = old
	}
	changed[name] = v
	return changed
}

var (
	origin    = Origin{GTID: "g:1", CommittedAt: time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)}
	relayRow  = cells{"id": "0123456789abcdef", "aggregate_id": "42", "topic": "orders", "payload": `{"a": 1}`, "status": "pending", "created_at": createdAt}
	relayMade = Event{
		ID: "30313233-3435-3637-3839-616263646566", AggregateID: "42", Topic: "orders", Payload: []byte(`{"a": 1}`),
		ContentType: "application/json", CreatedAt: createdAt, GTID: "g:1",
	}
)

func TestEvent(t *testing.T) {
	all := append(relayColumns[:7:7], "aggregate_type varchar(9)", "event_type enum('a')", "headers json", "version bigint")
	made := func(change func(*Event)) Event { e := relayMade; change(&e); return e }
	tests := []struct {
		name    string
		columns []string
		row     cells
		want    Event
	}{
		{"relay", relayColumns, relayRow, relayMade},
		{"a column that no role reads", relayColumns, relayRow.but("published_at", nil), relayMade},
		{"a status that is NULL", relayColumns, relayRow.but("status", nil), relayMade},
		{"with everything", all,
			relayRow.but("aggregate_type", "order").but("event_type", "a").but("headers", `{"traceparent": "00-1"}`).but("version", "7"),
			made(func(e *Event) {
				e.AggregateType, e.EventType, e.Version = "order", "a", "7"
				e.Headers = map[string]any{"traceparent": "00-1"}
			})},
		{"with NULL in all that may be NULL", all,
			relayRow.but("aggregate_type", nil).but("event_type", nil).but("headers", nil).but("version", nil).but("created_at", nil),
			made(func(e *Event) { e.CreatedAt = origin.CommittedAt })},
		{"no time", relayColumns, relayRow.but("created_at", nil), made(func(e *Event) { e.CreatedAt = origin.CommittedAt })},
		{"the first time of all", relayColumns, relayRow.but("created_at", time.Time{}), made(func(e *Event) { e.CreatedAt = time.Time{} })},
		{"empty texts", with(relayColumns, "payload text"), relayRow.but("topic", "").but("payload", ""),
			made(func(e *Event) { e.Topic, e.Payload, e.ContentType = "", []byte{}, "text/plain;charset=utf-8" })},
		{"text", with(relayColumns, "payload longtext"), relayRow, made(func(e *Event) { e.ContentType = "text/plain;charset=utf-8" })},
		{"bytes", with(relayColumns, "payload blob"), relayRow.but("payload", "\xff\x00"),
			made(func(e *Event) { e.Payload, e.ContentType = []byte("\xff\x00"), "application/octet-stream" })},
		{"debezium", append(debeziumColumns[:5:5], "timestamp timestamp(6)"),
			cells{"id": "e1", "aggregatetype": "order", "aggregateid": "42", "type": "OrderPlaced", "payload": "{}", "timestamp": createdAt},
			Event{ID: "e1", AggregateID: "42", AggregateType: "order", EventType: "OrderPlaced", Payload: []byte("{}"),
				ContentType: "application/json", CreatedAt: createdAt, GTID: "g:1"}},
		{"eventuate", eventuateColumns,
			cells{"id": "e1", "destination": "orders", "payload": "{}", "published": "0", "creation_time": "1704164645678",
				"headers": `{"PARTITION_ID": "42", "event-aggregate-type": "order", "event-type": "OrderPlaced"}`},
			Event{ID: "e1", AggregateID: "42", AggregateType: "order", EventType: "OrderPlaced", Topic: "orders", Payload: []byte("{}"),
				ContentType: "text/plain;charset=utf-8", CreatedAt: createdAt.Truncate(time.Millisecond), GTID: "g:1",
				Headers: map[string]any{"PARTITION_ID": "42", "event-aggregate-type": "order", "event-type": "OrderPlaced"}}},
		{"debezium with a trace", append(debeziumColumns[:5:5], "tracingspancontext varchar(256)"),
			cells{"id": "e1", "aggregatetype": "order", "aggregateid": "42", "type": "OrderPlaced", "payload": "{}",
				"tracingspancontext": "#Mon Nov 30 17:23:04 UTC 2026\ntraceparent=00-1-2-01\ntracestate=a\\=1\n"},
			Event{ID: "e1", AggregateID: "42", AggregateType: "order", EventType: "OrderPlaced", Payload: []byte("{}"),
				ContentType: "application/json", CreatedAt: origin.CommittedAt, GTID: "g:1", Headers: map[string]any{"traceparent": "00-1-2-01", "tracestate": "a=1"}}},
		{"debezium with a bare trace", append(debeziumColumns[:5:5], "tracingspancontext varchar(256)"),
			cells{"id": "e1", "aggregatetype": "order", "aggregateid": "42", "type": "OrderPlaced", "payload": nil, "tracingspancontext": "00-1-2-01"},
			Event{ID: "e1", AggregateID: "42", AggregateType: "order", EventType: "OrderPlaced",
				ContentType: "application/json", CreatedAt: origin.CommittedAt, GTID: "g:1", Headers: map[string]any{"traceparent": "00-1-2-01"}}},
		{"eventuate with a number", eventuateColumns,
			cells{"id": "e1", "destination": "orders", "payload": "{}", "published": "0", "creation_time": "0", "headers": `{"PARTITION_ID": 42}`},
			Event{ID: "e1", AggregateID: "42", Topic: "orders", Payload: []byte("{}"), Headers: map[string]any{"PARTITION_ID": int64(42)},
				ContentType: "text/plain;charset=utf-8", CreatedAt: time.Unix(0, 0).UTC(), GTID: "g:1"}},
		{"eventuate without a partition", eventuateColumns,
			cells{"id": "e1", "destination": "orders", "payload": "{}", "published": "0", "creation_time": "0", "headers": `{"event-aggregate-id": "42"}`},
			Event{ID: "e1", AggregateID: "42", Topic: "orders", Payload: []byte("{}"), Headers: map[string]any{"event-aggregate-id": "42"},
				ContentType: "text/plain;charset=utf-8", CreatedAt: time.Unix(0, 0).UTC(), GTID: "g:1"}},
		{"eventuate without an aggregate", eventuateColumns,
			cells{"id": "e1", "destination": "orders", "payload": "{}", "published": "0", "creation_time": "0", "headers": "{}"},
			Event{ID: "e1", AggregateID: "e1", Topic: "orders", Payload: []byte("{}"), Headers: map[string]any{},
				ContentType: "text/plain;charset=utf-8", CreatedAt: time.Unix(0, 0).UTC(), GTID: "g:1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			table := newTable(t, Options{}, tt.columns...)
			got, err := event(table, tt.row.row(table))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}

func TestEventType(t *testing.T) {
	for want, e := range map[string]Event{"topic": {Topic: "topic", EventType: "type"}, "type": {EventType: "type"}, "": {}} {
		if got := e.Type(); got != want {
			t.Errorf("%+v: got type %q, want %q", e, got, want)
		}
	}
}

func TestEventuateColumnsWin(t *testing.T) {
	chosen := map[Role]string{RoleAggregateType: "kind"}
	table := newTable(t, Options{Layout: Eventuate, Columns: chosen}, append(eventuateColumns[:7:7], "kind text")...)
	row := cells{"id": "e1", "destination": "orders", "payload": "{}", "published": "0", "creation_time": "0", "kind": "order",
		"headers": `{"event-aggregate-type": "other", "event-type": "OrderPlaced"}`}
	got, err := event(table, row.row(table))
	if err != nil || got.AggregateType != "order" || got.EventType != "OrderPlaced" {
		t.Errorf("got %q, %q, %v, want order, OrderPlaced", got.AggregateType, got.EventType, err)
	}
}

func TestEventIDs(t *testing.T) {
	tests := []struct{ column, value, want string }{
		{"id binary(16)", "\x01\x23\x45\x67\x89\xab\xcd\xef\x01\x23\x45\x67\x89\x00\x00\x00", "01234567-89ab-cdef-0123-456789000000"},
		{"id binary(16)", strings.Repeat("\x00", 16), "00000000-0000-0000-0000-000000000000"},
		{"id binary(16)", strings.Repeat("\xff", 16), "ffffffff-ffff-ffff-ffff-ffffffffffff"},
		{"id binary(20)", "\x00\xab\x00", "00ab00"},
		{"id varbinary(16)", "0123456789abcdef", "30313233343536373839616263646566"},
		{"id varbinary(20)", "", ""},
		{"id blob", "\xff", "ff"},
		{"id char(36)", "01234567-89AB-cdef-0123-456789000000", "01234567-89AB-cdef-0123-456789000000"},
		{"id varchar(20)", "ä 雪", "ä 雪"},
		{"id bigint", "-9223372036854775808", "-9223372036854775808"},
		{"id bigint", "9223372036854775807", "9223372036854775807"},
		{"id bigint unsigned", "18446744073709551615", "18446744073709551615"},
		{"id int", "0", "0"},
	}
	for _, tt := range tests {
		table := newTable(t, Options{}, with(relayColumns, tt.column)...)
		got, err := event(table, relayRow.but("id", tt.value).row(table))
		if got.ID != tt.want || err != nil {
			t.Errorf("%s %q: got %q, %v, want %q", tt.column, tt.value, got.ID, err, tt.want)
		}
	}
}

func TestEventHeaders(t *testing.T) {
	list := append(relayColumns[:7:7], "headers json")
	table := newTable(t, Options{}, list...)
	tests := []struct {
		text   string
		want   map[string]any
		reason string // of the error
	}{
		{`{}`, map[string]any{}, ""},
		{`null`, nil, ""},
		{``, nil, ""},
		{`{"s": "ä\n", "t": true, "n": null}`, map[string]any{"s": "ä\n", "t": true, "n": nil}, ""},
		{`{"i": -7, "z": 0, "max": 9223372036854775807, "min": -9223372036854775808}`,
			map[string]any{"i": int64(-7), "z": int64(0), "max": int64(9223372036854775807), "min": int64(-9223372036854775808)}, ""},
		{`{"u": 18446744073709551615, "v": -9223372036854775809}`, map[string]any{"u": "18446744073709551615", "v": "-9223372036854775809"}, ""},
		{`{"f": 1.5, "e": 1e3, "big": 1e400}`, map[string]any{"f": 1.5, "e": 1000.0, "big": "1e400"}, ""},
		{`{"o": {"a": [1, 2]}, "a": [ ]}`, map[string]any{"o": `{"a": [1, 2]}`, "a": "[ ]"}, ""},
		{`[1]`, nil, "column headers is not a JSON object"},
		{`"text"`, nil, "column headers is not a JSON object"},
		{`{"a": 1`, nil, "column headers is not a JSON object"},
		{`{} {}`, nil, "column headers has more than one JSON value"},
		{`{} x`, nil, "column headers has more than one JSON value"},
	}
	for _, tt := range tests {
		got, err := event(table, relayRow.but("headers", tt.text).row(table))
		var bad *BadEventError
		switch {
		case tt.reason != "":
			if !errors.As(err, &bad) || !strings.Contains(bad.Reason, tt.reason) {
				t.Errorf("%s: got error %v, want %q", tt.text, err, tt.reason)
			}
		case err != nil:
			t.Errorf("%s: %v", tt.text, err)
		default:
			if diff := cmp.Diff(tt.want, got.Headers); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.text, diff)
			}
		}
	}
}

func TestEventRefuses(t *testing.T) {
	absent := func(name string) cells { row := relayRow.but(name, nil); delete(row, name); return row }
	tests := []struct {
		name    string
		columns []string
		row     cells
		id      string
		reason  string
	}{
		{"id NULL", relayColumns, relayRow.but("id", nil), "", "column id is NULL"},
		{"aggregate NULL", relayColumns, relayRow.but("aggregate_id", nil), relayMade.ID, "column aggregate_id is NULL"},
		{"topic NULL", relayColumns, relayRow.but("topic", nil), relayMade.ID, "column topic is NULL"},
		{"payload NULL", relayColumns, relayRow.but("payload", nil), relayMade.ID, "column payload is NULL"},
		{"the first of two", relayColumns, relayRow.but("payload", nil).but("topic", nil), relayMade.ID, "column topic is NULL"},
		{"id absent", relayColumns, absent("id"), "", "column id is not in the row image: SET GLOBAL binlog_row_image = FULL"},
		{"created_at absent", relayColumns, absent("created_at"), relayMade.ID, "column created_at is not in the row image: SET GLOBAL binlog_row_image = FULL"},
		{"headers absent", append(relayColumns[:7:7], "headers json"), relayRow, relayMade.ID, "column headers is not in the row image: SET GLOBAL binlog_row_image = FULL"},
		{"id not UTF-8", with(relayColumns, "id varchar(20)"), relayRow.but("id", "\xe4"), "", "column id is not valid UTF-8"},
		{"topic not UTF-8", relayColumns, relayRow.but("topic", "a\xff"), relayMade.ID, "column topic is not valid UTF-8"},
		{"payload not UTF-8", with(relayColumns, "payload text"), relayRow.but("payload", "a\xe4"), relayMade.ID, "column payload is not valid UTF-8"},
		{"creation time not a number", with(relayColumns, "created_at bigint"), relayRow.but("created_at", "x"), relayMade.ID, `column created_at: "x" is not a time in milliseconds`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			table := newTable(t, Options{}, tt.columns...)
			got, err := event(table, tt.row.row(table))
			var bad *BadEventError
			if !errors.As(err, &bad) {
				t.Fatalf("got %+v, %v, want a BadEventError", got, err)
			}
			if len(bad.Row) == 0 {
				t.Error("the row is not kept")
			}
			bad.Row = nil
			if diff := cmp.Diff(BadEventError{ID: tt.id, GTID: "g:1", Broken: true, Reason: tt.reason}, *bad); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
			if strings.Contains(err.Error(), "{") {
				t.Errorf("%v holds the payload", err)
			}
		})
	}
}

// TestParseID: ParseID undoes IDText for every value that a column can hold.
func TestParseID(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for _, c := range append(columns("id binary(16)", "id binary(20)", "id varbinary(16)", "id blob"), NewColumn("id", "binary", "binary(255)", 255, "")) {
		for i := range 1000 {
			size := random.IntN(40)
			if c.Length > 0 {
				size = c.Length
			}
			value := make([]byte, size)
			for i := range value {
				value[i] = byte(random.Uint32() >> random.IntN(8)) // zeros are frequent
			}
			if c.Length == 255 && i%2 == 0 {
				clear(value[16:])
			}
			text := IDText(c, value)
			got, err := ParseID(c, text)
			if raw, ok := got.([]byte); !ok || !bytes.Equal(raw, value) || err != nil {
				t.Fatalf("%s: %x became %s and %v, %v", c.Type, value, text, got, err)
			}
		}
	}
	for _, c := range columns("id char(36)", "id bigint") {
		if got, err := ParseID(c, "12 ä"); got != "12 ä" || err != nil {
			t.Errorf("%s: got %v, %v", c.Type, got, err)
		}
	}
	for _, c := range columns("id binary(16)", "id varbinary(16)") {
		if _, err := ParseID(c, "12 ä"); err == nil || !strings.Contains(err.Error(), "column id is "+c.Type) {
			t.Errorf("%s: got error %v", c.Type, err)
		}
	}
}

// event makes the event of a row; of one that is bad it returns only why.
func event(table *Table, row *Values) (Event, error) {
	e := table.Event(row, origin)
	if e.Bad != nil {
		return Event{}, e.Bad
	}
	return e, nil
}
