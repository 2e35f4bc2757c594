package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// relaxed are options of a server that is to write a large log quickly.
var relaxed = []string{
	"--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0", "--skip-innodb-doublewrite",
	"--innodb-buffer-pool-size=1G", "--innodb-redo-log-capacity=2G", "--innodb-log-writer-threads=OFF",
}

// private starts a MySQL server for this part, with relaxed durability. The
// caller closes it.
func (b *bench) private(ctx context.Context, name string, options ...string) (*relaytest.MySQLServer, error) {
	return relaytest.StartMySQL(ctx, filepath.Join(b.dir, name), append(relaxed, options...)...)
}

// chase is the catch-up through a log of foreign traffic.
type chase struct {
	*outfit
	server  *relaytest.MySQLServer
	mysqld  int    // its process id
	first   string // log file that both begin with
	series  uint64
	events  int
	bytes   int64
	back    func() error // puts the checkpoint before the log
	copies  string       // directory for what mysqlbinlog copies
	rate    [2][]float64 // MB/s: of the relay, of mysqlbinlog
	seconds [2][]float64 // of CPU
	served  [2][]float64 // of CPU, of mysqld meanwhile
}

const (
	theRelay = iota
	theCopy
)

// catchUp measures how fast the relay gets through a log of foreign traffic,
// against mysqlbinlog, which only copies it.
func catchUp(ctx context.Context, b *bench) (err error) {
	server, err := b.private(ctx, "catch-up")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	c := &chase{server: server, series: rand.Uint64() >> 1, copies: filepath.Join(b.dir, "copies")}
	if c.outfit, err = b.outfit(ctx, server.DSN); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.write(ctx, b); err != nil {
		return err
	}
	if err := b.pairs(ctx, c.relay, c.copy); err != nil {
		return err
	}
	r := result{
		Section: "catch-up", Case: fmt.Sprintf("%.2f GB of log, one row in 10,000 ours", float64(c.bytes)/1e9), Unit: "MB/s",
		Relay: c.rate[theRelay], Against: "mysqlbinlog --raw", Reference: c.rate[theCopy], Goal: atLeast(ofRatio, 1),
	}
	r.Note = fmt.Sprintf("Six transactions in turn: three of a row, one of five rows in three tables, an INSERT and an UPDATE of 100 rows; one outbox row after 9,984 of these. "+
		"From exec until the last of %d events, behind which the log ends, is at a consumer; mysqlbinlog from exec to its end, on the same files and disk, neither with TLS. "+
		"CPU seconds: relay %s (mysqld meanwhile %s), mysqlbinlog %s (mysqld %s).",
		c.events, figure(median(c.seconds[theRelay])), figure(median(c.served[theRelay])), figure(median(c.seconds[theCopy])), figure(median(c.served[theCopy])))
	b.add(r)
	return nil
}

// write writes the log, with the relay's checkpoint before it.
func (c *chase) write(ctx context.Context, b *bench) (err error) {
	if c.mysqld, err = c.server.PID(); err != nil {
		return err
	}
	if err := execute(ctx, c.db, append(foreignSQL, "FLUSH BINARY LOGS")...); err != nil {
		return err
	}
	if err := c.begin(ctx); err != nil {
		return err
	}
	if c.back, err = c.keep(); err != nil {
		return err
	}
	if c.first, _, err = c.logFrom(ctx, ""); err != nil {
		return err
	}
	began := time.Now()
	if c.events, c.bytes, err = c.traffic(ctx, c.series, c.first, int64(b.scale(2_000_000_000))); err != nil {
		return err
	}
	cpu, err := cpuTime(c.mysqld)
	b.log.Printf("  %d MB of log written in %v, %v of CPU", c.bytes/1e6, time.Since(began).Round(time.Second), cpu.Round(time.Second))
	return err
}

// relay is one run of the relay.
func (c *chase) relay(ctx context.Context) error {
	if err := c.back(); err != nil {
		return err
	}
	came := newArrivals(c.series, c.events)
	s, err := newSink(c.broker, c.queues(), came.take)
	if err != nil {
		return err
	}
	defer s.close()
	before, err := cpuTime(c.mysqld)
	if err != nil {
		return err
	}
	began := time.Now()
	p, err := c.start()
	if err != nil {
		return err
	}
	if err := came.await(ctx, p, 10*patience); err != nil {
		return errors.Join(err, p.Kill())
	}
	took := time.Since(began)
	own, err := cpuTime(p.PID())
	after, failure := cpuTime(c.mysqld)
	if err := errors.Join(err, failure); err != nil {
		return errors.Join(err, p.Kill())
	}
	// What it has relayed, it must have settled, and nothing else.
	if err := await(ctx, p, "all is settled", patience, func() bool { return c.settled(int64(c.events)) }); err != nil {
		return errors.Join(err, p.Kill())
	}
	c.note(theRelay, took, own, after-before)
	return stop(p)
}

// copy is one run of mysqlbinlog.
func (c *chase) copy(ctx context.Context) error {
	if err := os.Mkdir(c.copies, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(c.copies)
	before, err := cpuTime(c.mysqld)
	if err != nil {
		return err
	}
	began := time.Now()
	cmd := c.server.Copy(ctx, c.first, c.copies)
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mysqlbinlog: %w\n%s", err, output)
	}
	took := time.Since(began)
	after, err := cpuTime(c.mysqld)
	if err != nil {
		return err
	}
	c.note(theCopy, took, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), after-before)
	return c.whole()
}

// whole wants as many bytes copied as the log has.
func (c *chase) whole() error {
	files, err := os.ReadDir(c.copies)
	if err != nil {
		return err
	}
	var bytes int64
	for _, file := range files {
		info, err := file.Info()
		if err != nil {
			return err
		}
		if strings.HasPrefix(file.Name(), "binlog.") { // the script that runs it leaves others
			bytes += info.Size()
		}
	}
	if bytes != c.bytes {
		return fmt.Errorf("mysqlbinlog copied %d bytes of %d", bytes, c.bytes)
	}
	return nil
}

func (c *chase) note(who int, took, own, served time.Duration) {
	c.rate[who] = append(c.rate[who], float64(c.bytes)/1e6/took.Seconds())
	c.seconds[who] = append(c.seconds[who], own.Seconds())
	c.served[who] = append(c.served[who], served.Seconds())
}
