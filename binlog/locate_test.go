package binlog_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// boundary is a place between groups, and what the server had executed there.
type boundary struct {
	file   string
	offset int64
	set    string
}

// boundary asks the server where its log ends now; without is a prepared
// transaction that the set is not to hold.
func (r *rig) boundary(without string) boundary {
	r.Helper()
	var b boundary
	if r.mariadb() { // whose positions have prepared transactions too
		b.set = r.text("SELECT @@GLOBAL.gtid_binlog_pos")
	} else {
		b.set = r.text("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, ?)", without)
	}
	files := r.logFiles()
	b.file = slices.Max(slices.Collect(maps.Keys(files)))
	b.offset = files[b.file]
	return b
}

// logFiles is the size of each log file by its name.
func (r *rig) logFiles() map[string]int64 {
	r.Helper()
	rows, err := r.db.QueryContext(r.ctx, "SHOW BINARY LOGS")
	if err != nil {
		r.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		r.Fatal(err)
	}
	files := map[string]int64{}
	for rows.Next() {
		var name string
		var size int64
		fields := []any{&name, &size}
		if len(columns) > 2 { // of MySQL: encrypted
			fields = append(fields, new(string))
		}
		if err := rows.Scan(fields...); err != nil {
			r.Fatal(err)
		}
		files[name] = size
	}
	return files
}

// same compares sets.
func (r *rig) same(what string, got *binlog.GTIDSet, want string) {
	r.Helper()
	set, err := binlog.ParseGTIDSet(want)
	if err != nil {
		r.Fatal(err)
	}
	if !got.Contains(set) || !set.Contains(got) {
		r.Errorf("%s: got %s, want %s", what, got, set)
	}
}

// TestLocateFile: at each place between groups of a log, what LocateFile says
// is what the server had executed when its log ended there; one byte further,
// it is refused with the places around it. It fails when the previous-GTIDs
// event is read by the library, which drops a server that has tagged
// transactions alone, when prepared transactions are counted in, or when a
// group's end is taken for the next one's beginning.
func TestLocateFile(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, relaytest.PrivateMySQL(t), schema.SQL)
	var list []boundary
	var inside []bool // list[i] begins a group that ends at list[i+1]
	note := func(without string) {
		list = append(list, r.boundary(without))
		inside = append(inside, true)
	}
	flush := func() {
		r.exec("FLUSH BINARY LOGS")
		inside[len(inside)-1] = false
	}
	conn := r.conn()
	named := func(gtid string) {
		r.on(conn, "SET gtid_next = '"+gtid+"'")
		r.on(conn, "BEGIN")
		r.on(conn, "COMMIT")
		r.on(conn, "SET gtid_next = AUTOMATIC")
	}
	note("")
	r.insert(newID(), `{}`)
	note("")
	named("3e11fa47-71ca-11e1-9e33-c80aa9429562:blue:5")
	note("")
	flush()
	note("")
	named("3e11fa47-71ca-11e1-9e33-c80aa9429562:green:1")
	named("0e11fa47-71ca-11e1-9e33-c80aa9429562:7")
	inside = append(inside[:len(inside)-1], false) // two groups
	note("")
	flush()
	note("")
	r.on(conn, "SET binlog_transaction_compression = ON")
	r.on(conn, "INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (?, 7, 'orders', ?)", newID(), `"`+strings.Repeat("x", 9000)+`"`)
	note("")
	before := r.text("SELECT @@GLOBAL.gtid_executed")
	for _, statement := range []string{"XA START 'x'", "INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (UUID_TO_BIN(UUID()), 7, 'orders', '{}')", "XA END 'x'", "XA PREPARE 'x'"} {
		r.on(conn, statement)
	}
	prepared := r.text("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, ?)", before)
	note(prepared)
	r.exec("CREATE TABLE other (id INT PRIMARY KEY)")
	note(prepared)
	r.on(conn, "XA COMMIT 'x'")
	note("")
	r.exec("INSERT INTO other VALUES (1), (2)")
	note("")
	flush()
	note("")

	server := r.open()
	table := r.table(server)
	for i, b := range list {
		at := fmt.Sprintf("%s:%d", b.file, b.offset)
		set, err := server.LocateFile(r.ctx, b.file, b.offset, table)
		if err != nil {
			t.Errorf("%s: %v", at, err)
			continue
		}
		r.same(at, set, b.set)
		if i+1 == len(list) || !inside[i] {
			continue
		}
		next := list[i+1]
		for _, offset := range []int64{b.offset + 1, next.offset - 1} {
			_, err := server.LocateFile(r.ctx, b.file, offset, table)
			if !errors.Is(err, binlog.ErrPlace) || !strings.Contains(err.Error(), "--from-file "+at+" ") || !strings.Contains(err.Error(), fmt.Sprintf("--from-file %s:%d ", next.file, next.offset)) {
				t.Errorf("%s:%d, between %d and %d: %v", b.file, offset, b.offset, next.offset, err)
			}
		}
	}
	last := list[len(list)-1]
	set, err := server.LocateFile(r.ctx, last.file, 4, table)
	if err != nil {
		t.Fatal(err)
	}
	r.same("the beginning of "+last.file, set, last.set)
	for _, test := range []struct {
		file   string
		offset int64
		text   string
	}{
		{last.file, last.offset + 1, "beyond the end"},
		{list[0].file, 1 << 40, "beyond the end"},
		{"binlog.999999", 4, last.file},
	} {
		if _, err := server.LocateFile(r.ctx, test.file, test.offset, table); !errors.Is(err, binlog.ErrPlace) || !strings.Contains(err.Error(), test.text) {
			t.Errorf("%s:%d: %v, want %q", test.file, test.offset, err, test.text)
		}
	}
}

// TestLocateTime: for each transaction of a log of several files, its commit
// time gives the set of those before the first of that time, and a microsecond
// later (of MariaDB, a second) it is in the set too. It fails when a file is chosen whose predecessor has transactions
// of that same second.
func TestLocateTime(t *testing.T) { onEach(t, testLocateTime) }

func testLocateTime(t *testing.T, on flavor) {
	r := newRigOn(t, on.private(t), schema.SQL)
	server := r.open()
	table := r.table(server)
	seconds := func() string { return r.text("SELECT UNIX_TIMESTAMP()") }
	made := seconds()
	relaytest.Wait(t, limit, "the server's clock goes on", func() bool { return seconds() != made })
	begin := r.executed(server)
	stream := r.followFrom(server, begin)
	const files, each = 4, 3
	for range files {
		for range each {
			r.insert(newID(), `{}`)
		}
		at := seconds()
		r.exec("FLUSH BINARY LOGS")
		relaytest.Wait(t, limit, "the server's clock goes on", func() bool { return seconds() != at })
	}
	n := 0
	list := r.transactions(stream, func(*binlog.Tx) bool { n++; return n == files*each })
	before := func(at time.Time) (set *binlog.GTIDSet, n int) { // the n first of the list
		set = begin.Clone()
		for n < len(list) && list[n].CommittedAt.Before(at) {
			set.Cover(list[n])
			n++
		}
		return set, n
	}
	for i, tx := range list {
		if !r.mariadb() && i > 0 && !tx.CommittedAt.After(list[i-1].CommittedAt) {
			t.Fatalf("two commits at %s", tx.CommittedAt)
		}
		set, place, err := server.LocateTime(r.ctx, tx.CommittedAt, table)
		if err != nil {
			t.Fatal(err)
		}
		want, n := before(tx.CommittedAt)
		r.same(tx.CommittedAt.String(), set, want.String())
		if n > 0 && n%each > 0 && place != list[n-1].Place {
			t.Errorf("%s is at %v, want %v", tx.GTID, place, list[n-1].Place)
		}
		behind := tx.CommittedAt.Add(time.Microsecond)
		if r.mariadb() {
			behind = tx.CommittedAt.Add(time.Second)
			half, _, err := server.LocateTime(r.ctx, behind.Add(-time.Millisecond), table)
			if err != nil {
				t.Fatal(err)
			}
			r.same("within the second of "+tx.CommittedAt.String(), half, want.String())
		}
		if set, _, err = server.LocateTime(r.ctx, behind, table); err != nil {
			t.Fatal(err)
		}
		want, _ = before(behind)
		r.same("behind "+tx.CommittedAt.String(), set, want.String())
	}
	refused := func(at time.Time, texts ...string) {
		t.Helper()
		_, _, err := server.LocateTime(r.ctx, at, table)
		if !errors.Is(err, binlog.ErrPlace) || slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(err.Error(), text) }) {
			t.Errorf("%s: %v, want %q", at, err, texts)
		}
	}
	stream.Close()
	all, _ := before(time.Now().Add(time.Hour))
	refused(list[0].CommittedAt.Add(24*time.Hour), "future")
	refused(list[0].CommittedAt.Add(-24*time.Hour), "oldest log file", "begins at "+list[0].CommittedAt.Format("2006-01-02"))
	relaytest.Wait(t, limit, "the log is purged, which a reader of it holds up", func() bool {
		r.exec("PURGE BINARY LOGS TO '" + r.boundary("").file + "'")
		return r.purged(server).Contains(all)
	})
	refused(list[len(list)-1].CommittedAt, "oldest log file", "--from-gtid '"+r.purged(server).String(), "--start backfill")
}

// TestBetween: the range holds every row of the time, by each order that a
// table can have.
func TestBetween(t *testing.T) { onEach(t, testBetween) }

func testBetween(t *testing.T, on flavor) {
	const columns = "aggregate_id BIGINT NOT NULL, topic VARCHAR(9) NOT NULL, payload JSON NOT NULL, status ENUM('pending','published') NOT NULL DEFAULT 'pending'"
	at := func(n int) time.Time { return time.Date(2026, 3, 1, n, 0, 0, 0, time.UTC) }
	for _, test := range []struct {
		name, table string
		zone        string
		rows        []string // id, created_at
		want        int64    // of the hours from 10 to 20, both included
		all         bool     // the table does not tell
	}{
		{name: "time and binary id", table: "id BINARY(16) NOT NULL PRIMARY KEY, created_at DATETIME(6) NOT NULL", want: 2,
			rows: []string{"'z', '2026-03-01 09:59:59.999999'", "'y', '2026-03-01 10:00:00'", "'x', '2026-03-01 19:59:59.999999'", "'w', '2026-03-01 20:00:01'"}},
		{name: "timestamp and text id", table: "id VARCHAR(9) NOT NULL PRIMARY KEY, created_at TIMESTAMP(3) NOT NULL", want: 1,
			rows: []string{"'z', '2026-03-01 09:59:59.999'", "'y', '2026-03-01 10:00:00.001'", "'w', '2026-03-01 20:00:01'"}},
		{name: "integer id, not in order", table: "id BIGINT UNSIGNED NOT NULL PRIMARY KEY, created_at DATETIME(6) NOT NULL", want: 3,
			rows: []string{"0, '2026-03-01 01:00:00'", "5, '2026-03-01 15:00:00'", "7, '2026-03-01 01:00:00'", "18446744073709551615, '2026-03-01 10:00:00'"}},
		{name: "no time", table: "id VARCHAR(9) NOT NULL PRIMARY KEY", want: 2, all: true, rows: []string{"'a'", "'b'"}},
		{name: "local time, an hour wider", table: "id VARCHAR(9) NOT NULL PRIMARY KEY, created_at DATETIME(6) NOT NULL", zone: "Europe/Berlin", want: 2,
			rows: []string{"'y', '2026-03-01 09:59:59'", "'x', '2026-03-01 10:30:00'", "'w', '2026-03-01 21:59:59'", "'v', '2026-03-01 22:30:00'"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			options := schema.Options{Layout: "relay"}
			if test.zone != "" {
				zone, err := time.LoadLocation(test.zone)
				if err != nil {
					t.Fatal(err)
				}
				options.Zone = zone
			}
			if test.all {
				options = schema.Options{Layout: "debezium"}
			}
			create := "CREATE TABLE outbox (" + test.table + ", " + columns + ")"
			names := "id, created_at, aggregate_id, topic, payload"
			if test.all {
				create = "CREATE TABLE outbox (" + test.table + ", aggregatetype VARCHAR(9) NOT NULL, aggregateid BIGINT NOT NULL, type VARCHAR(9) NOT NULL, payload JSON NOT NULL)"
				names = "id, aggregatetype, aggregateid, type, payload"
			}
			r := on.rig(t, create)
			for _, row := range test.rows {
				tail := ", 1, 't', '{}'"
				if test.all {
					tail = ", 'a', 1, 't', '{}'"
				}
				r.exec("INSERT INTO outbox (" + names + ") VALUES (" + row + tail + ")")
			}
			server := r.open(func(c *binlog.Config) { c.Options = options })
			table := r.table(server)
			got, found, err := server.Between(r.ctx, table, at(10), at(20))
			if err != nil || !found || got.Timed == test.all {
				t.Fatalf("got %+v, %t, %v", got, found, err)
			}
			n, err := server.CountPending(r.ctx, table, got.After, got.Until)
			if err != nil || n != test.want {
				t.Errorf("%+v holds %d rows, want %d: %v", got, n, test.want, err)
			}
			if rows := r.backfill(server, got.After, got.Until); test.zone == "" && int64(len(rows)) != n {
				t.Errorf("a backfill of it sends %d", len(rows))
			}
			if n, err = server.CountPending(r.ctx, table, "", ""); err != nil || n != int64(len(test.rows)) {
				t.Errorf("the table holds %d rows: %v", n, err)
			}
		})
	}
}
