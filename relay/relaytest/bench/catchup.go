package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// relaxed are options of a server that is to write a large log quickly.
var relaxed = []string{
	"--sync-binlog=0", "--innodb-flush-log-at-trx-commit=0", "--skip-innodb-doublewrite",
	"--innodb-buffer-pool-size=1G", "--innodb-redo-log-capacity=2G", "--innodb-log-writer-threads=OFF",
}

// private is a MySQL server of one part's, with relaxed durability.
type private struct {
	dsn  string // of root, in no database
	dir  string
	stop func() error
}

// private starts one. The caller closes it.
func (b *bench) private(ctx context.Context, name string) (*private, error) {
	p := &private{dir: filepath.Join(b.dir, name)}
	var err error
	p.dsn, p.stop, err = relaytest.StartMySQL(ctx, p.dir, relaxed...)
	return p, err
}

// close ends the server and removes its data.
func (p *private) close() error { return errors.Join(p.stop(), os.RemoveAll(p.dir)) }

// cpu is the processor time of the server so far.
func (p *private) cpu() (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(p.dir, "pid"))
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, err
	}
	return cpu(pid)
}

// chase is the catch-up through a log of foreign traffic.
type chase struct {
	*outfit
	server  *private
	first   string // log file that both begin with
	series  uint64
	events  int
	bytes   int64
	back    func() error // puts the checkpoint before the log
	rate    [3][]float64 // MB/s, by who
	seconds [3][]float64 // of CPU
	served  [3][]float64 // of CPU, of mysqld meanwhile
}

// Who goes through the log.
const (
	theRelay = iota
	toDisk   // mysqlbinlog
	toMemory // mysqlbinlog, into a file system in memory
)

// inMemory is a file system in memory.
const inMemory = "/dev/shm"

// catchUp measures how fast the relay gets through a log of foreign traffic,
// against mysqlbinlog, which only copies it.
func catchUp(ctx context.Context, b *bench) (err error) {
	server, err := b.private(ctx, "catch-up")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.close()) }()
	c := &chase{server: server, series: rand.Uint64() >> 1}
	if c.outfit, err = b.outfit(ctx, server.dsn); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	if err := c.write(ctx, b); err != nil {
		return err
	}
	if err := b.pairs(ctx, c.relay, func(ctx context.Context) error {
		return errors.Join(c.copy(ctx, toDisk, b.dir), c.copy(ctx, toMemory, inMemory))
	}); err != nil {
		return err
	}
	r := result{
		Section: "catch-up", Case: fmt.Sprintf("%.2f GB of log, one row in 10,000 ours", float64(c.bytes)/1e9), Unit: "MB/s",
		Relay: c.rate[theRelay], Against: "mysqlbinlog --raw", Reference: c.rate[toDisk], Goal: atLeast(ofRatio, 1),
		Note: fmt.Sprintf("Six transactions in turn: three of a row, one of five rows in three tables, an INSERT and an UPDATE of 100 rows; one outbox row after 9,984 of these. "+
			"Relay: from exec until the last of %s events, behind which the log ends, is at a consumer. mysqlbinlog: from exec to its end, on the same files, to the same disk, not synced. Neither with TLS. "+
			"CPU seconds: relay %s; mysqlbinlog %s.", figure(float64(c.events)), c.spent(theRelay), c.spent(toDisk)),
	}
	b.add(r)
	r.Against, r.Reference, r.Goal = "mysqlbinlog --raw into "+inMemory, c.rate[toMemory], goal{}
	r.Note = fmt.Sprintf("The same without the disk. CPU seconds: mysqlbinlog %s.", c.spent(toMemory))
	b.add(r)
	return nil
}

// spent tells medians of CPU seconds.
func (c *chase) spent(who int) string {
	return fmt.Sprintf("%s (mysqld meanwhile %s)", figure(median(c.seconds[who])), figure(median(c.served[who])))
}

// write writes the log, with the relay's checkpoint before it.
func (c *chase) write(ctx context.Context, b *bench) (err error) {
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
	used, err := c.server.cpu()
	b.log.Printf("  %d MB of log written in %v, %v of CPU", c.bytes/1e6, time.Since(began).Round(time.Second), used.Round(time.Second))
	return err
}

// relay is one run of the relay.
func (c *chase) relay(ctx context.Context) error {
	if err := c.back(); err != nil {
		return err
	}
	came := newArrivals(c.series, c.events)
	s, err := newSink(c.broker, c.names(), came.take)
	if err != nil {
		return err
	}
	defer s.close()
	before, err := c.server.cpu()
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
	own, err := cpu(p.PID())
	after, failure := c.server.cpu()
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

// copy is one run of mysqlbinlog, which copies into a directory of its own
// under a place.
func (c *chase) copy(ctx context.Context, who int, place string) error {
	dir, err := os.MkdirTemp(place, "relay-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	before, err := c.server.cpu()
	if err != nil {
		return err
	}
	cmd, err := relaytest.CopyLog(ctx, c.server.dsn, c.first, dir)
	if err != nil {
		return err
	}
	began := time.Now()
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mysqlbinlog: %w\n%s", err, output)
	}
	took := time.Since(began)
	after, err := c.server.cpu()
	if err != nil {
		return err
	}
	c.note(who, took, cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime(), after-before)
	return c.whole(dir)
}

// whole wants as many bytes copied as the log has.
func (c *chase) whole(dir string) error {
	files, err := os.ReadDir(dir)
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
