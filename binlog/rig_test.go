package binlog_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// limit is how long a server may take for what takes it milliseconds.
const limit = 30 * time.Second

// flavor is a kind of server to test on.
type flavor struct {
	name     string
	database func(testing.TB) string            // on the test server of all
	private  func(testing.TB, ...string) string // a server of its own
}

var flavors = []flavor{
	{"mysql", relaytest.MySQL, relaytest.PrivateMySQL},
	{"mariadb", relaytest.MariaDB, relaytest.PrivateMariaDB},
}

// onEach runs a test on a server of each flavor.
func onEach(t *testing.T, test func(*testing.T, flavor)) {
	t.Parallel()
	for _, f := range flavors {
		t.Run(f.name, func(t *testing.T) { t.Parallel(); test(t, f) })
	}
}

// rig makes one on the flavor's test server.
func (f flavor) rig(tb testing.TB, create string) *rig {
	tb.Helper()
	return newRigOn(tb, f.database(tb), create)
}

// mariadb tells whether the rig's server is one.
func (r *rig) mariadb() bool { return r.text("SELECT FALSE /*M! OR TRUE */") == "1" }

// pick is the first on MySQL and the second on MariaDB.
func (r *rig) pick(mysql, mariadb string) string {
	r.Helper()
	if r.mariadb() {
		return mariadb
	}
	return mysql
}

// rig is a database of its own on a server, and the table outbox in it.
type rig struct {
	testing.TB
	ctx context.Context
	dsn string // of root
	db  *sql.DB
}

// newRig makes a rig on the test server, with an outbox made by the statement.
func newRig(tb testing.TB, create string) *rig {
	tb.Helper()
	return newRigOn(tb, relaytest.MySQL(tb), create)
}

// newRigOn makes a rig in the database of the DSN; a DSN without one gets a
// fresh one.
func newRigOn(tb testing.TB, dsn, create string) *rig {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*limit)
	tb.Cleanup(cancel)
	r := &rig{TB: tb, ctx: ctx, dsn: dsn, db: relaytest.DB(tb, dsn)}
	if cfg, err := mysql.ParseDSN(dsn); err != nil {
		tb.Fatal(err)
	} else if cfg.DBName == "" {
		name := relaytest.Name(tb)
		r.exec("CREATE DATABASE " + name + " CHARACTER SET utf8mb4")
		r.dsn += name
		r.db = relaytest.DB(tb, r.dsn)
	}
	if create != "" {
		r.exec(create)
	}
	return r
}

func (r *rig) exec(query string, args ...any) {
	r.Helper()
	if _, err := r.db.ExecContext(r.ctx, query, args...); err != nil {
		r.Fatalf("%.100s: %v", query, err)
	}
}

// text returns the one value that a query gives, as text.
func (r *rig) text(query string, args ...any) (value string) {
	r.Helper()
	if err := r.db.QueryRowContext(r.ctx, query, args...).Scan(&value); err != nil {
		r.Fatalf("%s: %v", query, err)
	}
	return value
}

// conn is a session of its own, with settings.
func (r *rig) conn(settings ...string) *sql.Conn {
	r.Helper()
	conn, err := r.db.Conn(r.ctx)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(func() { conn.Close() })
	for _, s := range settings {
		r.on(conn, s)
	}
	return conn
}

func (r *rig) on(conn *sql.Conn, query string, args ...any) {
	r.Helper()
	if _, err := conn.ExecContext(r.ctx, query, args...); err != nil {
		r.Fatalf("%.100s: %v", query, err)
	}
}

// config is a relay's configuration for the rig, with a server id of its own.
func (r *rig) config() binlog.Config {
	return binlog.Config{DSN: r.dsn, Table: "outbox", ServerID: 1<<31 + rand.Uint32N(1<<31)}
}

// open connects as config says, after the changes.
func (r *rig) open(changes ...func(*binlog.Config)) *binlog.Server {
	r.Helper()
	server, err := r.tryOpen(changes...)
	if err != nil {
		r.Fatal(err)
	}
	return server
}

func (r *rig) tryOpen(changes ...func(*binlog.Config)) (*binlog.Server, error) {
	config := r.config()
	for _, change := range changes {
		change(&config)
	}
	server, err := binlog.Open(r.ctx, config)
	if err == nil {
		r.Cleanup(func() { server.Close() })
	}
	return server, err
}

func (r *rig) table(server *binlog.Server) *schema.Table {
	r.Helper()
	table, err := server.Table(r.ctx)
	if err != nil {
		r.Fatal(err)
	}
	return table
}

func (r *rig) executed(server *binlog.Server) *binlog.GTIDSet {
	r.Helper()
	set, err := server.Executed(r.ctx)
	if err != nil {
		r.Fatal(err)
	}
	return set
}

func (r *rig) purged(server *binlog.Server) *binlog.GTIDSet {
	r.Helper()
	set, err := server.Purged(r.ctx)
	if err != nil {
		r.Fatal(err)
	}
	return set
}

// follow begins a stream at what the server has executed by now.
func (r *rig) follow(server *binlog.Server) *binlog.Stream {
	r.Helper()
	return r.followFrom(server, r.executed(server))
}

func (r *rig) followFrom(server *binlog.Server, position *binlog.GTIDSet) *binlog.Stream {
	r.Helper()
	stream, err := server.Follow(r.ctx, position, r.table(server))
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(stream.Close)
	return stream
}

// source is a stream or a backfill.
type source interface {
	Next(context.Context) (*binlog.Tx, error)
}

// events reads n events of a source, then what is left of their transaction.
func (r *rig) events(from source, n int) (events []schema.Event) {
	r.Helper()
	for _, tx := range r.transactions(from, func(tx *binlog.Tx) bool { n -= len(tx.Events); return n <= 0 && tx.Last }) {
		events = append(events, tx.Events...)
	}
	return events
}

// transactions reads from a source until the last one is seen, or its end.
func (r *rig) transactions(from source, last func(*binlog.Tx) bool) (list []*binlog.Tx) {
	r.Helper()
	for {
		tx, err := from.Next(r.ctx)
		if errors.Is(err, io.EOF) {
			return list
		}
		if err != nil {
			r.Fatalf("after %d transactions: %v", len(list), err)
		}
		if list = append(list, tx); last(tx) {
			return list
		}
	}
}

// backfill reads all that a backfill holds.
func (r *rig) backfill(server *binlog.Server, after, until string) []*binlog.Tx {
	r.Helper()
	b, err := server.Backfill(r.ctx, r.table(server), r.executed(server), after, until)
	if err != nil {
		r.Fatal(err)
	}
	defer b.Close()
	return r.transactions(b, func(*binlog.Tx) bool { return false })
}

// ids lists the ids of all events.
func ids(list []*binlog.Tx) string {
	var out []string
	for _, tx := range list {
		for _, e := range tx.Events {
			out = append(out, e.ID)
		}
	}
	return strings.Join(out, " ")
}

// user creates an account with grants, and returns a DSN of it to the rig's
// database.
func (r *rig) user(host string, grants ...string) (name, dsn string) {
	r.Helper()
	name = relaytest.Name(r)
	account := fmt.Sprintf("'%s'@'%s'", name, host)
	r.exec("CREATE USER " + account + " IDENTIFIED BY 'secret-pw'")
	r.Cleanup(func() {
		if _, err := r.db.ExecContext(context.Background(), "DROP USER "+account); err != nil {
			r.Error(err)
		}
	})
	for _, g := range grants {
		r.exec("GRANT " + g + " TO " + account)
	}
	cfg, err := mysql.ParseDSN(r.dsn)
	if err != nil {
		r.Fatal(err)
	}
	cfg.User, cfg.Passwd = name, "secret-pw"
	return name, cfg.FormatDSN()
}

// as makes the relay connect by another DSN.
func as(dsn string) func(*binlog.Config) { return func(c *binlog.Config) { c.DSN = dsn } }

// newID is a fresh id of sixteen bytes.
func newID() []byte {
	id := make([]byte, 16)
	for i := range id {
		id[i] = byte(rand.Uint32())
	}
	return id
}

// insert writes one row of layout relay.
func (r *rig) insert(id []byte, payload string) {
	r.Helper()
	r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (?, 7, 'orders', ?)", id, payload)
}
