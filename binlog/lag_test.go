package binlog_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/schema"
)

// TestSeek: what is told of the log behind a position is what the stream
// counts of it. Without exact it is all of the file; that it is no less was
// seen to fail where the offset was taken for known.
func TestSeek(t *testing.T) { onEach(t, testSeek) }

func testSeek(t *testing.T, on flavor) {
	r := newRigOn(t, on.private(t), schema.SQL)
	server := r.open()
	r.insert(newID(), `{}`)
	position := r.executed(server)
	place := func() (file string, offset int64) { // the end of the log
		r.eachLog(func(name string, size int64) { file, offset = name, size })
		return file, offset
	}
	_, from := place()
	r.insert(newID(), fmt.Sprintf(`{"long": "%s"}`, strings.Repeat("x", 5000)))
	_, to := place()
	var got binlog.Start
	look := func(exact bool) int64 {
		t.Helper()
		var err error
		if got, err = server.Seek(r.ctx, position, exact); err != nil || got.Exact != exact {
			t.Fatalf("%+v, %v", got, err)
		}
		bytes, err := server.Past(r.ctx, got)
		if err != nil {
			t.Fatal(err)
		}
		return bytes
	}
	if bytes := look(true); bytes != to-from || bytes < 5000 {
		t.Errorf("%d bytes from %+v, want %d from %d to %d", bytes, got, to-from, from, to)
	}
	if age := time.Since(got.Created); age < -2*time.Second || age > 10*time.Minute {
		t.Errorf("the file was created at %s", got.Created)
	}
	if bytes := look(false); bytes != to {
		t.Errorf("at most %d bytes, want all %d of the file", bytes, to)
	}
	r.exec("FLUSH BINARY LOGS") // the place is in the file before the last
	r.insert(newID(), `{}`)
	_, last := place()
	if bytes := look(true); bytes < to-from+last || bytes > to-from+last+100 {
		t.Errorf("over two files %d bytes, want %d and those of the rotate event", bytes, to-from+last)
	}
	// A position that ends with its file: the transaction is in the next.
	position = r.executed(server)
	r.exec("FLUSH BINARY LOGS")
	r.insert(newID(), `{}`)
	_, last = place()
	if bytes := look(true); bytes >= last || bytes < 100 {
		t.Errorf("behind a file's end %d bytes, want fewer than %d", bytes, last)
	}

	log, err := server.Log(r.ctx, true)
	if err != nil {
		t.Fatal(err)
	}
	var bytes int64
	files := 0
	r.eachLog(func(_ string, size int64) { bytes += size; files++ })
	if log.Bytes != bytes || log.Files != files || log.Retention != 24*time.Hour || log.Limit != 0 || log.Since.IsZero() || log.Growth() != 0 {
		t.Errorf("the log is %+v, want %d bytes in %d files, kept for a day, begun just now", log, bytes, files)
	}
}

// eachLog lists the server's log files.
func (r *rig) eachLog(f func(name string, size int64)) {
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
	for rows.Next() {
		var name string
		var size int64
		fields := []any{&name, &size}
		for range columns[2:] {
			fields = append(fields, new(any))
		}
		if err := rows.Scan(fields...); err != nil {
			r.Fatal(err)
		}
		f(name, size)
	}
}

// TestRetention: settings of both kinds of servers, by the server's words.
func TestRetention(t *testing.T) {
	for name, test := range map[string]struct {
		values map[string]string
		keeps  time.Duration
		limit  int64
	}{
		"nothing known":     {nil, 0, 0},
		"a day":             {map[string]string{"binlog_expire_logs_seconds": "86400", "binlog_expire_logs_auto_purge": "ON"}, 24 * time.Hour, 0},
		"not purged":        {map[string]string{"binlog_expire_logs_seconds": "86400", "binlog_expire_logs_auto_purge": "OFF"}, 0, 0},
		"days of MySQL 8.0": {map[string]string{"binlog_expire_logs_seconds": "0", "expire_logs_days": "3"}, 72 * time.Hour, 0},
		"MariaDB's limit":   {map[string]string{"binlog_expire_logs_seconds": "0", "max_binlog_total_size": "5000"}, 0, 5000},
		"Percona's limit":   {map[string]string{"binlog_expire_logs_seconds": "60", "binlog_space_limit": "7000"}, time.Minute, 7000},
		"no limit":          {map[string]string{"binlog_space_limit": "0", "max_binlog_total_size": "0"}, 0, 0},
	} {
		if keeps, limit := binlog.Kept(test.values); keeps != test.keeps || limit != test.limit {
			t.Errorf("%s: kept for %s, up to %d; want %s, %d", name, keeps, limit, test.keeps, test.limit)
		}
	}
}
