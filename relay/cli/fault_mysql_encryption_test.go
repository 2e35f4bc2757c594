package cli_test

import (
	"slices"
	"testing"

	"github.com/outboxrelay/relay/schema"
)

// TestFaultMySQLEncrypted: the server's log is encrypted on disk. It is sent in
// clear, and only the files' sizes, which no offset in them matches, and a
// column of the server's list tell. The relay follows it, and finds a place in
// it. Seen to fail with binlog_encryption = OFF among the settings that a server
// must have (requirement.go).
func TestFaultMySQLEncrypted(t *testing.T) {
	t.Parallel()
	server := newMysqld(t)
	r := rigOn(t, databaseOn(t, server.root()), schema.SQL).begun()
	d := r.start("--partitions", "1")
	l := r.underLoad(1)
	l.grown(d, 60)
	server.kill() // a clean stop takes ten seconds
	server.options = append(server.options, "--binlog-encryption=ON")
	server.start()
	l.grown(d, 60)
	r.exec("FLUSH BINARY LOGS")
	l.grown(d, 60)
	at, place := r.text("SELECT DATE_FORMAT(UTC_TIMESTAMP(6), '%Y-%m-%dT%T.%fZ')"), r.status()
	l.grown(d, 60)
	d.stop()
	last := l.end(t)
	if list := r.encrypted(); list[0] != "No" || !slices.Equal(list[len(list)-2:], []string{"Yes", "Yes"}) {
		t.Errorf("the log's files are encrypted: %v", list)
	}
	r.relay("--partitions", "1")
	r.wantEvents(r.take(0), 1, last)
	r.run("resume", "--from-time", at, "--dry-run").want(t, 0, "sent again")
	r.run("resume", "--from-file", place, "--dry-run").want(t, 0, "sent again")
}

// status is the place at which the log ends, as its reader counts: on disk an
// encrypted file is longer.
func (r *rig) status() string {
	r.t.Helper()
	var file, offset, rest string
	into := []any{&file, &offset, &rest, &rest, &rest}
	query := "SHOW BINARY LOG STATUS"
	if r.mariadb() {
		query, into = "SHOW MASTER STATUS", into[:4]
	}
	if err := r.db.QueryRow(query).Scan(into...); err != nil {
		r.t.Fatal(err)
	}
	return file + ":" + offset
}

// encrypted tells of each of the log's files whether it is, as the server says.
func (r *rig) encrypted() (list []string) {
	r.t.Helper()
	rows, err := r.db.Query("SHOW BINARY LOGS")
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name, size, encrypted string
		if err := rows.Scan(&name, &size, &encrypted); err != nil {
			r.t.Fatal(err)
		}
		list = append(list, encrypted)
	}
	return list
}
