package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// bench is what the parts have in common. One goroutine uses it.
type bench struct {
	mysql   string // root DSN of a server of the bench's own, in no database
	broker  string // URL of the test broker
	relay   string // path of the binary
	dir     string // scratch, removed at the end
	runs    int    // of each kind
	events  int    // to drain
	rows    int    // to audit
	quick   bool   // sizes are small: only to see that it works
	profile string // directory for CPU profiles; empty: none

	// drainRate is the relay's median in the drain of quorum queues, in events
	// per second; 0: not measured.
	drainRate float64

	loaded map[loadKey]load

	around   surroundings
	log      *log.Logger // progress
	results  []result
	cleanups []func() error
}

// open makes the scratch directory, on the disk that the servers use, and starts
// a MySQL server in it: so that nothing else is in its log, and what it takes is
// told apart.
func (b *bench) open(ctx context.Context) (err error) {
	if _, b.broker, err = relaytest.Addresses(); err != nil {
		return err
	}
	if b.relay, err = filepath.Abs(b.relay); err != nil {
		return err
	}
	if _, err := os.Stat(b.relay); err != nil {
		return fmt.Errorf("no relay to measure: %w: type: make build", err)
	}
	scratch, err := filepath.Abs(".dev")
	if err == nil {
		err = os.MkdirAll(scratch, 0o755)
	}
	if err == nil {
		b.dir, err = os.MkdirTemp(scratch, "bench-")
	}
	if err != nil {
		return err
	}
	// The options make writing many rows bearable. Their log is as it always is.
	dsn, stop, err := relaytest.StartMySQL(ctx, filepath.Join(b.dir, "mysqld"),
		"--innodb-buffer-pool-size=512M", "--innodb-redo-log-capacity=1G", "--innodb-doublewrite=OFF")
	if err != nil {
		return err
	}
	b.mysql = dsn
	b.cleanup(stop)
	b.around = b.look(ctx)
	return nil
}

// unsynced calls f while the server does not sync its commits to disk, which
// makes writing many times faster, and no difference to who reads them later.
func (b *bench) unsynced(ctx context.Context, f func() error) error {
	db, err := sql.Open("mysql", b.mysql)
	if err != nil {
		return err
	}
	defer db.Close()
	set := func(ctx context.Context, sync int) error {
		for _, variable := range []string{"sync_binlog", "innodb_flush_log_at_trx_commit"} {
			if _, err := db.ExecContext(ctx, fmt.Sprintf("SET GLOBAL %s = %d", variable, sync)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := set(ctx, 0); err != nil {
		return err
	}
	return errors.Join(f(), set(context.WithoutCancel(ctx), 1))
}

// add takes a result into the table.
func (b *bench) add(r result) {
	b.results = append(b.results, r)
	b.log.Printf("  %s, %s: %s", r.Section, r.Case, r.summary())
}

// cleanup has f called at the end, the latest first.
func (b *bench) cleanup(f func() error) { b.cleanups = append(b.cleanups, f) }

// close undoes what the parts have left on the servers and on disk.
func (b *bench) close() error {
	var failed error
	for _, f := range slices.Backward(b.cleanups) {
		failed = errors.Join(failed, f())
	}
	if b.dir == "" {
		return failed
	}
	return errors.Join(failed, os.RemoveAll(b.dir))
}

// scale is n, or with -quick a twentieth of it.
func (b *bench) scale(n int) int {
	if b.quick {
		return max(n/20, 1)
	}
	return n
}

// pairs calls relay and reference b.runs times in turn. Which of them is first
// changes from run to run, so that a drift of the machine meets both.
func (b *bench) pairs(ctx context.Context, relay, reference func(ctx context.Context) error) error {
	for i := range b.runs {
		first, second := relay, reference
		if i%2 == 1 {
			first, second = reference, relay
		}
		for _, f := range []func(context.Context) error{first, second} {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := f(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// freshName is a name for a database, an exchange or a queue.
func freshName() string { return "bench_" + strings.ToLower(rand.Text()[:12]) }

// database makes a database that is dropped at the end, and returns its name,
// a DSN to it, and a pool of connections.
func (b *bench) database(ctx context.Context) (name, dsn string, db *sql.DB, err error) {
	cfg, err := mysql.ParseDSN(b.mysql)
	if err != nil {
		return "", "", nil, fmt.Errorf("the test server's address is not a DSN: %w", err)
	}
	server, err := sql.Open("mysql", cfg.FormatDSN())
	if err != nil {
		return "", "", nil, err
	}
	defer server.Close()
	name = freshName()
	if _, err := server.ExecContext(ctx, "CREATE DATABASE "+name+" CHARACTER SET utf8mb4"); err != nil {
		return "", "", nil, fmt.Errorf("create a database: %w: type: make up", err)
	}
	cfg.DBName = name
	dsn = cfg.FormatDSN()
	if db, err = sql.Open("mysql", dsn); err != nil {
		return "", "", nil, err
	}
	b.cleanup(func() error {
		_, err := db.Exec("DROP DATABASE IF EXISTS " + name)
		return errors.Join(err, db.Close())
	})
	return name, dsn, db, nil
}
