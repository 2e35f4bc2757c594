package binlog_test

import (
	"fmt"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/schema"
)

// testMariaDBColumns: columns of types that MySQL does not have, as parts of an
// event, and before them, where one that is read at a wrong length shifts all
// behind it; in a log that names the columns, and in one that does not.
// With COMPRESSED or POINT columns not among those that have a collation in the
// log, texts behind them come in another's character set, or as damage.
func testMariaDBColumns(r *rig) {
	if !r.mariadb() {
		return
	}
	defer r.exec("SET GLOBAL binlog_row_metadata = FULL, column_compression_threshold = DEFAULT, mysql56_temporal_format = ON")
	r.exec("SET GLOBAL column_compression_threshold = 10")
	r.exec("CREATE SEQUENCE seq START WITH 7")
	const before = "u UUID, i4 INET4, i6 INET6, vec VECTOR(3) NOT NULL, ct TEXT COMPRESSED CHARSET latin1, cv VARCHAR(100) COMPRESSED CHARSET latin2, " +
		"lv VARCHAR(400) COMPRESSED CHARSET koi8r, cb VARBINARY(300) COMPRESSED, bits BIT(9), y YEAR, j JSON, sets SET('a', 'ж') CHARSET cp1251, " +
		"n INT UNSIGNED, d DECIMAL(12,5), hidden INT INVISIBLE DEFAULT 5, g POINT, v INT AS (n + 1) VIRTUAL, p INT AS (n + 2) STORED"
	const values = "UUID(), '1.2.3.4', '::1', VEC_FromText('[1,2,3]'), REPEAT('é', 1000), REPEAT('ž', 90), 'ж', REPEAT('x', 299), b'101', 2024, '[]', 'ж', 3, 1.5, POINT(1, 2)"
	const some = "u, i4, i6, vec, ct, cv, lv, cb, bits, y, j, sets, n, d, g"
	for _, tt := range []struct{ id, aggregate, topic, payload, row, want string }{
		{"INT DEFAULT NEXTVAL(seq)", "UUID", "VARCHAR(99) CHARSET cp1251", "TEXT COMPRESSED CHARSET latin1", "DEFAULT, '6CCD780C-BABA-1026-9564-5B8C656024DB', 'ж', REPEAT('é', 50)",
			"7 6ccd780c-baba-1026-9564-5b8c656024db ж " + strings.Repeat("é", 50)},
		{"UUID", "BIGINT UNSIGNED", "VARCHAR(300) COMPRESSED CHARSET koi8r", "MEDIUMTEXT COMPRESSED", "'6ccd780c-baba-7026-9564-5b8c656024db', 1 << 63, REPEAT('ж', 300), ''",
			"6ccd780c-baba-7026-9564-5b8c656024db 9223372036854775808 " + strings.Repeat("ж", 300) + " "},
		{"VARCHAR(36)", "VARCHAR(20) COMPRESSED", "ENUM('a', 'é') CHARSET latin1", "LONGBLOB COMPRESSED", "'short', 'x', 'é', REPEAT('雪', 100000)",
			"short x é " + strings.Repeat("雪", 100000)},
		{"INT", "INT INVISIBLE", "VARCHAR(9) INVISIBLE", "VARCHAR(99) CHARSET latin2 CHECK (JSON_VALID(payload))", "1, 2, 't', '{ \"ž\":1}'", `1 2 t { "ž":1}`},
	} {
		for _, settings := range []string{"FULL, mysql56_temporal_format = ON", "FULL, mysql56_temporal_format = OFF", "MINIMAL, mysql56_temporal_format = OFF"} {
			r.exec("SET GLOBAL binlog_row_metadata = " + settings)
			conn := r.conn()
			r.on(conn, fmt.Sprintf("CREATE OR REPLACE TABLE outbox (%s, t TIME, dt DATETIME, ts TIMESTAMP NULL, id %s PRIMARY KEY, aggregate_id %s, topic %s, payload %s, created_at DATETIME) CHARSET utf8mb4",
				before, tt.id, tt.aggregate, tt.topic, tt.payload))
			r.on(conn, "ALTER SEQUENCE seq RESTART")
			server := r.open()
			stream := r.follow(server)
			for _, wrap := range []string{"ON", "OFF"} { // zlib's, about what is compressed
				r.on(conn, "DELETE FROM outbox")
				r.on(conn, "ALTER SEQUENCE seq RESTART")
				r.on(conn, "SET SESSION column_compression_zlib_wrap = "+wrap)
				r.on(conn, fmt.Sprintf("INSERT INTO outbox (%s, t, dt, ts, id, aggregate_id, topic, payload, created_at) VALUES (%s, '1:2:3', NOW(), NOW(), %s, '2024-01-02')", some, values, tt.row))
				e := r.events(stream, 1)[0]
				got := strings.Join([]string{e.ID, e.AggregateID, e.Topic, string(e.Payload)}, " ")
				if got != tt.want || e.Bad != nil || e.CreatedAt.Format("2006-01-02") != "2024-01-02" {
					r.Errorf("%s, id %s: (-want +got):\n%.300s\n%v", settings, tt.id, cmp.Diff(tt.want, got), e.Bad)
				}
				e.GTID = ""
				if diff := cmp.Diff(r.backfill(server, "", "")[0].Events[0], e); diff != "" {
					r.Errorf("%s, id %s (-backfill +stream):\n%.300s", settings, tt.id, diff)
				}
			}
			stream.Close()
		}
	}
	for column, want := range map[string]string{
		"aggregate_id INET6":    "column aggregate_id is inet6, which cannot hold the aggregate_id",
		"topic BIT(3)":          "column topic is bit(3), which cannot hold the ",
		"payload VECTOR(3)":     "column payload is vector(3), which cannot hold the payload",
		"aggregate_id YEAR":     "column aggregate_id is year(4), which cannot hold the aggregate_id",
		"created_at INET4":      "column created_at is inet4, which cannot hold the ",
		"payload GEOMETRY":      "column payload is geometry, which cannot hold the payload",
		"dt DATETIME(3), t INT": "column dt is datetime(3) /* mariadb-5.3 */, whose values cannot be told apart in the log",
	} {
		r.exec("SET GLOBAL mysql56_temporal_format = OFF")
		parts := "id INT PRIMARY KEY"
		for _, part := range []string{"aggregate_id INT", "topic TEXT", "payload TEXT", "created_at DATETIME"} {
			if name, _, _ := strings.Cut(part, " "); !strings.HasPrefix(column, name) {
				parts += ", " + part
			}
		}
		r.on(r.conn(), "CREATE OR REPLACE TABLE outbox ("+column+", "+parts+")")
		_, err := r.open().Table(r.ctx)
		wantError(r, err, schema.ErrTable, want)
	}
}

// testVersioned: a system-versioned table, of which an UPDATE writes the row as
// it was once more: at the start, and once a statement makes it one. Without
// that, every stamp sent its event a second time.
func testVersioned(r *rig) {
	if !r.mariadb() {
		return
	}
	const refusal = "is system-versioned, so that each UPDATE of a row is an insert in the log; type: ALTER TABLE "
	defer r.exec("SET GLOBAL binlog_row_metadata = FULL")
	const explicit = "ADD s TIMESTAMP(6) AS ROW START, ADD e TIMESTAMP(6) AS ROW END, ADD PERIOD FOR SYSTEM_TIME (s, e), "
	for _, metadata := range []string{"FULL", "MINIMAL"} {
		for _, columns := range []string{"", explicit} {
			r.exec("SET GLOBAL binlog_row_metadata = " + metadata)
			server := r.open()
			stream, from := r.follow(server), r.executed(server)
			r.exec("ALTER TABLE outbox " + columns + "ADD SYSTEM VERSIONING")
			wantNext(r, stream, binlog.ErrUnreadable, refusal)
			_, err := server.Table(r.ctx)
			wantError(r, err, schema.ErrTable, refusal)
			if columns == "" {
				r.exec("ALTER TABLE outbox DROP SYSTEM VERSIONING")
			} else {
				r.exec("DROP TABLE outbox")
				r.exec(schema.SQL)
			}
			r.insert(newID(), "{}")
			// Once it is none again, one resume is enough.
			stream = r.followFrom(server, from)
			err = failure(r, stream)
			wantError(r, err, binlog.ErrChanged, "was system-versioned from transaction ")
			_, rest, _ := strings.Cut(err.Error(), "--from-gtid '")
			set, _, _ := strings.Cut(rest, "'")
			r.events(r.followFrom(server, parse(r, set)), 1)
		}
	}
	// In a log that names the columns, its rows tell as well.
	r.exec("SET GLOBAL binlog_row_metadata = FULL")
	server := r.open()
	table := r.table(server)
	r.exec("ALTER TABLE outbox ADD SYSTEM VERSIONING")
	from := r.executed(server)
	r.insert(newID(), "{}")
	r.exec("UPDATE outbox SET status = 'published'")
	stream, err := server.Follow(r.ctx, from, table)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(stream.Close)
	wantNext(r, stream, binlog.ErrUnreadable, refusal)
}
