package cli_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/relay/relaytest"
)

// refusal is a command that must be refused: with a code, and one line that
// says what is wrong, the value found and what to type next.
type refusal struct {
	name  string
	args  []string
	env   []string // of the rig's, those with the same name give way
	code  int
	texts []string
}

func (r *rig) refuse(t *testing.T, list []refusal) {
	for _, c := range list {
		t.Run(c.name, func(t *testing.T) {
			got := run(t, append(r.environment(), c.env...), c.args...)
			got.want(t, c.code, c.texts...)
			got.oneLine(t)
		})
	}
}

// TestUsage: what was typed cannot be meant.
func TestUsage(t *testing.T) {
	t.Parallel()
	r := &rig{t: t, dsn: "relay:" + secret + "@tcp(127.0.0.1:1)/shop", amqp: "amqp://relay:" + "hunter2" + "@127.0.0.1:1/", exchange: "x", dir: t.TempDir()}
	empty := filepath.Join(r.dir, "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r.refuse(t, []refusal{
		{"no DSN", []string{"run"}, []string{"RELAY_MYSQL_DSN="}, 64, []string{"--mysql-dsn is missing", "relay run --mysql-dsn 'relay:PASSWORD@tcp(", "RELAY_MYSQL_DSN"}},
		{"no DSN to check", []string{"check"}, []string{"RELAY_MYSQL_DSN="}, 64, []string{"relay check --mysql-dsn"}},
		{"malformed DSN", []string{"run"}, []string{"RELAY_MYSQL_DSN=relay:hunter2@tcp(127.0.0.1:3306/shop"}, 64, []string{"DSN is not of the form relay:PASSWORD@tcp("}},
		{"DSN with an unknown network", []string{"run", "--mysql-dsn", "relay:" + secret + "@ftp/shop"}, nil, 64, []string{"DSN is not of the form"}},
		{"DSN whose password is taken for its network", []string{"run", "--mysql-dsn", "relay:" + secret + "/shop"}, nil, 64, []string{"DSN is not of the form"}},
		{"DSN with @ in its password", []string{"run", "--mysql-dsn", "relay:p@" + secret + "/shop"}, nil, 64, []string{"DSN is not of the form"}},
		{"table without database", []string{"run", "--mysql-dsn", "relay:" + secret + "@tcp(127.0.0.1:1)/"}, nil, 64, []string{`"outbox"`, "--table shop.outbox"}},
		{"no AMQP URL", []string{"run"}, []string{"RELAY_AMQP_URL="}, 64, []string{"--amqp-url is missing", "relay run --amqp-url 'amqp://", "RELAY_AMQP_URL"}},
		{"no command", nil, nil, 64, []string{"no command", "relay run"}},
		{"unknown command", []string{"ruin"}, nil, 64, []string{`"ruin"`, "relay help"}},
		{"help for an unknown command", []string{"help", "ruin"}, nil, 64, []string{"'ruin'", "relay help"}},
		{"unknown subcommand", []string{"schema", "sqll"}, nil, 64, []string{`"sqll"`, "relay schema --help"}},
		{"no subcommand", []string{"schema"}, nil, 64, []string{"relay schema --help"}},
		{"unknown flag", []string{"run", "--tabel", "x"}, nil, 64, []string{"-tabel", "relay run --help"}},
		{"unknown flag before the command", []string{"--tabel", "run"}, nil, 64, []string{"-tabel", "--help"}},
		{"flag of another command", []string{"check", "--window", "1"}, nil, 64, []string{"-window", "relay check --help"}},
		{"superfluous argument", []string{"run", "outbox"}, nil, 64, []string{`"outbox"`, "relay run --help"}},
		{"layout", []string{"run", "--layout", "mine"}, nil, 64, []string{"--layout", `"mine"`, "auto, relay, debezium, eventuate"}},
		{"columns", []string{"run", "--columns", "ident=event_id"}, nil, 64, []string{"--columns", `"ident=event_id"`, "id=event_id,payload=body"}},
		{"start", []string{"run", "--start", "now"}, nil, 64, []string{"--start", `"now"`, "backfill, latest, earliest"}},
		{"order", []string{"run", "--order", "none"}, nil, 64, []string{"--order", `"none"`, "strict, pipelined"}},
		{"time zone", []string{"run", "--time-zone", "Mars/Olympus"}, nil, 64, []string{"--time-zone", `"Mars/Olympus"`, "Europe/Berlin"}},
		{"window", []string{"run", "--window", "0"}, nil, 64, []string{"--window 0", "between 1 and 65536"}},
		{"window, no number", []string{"run", "--window", "many"}, nil, 64, []string{`"many"`, "window", "relay run --help"}},
		{"window in the environment", []string{"run"}, []string{"RELAY_WINDOW=many"}, 64, []string{`"many"`, "RELAY_WINDOW"}},
		{"partitions", []string{"run", "--partitions", "-1"}, nil, 64, []string{"--partitions -1", "between 0 and 1024"}},
		{"server id", []string{"run", "--server-id", "4294967296"}, nil, 64, []string{"--server-id 4294967296"}},
		{"drain timeout", []string{"run", "--drain-timeout", "-1s"}, nil, 64, []string{"--drain-timeout -1s is not above 0; type: --drain-timeout 15s"}},
		{"give up", []string{"run", "--give-up-after", "-5s"}, nil, 64, []string{"usage: --give-up-after -5s is below 0; type: --give-up-after"}},
		{"log level", []string{"run", "--log-level", "loud"}, nil, 64, []string{"--log-level", `"loud"`, "debug, info, warn, error"}},
		{"log format", []string{"run", "--log-format", "xml"}, nil, 64, []string{"--log-format", `"xml"`, "json, console"}},
		{"password file missing", []string{"run", "--mysql-password-file", "/nowhere/pw"}, nil, 64, []string{"--mysql-password-file", "/nowhere/pw"}},
		{"password file empty", []string{"run", "--amqp-password-file", empty}, nil, 64, []string{"--amqp-password-file", empty}},
		{"resume without a set", []string{"resume"}, nil, 64, []string{"--from-gtid is missing", "relay status"}},
		{"resume with a bad set", []string{"resume", "--from-gtid", "1-5"}, nil, 64, []string{"--from-gtid", `"1-5"`, "9562:1-57"}},
		{"flag of resume", []string{"status", "--json", "--yes"}, nil, 64, []string{"-yes", "relay status --help"}},
	})
}

// TestUnfitCheckpoint: the file that is there, or its place, cannot serve. Seen
// to fail with an empty file taken for a missing one (File.reload): the relay
// begins.
func TestUnfitCheckpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	good, err := os.ReadFile(r.checkpoint())
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, content []byte) string {
		path := filepath.Join(r.dir, name)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	cut := write("cut.json", good[:len(good)/2])
	edited := write("edited.json", []byte(strings.Replace(string(good), `"sequence": 0`, `"sequence": 9`, 1)))
	none := write("none.json", nil)
	state := r.state()
	state.Table = "other.outbox"
	foreign := filepath.Join(r.dir, "foreign.json")
	file, err := checkpoint.Open(foreign)
	if err == nil {
		err = file.Save(state)
	}
	if err != nil {
		t.Fatal(err)
	}
	file.Close()
	unfit := func(name, path string, texts ...string) refusal {
		return refusal{name, []string{"run", "--checkpoint", path}, nil, 78, append(texts, path)}
	}
	r.refuse(t, []refusal{
		unfit("cut short", cut, "corrupt", "relay resume --from-gtid"),
		unfit("edited", edited, "corrupt", "checksum", "relay resume --from-gtid"),
		unfit("empty", none, "corrupt", "relay resume --from-gtid"),
		unfit("of another table", foreign, "other.outbox", r.database()+".outbox", "--checkpoint"),
		{"no directory", []string{"run", "--checkpoint", r.dir + "/missing/c.json"}, nil, 78, []string{r.dir + "/missing", "mkdir -p " + r.dir + "/missing"}},
		{"a file for a directory", []string{"run", "--checkpoint", r.checkpoint() + "/c.json"}, nil, 78, []string{r.checkpoint(), "--checkpoint"}},
	})
	t.Run("no right to write", func(t *testing.T) {
		dir, err := os.MkdirTemp("", "relay-cli-") // where nobody can look
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(dir)
		if err := os.Chmod(dir, 0o555); err != nil {
			t.Fatal(err)
		}
		got := runAs(t, nobody(), r.environment(), "run", "--checkpoint", dir+"/c.json")
		got.want(t, 78, "may not", dir, "type: chown", "--checkpoint")
		got.oneLine(t)
	})
	for _, path := range []string{cut, edited, none} {
		if before, after := map[string]int{cut: len(good) / 2, edited: len(good)}[path], len(mustRead(t, path)); after != before {
			t.Errorf("%s had %d bytes and now has %d", path, before, after)
		}
	}
}

func mustRead(t testing.TB, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// TestUnfitServer: what MySQL refuses, or does not have.
func TestUnfitServer(t *testing.T) { onEach(t, testUnfitServer) }

func testUnfitServer(t *testing.T, on source) {
	r := on.rig(t)
	r.exec("CREATE TABLE short (id BINARY(16) PRIMARY KEY, aggregate_id BIGINT, payload JSON)",
		"CREATE TABLE odd (id DOUBLE PRIMARY KEY, aggregate_id BIGINT, topic TEXT, payload JSON, created_at DATETIME)",
		"CREATE TABLE old (id BIGINT PRIMARY KEY, aggregate_id BIGINT, topic TEXT, payload JSON, created_at DATETIME) ENGINE=MyISAM")
	lacking := func(n int, grants ...string) string {
		user := fmt.Sprintf("%s_%d", r.user, n)
		r.exec("CREATE USER " + user + " IDENTIFIED BY '" + secret + "'")
		t.Cleanup(func() { r.exec("DROP USER " + user) })
		for _, grant := range grants {
			r.exec("GRANT " + grant + " TO " + user)
		}
		cfg := mustDSN(t, r.dsn)
		cfg.User = user
		return "RELAY_MYSQL_DSN=" + cfg.FormatDSN()
	}
	read, slave, client := "SELECT ON "+r.database()+".*", "REPLICATION SLAVE ON *.*", "REPLICATION CLIENT ON *.*"
	wrong := mustDSN(t, r.dsn)
	wrong.Passwd = "hunter2-wrong"
	gone := mustDSN(t, r.root)
	gone.DBName = "no_such_shop"
	r.refuse(t, []refusal{
		{"database", []string{"run", "--mysql-dsn", gone.FormatDSN()}, nil, 78, []string{"no_such_shop", "SHOW DATABASES"}},
		{"table", []string{"run", "--table", "inbox"}, nil, 78, []string{"inbox", "relay schema sql"}},
		{"column", []string{"run", "--table", "short"}, nil, 78, []string{"short", "topic, created_at", "it has id, aggregate_id, payload", "--columns"}},
		{"column type", []string{"run", "--table", "odd"}, nil, 78, []string{"odd", "column id is double"}},
		{"engine", []string{"run", "--table", "old"}, nil, 78, []string{"MyISAM", "ALTER TABLE", "ENGINE=InnoDB"}},
		{"named column", []string{"run", "--columns", "payload=body"}, nil, 78, []string{"body", "it has id,"}},
		{"no grant but to connect", []string{"run"}, []string{lacking(1)}, 78, []string{"GRANT SELECT ON"}},
		{"no SELECT", []string{"run", "--mysql-dsn", strings.TrimPrefix(lacking(2, slave, client), "RELAY_MYSQL_DSN=")}, nil, 78, []string{"SELECT", "GRANT SELECT ON `" + r.database() + "`.`outbox` TO '" + r.user + "_2'@'%'"}},
		{"no REPLICATION SLAVE", []string{"run"}, []string{lacking(3, read, client)}, 78, []string{"not granted", "GRANT REPLICATION SLAVE ON *.* TO '" + r.user + "_3'@'%'"}},
		{"no REPLICATION CLIENT", []string{"run"}, []string{lacking(4, read, slave)}, 78, []string{"not granted", "GRANT " + r.pick("REPLICATION CLIENT", "BINLOG MONITOR") + " ON *.* TO '" + r.user + "_4'@'%'"}},
		{"password", []string{"run"}, []string{"RELAY_MYSQL_DSN=" + wrong.FormatDSN()}, 78, []string{r.user, "--mysql-password-file"}},
	})
	t.Run("password file", func(t *testing.T) {
		file := filepath.Join(r.dir, "password")
		if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		run(t, append(r.environment(), "RELAY_MYSQL_DSN="+wrong.FormatDSN()), "check", "--partitions", "1", "--mysql-password-file", file).want(t, 0)
	})
}

// TestUnfitBroker: what RabbitMQ refuses, or does not have.
func TestUnfitBroker(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	uri, err := amqp.ParseURI(r.amqp)
	if err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("%s:%d", uri.Host, uri.Port)
	fanout := &rig{t: t, amqp: r.amqp, exchange: r.exchange + "f"}
	fanout.declare("fanout", false)
	t.Cleanup(fanout.dropTopology)
	queue := &rig{t: t, amqp: r.amqp, exchange: r.exchange + "q"}
	queue.declare("x-consistent-hash", true) // with a queue that is no quorum queue
	t.Cleanup(queue.dropTopology)
	r.refuse(t, []refusal{
		{"URL", []string{"run", "--amqp-url", "http://relay:" + secret + "@" + at}, nil, 64, []string{"amqp://USER:PASSWORD@HOST:PORT/VHOST"}},
		{"password", []string{"run", "--amqp-url", "amqp://guest:hunter2@" + at + "/"}, nil, 78, []string{`user "guest"`, at, "--amqp-password-file"}},
		{"vhost", []string{"run", "--amqp-url", fmt.Sprintf("amqp://%s:%s@%s/nowhere", uri.Username, uri.Password, at)}, nil, 78, []string{`vhost "nowhere"`, "rabbitmqctl add_vhost nowhere"}},
		{"no exchange", []string{"run"}, nil, 78, []string{r.exchange, "does not exist", "--partitions 4"}},
		{"exchange of another type", []string{"run", "--exchange", fanout.exchange}, nil, 78, []string{fanout.exchange, "x-consistent-hash", "fanout", "--exchange"}},
		{"exchange of another type, to be declared", []string{"run", "--partitions", "4", "--exchange", fanout.exchange}, nil, 78, []string{fanout.exchange, "fanout"}},
		{"queue of another kind", []string{"run", "--partitions", "1", "--exchange", queue.exchange}, nil, 78, []string{queue.queue(0), "quorum", "--partitions 0"}},
		{"no name", []string{"run", "--exchange", ""}, nil, 64, []string{"--exchange"}},
	})
	if r.exists() {
		t.Error("a relay that never connected has made a checkpoint")
	}
	for _, args := range [][]string{
		{"--partitions", "1", "--exchange", queue.exchange},
		{"--partitions", "4", "--exchange", fanout.exchange},
		{"--exchange", fanout.exchange},
		{"--exchange", r.exchange},
	} {
		r.sameWords(t, args...)
	}
}

// sameWords wants check to say what run refuses, in its words. It said ok of a
// queue of another kind.
func (r *rig) sameWords(t *testing.T, flags ...string) {
	t.Helper()
	refused := r.run(append([]string{"run"}, flags...)...)
	refused.want(t, 78)
	words := strings.TrimPrefix(strings.TrimSpace(refused.stderr), "relay: ")
	r.run(append([]string{"check"}, flags...)...).want(t, 3, words)
}

// TestListen: the address is in use.
func TestListen(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	address := listener.Addr().String()
	r.refuse(t, []refusal{
		{"in use", []string{"run", "--partitions", "1", "--listen", address}, nil, 78, []string{"--listen " + address, "in use", "--listen ''"}},
		{"no address", []string{"run", "--partitions", "1", "--listen", "nonsense"}, nil, 78, []string{"--listen nonsense"}},
	})
}

// TestSettings walks through a server's settings: each refusal names a
// statement that mends it.
func TestSettings(t *testing.T) { onEach(t, testSettings) }

func testSettings(t *testing.T, on source) {
	options, mode, set := []string{"--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"}, "gtid_mode", "SET PERSIST "
	if on.name == "mariadb" {
		options, mode, set = []string{"--gtid-strict-mode=OFF", "--binlog-row-metadata=NO_LOG", "--sync-binlog=0"}, "gtid_strict_mode", "SET GLOBAL "
	}
	server := on.private(t, append(options, "--binlog-format=MIXED", "--binlog-row-image=MINIMAL")...)
	r := rigOn(t, databaseOn(t, server), run(t, nil, "schema", "sql").stdout)
	for _, step := range []struct{ setting, found string }{{mode, "OFF"}, {"binlog_format", "MIXED"}, {"binlog_row_image", "MINIMAL"}} {
		got := r.run("run", "--partitions", "1")
		got.want(t, 78, step.setting, "found "+step.found, set+step.setting)
		got.oneLine(t)
		checked := r.run("check", "--partitions", "1")
		checked.want(t, 3, "FAIL  "+step.setting, step.setting)
		_, fix, _ := strings.Cut(strings.TrimSpace(got.stderr), "type: ")
		for statement := range strings.SplitSeq(fix, "; ") {
			r.exec(statement)
		}
	}
	r.run("check", "--partitions", "1").want(t, 0, "hint  binlog_row_metadata", r.pick("type: SET PERSIST binlog_row_metadata = FULL", "hint  sync_binlog"))
	r.db.SetMaxIdleConns(0) // a session keeps the format that it began with
	r.resumePurged(t)
}

// TestBinlogOff: a server that keeps no log.
func TestBinlogOff(t *testing.T) {
	t.Parallel()
	server := relaytest.PrivateMySQL(t, "--skip-log-bin")
	r := rigOn(t, databaseOn(t, server), run(t, nil, "schema", "sql").stdout)
	got := r.run("run", "--partitions", "1")
	got.want(t, 78, "log_bin", "found OFF", "skip-log-bin")
	got.oneLine(t)
}

// TestLeftOut: a server that leaves the outbox's database out of its log.
func TestLeftOut(t *testing.T) {
	t.Parallel()
	r := rigOn(t, databaseOn(t, relaytest.PrivateMySQL(t, "--binlog-do-db=other")), run(t, nil, "schema", "sql").stdout)
	fix := "type: add binlog-do-db = " + r.database() + " to the server's option file, then restart it"
	got := r.run("run", "--partitions", "1")
	got.want(t, 78, "binlog filter", "found binlog-do-db = other, which leaves "+r.database()+" out", fix)
	got.oneLine(t)
	r.run("check", "--partitions", "1").want(t, 3, "FAIL  binlog filter", fix)
}

// TestOtherFlavor: a checkpoint of one flavor is refused for a server of the
// other by each command that reads it. Without the look at the flavor, run
// takes a position of MariaDB for the empty set of MySQL, and sends all again.
func TestOtherFlavor(t *testing.T) {
	t.Parallel()
	for i, on := range sources {
		t.Run("of "+on.name, func(t *testing.T) {
			t.Parallel()
			r, other := on.rig(t).begun(), sources[1-i].rig(t)
			held, product := r.pick("MySQL", "MariaDB"), r.pick("MariaDB", "MySQL")
			env := append(other.environment(), "RELAY_CHECKPOINT="+r.checkpoint(), "RELAY_PARTITIONS=1")
			before := mustRead(t, r.checkpoint())
			for _, command := range []struct {
				code int
				args []string
			}{
				{78, []string{"run"}},
				{3, []string{"check"}},
				{78, []string{"status"}},
				{78, []string{"resume", "--yes", "--from-gtid", other.executed()}},
				{78, []string{"resume", "--gap", "backfill"}},
			} {
				got := run(t, env, command.args...)
				got.want(t, command.code, r.checkpoint()+" holds a position of "+held+", and the server is "+product, "--checkpoint")
				got.oneLine(t)
			}
			if !bytes.Equal(mustRead(t, r.checkpoint()), before) {
				t.Error("a refused command has changed the checkpoint")
			}
		})
	}
}
