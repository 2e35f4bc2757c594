package cli_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/schema"
)

// onward is what a session does that stops the relay.
type onward struct {
	name  string
	sql   []string
	text  string // of the refusal
	mysql bool   // it is none on MariaDB as it is set
}

// onwardCommand gets the relay on.
var onwardCommand = regexp.MustCompile(`relay resume (--from-gtid) '([^']+)' (--yes)`)

const intoOnward = "INSERT INTO outbox (id, aggregate_id, topic, payload, headers) "

func onwards() []onward {
	const text, minimal = "SET SESSION binlog_format = STATEMENT", "SET SESSION binlog_row_image = MINIMAL"
	xa := func(setting, insert string) []string {
		return []string{setting, "XA START 'onward'", written(91), insert, "XA END 'onward'", "XA PREPARE 'onward'", "XA COMMIT 'onward'"}
	}
	unlike := intoOnward + "VALUES (x'" + hexID(90) + "', 1, 't', NULL, NULL)"
	selected := intoOnward + "SELECT x'" + hexID(90) + "', 1, 't', '{}', NULL"
	return []onward{
		{"NULL in a needed column", []string{"BEGIN", written(91), unlike, "COMMIT"}, "column payload is NULL", false},
		{"bytes that are no text", []string{"INSERT INTO outbox (id, aggregate_id, topic, payload, event_type) VALUES (x'" + hexID(90) + "', 1, 't', '{}', x'98')"}, "column event_type", false},
		{"a header that no message can carry", []string{intoOnward + "VALUES (x'" + hexID(90) + "', 1, 't', '{}', JSON_OBJECT(REPEAT('h', 300), 1))"}, "header", false},
		{"a message that the broker does not take", []string{intoOnward + "VALUES (x'" + hexID(90) + "', 1, 't', CONCAT('[', REPEAT('1,', 8500000), '1]'), NULL)"}, "bytes", true},
		{"a column that is not in the row image", []string{minimal, "INSERT INTO outbox (id, aggregate_id, payload) VALUES (x'" + hexID(90) + "', 1, '{}')"}, "is not in the row image", false},
		{"a row without any column", []string{minimal, "INSERT INTO outbox () VALUES ()"}, "without any column", false},
		{"text", []string{text, selected}, "INSERT … SELECT", false},
		{"text in a larger transaction", []string{text, "BEGIN", written(91), selected, "COMMIT"}, "is in the log as text", false},
		{"a temporary table of that name", []string{text, "CREATE TEMPORARY TABLE outbox (id INT)", "DROP TEMPORARY TABLE outbox"}, "temporary table", false},
		{"XA with a bad row", xa("DO 0", unlike), "column payload is NULL", false},
		{"XA with text", xa(text, selected), "INSERT in an XA transaction", false},
		{"XA with an image that lacks a column", xa(minimal, "INSERT INTO outbox (id, aggregate_id, payload) VALUES (x'"+hexID(90)+"', 1, '{}')"), "is not in the row image", false},
	}
}

// TestOnward: whatever kind of transaction stops the relay with 65, the command
// at the end of the message, typed as it stands, gets it on: all but that
// transaction is relayed, once, and the position has all of it, an XA
// transaction's first half as well. It fails for text where the message does
// not have the checkpoint's set, and for XA where the first half is not in it.
func TestOnward(t *testing.T) { onEach(t, testOnward) }

func testOnward(t *testing.T, on source) {
	r := on.rig(t)
	r.exec("ALTER TABLE outbox MODIFY id BINARY(16) NOT NULL DEFAULT '', MODIFY aggregate_id BIGINT NOT NULL DEFAULT 0, MODIFY topic VARCHAR(120) NOT NULL DEFAULT '', " +
		"MODIFY created_at DATETIME(6) NOT NULL DEFAULT '2024-01-02', MODIFY payload LONGTEXT NULL, ADD headers JSON, ADD event_type VARCHAR(9) CHARACTER SET cp1251")
	r.begun()
	for i, c := range onwards() {
		if c.mysql && r.mariadb() {
			continue
		}
		n := 100 * (i + 1)
		r.insert(r.db, n, n)
		conn := r.session()
		for _, s := range c.sql {
			r.on(conn, s)
		}
		r.insert(r.db, n+1, n+1)
		r.exec("DELETE FROM outbox")
		got := r.run("run", "--partitions", "1", "--log-level", "error")
		got.want(t, 65, c.text)
		got.oneLine(t)
		command := onwardCommand.FindStringSubmatch(got.stderr)
		if command == nil {
			t.Fatalf("%s: no command in %s", c.name, got.stderr)
		}
		before := messageIDs(r.take(0))
		_, behind := r.resumed(command[1:]...)
		// What stands before the bad event in its transaction is sent; what stands
		// behind that may have been in flight, and comes again.
		before = slices.DeleteFunc(before, func(id string) bool { return id == idText(91) || id == idText(n+1) })
		if fmt.Sprint(before, behind) != fmt.Sprint([]string{idText(n)}, []string{idText(n + 1)}) {
			t.Errorf("%s: sent %v, and behind the command %v, want %v and %v", c.name, before, behind, idText(n), idText(n+1))
		}
	}
}

// TestOnwardBackfill: rows that stop a backfill, in a table with a status column
// and in one without; the statement that the message has gets it on.
func TestOnwardBackfill(t *testing.T) { onEach(t, testOnwardBackfill) }

func testOnwardBackfill(t *testing.T, on source) {
	for _, c := range []struct {
		name, ddl, bad, text string
		left                 int // rows in the table afterwards
	}{
		{"with status", schema.SQL, "INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'" + hexID(2) + "', 1, x'98', '{}')", "column topic", 2},
		{"without status", strings.Replace(schema.SQL, "status       ENUM('pending','published') NOT NULL DEFAULT 'pending',", "", 1),
			"INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'" + hexID(2) + "', 1, x'98', '{}')", "column topic", 1},
		{"id of no text", strings.Replace(schema.SQL, "BINARY(16) ", "VARCHAR(16) CHARACTER SET cp1251", 1),
			"INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'98', 1, 't', '{}')", "column id", 2},
		{"no place in the order", strings.Replace(schema.SQL, "created_at   DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6))", "created_at DATETIME(6) NULL", 1),
			"INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'" + hexID(2) + "', 1, 't', '{}')", "NULL in `created_at`", 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			ddl := strings.Replace(c.ddl, "KEY idx_dispatch (status, created_at)", "KEY (created_at)", 1)
			ddl = strings.Replace(ddl, "topic        VARCHAR(120) ", "topic VARCHAR(120) CHARACTER SET cp1251 ", 1)
			r := rigOn(t, databaseOn(t, on.shared(t)), ddl)
			r.exec(c.bad)
			r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES ('1', 1, 't', '{}', '2024-01-01')")
			got := r.run("run", "--partitions", "1", "--log-level", "error")
			got.want(t, 65, c.text, "then: relay run")
			got.oneLine(t)
			statement := regexp.MustCompile("(UPDATE|DELETE FROM) `.*; then").FindString(got.stderr)
			if statement == "" {
				t.Fatalf("no statement in %s", got.stderr)
			}
			r.exec(strings.TrimSuffix(statement, "; then"))
			sent := len(r.relayed())
			if want := map[bool]int{true: 2, false: 1}[c.name == "no place in the order"]; sent != want {
				t.Errorf("sent %d messages, want %d", sent, want)
			}
			if left := r.text("SELECT COUNT(*) FROM outbox"); left != fmt.Sprint(c.left) {
				t.Errorf("the table has %s rows, want %d", left, c.left)
			}
		})
	}
}

// TestOnwardInBackfill: text that cannot be told stops a relay that goes on with
// a backfill. What the message has begins anew behind it.
func TestOnwardInBackfill(t *testing.T) { onEach(t, testOnwardInBackfill) }

func testOnwardInBackfill(t *testing.T, on source) {
	r := on.rig(t)
	r.declare("x-consistent-hash", false) // and no queue, so that nothing is settled
	r.insert(r.db, 1, 2)
	d := r.start()
	d.until("the backfill has begun", func() bool { return r.exists() && r.state().Backfill != nil })
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	r.on(r.session("SET SESSION binlog_format = STATEMENT"), "INSERT INTO outbox (id, aggregate_id, topic, payload) SELECT x'"+hexID(3)+"', 1, 't', '{}'")
	got := r.run("run", "--log-level", "error")
	got.want(t, 65, "INSERT … SELECT")
	got.oneLine(t)
	command := regexp.MustCompile(`mv (\S+) (\S+); relay run\n`).FindStringSubmatch(got.stderr)
	if command == nil {
		t.Fatalf("no command in %s", got.stderr)
	}
	if err := os.Rename(command[1], command[2]); err != nil {
		t.Fatal(err)
	}
	if got, want := messageIDs(r.relayed()), []string{idText(1), idText(2), idText(3)}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestOnwardColumn: a column of a type that cannot serve comes with the statement
// that changes it.
func TestOnwardColumn(t *testing.T) { onEach(t, testOnwardColumn) }

func testOnwardColumn(t *testing.T, on source) {
	r := rigOn(t, databaseOn(t, on.shared(t)), "CREATE TABLE outbox (id CHAR(36) PRIMARY KEY, aggregatetype VARCHAR(50), aggregateid VARCHAR(50), type SET('placed','paid'), payload JSON)",
		"INSERT INTO outbox VALUES ('a', 'order', '7', 'placed,paid', '{}')")
	got := r.run("run", "--partitions", "1")
	got.want(t, 78, "column type is set('placed','paid')")
	got.oneLine(t)
	statement := regexp.MustCompile("type: (ALTER TABLE [^;]*);").FindStringSubmatch(got.stderr)
	if statement == nil {
		t.Fatalf("no statement in %s", got.stderr)
	}
	r.exec(statement[1])
	r.relay("--partitions", "1")
	if got := r.texts(); !slices.Equal(got, []string{"placed,paid {}"}) {
		t.Errorf("got %q", got)
	}
}
