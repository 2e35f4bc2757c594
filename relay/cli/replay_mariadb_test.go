package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// kept copies a private server's log files, as an archive has them.
func kept(t *testing.T, server string, names ...string) (paths []string) {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, mustRead(t, filepath.Join(server, "data", name)), 0o644); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	return paths
}

// privateMariaDB starts one and returns its DSN and directory.
func privateMariaDB(t *testing.T, options ...string) (dsn, dir string) {
	t.Helper()
	root := filepath.Dir(t.TempDir()) // all of a test's directories stand side by side
	dsn = relaytest.PrivateMariaDB(t, options...)
	found, err := filepath.Glob(filepath.Join(root, "*", "mariadbd"))
	if err != nil || len(found) != 1 {
		t.Fatalf("the server's directory is %v, %v", found, err)
	}
	return dsn, found[0]
}

// TestReplayMariaDB is TestReplayPublishes on MariaDB, whose set of transactions
// has the form 0-1-23..57: what run sent comes out of copies of the files, byte
// for byte, content types included, and of it what is asked for. With NO_LOG
// metadata the server is asked for the columns. It fails when a compressed row
// is not unpacked, or a range is read as a position.
func TestReplayMariaDB(t *testing.T) {
	t.Parallel()
	server, dir := privateMariaDB(t)
	for _, metadata := range []string{"FULL", "NO_LOG"} {
		t.Run(metadata, func(t *testing.T) {
			r := rigOn(t, databaseOn(t, server), schema.SQL, "ALTER TABLE outbox ADD headers JSON, ADD version INT UNSIGNED", "SET GLOBAL binlog_row_metadata = "+metadata).begun()
			r.exec("FLUSH BINARY LOGS")
			first := r.lastLog()
			conn, err := r.db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			exec := func(statements ...string) {
				t.Helper()
				for _, s := range statements {
					if _, err := conn.ExecContext(t.Context(), s); err != nil {
						t.Fatalf("%s: %v", s, err)
					}
				}
			}
			row := func(n int, payload string) string {
				return fmt.Sprintf("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at, headers, version) VALUES (x'%032x', %d, 'order.placed', '%s', '2026-01-02 03:04:05.678901', '{\"traceparent\": \"00-%d\", \"n\": %d}', 3000000000)", n, n%3, payload, n, n)
			}
			exec(row(1, `{"b":  1, "a": [1.50, "ä 雪"]}`), "BEGIN", row(2, "[]"), row(3, "1e300"), "SAVEPOINT s", row(4, `"phantom"`), "ROLLBACK TO s", row(5, "null"), "COMMIT")
			exec("SET SESSION gtid_domain_id = 5, server_id = 3", row(6, `"another domain"`), "SET SESSION gtid_domain_id = 0, server_id = 1", "FLUSH BINARY LOGS")
			second := r.lastLog()
			exec("SET GLOBAL log_bin_compress_min_len = 10, log_bin_compress = ON", "BEGIN", row(7, "{}"), row(8, "{}"), "COMMIT", "SET GLOBAL log_bin_compress = OFF")
			exec("XA START 'one'", row(9, "{}"), "XA END 'one'", "XA PREPARE 'one'")
			r.exec(row(10, "{}")) // the session itself may not
			exec("XA COMMIT 'one'")
			exec("XA START 'two'", row(11, `"phantom"`), "XA END 'two'", "XA PREPARE 'two'", "XA ROLLBACK 'two'")
			r.insert(r.db, 12, 5000)
			exec("UPDATE outbox SET status = 'published'", "FLUSH BINARY LOGS")

			sent := r.relayed()
			if len(sent) != 4998 {
				t.Fatalf("run sent %d events", len(sent))
			}
			gtids := map[string]string{}
			for _, d := range sent {
				gtids[d.MessageId] = d.Headers["gtid"].(string)
			}
			want := messagesOf(sent, "sequence")
			files := kept(t, dir, first, second)
			r.purge()
			exec("DELETE FROM outbox")
			env, args := r.replayEnv(), append([]string{"replay", "--from-binlog"}, files...)
			if metadata == "NO_LOG" {
				run(t, env, append(args, "--to", "-", "--table", r.database()+".outbox")...).want(t, 78, "do not name the columns", "--mysql-dsn")
				env = append(env, "RELAY_MYSQL_DSN="+r.dsn)
			} else {
				args = append(args, "--table", r.database()+".outbox")
			}
			lines := linesOf(t, run(t, env, append(args, "--to", "-")...).stdout)
			if len(lines) != 4998 || string(lines[0].Payload) != `{"b":  1, "a": [1.50, "ä 雪"]}` {
				t.Errorf("printed %d lines, the first with %s", len(lines), lines[0].Payload)
			}
			args = append(args, "--to", "exchange", "--partitions", "1", "--yes")
			run(t, env, args...).want(t, 0, `"events":4998`, "replayed")
			if diff := cmp.Diff(inAggregates(want), inAggregates(messagesOf(r.take(0), "replayed"))); diff != "" {
				t.Errorf("messages (-run +replay):\n%s", diff)
			}

			number := func(n int) string { return gtids[idText(n)] }
			until := strings.TrimPrefix(number(9), "0-1-") // its XA COMMIT is behind event 10
			some := number(1) + "," + number(6) + "," + number(7) + ".." + until
			run(t, env, append(args, "--gtid", some)...).want(t, 0, `"events":6,`)
			got := messageIDs(r.take(0))
			slices.Sort(got)
			if want := []string{idText(1), idText(6), idText(7), idText(8), idText(9), idText(10)}; !slices.Equal(got, want) {
				t.Errorf("replay of %s sent %v, want %v", some, got, want)
			}
			run(t, env, append(args, "--gtid", "0-9-"+until)...).want(t, 78, "none of the transactions of --gtid is in the files", "0-9-"+until)
			run(t, env, append(args, "--gtid", some+",0-9-"+until)...).want(t, 78, "1 transactions of --gtid are not in the files: 0-9-"+until, "--gtid '"+number(1)+",")
		})
	}
	t.Run("doubt", func(t *testing.T) { replayDoubt(t, server, dir) })
}

// replayDoubt: what MariaDB's log does not tell is not guessed: a value that
// would be another one in a UUID than in a BINARY(16), and text in a column that
// is stored as JSON is. The server tells. The file is one that the server is
// writing.
func replayDoubt(t *testing.T, server, dir string) {
	r := rigOn(t, databaseOn(t, server), schema.SQL, "ALTER TABLE outbox MODIFY payload LONGTEXT COLLATE utf8mb4_bin", "SET GLOBAL binlog_row_metadata = FULL", "FLUSH BINARY LOGS")
	insert := func(id, payload string) {
		r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (x'" + id + "', 1, 't', '" + payload + "', '2026-01-01')")
	}
	const certain, doubtful = "00112233445566778899aabbccddeeff", "00112233445586770899aabbccddeeff"
	insert(certain, "{}")
	insert(doubtful, "{}")
	file := kept(t, dir, r.lastLog())[0]
	args := []string{"replay", "--from-binlog", file, "--to", "-", "--table", r.database() + ".outbox"}
	refused := run(t, nil, args...)
	refused.want(t, 78, "do not tell whether the column id of ", " is a UUID or a BINARY(16)", "--mysql-dsn")
	if lines := linesOf(t, refused.stdout); len(lines) != 1 {
		t.Errorf("got %s, want the first event", refused.stdout)
	}
	r.exec("FLUSH BINARY LOGS")
	insert("00", "text")
	args[2] = kept(t, dir, r.lastLog())[0]
	run(t, nil, args...).want(t, 78, "do not tell whether the column payload of ", " is JSON or text", "--mysql-dsn")
	told := run(t, nil, append(args, "--mysql-dsn", r.dsn)...)
	told.want(t, 0, `"content_type":"text/plain;charset=utf-8"`, "the last file has no end")
	args[2] = file
	run(t, nil, append(args, "--mysql-dsn", r.dsn)...).want(t, 0, `"id":"00112233-4455-8677-0899-aabbccddeeff"`)
	other := mustDSN(t, relaytest.MySQL(t))
	db := relaytest.DB(t, other.FormatDSN())
	other.DBName = r.database()
	t.Cleanup(func() {
		if _, err := db.Exec("DROP DATABASE IF EXISTS " + other.DBName); err != nil {
			t.Error(err)
		}
	})
	for _, s := range []string{"CREATE DATABASE " + other.DBName, strings.Replace(schema.SQL, "outbox", other.DBName+".outbox", 1)} {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	run(t, nil, append(args, "--mysql-dsn", other.FormatDSN())...).want(t, 78, "they are of MariaDB, and the server of --mysql-dsn is MySQL")
}
