package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// plainPayload is of 300 bytes.
var plainPayload = `{"order": 1, "note": "` + strings.Repeat("outbox ", 39) + `...` + `"}`

// patience is how long a relay may take to start, or to stop.
const patience = time.Minute

// outfit is what one relay needs: a database with an outbox, a user with the
// documented grants and no other, an exchange with queues, a directory.
type outfit struct {
	name   string // of database, user and exchange
	binary string
	dir    string
	dsn    string  // of the relay's user
	db     *sql.DB // of root
	queues
}

// outfit makes one on a MySQL server, for which server is a root DSN, and on
// the test broker. The caller closes it.
func (b *bench) outfit(ctx context.Context, server string) (_ *outfit, err error) {
	cfg, err := mysql.ParseDSN(server)
	if err != nil {
		return nil, fmt.Errorf("the MySQL server's address is not a DSN: %w", err)
	}
	name := freshName()
	o := &outfit{name: name, binary: b.relay, queues: queues{broker: b.broker, exchange: name}}
	o.dir = filepath.Join(b.dir, o.name)
	if err := os.Mkdir(o.dir, 0o700); err != nil {
		return nil, err
	}
	cfg.DBName, cfg.InterpolateParams = "", true
	root, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		return nil, err
	}
	defer root.Close()
	password := rand.Text()
	if err := execute(ctx, root,
		"CREATE DATABASE "+o.name+" CHARACTER SET utf8mb4",
		"CREATE USER "+o.name+" IDENTIFIED BY '"+password+"'",
		"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO "+o.name,
		"GRANT SELECT ON "+o.name+".* TO "+o.name); err != nil {
		return nil, err
	}
	cfg.DBName = o.name
	if o.db, err = sql.Open("mysql", cfg.FormatDSN()); err != nil {
		return nil, err
	}
	o.db.SetMaxIdleConns(64)
	cfg.User, cfg.Passwd, cfg.InterpolateParams = o.name, password, false
	o.dsn = cfg.FormatDSN()
	return o, execute(ctx, o.db, schema.SQL)
}

// close removes all of it but the directory, which goes with the scratch.
func (o *outfit) close() error {
	err := execute(context.Background(), o.db, "DROP DATABASE IF EXISTS "+o.name, "DROP USER IF EXISTS "+o.name)
	return errors.Join(err, o.db.Close(), o.remove())
}

// execute runs statements one after the other.
func execute(ctx context.Context, db *sql.DB, statements ...string) error {
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%.60q: %w", statement, err)
		}
	}
	return nil
}

func (o *outfit) checkpoint() string { return filepath.Join(o.dir, "checkpoint.json") }
func (o *outfit) log() string        { return filepath.Join(o.dir, "relay.log") }

// start starts the relay. Options win over its surroundings.
func (o *outfit) start(options ...string) (*relaytest.Process, error) {
	return relaytest.Command{
		Binary: o.binary,
		Args: append([]string{
			"run", "--exchange", o.name, "--partitions", strconv.Itoa(partitions),
			"--checkpoint", o.checkpoint(), "--start", "latest", "--listen=", "--log-format=json",
			"--drain-timeout=1m",
		}, options...),
		Env:    []string{"RELAY_MYSQL_DSN=" + o.dsn, "RELAY_AMQP_URL=" + o.broker},
		Stderr: o.log(),
	}.Start()
}

// follow starts the relay and waits until it follows.
func (o *outfit) follow(ctx context.Context, options ...string) (*relaytest.Process, error) {
	if err := os.RemoveAll(o.log()); err != nil {
		return nil, err
	}
	p, err := o.start(options...)
	if err != nil {
		return nil, err
	}
	err = await(ctx, p, "it follows", patience, func() bool {
		text, err := os.ReadFile(o.log())
		return err == nil && strings.Contains(string(text), `"message":"following"`)
	})
	if err != nil {
		return nil, errors.Join(err, p.Kill())
	}
	return p, nil
}

// begin makes a checkpoint at the end of the server's log, and declares the
// queues.
func (o *outfit) begin(ctx context.Context) error {
	if err := os.RemoveAll(o.checkpoint()); err != nil {
		return err
	}
	p, err := o.follow(ctx)
	if err != nil {
		return err
	}
	return stop(p)
}

// keep returns what puts the checkpoint back to where it is now.
func (o *outfit) keep() (back func() error, err error) {
	text, err := os.ReadFile(o.checkpoint())
	return func() error { return os.WriteFile(o.checkpoint(), text, 0o600) }, err
}

// settled reports whether the relay's checkpoint covers that many events.
func (o *outfit) settled(sequence int64) bool {
	state, err := checkpoint.Read(o.checkpoint())
	return err == nil && state.Sequence == sequence && state.Partial == nil
}

// stop ends a relay that follows, and wants it to be content.
func stop(p *relaytest.Process) error {
	if err := p.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.Done():
	case <-time.After(2 * patience):
		return errors.Join(fmt.Errorf("the relay does not end after SIGTERM:\n%s", p.Tail()), p.Kill())
	}
	if code := p.Wait(); code != 0 {
		return fmt.Errorf("the relay ended after SIGTERM with %d:\n%s", code, p.Tail())
	}
	return nil
}

// await waits until the condition holds while the relay runs, looking a hundred
// times a second. It ends with an error when the relay does, or after limit.
func await(ctx context.Context, p *relaytest.Process, what string, limit time.Duration, condition func() bool) error {
	ticker, deadline := time.NewTicker(10*time.Millisecond), time.After(limit)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-p.Done():
			return fmt.Errorf("the relay ended with %d before %s:\n%s", p.Wait(), what, p.Tail())
		case <-deadline:
			return fmt.Errorf("waited %v in vain until %s:\n%s", limit, what, p.Tail())
		case <-ticker.C:
		}
	}
	return nil
}

// insert commits the events of a series from first on, in one transaction.
func (o *outfit) insert(ctx context.Context, series uint64, first, count int) error {
	var places []string
	var args []any
	for n := first; n < first+count; n++ {
		places = append(places, "(?, ?, 'order.placed', ?, UTC_TIMESTAMP(6))")
		args = append(args, eventID(series, n), n%aggregates, plainPayload)
	}
	_, err := o.db.ExecContext(ctx, "INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES "+strings.Join(places, ", "), args...)
	return err
}

// purge empties the queues.
func (o *outfit) purge() error {
	return o.on(func(channel *amqp.Channel) error {
		for _, queue := range o.names() {
			if _, err := channel.QueuePurge(queue, false); err != nil {
				return err
			}
		}
		return nil
	})
}
