package binlog_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/schema"
)

// tables are tables of many shapes, one after another, in one database and one
// stream, which takes fewer seconds than as many of them.
type tables struct {
	*rig
	server *binlog.Server
	stream *binlog.Stream
}

func newTables(tb testing.TB, changes ...func(*binlog.Config)) *tables {
	tb.Helper()
	r := newRig(tb, "CREATE TABLE outbox (id INT PRIMARY KEY, aggregate_id INT, topic TEXT, payload TEXT, created_at DATETIME)")
	server := r.open(changes...)
	return &tables{r, server, r.follow(server)}
}

// create puts the statement's table in the place of the one before.
func (ts *tables) create(tb testing.TB, statement string) (*rig, *binlog.Server, *binlog.Stream) {
	tb.Helper()
	r := *ts.rig
	r.TB = tb
	r.on(r.conn("SET SESSION sql_generate_invisible_primary_key = ON", "DROP TABLE outbox"), statement)
	return &r, ts.server, ts.stream
}

// TestIDValues: ids and aggregate ids of every type, to its limits, as they are
// in the stream and in a backfill. Seen to fail without IDText's case of
// BINARY(255).
func TestIDValues(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("0", 40)
	tests := []struct {
		column string
		values []string // as SQL, and what becomes of each
	}{
		{"BINARY(16)", []string{"x'00'", "00000000-0000-0000-0000-000000000000", "x'0123456789abcdef0123456789000000'", "01234567-89ab-cdef-0123-456789000000",
			"UUID_TO_BIN('FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF')", "ffffffff-ffff-ffff-ffff-ffffffffffff", "x'20'", "20000000-0000-0000-0000-000000000000"}},
		{"BINARY(20)", []string{"x'00'", zeros, "x'ab20'", "ab20" + zeros[4:], "REPEAT('z', 20)", strings.Repeat("7a", 20)}},
		{"BINARY(255)", []string{"x'0123456789abcdef0123456789000000'", "01234567-89ab-cdef-0123-456789000000", "x'00'", "00000000-0000-0000-0000-000000000000",
			"REPEAT(x'01', 17)", strings.Repeat("01", 17) + strings.Repeat("00", 238)}},
		{"VARBINARY(16)", []string{"x'00'", "00", "x'0000'", "0000", "x'0123456789abcdef0123456789000000'", "0123456789abcdef0123456789000000", "x'2020'", "2020"}},
		{"VARBINARY(300)", []string{"REPEAT(x'00', 300)", strings.Repeat("00", 300)}},
		{"CHAR(36)", []string{"'0123ABCD-89ab-cdef-0123-456789000000'", "0123ABCD-89ab-cdef-0123-456789000000", "'a  '", "a", "' b'", " b", "'ü 雪 😀'", "ü 雪 😀"}},
		{"CHAR(255)", []string{"REPEAT('雪', 255)", strings.Repeat("雪", 255)}},
		{"VARCHAR(255)", []string{"'a  '", "a  ", "REPEAT('k', 255)", strings.Repeat("k", 255), "'ü\\n'", "ü\n"}},
		{"VARCHAR(600)", []string{"REPEAT('k', 300)", strings.Repeat("k", 300), "REPEAT('é', 300)", strings.Repeat("é", 300)}},
		{"TINYINT", []string{"-128", "-128", "127", "127", "0", "0"}},
		{"TINYINT UNSIGNED", []string{"255", "255"}},
		{"SMALLINT", []string{"-32768", "-32768", "32767", "32767"}},
		{"SMALLINT UNSIGNED", []string{"65535", "65535"}},
		{"MEDIUMINT", []string{"-8388608", "-8388608", "8388607", "8388607"}},
		{"MEDIUMINT UNSIGNED", []string{"16777215", "16777215"}},
		{"INT", []string{"-2147483648", "-2147483648", "2147483647", "2147483647"}},
		{"INT UNSIGNED", []string{"4294967295", "4294967295", "2147483648", "2147483648"}},
		{"INT(8) ZEROFILL", []string{"7", "7", "0", "0", "123456789", "123456789"}},
		{"BIGINT", []string{"-9223372036854775808", "-9223372036854775808", "9223372036854775807", "9223372036854775807", "-1", "-1"}},
		{"BIGINT UNSIGNED", []string{"18446744073709551615", "18446744073709551615", "9223372036854775808", "9223372036854775808", "9007199254740993", "9007199254740993"}},
	}
	tables := newTables(t)
	for _, tt := range tests {
		t.Run(tt.column, func(t *testing.T) {
			r, server, stream := tables.create(t, "CREATE TABLE outbox (id "+tt.column+", aggregate_id "+tt.column+", topic VARCHAR(9), payload TEXT, version INT, created_at DATETIME, PRIMARY KEY (id))")
			for i := 0; i < len(tt.values); i += 2 {
				r.exec(fmt.Sprintf("INSERT INTO outbox VALUES (%s, %s, 't', 'p', %d, '2024-01-01')", tt.values[i], tt.values[i], i))
			}
			events := r.both(server, stream, len(tt.values)/2)
			for i := 0; i < len(tt.values); i += 2 {
				e, want := events[strconv.Itoa(i)], tt.values[i+1]
				if e.ID != want || e.AggregateID != want || e.Bad != nil {
					t.Errorf("%s: got id %q, aggregate id %q, %v, want %q", tt.values[i], e.ID, e.AggregateID, e.Bad, want)
				}
			}
		})
	}
}

// TestEmptyValues: the empty text is a value, NULL is none. Without the look at
// NULL in reader.value an event without its aggregate would be sent.
func TestEmptyValues(t *testing.T) {
	t.Parallel()
	r := newRig(t, "CREATE TABLE outbox (id INT PRIMARY KEY, aggregate_id VARCHAR(9), topic VARCHAR(9), payload TEXT, headers JSON, version INT, created_at DATETIME)")
	server := r.open()
	stream := r.follow(server)
	r.exec("INSERT INTO outbox VALUES (0, '', '', '', '{}', 0, '2024-01-01'), (1, NULL, 't', 'p', NULL, 1, '2024-01-01'), (2, 'a', NULL, 'p', NULL, 2, '2024-01-01'), (3, 'a', 't', NULL, NULL, 3, '2024-01-01')")
	got := r.both(server, stream, 4)
	want := schema.Event{ID: "0", Payload: []byte{}, ContentType: "text/plain;charset=utf-8", Headers: map[string]any{}, Version: "0", CreatedAt: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)}
	if diff := cmp.Diff(want, got["0"]); diff != "" {
		t.Errorf("empty (-want +got):\n%s", diff)
	}
	for version, reason := range map[string]string{"1": "column aggregate_id is NULL", "2": "column topic is NULL", "3": "column payload is NULL"} {
		if e := got[version]; e.Bad == nil || e.Bad.Reason != reason || e.Bad.ID != version {
			t.Errorf("row %s: got %+v, want %s", version, e.Bad, reason)
		}
	}
}

// TestPayloadValues: payloads of every type, to more than the broker takes.
// Without padBinary the BINARY(4) is shorter in the stream.
func TestPayloadValues(t *testing.T) {
	t.Parallel()
	tables := newTables(t)
	const text, bytes = "text/plain;charset=utf-8", "application/octet-stream"
	for column, tt := range map[string]struct{ value, want, contentType string }{
		"CHAR(9)":      {"'a  '", "a", text},
		"VARCHAR(300)": {"CONCAT(REPEAT('é', 299), ' ')", strings.Repeat("é", 299) + " ", text},
		"TINYTEXT":     {"REPEAT('a', 255)", strings.Repeat("a", 255), text},
		"TEXT":         {"'a\\0b\\r\\n'", "a\x00b\r\n", text},
		"MEDIUMTEXT":   {"REPEAT('雪', 100000)", strings.Repeat("雪", 100000), text},
		"LONGTEXT":     {"REPEAT('x', 17 << 20)", strings.Repeat("x", 17<<20), text},
		"BINARY(4)":    {"x'ff00'", "\xff\x00\x00\x00", bytes},
		"VARBINARY(4)": {"x'ff00'", "\xff\x00", bytes},
		"TINYBLOB":     {"x'ff00'", "\xff\x00", bytes},
		"BLOB":         {"''", "", bytes},
		"MEDIUMBLOB":   {"REPEAT(x'ff', 70000)", strings.Repeat("\xff", 70000), bytes},
		"LONGBLOB":     {"REPEAT(x'fe', 17 << 20)", strings.Repeat("\xfe", 17<<20), bytes},
	} {
		t.Run(column, func(t *testing.T) {
			r, server, stream := tables.create(t, "CREATE TABLE outbox (id INT PRIMARY KEY, aggregate_id INT, topic VARCHAR(9), payload "+column+", version INT, created_at DATETIME)")
			r.exec("INSERT INTO outbox VALUES (1, 1, 't', " + tt.value + ", 1, '2024-01-01')")
			if e := r.both(server, stream, 1)["1"]; string(e.Payload) != tt.want || e.ContentType != tt.contentType {
				t.Errorf("got %d bytes of %s, %.40q, want %d", len(e.Payload), e.ContentType, e.Payload, len(tt.want))
			}
		})
	}
}

// TestTimeValues: fractions, zero dates and the hours in which clocks change,
// written by a session in another zone. A reading of TIMESTAMP in the table's
// zone or the session's, or of a zero date as a time, fails here.
func TestTimeValues(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	utc := func(text string) time.Time {
		parsed, err := time.Parse("2006-01-02 15:04:05", text)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	tables := newTables(t, func(c *binlog.Config) { c.Options.Zone = berlin })
	const bad = "bad"
	tests := []struct {
		column string
		values []string // and the time in UTC; "": the commit's
	}{
		{"DATETIME(6)", []string{"'2024-07-01 12:00:00.123456'", "2024-07-01 10:00:00.123456", "'1969-12-31 23:59:59.999999'", "1969-12-31 22:59:59.999999",
			"'2024-03-31 01:59:59'", "2024-03-31 00:59:59", "'2024-03-31 03:00:00'", "2024-03-31 01:00:00", // 02:30 is no time in Berlin
			"'2024-10-27 01:59:59'", "2024-10-26 23:59:59", "'2024-10-27 02:30:00'", "2024-10-27 01:30:00", "'2024-10-27 03:00:00'", "2024-10-27 02:00:00", // 02:30 is two, of which time.Date takes this
			"'0000-00-00'", "", "'0001-01-01 00:53:28'", "0001-01-01 00:00:00", "'2024-00-10'", bad, "'2024-02-00'", bad, "'1000-01-01'", "0999-12-31 23:06:32"}},
		{"DATETIME(1)", []string{"'2024-07-01 12:00:00.16'", "2024-07-01 10:00:00.2", "'0000-00-00 00:00:00'", ""}},
		{"DATETIME", []string{"'2024-07-01 12:00:00.5'", "2024-07-01 10:00:01", "'9999-12-31 23:59:59'", "9999-12-31 22:59:59"}},
		{"TIMESTAMP(6)", []string{"'2024-07-01 12:00:00.123456'", "2024-07-01 16:00:00.123456", "'1970-01-01 00:00:01'", "1970-01-01 04:00:01",
			"'2024-10-27 01:30:00'", "2024-10-27 05:30:00", "'2024-11-03 01:30:00'", "2024-11-03 05:30:00", "'2038-01-18 22:14:07.999999'", "2038-01-19 02:14:07.999999", "'0000-00-00'", ""}},
		{"TIMESTAMP(3)", []string{"'2024-07-01 12:00:00.9999'", "2024-07-01 16:00:01", "NULL", ""}},
		{"BIGINT", []string{"1704164645678", "2024-01-02 03:04:05.678", "-1", "1969-12-31 23:59:59.999"}},
	}
	for _, tt := range tests {
		t.Run(tt.column, func(t *testing.T) {
			r, server, stream := tables.create(t, "CREATE TABLE outbox (id INT PRIMARY KEY, aggregate_id INT, topic VARCHAR(9), payload TEXT, version INT, created_at "+tt.column+" NULL)")
			conn := r.conn("SET SESSION sql_mode = '', SESSION time_zone = '-04:00'")
			for i := 0; i < len(tt.values); i += 2 {
				r.on(conn, fmt.Sprintf("INSERT INTO outbox VALUES (%d, 1, 't', 'p', %d, %s)", i, i, tt.values[i]))
			}
			begun := time.Now()
			streamed, filled := r.events(stream, len(tt.values)/2), r.backfill(server, "", "")
			for i := 0; i < len(tt.values); i += 2 {
				for where, e := range map[string]schema.Event{"stream": streamed[i/2], "backfill": filled[i/2].Events[0]} {
					switch want := tt.values[i+1]; {
					case want == bad:
						if e.Bad == nil || !strings.HasPrefix(e.Bad.Reason, "column created_at: ") {
							t.Errorf("%s: %s: got %s, want it bad", where, tt.values[i], e.CreatedAt)
						}
					case e.Bad != nil:
						t.Errorf("%s: %s: %v", where, tt.values[i], e.Bad)
					case want == "":
						if d := e.CreatedAt.Sub(begun); d < -limit || d > limit {
							t.Errorf("%s: %s: got %s, want the commit time", where, tt.values[i], e.CreatedAt)
						}
					case !e.CreatedAt.Equal(utc(want)) || e.CreatedAt.Location() != time.UTC:
						t.Errorf("%s: %s: got %s, want %s", where, tt.values[i], e.CreatedAt, want)
					}
				}
			}
		})
	}
}

// TestEnumValues: an ENUM as its text, in the stream and in a backfill. Seen to
// fail when enumValues left backslashes as SHOW CREATE TABLE prints them.
func TestEnumValues(t *testing.T) {
	t.Parallel()
	var many []string
	for i := range 300 {
		many = append(many, fmt.Sprintf("'label %d'", i+1))
	}
	r := newRig(t, `CREATE TABLE outbox (id INT PRIMARY KEY, aggregate_id INT, aggregate_type ENUM('it''s', 'a,b', 'c"d\\e', '', 'é') CHARACTER SET latin1,
		event_type ENUM(`+strings.Join(many, ", ")+`), topic ENUM('1', '2', 'ü 雪') CHARACTER SET utf8mb4, payload TEXT, version INT, created_at DATETIME)`)
	server := r.open()
	stream := r.follow(server)
	conn := r.conn("SET SESSION sql_mode = ''")
	r.on(conn, `INSERT INTO outbox VALUES (0, 1, 'it''s', 'label 1', 'ü 雪', 'p', 0, '2024-01-01'), (1, 1, 'a,b', 'label 255', '2', 'p', 1, '2024-01-01'),
		(2, 1, 'c"d\\e', 'label 256', 2, 'p', 2, '2024-01-01'), (3, 1, '', 'LABEL 300', '1', 'p', 3, '2024-01-01'),
		(4, 1, 'é', 300, '2', 'p', 4, '2024-01-01'), (5, 1, 'nothing', 'nothing', 'nothing', 'p', 5, '2024-01-01'), (6, 1, NULL, NULL, '2', 'p', 6, '2024-01-01')`)
	got := r.both(server, stream, 7)
	for i, want := range []string{"it's|label 1|ü 雪", "a,b|label 255|2", `c"d\e|label 256|2`, "|label 300|1", "é|label 300|2", "||", "||2"} {
		e := got[strconv.Itoa(i)]
		if text := e.AggregateType + "|" + e.EventType + "|" + e.Topic; text != want || e.Bad != nil {
			t.Errorf("row %d: got %q, %v, want %q", i, text, e.Bad, want)
		}
	}
}

// TestColumnKinds: generated, invisible and hidden columns, in any order and
// number, do not shift the ones that make the event.
func TestColumnKinds(t *testing.T) {
	t.Parallel()
	var wide []string
	for i := range 200 {
		wide = append(wide, fmt.Sprintf("c%d %s DEFAULT %s", i, []string{"INT", "VARCHAR(9)", "DATETIME(3)", "DECIMAL(9,2)", "BIT(3)", "TEXT", "ENUM('x')", "JSON", "FLOAT", "BLOB"}[i%10],
			[]string{"7", "NULL", "'2024-01-01'", "1.5", "b'101'", "('t')", "'x'", "(JSON_ARRAY(1))", "NULL", "(x'00')"}[i%10]))
	}
	tables := newTables(t)
	const row = "(id, aggregate_id, topic, payload, created_at) VALUES (7, 42, 'orders', '{\"a\": 1}', '2024-01-01')"
	for name, tt := range map[string]struct{ create, insert string }{
		"generated": {"CREATE TABLE outbox (s BIGINT AS (aggregate_id * 2) STORED, v VARCHAR(20) AS (CONCAT(topic, 'x')) VIRTUAL, id INT PRIMARY KEY, aggregate_id INT, topic VARCHAR(9), payload JSON, " +
			"w INT AS (payload->'$.a') VIRTUAL, created_at DATETIME, KEY (v), KEY (w), KEY ((aggregate_id + 1)))", row},
		"generated parts": {"CREATE TABLE outbox (body VARCHAR(99), topic VARCHAR(9) AS (CONCAT('ord', 'ers')) VIRTUAL, id INT PRIMARY KEY, payload JSON AS (body) STORED, n INT, aggregate_id INT AS (n + 1) VIRTUAL, created_at DATETIME)",
			"(id, n, body, created_at) VALUES (7, 41, '{\"a\":1}', '2024-01-01')"},
		"invisible":     {"CREATE TABLE outbox (secret INT INVISIBLE DEFAULT 5, id INT PRIMARY KEY, aggregate_id INT INVISIBLE, topic VARCHAR(9), more VARCHAR(9) INVISIBLE, payload JSON INVISIBLE, created_at DATETIME)", row},
		"generated key": {"CREATE TABLE outbox (id INT, aggregate_id INT, topic VARCHAR(9), payload JSON, created_at DATETIME)", row},
		"another order": {"CREATE TABLE outbox (created_at DATETIME, payload JSON, x TEXT, topic VARCHAR(9), aggregate_id INT, y BLOB, id INT PRIMARY KEY)", row},
		"wide":          {"CREATE TABLE outbox (" + strings.Join(wide[:90], ", ") + ", payload JSON, created_at DATETIME, " + strings.Join(wide[90:], ", ") + ", topic VARCHAR(9), id INT PRIMARY KEY, aggregate_id INT)", row},
	} {
		t.Run(name, func(t *testing.T) {
			r, server, stream := tables.create(t, tt.create)
			r.exec("INSERT INTO outbox " + tt.insert)
			if name == "generated key" && r.text("SELECT my_row_id FROM outbox") != "1" {
				t.Error("there is no generated key")
			}
			want := schema.Event{ID: "7", AggregateID: "42", Topic: "orders", Payload: []byte(`{"a": 1}`), ContentType: "application/json", CreatedAt: time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)}
			if diff := cmp.Diff(want, r.both(server, stream, 1)[""]); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}
