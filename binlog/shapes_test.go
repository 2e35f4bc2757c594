package binlog_test

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// TestShapes is what other tests' transactions, or the server's settings, would
// disturb: each statement form on a real server, as rows and as text.
func TestShapes(t *testing.T) { onEach(t, testShapes) }

func testShapes(t *testing.T, on flavor) {
	dsn := on.private(t, "--local-infile=ON", "--event-scheduler=ON", "--loose-log-bin-compress-min-len=10")
	for _, tt := range []struct {
		name string
		test func(*rig)
	}{
		{"rows", testRowShapes},
		{"load data", testLoadData},
		{"scheduled event", testScheduledEvent},
		{"partitioned", testPartitioned},
		{"replace with two keys", testReplaceTwoKeys},
		{"row images", testRowImages},
		{"text fetched", testTextFetched},
		{"text fetched at once", testTextAtOnce},
		{"text fetched before it is committed", testTextUnseen},
		{"text of MariaDB", testTextOfMariaDB},
		{"columns of MariaDB", testMariaDBColumns},
		{"system-versioned", testVersioned},
		{"text fetched by other ids", testTextFetchedByOtherIDs},
		{"text refused", testTextRefused},
		{"text in other sessions", testTextSessions},
		{"text passed", testTextPassed},
		{"text through others", testTextThrough},
		{"text through what is hidden", testTextHidden},
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(newRigOn(t, dsn, schema.SQL)) })
	}
}

// session is a session of its own, that runs statements with a semicolon and a
// line's end between them.
func (r *rig) session(settings ...string) func(script string) {
	r.Helper()
	conn := r.conn(settings...)
	return func(script string) {
		r.Helper()
		for statement := range strings.SplitSeq(r.spelled(script), ";\n") {
			if statement = strings.TrimSpace(statement); statement != "" {
				r.on(conn, statement)
			}
		}
	}
}

// ofMySQL are words that MariaDB has others for.
var ofMySQL = regexp.MustCompile(`UUID_TO_BIN\(('[^']*'|UUID\(\))\)|CAST\(([^()]*|CAST\([^()]*\)) AS JSON\)|SET SESSION binlog_transaction_compression|SHOW_ROUTINE`)

// spelled is a script of MySQL as the rig's server understands it.
func (r *rig) spelled(script string) string {
	if !r.mariadb() {
		return script
	}
	return ofMySQL.ReplaceAllStringFunc(script, func(words string) string {
		found := ofMySQL.FindStringSubmatch(words)
		switch {
		case found[1] != "":
			return "UNHEX(REPLACE(" + found[1] + ", '-', ''))"
		case found[2] != "":
			return "CAST(" + found[2] + " AS CHAR)"
		case words == "SHOW_ROUTINE":
			return "SHOW CREATE ROUTINE"
		}
		return "SET GLOBAL log_bin_compress"
	})
}

// marked reads what comes until an event of a row that it writes itself, and
// lists payloads and topics.
func (r *rig) marked(stream *binlog.Stream) string {
	r.Helper()
	r.insert(newID(), `"mark"`)
	var got []string
	for {
		tx, err := stream.Next(r.ctx)
		if err != nil {
			r.Fatalf("after %q: %v", got, err)
		}
		for _, e := range tx.Events {
			if string(e.Payload) == `"mark"` {
				return strings.Join(got, " ")
			}
			if e.GTID != tx.GTID.String() {
				r.Errorf("event of %s in transaction %s", e.GTID, tx.GTID)
			}
			got = append(got, string(e.Payload))
		}
	}
}

// into is the beginning of an INSERT of these columns.
const into = "INSERT INTO outbox (id, aggregate_id, topic, payload) "

// testRowShapes: what each form of statement is in a log of rows. An event is
// the row as it was inserted, whatever becomes of it in the same transaction.
func testRowShapes(r *rig) {
	r.exec("CREATE TABLE src (id BINARY(16) PRIMARY KEY, n INT)")
	r.exec("INSERT INTO src VALUES (0x51, 51), (0x52, 52)")
	r.exec("CREATE TABLE orders (id INT PRIMARY KEY)")
	r.exec("CREATE TABLE notes (id INT PRIMARY KEY) ENGINE=MyISAM")
	r.exec(r.spelled("CREATE TRIGGER placed AFTER INSERT ON orders FOR EACH ROW " + into + "VALUES (CAST(CONCAT('o', NEW.id) AS BINARY(16)), NEW.id, 't', CAST(NEW.id AS JSON))"))
	r.exec(r.spelled("CREATE PROCEDURE emit(n INT) BEGIN " + into + "VALUES (CAST(CONCAT('p', n) AS BINARY(16)), n, 't', CAST(n AS JSON)); " +
		into + "VALUES (CAST(CONCAT('q', n) AS BINARY(16)), n, 't', CAST(n + 1 AS JSON)); END"))
	stream := r.follow(r.open())
	run := r.session()
	for _, tt := range []struct{ name, script, want string }{
		{"several rows", into + "VALUES (0x01, 1, 't', '1'), (0x02, 1, 't', '2'), (0x03, 1, 't', '3')", "1 2 3"},
		{"INSERT … SELECT", into + "SELECT id, n, 't', CAST(n AS JSON) FROM src ORDER BY id", "51 52"},
		{"INSERT … SET", "INSERT INTO outbox SET id = 0x04, aggregate_id = 1, topic = 't', payload = '4'", "4"},
		{"REPLACE of none", "REPLACE INTO outbox (id, aggregate_id, topic, payload) VALUES (0x05, 1, 't', '5')", "5"},
		{"REPLACE of one", "REPLACE INTO outbox (id, aggregate_id, topic, payload) VALUES (0x05, 1, 't', '500')", ""},
		{"ON DUPLICATE KEY, new", into + "VALUES (0x06, 1, 't', '6') ON DUPLICATE KEY UPDATE topic = 'u'", "6"},
		{"ON DUPLICATE KEY, there", into + "VALUES (0x06, 1, 't', '600') ON DUPLICATE KEY UPDATE payload = '601'", ""},
		{"ON DUPLICATE KEY, both", into + "VALUES (0x06, 1, 't', '600'), (0x07, 1, 't', '7') ON DUPLICATE KEY UPDATE payload = '602'", "7"},
		{"INSERT IGNORE", "INSERT IGNORE INTO outbox (id, aggregate_id, topic, payload) VALUES (0x07, 1, 't', '700'), (0x08, 1, 't', '8')", "8"},
		{"trigger", "INSERT INTO orders VALUES (9), (10)", "9 10"},
		{"procedure", "CALL emit(11)", "11 12"},
		{"procedure in a transaction that is undone", "BEGIN;\nCALL emit(13);\nROLLBACK", ""},
		{"trigger of a statement that fails", "BEGIN;\n" + into + "VALUES (0x14, 1, 't', '14');\nINSERT IGNORE INTO orders VALUES (9);\nCOMMIT", "14"},
		{"updated", "BEGIN;\n" + into + "VALUES (0x15, 1, 't', '15');\nUPDATE outbox SET payload = '1500' WHERE id = CAST(0x15 AS BINARY(16));\nCOMMIT", "15"},
		{"deleted at once", "BEGIN;\n" + into + "VALUES (0x16, 1, 't', '16');\nDELETE FROM outbox WHERE id = CAST(0x16 AS BINARY(16));\nCOMMIT", "16"},
		{"updated, then back to a savepoint", "BEGIN;\n" + into + "VALUES (0x17, 1, 't', '17');\nSAVEPOINT s;\nUPDATE outbox SET payload = '1700' WHERE id = CAST(0x17 AS BINARY(16));\nROLLBACK TO s;\nCOMMIT", "17"},
		{"deleted and inserted again", "BEGIN;\n" + into + "VALUES (0x18, 1, 't', '18');\nDELETE FROM outbox WHERE id = CAST(0x18 AS BINARY(16));\n" + into + "VALUES (0x18, 1, 't', '19');\nCOMMIT", "18 19"},
		{"another id by UPDATE", "UPDATE outbox SET id = 0x20 WHERE id = CAST(0x18 AS BINARY(16))", ""},
		{"from a savepoint", "BEGIN;\nSAVEPOINT a;\n" + into + "VALUES (0x21, 1, 't', '21');\nSAVEPOINT b;\n" + into + "VALUES (0x22, 1, 't', '22');\nROLLBACK TO b;\nRELEASE SAVEPOINT a;\nCOMMIT", "21"},
		{"without the log", "SET SESSION sql_log_bin = 0;\n" + into + "VALUES (0x23, 1, 't', '23');\nSET SESSION sql_log_bin = 1", ""},
		{"MyISAM alone", "INSERT INTO notes VALUES (1)", ""},
		{"XA", "XA START 'x';\n" + into + "VALUES (0x24, 1, 't', '24');\nXA END 'x';\nXA PREPARE 'x';\nXA COMMIT 'x'", "24"},
		{"compressed", "SET SESSION binlog_transaction_compression = ON;\n" + into + "VALUES (0x25, 1, 't', '25');\nSET SESSION binlog_transaction_compression = OFF;\n" + into + "VALUES (0x26, 1, 't', '26')", "25 26"},
	} {
		run(tt.script)
		if got := r.marked(stream); got != tt.want {
			r.Errorf("%s: got %q, want %q", tt.name, got, tt.want)
		}
	}
	// MySQL itself refuses to mix engines in a transaction once it has GTIDs.
	conn := r.conn("BEGIN", into+"VALUES (0x30, 1, 't', '30')")
	if _, err := conn.ExecContext(r.ctx, "INSERT INTO notes VALUES (2)"); !r.mariadb() && (err == nil || !strings.Contains(err.Error(), "1785")) {
		r.Errorf("a MyISAM table in a transaction: got %v, want error 1785", err)
	}
	r.on(conn, "ROLLBACK")
	if got := r.marked(stream); got != "" {
		r.Errorf("after that: got %q, want nothing", got)
	}
}

// testLoadData: rows out of a file of the client.
func testLoadData(r *rig) {
	stream := r.follow(r.open())
	name := relaytest.Name(r)
	mysql.RegisterReaderHandler(name, func() io.Reader { return strings.NewReader("01\t1\tt\t[1]\n02\t2\tt\t[2]\n") })
	defer mysql.DeregisterReaderHandler(name)
	load := "LOAD DATA LOCAL INFILE 'Reader::" + name + "' INTO TABLE outbox (@id, aggregate_id, topic, payload) SET id = UNHEX(@id)"
	r.exec(load)
	if got := r.marked(stream); got != "[1] [2]" {
		r.Errorf("got %q", got)
	}
	r.exec("DELETE FROM outbox")
	r.on(r.conn("SET SESSION binlog_format = STATEMENT"), load)
	wantNext(r, stream, binlog.ErrUnreadable, "LOAD DATA on "+r.text("SELECT DATABASE()")+".outbox is in the log as text")
}

// testScheduledEvent: the server's scheduler writes.
func testScheduledEvent(r *rig) {
	stream := r.follow(r.open())
	r.exec("CREATE EVENT once ON SCHEDULE AT CURRENT_TIMESTAMP DO " + into + "VALUES (0x01, 1, 't', '[1]')")
	if e := r.events(stream, 1)[0]; string(e.Payload) != "[1]" {
		r.Errorf("got %+v", e)
	}
}

// testPartitioned: row events of a partitioned table name the partition.
func testPartitioned(r *rig) {
	r.exec("DROP TABLE outbox")
	r.exec(strings.Replace(strings.TrimRight(strings.TrimSpace(schema.SQL), ";"), "PRIMARY KEY (id)", "PRIMARY KEY (id, created_at)", 1) +
		" PARTITION BY RANGE COLUMNS (created_at) (PARTITION p0 VALUES LESS THAN ('2025-01-01'), PARTITION p1 VALUES LESS THAN ('2026-01-01'), PARTITION p2 VALUES LESS THAN (MAXVALUE))")
	stream := r.follow(r.open())
	r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (0x01, 1, 't', '[1]', '2024-05-01'), (0x02, 1, 't', '[2]', '2026-05-01'), (0x03, 1, 't', '[3]', '2025-05-01'), (0x04, 1, 't', '[4]', '2024-05-01')")
	r.exec("ALTER TABLE outbox TRUNCATE PARTITION p0")
	r.exec("ALTER TABLE outbox DROP PARTITION p1")
	r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (0x05, 1, 't', '[5]', '2025-05-01')")
	if got := r.marked(stream); got != "[1] [2] [3] [4] [5]" {
		r.Errorf("got %q", got)
	}
}

// testReplaceTwoKeys: where a REPLACE conflicts in another key than the last,
// the server deletes and inserts, and the log has an insert.
func testReplaceTwoKeys(r *rig) {
	r.exec("ALTER TABLE outbox ADD UNIQUE KEY (aggregate_id, topic)")
	stream := r.follow(r.open())
	r.exec(into + "VALUES (0x01, 1, 't', '[1]')")
	r.exec("REPLACE INTO outbox (id, aggregate_id, topic, payload) VALUES (0x01, 2, 't', '[2]')")
	r.exec("REPLACE INTO outbox (id, aggregate_id, topic, payload) VALUES (0x03, 2, 't', '[3]')")
	if got := r.marked(stream); got != "[1] [2]" {
		r.Errorf("got %q", got)
	}
}

// testRowImages: of what the image leaves out, nothing is made.
func testRowImages(r *rig) {
	r.exec("ALTER TABLE outbox ADD headers JSON, ADD note TEXT, MODIFY payload TEXT")
	stream := r.follow(r.open())
	for _, tt := range []struct{ image, columns, values, lacks string }{
		{"MINIMAL", "id, aggregate_id, topic, payload, created_at, headers", "0x01, 1, 't', 'p', NOW(6), NULL", ""},
		{"MINIMAL", "id, aggregate_id, topic, payload, created_at", "0x02, 1, 't', 'p', NOW(6)", "headers"},
		{"MINIMAL", "id, aggregate_id, topic, created_at, headers", "0x03, 1, 't', NOW(6), NULL", "payload"},
		{"NOBLOB", "id, aggregate_id, topic, payload, headers", "0x04, 1, 't', 'p', '{}'", ""},
		{"NOBLOB", "id, aggregate_id, topic, payload", "0x05, 1, 't', 'p'", r.pick("", "headers")}, // MySQL's JSON is in the image as NULL
		{"NOBLOB", "id, aggregate_id, topic, headers", "0x06, 1, 't', NULL", "payload"},
	} {
		r.session("SET SESSION binlog_row_image = " + tt.image)(fmt.Sprintf("INSERT INTO outbox (%s) VALUES (%s)", tt.columns, tt.values))
		e := r.events(stream, 1)[0]
		switch bad := e.Bad; {
		case tt.lacks == "" && (bad != nil || string(e.Payload) != "p"):
			r.Errorf("%s, %s: got %q, bad %v", tt.image, tt.values, e.Payload, bad)
		case tt.lacks != "" && (bad == nil || !strings.HasPrefix(bad.Reason, "column "+tt.lacks+" is not in the row image")):
			r.Errorf("%s, %s: got %v, want %s missing", tt.image, tt.values, bad, tt.lacks)
		}
	}
	// A row of defaults alone has no column in its image, and no byte: read as
	// rows, there would be none.
	r.exec("ALTER TABLE outbox MODIFY payload TEXT, MODIFY created_at DATETIME(6) NOT NULL DEFAULT '2024-01-02', MODIFY id BINARY(16) NOT NULL DEFAULT 'x', ALTER aggregate_id SET DEFAULT 1, ALTER topic SET DEFAULT 't'")
	r.session("SET SESSION binlog_row_image = MINIMAL")("INSERT INTO outbox () VALUES ()")
	wantNext(r, stream, binlog.ErrUnreadable, "without any column: SET GLOBAL binlog_row_image = FULL")
}
