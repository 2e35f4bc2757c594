package cli_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

const (
	// secret is the password of every relay here; no output may hold it.
	secret = "hunter2-Planted/Secret"
	// planted is in the payload of what insert writes; no log may hold it.
	planted = "planted-payload"
	// patience bounds every wait. It is for a machine on which much else runs.
	patience = 90 * time.Second
)

// rig is a relay's surroundings: a database with an outbox and a user with the
// documented grants and no other, an exchange of its own, a directory.
type rig struct {
	t        testing.TB
	root     string // DSN of root in the database
	dsn      string // of the relay's user
	user     string
	db       *sql.DB
	amqp     string
	exchange string
	dir      string
	flags    []string // of every command
}

// newRig makes one with the seed table, on MySQL.
func newRig(t testing.TB) *rig {
	t.Helper()
	return rigOn(t, database(t), schema.SQL)
}

// rigOn makes one in the database of a root DSN, with its own table.
func rigOn(t testing.TB, root string, ddl ...string) *rig {
	t.Helper()
	r := &rig{t: t, root: root, user: relaytest.Name(t), amqp: relaytest.AMQP(t), exchange: relaytest.Name(t), dir: t.TempDir()}
	r.db = relaytest.DB(t, root)
	r.exec(ddl...)
	r.exec("CREATE USER "+r.user+" IDENTIFIED BY '"+secret+"'",
		"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO "+r.user,
		"GRANT SELECT ON "+r.database()+".* TO "+r.user)
	if r.mariadb() {
		r.exec("GRANT SLAVE MONITOR ON *.* TO " + r.user)
	}
	cfg := mustDSN(t, root)
	cfg.User, cfg.Passwd = r.user, secret
	r.dsn = cfg.FormatDSN()
	t.Cleanup(func() {
		r.exec("DROP USER IF EXISTS " + r.user)
		r.dropTopology()
	})
	return r
}

func mustDSN(t testing.TB, dsn string) *mysql.Config {
	t.Helper()
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func (r *rig) database() string { return mustDSN(r.t, r.root).DBName }

func (r *rig) checkpoint() string { return filepath.Join(r.dir, "checkpoint.json") }

func (r *rig) exec(statements ...string) {
	r.t.Helper()
	for _, statement := range statements {
		if _, err := r.db.Exec(statement); err != nil {
			r.t.Fatalf("%s: %v", statement, err)
		}
	}
}

func (r *rig) text(query string, args ...any) string {
	r.t.Helper()
	var text string
	if err := r.db.QueryRow(query, args...).Scan(&text); err != nil {
		r.t.Fatalf("%s: %v", query, err)
	}
	return text
}

// id is the nth event's, as bytes.
func id(n int) []byte {
	b := make([]byte, 16)
	binary.BigEndian.PutUint64(b[8:], uint64(n))
	return b
}

// idText is the nth event's message id.
func idText(n int) string { return fmt.Sprintf("00000000-0000-0000-0000-%012x", n) }

// execer is a database, a transaction or a connection.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// insert writes the events from first to last, of 100 aggregates.
func (r *rig) insert(on execer, first, last int) {
	r.t.Helper()
	for n := first; n <= last; {
		var places []string
		var args []any
		for ; n <= last && len(places) < 5000; n++ {
			places = append(places, "(?, ?, 'order.placed', ?, UTC_TIMESTAMP(6))")
			args = append(args, id(n), n%100, `{"note": "`+planted+`"}`)
		}
		if _, err := on.ExecContext(context.Background(), "INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES "+strings.Join(places, ", "), args...); err != nil {
			r.t.Fatal(err)
		}
	}
}

// environment are the settings of a command; flags of the test win.
func (r *rig) environment() []string {
	return []string{
		"RELAY_MYSQL_DSN=" + r.dsn, "RELAY_AMQP_URL=" + r.amqp, "RELAY_EXCHANGE=" + r.exchange,
		"RELAY_CHECKPOINT=" + r.checkpoint(), "RELAY_LISTEN=",
	}
}

// result is what a command that has ended left.
type result struct {
	code           int
	stdout, stderr string
}

// run runs a command to its end, in the rig's surroundings.
func (r *rig) run(args ...string) result {
	r.t.Helper()
	return run(r.t, r.environment(), append(args, r.flags...)...)
}

// run runs the relay to its end with nothing but these variables.
func run(t testing.TB, env []string, args ...string) result {
	t.Helper()
	return runAs(t, nil, env, args...)
}

// nobody is a user without rights; nil where the tests do not run as root.
func nobody() *syscall.Credential {
	if os.Getuid() != 0 {
		return nil
	}
	return &syscall.Credential{Uid: 65534, Gid: 65534}
}

func runAs(t testing.TB, user *syscall.Credential, env []string, args ...string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, relayBinary(t), args...)
	cmd.Env, cmd.Dir = append(env, "PATH="+os.Getenv("PATH")), "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: user}
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("relay %v does not end: %v\n%s", args, err, stderr.String())
	}
	noSecret(t, stdout.String()+stderr.String())
	noPayload(t, stderr.String())
	return result{cmd.ProcessState.ExitCode(), stdout.String(), stderr.String()}
}

// noSecret fails the test when the planted password is in a text.
func noSecret(t testing.TB, text string) {
	t.Helper()
	if strings.Contains(text, secret) || strings.Contains(text, "hunter2") {
		t.Errorf("the password is in:\n%s", text)
	}
}

// noPayload fails the test when a log has a payload.
func noPayload(t testing.TB, log string) {
	t.Helper()
	if strings.Contains(log, planted) {
		t.Errorf("a payload is in:\n%s", log)
	}
}

// want compares a command's exit code and looks for texts in its output.
func (got result) want(t testing.TB, code int, texts ...string) {
	t.Helper()
	if got.code != code {
		t.Errorf("exit code %d, want %d\n%s%s", got.code, code, got.stdout, got.stderr)
	}
	for _, text := range texts {
		if !strings.Contains(got.stdout+got.stderr, text) {
			t.Errorf("the output has no %q:\n%s%s", text, got.stdout, got.stderr)
		}
	}
}

// daemon is a relay that runs.
type daemon struct {
	*relaytest.Process
	rig *rig
	log string
}

// start starts a relay; it is killed at the end if the test leaves it.
func (r *rig) start(args ...string) *daemon {
	r.t.Helper()
	return r.startAs("run", args...)
}

func (r *rig) startAs(command string, args ...string) *daemon {
	r.t.Helper()
	return r.startWith(nil, command, args...)
}

// startWith starts a relay with more in its environment.
func (r *rig) startWith(environment []string, command string, args ...string) *daemon {
	r.t.Helper()
	log := filepath.Join(r.t.TempDir(), "relay.log")
	c := relaytest.Command{
		Binary: relayBinary(r.t), Args: append(append([]string{command}, args...), r.flags...),
		Env: append(r.environment(), environment...), Stderr: log,
	}
	process, err := c.Start()
	if err != nil {
		r.t.Fatal(err)
	}
	d := &daemon{process, r, log}
	r.t.Cleanup(func() {
		if err := d.Kill(); err != nil {
			r.t.Error(err)
		}
		noSecret(r.t, d.text())
		noPayload(r.t, d.text())
		if r.t.Failed() {
			r.t.Logf("relay %s:\n%s", command, d.Tail())
		}
	})
	return d
}

func (d *daemon) text() string {
	text, err := os.ReadFile(d.log)
	if err != nil {
		d.rig.t.Error(err)
	}
	return string(text)
}

// until waits for a condition while the relay runs.
func (d *daemon) until(what string, condition func() bool) {
	d.rig.t.Helper()
	relaytest.Wait(d.rig.t, patience, what, func() bool {
		select {
		case <-d.Done():
			d.rig.t.Fatalf("the relay ended with %d before %s:\n%s", d.Wait(), what, d.Tail())
		default:
		}
		return condition()
	})
}

// settled waits until the checkpoint covers all that is committed now.
func (d *daemon) settled() {
	d.rig.t.Helper()
	d.until("it follows", func() bool { return strings.Contains(d.text(), `"message":"following"`) })
	executed := d.rig.executed()
	d.until("the checkpoint covers what is committed", func() bool { return d.rig.covers(executed) })
}

// covers tells whether the checkpoint covers the set, backfill included.
func (r *rig) covers(executed string) bool {
	state, err := checkpoint.Read(r.checkpoint())
	if err != nil || state.Backfill != nil {
		return false
	}
	return r.set(state.GTIDSet).Contains(r.set(executed))
}

func (r *rig) set(text string) *binlog.GTIDSet {
	r.t.Helper()
	set, err := binlog.ParseGTIDSet(text)
	if err != nil {
		r.t.Fatal(err)
	}
	return set
}

// mariadb tells whether the source is one.
func (r *rig) mariadb() bool { return r.text("SELECT FALSE /*M! OR TRUE */") == "1" }

// pick is the first on MySQL and the second on MariaDB.
func (r *rig) pick(mysql, mariadb string) string {
	r.t.Helper()
	if r.mariadb() {
		return mariadb
	}
	return mysql
}

// executed is the set of all that the source has committed.
func (r *rig) executed() string {
	r.t.Helper()
	if r.mariadb() {
		return r.text("SELECT @@GLOBAL.gtid_binlog_pos")
	}
	return r.text("SELECT REPLACE(@@GLOBAL.gtid_executed, '\n', '')")
}

// purged is the set of what is no longer in its log.
func (r *rig) purged() string {
	r.t.Helper()
	if r.mariadb() {
		var file string
		r.eachLog(func(name, _ string) bool { file = name; return false })
		return r.text("SELECT COALESCE(BINLOG_GTID_POS(?, 4), '')", file)
	}
	return r.text("SELECT REPLACE(@@GLOBAL.gtid_purged, '\n', '')")
}

// eachLog calls f with the name and size of each log file, until it has enough.
func (r *rig) eachLog(f func(name, size string) bool) {
	r.t.Helper()
	rows, err := r.db.Query("SHOW BINARY LOGS")
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		r.t.Fatal(err)
	}
	for rows.Next() {
		var name, size string
		fields := []any{&name, &size}
		if len(columns) > 2 { // of MySQL: encrypted
			fields = append(fields, new(string))
		}
		if err := rows.Scan(fields...); err != nil {
			r.t.Fatal(err)
		}
		if !f(name, size) {
			return
		}
	}
}

// begun makes the first checkpoint, so that what follows comes from the log.
func (r *rig) begun() *rig {
	r.t.Helper()
	r.relay("--partitions", "1")
	return r
}

// relay relays all that is committed now, and stops.
func (r *rig) relay(args ...string) {
	r.t.Helper()
	d := r.start(args...)
	d.settled()
	d.stop()
}

// relayed relays to one partition all that is committed now, and returns what
// is there.
func (r *rig) relayed(args ...string) []amqp.Delivery {
	r.t.Helper()
	r.relay(append(args, "--partitions", "1")...)
	return r.take(0)
}

// state is what the checkpoint holds.
func (r *rig) state() checkpoint.State {
	r.t.Helper()
	state, err := checkpoint.Read(r.checkpoint())
	if err != nil {
		r.t.Fatal(err)
	}
	return state
}

// pid is that of the relay, as its lock file tells.
func (d *daemon) pid() int {
	d.rig.t.Helper()
	var pid int
	d.until("the lock file names the process", func() bool {
		text, err := os.ReadFile(d.rig.checkpoint() + ".lock")
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	return pid
}

// stop stops the relay with SIGTERM, which must end it with 0.
func (d *daemon) stop() {
	d.rig.t.Helper()
	d.wantEnd(0)
}

func (d *daemon) wantEnd(code int) {
	d.rig.t.Helper()
	if err := d.Terminate(); err != nil {
		d.rig.t.Fatal(err)
	}
	select {
	case <-d.Done():
	case <-time.After(patience):
		d.rig.t.Fatalf("the relay does not end after SIGTERM:\n%s", d.Tail())
	}
	if got := d.Wait(); got != code {
		d.rig.t.Fatalf("the relay ended with %d after SIGTERM, want %d:\n%s", got, code, d.Tail())
	}
}

// hexID is the nth event's, as a hexadecimal literal's digits.
func hexID(n int) string { return fmt.Sprintf("%032x", n) }

// exists tells whether there is a checkpoint.
func (r *rig) exists() bool {
	_, err := os.Stat(r.checkpoint())
	return err == nil
}

// oneLine wants standard error to be one line, behind what was logged: a
// refusal.
func (got result) oneLine(t testing.TB) {
	t.Helper()
	rest := got.stderr
	for strings.HasPrefix(rest, `{"level":"info"`) {
		_, rest, _ = strings.Cut(rest, "\n")
	}
	if strings.Count(rest, "\n") != 1 || !strings.HasPrefix(rest, "relay: ") || !strings.HasSuffix(rest, "\n") {
		t.Errorf("standard error is not one line that begins with relay:\n%s", got.stderr)
	}
}
