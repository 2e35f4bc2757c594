package binlog_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/schema"
)

// both are the events of the rows of outbox, by their version, as the stream
// and a backfill bring them. They must be equal, and n.
func (r *rig) both(server *binlog.Server, from source, n int) map[string]schema.Event {
	r.Helper()
	streamed := map[string]schema.Event{}
	for _, e := range r.events(from, n) {
		e.GTID = ""
		streamed[e.Version] = e
	}
	filled := map[string]schema.Event{}
	for _, tx := range r.backfill(server, "", "") {
		e := tx.Events[0]
		filled[e.Version] = e
	}
	for version, e := range streamed {
		other := filled[version]
		for _, bad := range []*schema.BadEventError{e.Bad, other.Bad} {
			if bad != nil {
				bad.GTID = ""
			}
		}
		if bytes.Equal(e.Payload, other.Payload) && (e.Payload == nil) == (other.Payload == nil) {
			e.Payload, other.Payload = nil, nil // cmp is slow with megabytes
		}
		if diff := cmp.Diff(e, other); diff != "" {
			r.Errorf("stream and backfill, row %s (-stream +backfill):\n%s", version, diff)
		}
	}
	if len(filled) != n || len(streamed) != n {
		r.Errorf("the stream brings %d rows, a backfill %d, want %d", len(streamed), len(filled), n)
	}
	return streamed
}

// TestCharsetColumns: text of every character set, in every kind of column, is
// what SELECT prints on a connection of utf8mb4. Before the relay converted,
// most of these tables were refused at the start.
func TestCharsetColumns(t *testing.T) { onEach(t, testCharsetColumns) }

func testCharsetColumns(t *testing.T, on flavor) {
	dsn := on.database(t) + "?interpolateParams=true" // the server refuses a prepared statement what it converts in a literal
	r := newRigOn(t, dsn, "")
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(t.Context(), 10*limit) // for forty tables
	defer cancel()
	var every strings.Builder // characters of the basic plane, and two beyond it
	for c := rune(1); c < 0xfffe; c++ {
		if (c < 0xd800 || c > 0xdfff) && c != 0xfffd { // which the server takes for any character that a set lacks
			every.WriteRune(c)
		}
	}
	every.WriteString("😀𠀋")
	few := "\x01 \x7f\u0080é߿ࠀ雪\ud7ff\ue000\uffee😀\U0010ffff" // for sets whose codes are the characters' numbers
	rows, err := r.db.QueryContext(r.ctx, "SELECT character_set_name FROM information_schema.character_sets WHERE character_set_name <> 'binary'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if len(names) < 39 {
		t.Fatalf("the server has the character sets %q", names)
	}
	r.exec("CREATE TABLE outbox (id INT PRIMARY KEY, aggregate_id INT, topic TEXT, payload TEXT, created_at DATETIME)")
	server := r.open()
	stream := r.follow(server)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			r := *r
			r.TB = t
			own := "z" // a character of this set, beyond ASCII where it has one
			for _, c := range []string{"é", "ж", "中", "あ", "가", "Ա", "ა", "Ω", "ש", "ก", "£"} {
				if r.text("SELECT CONVERT(CONVERT(? USING "+name+") USING utf8mb4)", c) == c {
					own = c
					break
				}
			}
			if own == "z" && name != "ascii" {
				t.Errorf("no character of %s is tried", name)
			}
			r.exec("DROP TABLE IF EXISTS outbox")
			r.exec("CREATE TABLE outbox (id CHAR(20) PRIMARY KEY, aggregate_id VARCHAR(20), aggregate_type ENUM('z0', '" + own + "'), event_type TINYTEXT, " +
				"topic VARCHAR(300), payload LONGTEXT, headers TEXT, version VARCHAR(9), created_at DATETIME) CHARSET " + name)
			text, least := every.String(), 63000
			if strings.HasPrefix(name, "u") && name != "ujis" {
				text, least = few+own, len(few)-8
			}
			insert := "INSERT INTO outbox VALUES (?, CONCAT(?, ' '), ?, ?, ?, ?, CONCAT('{\"k\": \"', ?, '\"}'), ?, '2024-01-01')"
			conn := r.conn("SET SESSION sql_mode = ''") // what a set does not have becomes a question mark
			r.on(conn, insert, "x"+own+"  ", own+own, own, own, strings.Repeat(own, 300), text, own, "1")
			r.on(conn, insert, "y", "", "", "", "", "", "", "2")
			r.on(conn, insert, "Y"+own, "", "z0", "", "", "\\", "", "3")
			got := r.both(server, stream, 3)
			if name == "swe7" { // it has letters in place of braces and the backslash
				if e := got["1"]; e.Bad == nil || e.ID != "x"+own || e.Topic != strings.Repeat(own, 300) || string(e.Payload) != r.text("SELECT payload FROM outbox WHERE version = '1'") {
					t.Errorf("got %+v", e)
				}
				return
			}
			for version, payload := range map[string]string{"1": r.text("SELECT payload FROM outbox WHERE version = '1'"), "2": "", "3": "\\"} {
				if diff := cmp.Diff(payload, string(got[version].Payload)); diff != "" {
					t.Errorf("payload %s (-select +event):\n%.2000s", version, diff)
				}
			}
			e := got["1"]
			want := schema.Event{
				ID: "x" + own, AggregateID: own + own + " ", AggregateType: own, EventType: own, Topic: strings.Repeat(own, 300), Version: "1",
				Payload: e.Payload, ContentType: "text/plain;charset=utf-8", Headers: map[string]any{"k": own}, CreatedAt: e.CreatedAt,
			}
			if diff := cmp.Diff(want, e); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
			if len(e.Payload) < least || !strings.Contains(string(e.Payload), own) {
				t.Errorf("got a payload of %d bytes without %q", len(e.Payload), own)
			}
		})
	}
}

// TestCharsetNoCharacter: bytes that stand for nothing in their character set
// make a bad event, in the stream and in a backfill, where SELECT prints a
// question mark.
func TestCharsetNoCharacter(t *testing.T) { onEach(t, testCharsetNoCharacter) }

func testCharsetNoCharacter(t *testing.T, on flavor) {
	for column, want := range map[string]string{
		"id":           "column id: the bytes 98 at offset 1 of 2 are no character of cp1251",
		"aggregate_id": "column aggregate_id: the bytes 98 at offset 1 of 2 are no character of cp1251",
		"topic":        "column topic: the bytes 98 at offset 1 of 2 are no character of cp1251",
		"payload":      "column payload: the bytes 98 at offset 1 of 2 are no character of cp1251",
		"headers":      "column headers: the bytes 98 at offset 1 of 2 are no character of cp1251",
	} {
		t.Run(column, func(t *testing.T) {
			t.Parallel()
			r := on.rig(t, "CREATE TABLE outbox (id VARCHAR(9) PRIMARY KEY, aggregate_id VARCHAR(9), topic TEXT, payload TEXT, headers TEXT, version INT, created_at DATETIME) CHARSET cp1251")
			stream := r.follow(r.open())
			r.exec("INSERT INTO outbox VALUES ('a', 'ж', 't', 'p', '{}', 1, '2024-01-01'), ('b', 'ж', 't', 'p', '{}', 2, '2024-01-02'), ('c', 'ж', 't', 'p', '{}', 3, '2024-01-03')")
			r.events(stream, 3)
			r.exec("DELETE FROM outbox WHERE version = 2")
			values := []string{"'b'", "'ж'", "'t'", "'p'", "'{}'"}
			for i, name := range []string{"id", "aggregate_id", "topic", "payload", "headers"} {
				if name == column {
					values[i] = "x'6298'"
				}
			}
			r.exec("INSERT INTO outbox VALUES (" + strings.Join(values, ", ") + ", 4, '2024-01-02')")
			if got := r.text("SELECT " + column + " FROM outbox WHERE version = 4"); got != "b?" {
				t.Errorf("SELECT prints %q", got)
			}
			streamed := r.events(stream, 1)[0]
			filled := r.backfill(r.open(), "", "")
			if len(filled) != 3 {
				t.Fatalf("the backfill has %d rows", len(filled))
			}
			for where, e := range map[string]schema.Event{"stream": streamed, "backfill": filled[1].Events[0]} {
				if e.Bad == nil || e.Bad.Reason != want || string(e.Bad.Row[column]) != "b\x98" {
					t.Errorf("%s: got %+v, want it bad: %s", where, e.Bad, want)
				}
			}
			for i, tx := range filled { // also behind the row whose id has no text
				if got := len(r.backfill(r.open(), tx.Cursor, "")); got != 2-i {
					t.Errorf("%d rows behind row %d", got, i)
				}
			}
		})
	}
}

// TestEnumLabels: labels that information_schema cannot print. Without their
// text in the log a row with one is bad, and no other.
func TestEnumLabels(t *testing.T) {
	t.Parallel()
	r := newRig(t, "CREATE TABLE outbox (id INT PRIMARY KEY, aggregate_id INT, topic ENUM('a😀', 'ü', '') CHARACTER SET utf8mb4, event_type ENUM('?', 'ü') CHARACTER SET latin1, payload TEXT, created_at DATETIME)")
	stream := r.follow(r.open())
	r.exec("INSERT INTO outbox VALUES (1, 1, 'ü', 'ü', 'p', '2024-01-01'), (2, 1, '', '?', 'p', '2024-01-01'), (3, 1, 'a😀', 'ü', 'p', '2024-01-01')")
	if metadata := r.text("SELECT @@GLOBAL.binlog_row_metadata"); metadata != "MINIMAL" {
		t.Fatalf("binlog_row_metadata is %s", metadata)
	}
	var got []string
	for _, e := range r.events(stream, 3) {
		text := e.Topic + "," + e.EventType
		if e.Bad != nil {
			text = e.Bad.Reason
		}
		got = append(got, text)
	}
	want := []string{"ü,ü", ",?", `column topic: the label "a?" may have another character in place of each question mark, which only the log tells: SET PERSIST binlog_row_metadata = FULL`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("stream (-want +got):\n%s", diff)
	}
	if e := r.backfill(r.open(), "", "")[2].Events[0]; e.Topic != "a😀" {
		t.Errorf("backfill: got %q", e.Topic)
	}
}

// testLoggedColumns: a table whose labels, character sets and signs change
// while the relay is away, in a log that tells what they were
// (binlog_row_metadata=FULL). By the table's definition alone every one of
// these values would be another.
func testLoggedColumns(r *rig) {
	r.exec("DROP TABLE outbox")
	r.exec(`CREATE TABLE outbox (y YEAR, id TINYINT UNSIGNED PRIMARY KEY, f FLOAT, aggregate_id SMALLINT, s SET('x', 'é') CHARACTER SET latin1,
		topic ENUM('a😀', 'é', 'c') CHARACTER SET utf8mb4, event_type ENUM('é', 'b') CHARACTER SET latin1,
		b VARBINARY(9), payload TEXT CHARACTER SET latin1, version VARCHAR(9) CHARACTER SET utf16, created_at DATETIME)`)
	server := r.open()
	from := r.executed(server)
	r.exec("INSERT INTO outbox VALUES (2024, 200, 1, -5, 'é', 'a😀', 'é', 'b', 'é', 'é', '2024-01-01'), (2024, 201, 1, 5, '', 'c', 'b', '', '', '', '2024-01-01')")
	r.exec("UPDATE outbox SET aggregate_id = 1, id = id - 150, event_type = 'b'") // so that the table can change
	r.exec(`ALTER TABLE outbox MODIFY id TINYINT, MODIFY aggregate_id SMALLINT UNSIGNED, MODIFY topic ENUM('c', 'b', 'é', 'a😀') CHARACTER SET utf8mb4,
		MODIFY event_type ENUM('b', 'x') CHARACTER SET gbk, MODIFY payload TEXT CHARACTER SET utf8mb4, MODIFY version VARCHAR(9) CHARACTER SET latin1`)
	var got []string
	for _, e := range r.events(r.followFrom(server, from), 2) {
		if e.Bad != nil {
			r.Error(e.Bad)
		}
		got = append(got, fmt.Sprint(e.ID, " ", e.AggregateID, " ", e.Topic, " ", e.EventType, " ", string(e.Payload), " ", e.Version))
	}
	if diff := cmp.Diff([]string{"200 -5 a😀 é é é", "201 5 c b  "}, got); diff != "" {
		r.Errorf("events (-want +got):\n%s", diff)
	}

	r.exec("UPDATE outbox SET payload = ''")
	for from, to := range map[string]string{"BLOB": "TEXT", "TEXT": "BLOB"} { // of one type in the log
		r.exec("ALTER TABLE outbox MODIFY payload " + from)
		position := r.executed(server)
		r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (100, 1, 'b', 'x', '2024-01-01')")
		r.exec("ALTER TABLE outbox MODIFY payload " + to)
		want := map[string]string{"BLOB": "application/octet-stream", "TEXT": "text/plain;charset=utf-8"}[from]
		if e := r.events(r.followFrom(server, position), 1)[0]; e.ContentType != want || string(e.Payload) != "x" {
			r.Errorf("%s before it was %s: got %+v", from, to, e)
		}
		r.exec("DELETE FROM outbox WHERE id = 100")
	}
}
