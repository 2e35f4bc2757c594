package cli_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/outboxrelay/relay/schema"
)

// TestFaultMariaDBEncrypted: TestFaultMySQLEncrypted on MariaDB, with its keys in
// a file (plugin file_key_management). Its log is sent in clear as well; only the
// bytes on disk tell. Seen to fail without --encrypt-binlog, by those bytes.
func TestFaultMariaDBEncrypted(t *testing.T) {
	t.Parallel()
	server := startServer(t, "mariadbd")
	r := rigOn(t, databaseOn(t, server.root()), schema.SQL).begun()
	d := r.start("--partitions", "1")
	l := r.underLoad(1)
	l.grown(d, 60)
	server.kill()
	server.options = append(server.options, "--encrypt-binlog=ON")
	server.start()
	l.grown(d, 60)
	r.exec("FLUSH BINARY LOGS")
	l.grown(d, 60)
	at, place := r.text("SELECT DATE_FORMAT(UTC_TIMESTAMP(6), '%Y-%m-%dT%T.%fZ')"), r.status()
	l.grown(d, 60)
	d.stop()
	last := l.end(t)
	files, err := filepath.Glob(filepath.Join(server.dir, "data", "binlog.0*"))
	if err != nil || len(files) < 3 {
		t.Fatalf("got files %v, %v", files, err)
	}
	for i, file := range files {
		if clear := bytes.Contains(mustRead(t, file), []byte("created_at")); clear != (i == 0) {
			t.Errorf("%s names the table's columns in clear: %t", file, clear)
		}
	}
	r.relay("--partitions", "1")
	r.wantEvents(r.take(0), 1, last)
	r.run("resume", "--from-time", at, "--dry-run").want(t, 0, "sent again")
	r.run("resume", "--from-file", place, "--dry-run").want(t, 0, "sent again")
}
