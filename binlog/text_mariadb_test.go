package binlog_test

import (
	"fmt"
	"io"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// testTextOfMariaDB: what MariaDB alone has in its log as text: its rows are
// fetched, or it stops the relay. Before SET STATEMENT, ANALYZE and CREATE OR
// REPLACE were known, rows of these passed in silence.
func testTextOfMariaDB(r *rig) {
	if !r.mariadb() {
		return
	}
	r.exec("CREATE DATABASE IF NOT EXISTS elsewhere")
	r.exec("CREATE SEQUENCE IF NOT EXISTS counter")
	database := r.text("SELECT DATABASE()")
	for _, format := range []string{"STATEMENT", "MIXED"} {
		for _, compress := range []string{"OFF", "ON"} {
			r.exec("SET GLOBAL log_bin_compress = " + compress)
			testTextFetchedOn(r, database, format)
		}
	}
	r.exec("SET GLOBAL log_bin_compress = OFF")

	server := r.open()
	run := r.session("SET SESSION binlog_format = STATEMENT")
	for script, text := range map[string]string{
		"SET STATEMENT sql_mode = 'ANSI_QUOTES' FOR " + into + "VALUES (0x51, 1, 't', '{}')":        "INSERT on ",
		"SET STATEMENT max_statement_time = 9 FOR " + into + "SELECT 0x52, 1, 't', '{}'":            "INSERT … SELECT on ",
		"ANALYZE REPLACE INTO outbox (id, aggregate_id, topic, payload) VALUES (0x53, 1, 't', '1')": "REPLACE on ",
		into + "VALUES (0x54, 1, 't', '{}') RETURNING LOWER(topic)":                                 "INSERT with more behind its VALUES on ",
		into + "VALUES (LPAD('k', 16, RAND()), 1, 't', '{}')":                                       "INSERT of an id that is no literal on ",
		"CREATE OR REPLACE TEMPORARY TABLE outbox (id INT)":                                         "made a temporary table with the name of ",
	} {
		r.refused(server, run, script, text)
		run("DROP TEMPORARY TABLE IF EXISTS outbox")
	}
	for _, rows := range []string{"SELECT 0x61 AS id", "AS VALUES (0x62)", "WITH x AS (SELECT 0x63 AS id) SELECT * FROM x"} {
		r.refused(server, run, "CREATE OR REPLACE TABLE outbox "+rows, "CREATE TABLE … SELECT on ")
		r.exec("DROP TABLE outbox")
		r.exec(schema.SQL)
	}
	r.refused(server, run, "BEGIN;\n"+into+"VALUES (0x64, 1, 't', '{}');\nDELETE FROM outbox;\nCOMMIT", "INSERT of a row of which the table has 0 now on ")

	// One that is undone stands in the log where it has changed a table of another
	// engine too; MySQL refuses to write such a transaction.
	r.exec("CREATE TABLE notes (id INT) ENGINE=MyISAM")
	r.refused(server, run, "BEGIN;\n"+into+"VALUES (0x65, 1, 't', '{}');\nINSERT INTO notes VALUES (1);\nROLLBACK", "INSERT of a row of which the table has 0 now on ")

	name := relaytest.Name(r)
	mysql.RegisterReaderHandler(name, func() io.Reader { return strings.NewReader("k\t1\tt\t[1]\n") })
	defer mysql.DeregisterReaderHandler(name)
	load := "LOAD DATA LOCAL INFILE 'Reader::" + name + "' INTO TABLE "
	r.refused(server, run, "SET STATEMENT max_statement_time = 9 FOR "+load+"outbox (id, aggregate_id, topic, payload)", "LOAD DATA on ")
	run("USE elsewhere;\n" + load + "outbox;\nUSE " + database) // another outbox
	r.refused(server, r.session("SET SESSION binlog_format = STATEMENT", "USE elsewhere"), "SET STATEMENT max_statement_time = 9 FOR "+load+database+".outbox (id, aggregate_id, topic, payload)", "LOAD DATA on ")
}

// testTextFetchedOn: texts whose rows are fetched, with user variables, RAND and
// savepoints among them, also in a log that compresses them, and rows that a
// session with MIXED logs as such.
func testTextFetchedOn(r *rig, database, format string) {
	stream := r.follow(r.open())
	run := r.session("SET SESSION binlog_format = " + format)
	for _, tt := range []struct{ script, want string }{
		{"SET STATEMENT max_statement_time = 9, lock_wait_timeout = 5 FOR " + into + "VALUES (0x01, 1, 't', '[1]')", "[1]"},
		{"ANALYZE FORMAT=JSON " + into + "VALUES (0x02, 1, 't', '[2]')", "[2]"},
		{strings.Replace(into, "INSERT INTO", "INSERT/**/INTO", 1) + "VALUES (0x03, 1, 't', '[3]')", "[3]"},
		{into + "VALUES (0x04, 1, 't', '[4]'), (0x05, 1, 't', '[5]') RETURNING id, topic", "[4] [5]"},
		{"SET @p = '[6]';\n" + into + "VALUES (0x06, 1, 't', @p)", "[6]"},
		{into + "VALUES (0x07, RAND() * 9, 't', '[7]')", "[7]"},
		{"EXECUTE IMMEDIATE \"" + into + "VALUES ('k', 1, 't', '[8]')\"", "[8]"},
		{"USE elsewhere;\n" + strings.Replace(into, "outbox", database+".outbox", 1) + "VALUES (0x09, 1, 't', '[9]');\nUSE " + database, "[9]"},
		{"BEGIN;\n" + into + "VALUES (0x0a, 1, 't', '[10]');\nSAVEPOINT `a b`;\n" + into + "VALUES (0x0b, 1, 't', '[11]');\nROLLBACK TO `a b`;\n" + into + "VALUES (0x0c, 1, 't', '[12]');\nCOMMIT", "[10] [12]"},
		{"USE elsewhere;\nCREATE TABLE IF NOT EXISTS outbox (id INT);\nINSERT INTO .outbox VALUES (1);\nUSE " + database + ";\n" + strings.Replace(into, "outbox", ".outbox", 1) + "VALUES (0x0e, 1, 't', '[14]')", "[14]"},
		{"BEGIN NOT ATOMIC DECLARE n INT DEFAULT 7; " + into + "VALUES (0x0d, n, 't', '[13]'); END", "[13]"},
	} {
		run(tt.script)
		if got := r.marked(stream); got != tt.want {
			r.Errorf("%s, %s: got %q, want %q", format, tt.script, got, tt.want)
		}
	}
	if format == "MIXED" { // what is not safe as text, and sequences, come as rows
		for i, script := range []string{
			into + "SELECT UNHEX(REPLACE(UUID(), '-', '')), 1, 't', '%d'",
			into + "VALUES (UUID(), NEXTVAL(counter), 't', '%d')",
		} {
			run("SET SESSION sql_mode = ''")
			run(fmt.Sprintf(script, i))
			if got, want := r.marked(stream), fmt.Sprint(i); got != want {
				r.Errorf("%s: got %q, want %q", script, got, want)
			}
		}
	}
	r.exec("DELETE FROM outbox")
}
