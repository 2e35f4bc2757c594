package cli_test

import (
	"testing"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// TestReplayAlteredLater: a server that changed the table behind files which do
// not name its columns is refused, also when it no longer has the change in its
// log; with the files up to its own log, or an empty server with the table as it
// was, the row is right. Without SinceFiles the topic is 'wrong', and the exit
// code 0.
func TestReplayAlteredLater(t *testing.T) {
	t.Parallel()
	t.Run("mysql", func(t *testing.T) {
		t.Parallel()
		r := rigOn(t, databaseOn(t, relaytest.PrivateMySQL(t, "--secure-file-priv=")), schema.SQL)
		testReplayAlteredLater(t, r, relaytest.MySQL(t), r.archive)
	})
	t.Run("mariadb", func(t *testing.T) {
		t.Parallel()
		server, dir := privateMariaDB(t)
		r := rigOn(t, databaseOn(t, server), schema.SQL, "SET GLOBAL binlog_row_metadata = NO_LOG")
		testReplayAlteredLater(t, r, relaytest.PrivateMariaDB(t), func(names ...string) []string { return kept(t, dir, names...) })
	})
}

func testReplayAlteredLater(t *testing.T, r *rig, empty string, archive func(...string) []string) {
	const column, right = "ALTER TABLE outbox ADD t2 VARCHAR(120) NOT NULL DEFAULT 'wrong' AFTER topic", `"topic":"right"`
	r.exec(column, "FLUSH BINARY LOGS")
	first := r.lastLog()
	r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'"+hexID(1)+"', 1, 'right', '{}')", "FLUSH BINARY LOGS")
	second := r.lastLog()
	files := archive(first)
	replay := func(files []string, more ...string) result {
		args := append([]string{"replay", "--to", "-", "--table", r.database() + ".outbox", "--from-binlog"}, files...)
		return run(t, nil, append(args, more...)...)
	}
	here := []string{"--mysql-dsn", r.dsn}
	replay(files, here...).want(t, 0, right) // nothing came behind them
	r.exec("CREATE TABLE other (n INT)", "FLUSH BINARY LOGS")
	third := r.lastLog()
	replay(files, here...).want(t, 0, right) // nothing that matters

	all := archive(first, second)
	r.exec("PURGE BINARY LOGS TO '" + third + "'")
	replay(files, here...).want(t, 78, "its log does not tell all", "--gtid '", "empty server")
	replay(all, here...).want(t, 0, right)

	r.exec("ALTER TABLE outbox MODIFY t2 VARCHAR(120) NOT NULL DEFAULT 'wrong' AFTER aggregate_id")
	refused := replay(all, here...)
	refused.want(t, 78, "ALTER TABLE outbox MODIFY t2", "behind the files")
	if refused.stdout != "" {
		t.Errorf("printed %s", refused.stdout)
	}

	conn, err := relaytest.DB(t, empty).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	t.Cleanup(func() {
		if _, err := relaytest.DB(t, empty).Exec("DROP DATABASE IF EXISTS " + r.database()); err != nil {
			t.Error(err)
		}
	})
	for _, s := range []string{"SET sql_log_bin = 0", "CREATE DATABASE " + r.database(), "USE " + r.database(), schema.SQL, column} {
		if _, err := conn.ExecContext(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	replay(files, "--mysql-dsn", empty).want(t, 0, right)
}
