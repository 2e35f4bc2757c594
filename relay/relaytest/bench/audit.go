package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// auditRuns is how often at most it is measured.
	auditRuns = 3
	// auditRate is that of the commits beside it, of one row each.
	auditRate = 200.0
	// auditChunk is how many rows one statement writes.
	auditChunk = 100_000
	// auditLost is of how many rows one is missing in the inbox.
	auditLost = 5000
)

// audit measures an audit of as many rows as the inbox has, and what a writer
// beside it notices.
func audit(ctx context.Context, b *bench) (err error) {
	o, err := b.outfit(ctx, b.mysql)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	rows := b.rows
	began := time.Now()
	if err := b.unsynced(ctx, func() error { return o.processed(ctx, rows) }); err != nil {
		return err
	}
	b.log.Printf("  %d rows written and processed in %v", rows, time.Since(began).Round(time.Second))

	size := fmt.Sprintf("%s rows, as many in the inbox", figure(float64(rows)))
	rate := result{Section: "audit", Case: size, Unit: "rows/s"}
	peak := result{Section: "audit", Case: size + ", peak memory", Unit: "MiB"}
	var commits [2]result
	for i, q := range quantiles[:2] {
		commits[i] = result{Section: "audit", Case: size + ", a commit of one row beside it, " + q.name, Unit: "ms", Against: "the writer alone"}
	}
	for range min(b.runs, auditRuns) {
		var a audited
		beside, err := o.commitsBeside(ctx, func() (err error) {
			a, err = o.audit(ctx, rows)
			return err
		})
		if err != nil {
			return err
		}
		alone, err := o.commitsBeside(ctx, func() error { return sleep(ctx, min(a.took, 10*time.Second)) })
		if err != nil {
			return err
		}
		rate.Relay = append(rate.Relay, float64(rows)/a.took.Seconds())
		peak.Relay = append(peak.Relay, a.peak)
		for i, q := range quantiles[:2] {
			commits[i].Relay = append(commits[i].Relay, quantile(beside, q.of))
			commits[i].Reference = append(commits[i].Reference, quantile(alone, q.of))
		}
		b.log.Printf("  took %v, %s MB of files", a.took.Round(100*time.Millisecond), figure(float64(a.files)/1e6))
		rate.Note = fmt.Sprintf("One of %s rows is missing in the inbox, and is found. Both tables are on one server. Files for sorting: %s MB at most. Commits beside it: %s/s.",
			figure(auditLost), figure(float64(a.files)/1e6), figure(auditRate))
	}
	for _, r := range []result{rate, peak, commits[0], commits[1]} {
		b.add(r)
	}
	return nil
}

// processed fills the outbox with rows of the last day, and the inbox with their
// ids, but for a few.
func (o *outfit) processed(ctx context.Context, rows int) error {
	conn, err := o.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	do := func(statement string, args ...any) error {
		_, err := conn.ExecContext(ctx, statement, args...)
		if err != nil {
			return fmt.Errorf("%.60q: %w", statement, err)
		}
		return nil
	}
	if err := errors.Join(do("SET SESSION cte_max_recursion_depth = 1000000"), do("SET SESSION sql_log_bin = 0"),
		do("CREATE TABLE processed_messages (message_id VARBINARY(255) NOT NULL PRIMARY KEY, processed_at DATETIME(6) NOT NULL, KEY processed_at (processed_at))")); err != nil {
		return err
	}
	for first := 0; first < rows; first += auditChunk {
		last := min(first+auditChunk, rows) - 1
		// The ids grow, as those of UUID version 7 do, and so do the times.
		err := do(`INSERT INTO outbox (id, aggregate_id, topic, payload, status, created_at)
			WITH RECURSIVE counter (n) AS (SELECT ? UNION ALL SELECT n + 1 FROM counter WHERE n < ?)
			SELECT UNHEX(CONCAT(LPAD(HEX(n), 12, '0'), LEFT(SHA2(n, 256), 20))), n % ?, 'order.placed', ?, IF(n % 2, 'pending', 'published'),
				UTC_TIMESTAMP(6) - INTERVAL 6 MINUTE - INTERVAL (? - n) * ? MICROSECOND FROM counter`,
			first, last, aggregates, plainPayload, rows, 20*3600*1_000_000/rows)
		if err == nil {
			err = do(`INSERT INTO processed_messages
				WITH RECURSIVE counter (n) AS (SELECT ? UNION ALL SELECT n + 1 FROM counter WHERE n < ?)
				SELECT BIN_TO_UUID(UNHEX(CONCAT(LPAD(HEX(n), 12, '0'), LEFT(SHA2(n, 256), 20)))),
					UTC_TIMESTAMP(6) - INTERVAL 5 MINUTE - INTERVAL (? - n) * ? MICROSECOND FROM counter WHERE n % ? <> 0`,
				first, last, rows, 20*3600*1_000_000/rows, auditLost)
		}
		if err != nil {
			return err
		}
	}
	return do("ANALYZE TABLE outbox, processed_messages")
}

// audited is what an audit took.
type audited struct {
	took  time.Duration
	peak  float64 // resident memory, MiB
	files int64   // bytes of its files at most
}

// audit runs one.
func (o *outfit) audit(ctx context.Context, rows int) (a audited, err error) {
	spool, err := os.MkdirTemp(o.dir, "sort")
	if err != nil {
		return a, err
	}
	if spool, err = filepath.EvalSymlinks(spool); err != nil { // as it is seen of the process
		return a, err
	}
	out, err := os.Create(filepath.Join(o.dir, "audit.out"))
	if err != nil {
		return a, err
	}
	defer out.Close()
	b := &bench{dir: o.dir}
	c, err := b.spawn(out, append(surroundingsOfRelay(), "TMPDIR="+spool), o.binary, "audit", "--mysql-dsn", o.dsn)
	if err != nil {
		return a, err
	}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for running := true; running; {
		select {
		case <-c.ended:
			running = false
		case <-ticker.C:
			if peak, err := peakMemory(c.cmd.Process.Pid); err == nil { // else it is ending
				a.peak = max(a.peak, peak)
			}
			a.files = max(a.files, unlinked(c.cmd.Process.Pid, spool))
		case <-ctx.Done():
			return a, errors.Join(ctx.Err(), c.stop())
		}
	}
	a.took = time.Since(c.began)
	if code := c.cmd.ProcessState.ExitCode(); code != 3 {
		return a, fmt.Errorf("the audit ended with %d: %s", code, c.tail())
	}
	text, err := os.ReadFile(out.Name())
	if err != nil {
		return a, err
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	var summary struct{ Rows, Missing, Unknown int }
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &summary); err != nil {
		return a, err
	}
	lost := (rows + auditLost - 1) / auditLost
	if summary.Rows != rows || summary.Missing != lost || summary.Unknown != 0 || len(lines) != lost+1 {
		return a, fmt.Errorf("the audit found %+v, and %d of %d rows are missing", summary, lost, rows)
	}
	return a, nil
}

// unlinked is the size of the files that a process has open in a directory where
// they have no name.
func unlinked(pid int, dir string) (size int64) {
	fds := fmt.Sprintf("/proc/%d/fd", pid)
	list, _ := os.ReadDir(fds) // it may be gone
	for _, fd := range list {
		path := filepath.Join(fds, fd.Name())
		if target, err := os.Readlink(path); err != nil || !strings.HasPrefix(target, dir) {
			continue
		}
		if info, err := os.Stat(path); err == nil {
			size += info.Size()
		}
	}
	return size
}

// commitsBeside commits rows of one event by a schedule while f runs, and returns
// how long the commits took, sorted.
func (o *outfit) commitsBeside(ctx context.Context, f func() error) ([]time.Duration, error) {
	writing, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	var took []time.Duration
	var failed error
	var group sync.WaitGroup
	series, next := rand.Uint64(), 0
	began := time.Now()
	for range writersFor(auditRate) {
		group.Go(func() {
			for {
				mu.Lock()
				n := next
				next++
				mu.Unlock()
				due := began.Add(time.Duration(float64(n) / auditRate * float64(time.Second)))
				if sleep(writing, time.Until(due)) != nil {
					return
				}
				before := time.Now()
				err := o.insert(ctx, series, n, 1)
				mu.Lock()
				took, failed = append(took, time.Since(before)), errors.Join(failed, err)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	err := f()
	stop()
	group.Wait()
	slices.Sort(took)
	return took, errors.Join(err, failed)
}

// sleep waits, unless ctx ends first.
func sleep(ctx context.Context, wait time.Duration) error {
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
