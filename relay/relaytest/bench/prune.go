package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// pruneRate is that of the commits of one row beside the deletion.
	pruneRate    = 200.0
	pruneWriters = 8
)

// prune measures the deletion of old rows from a large table, while a relay
// follows its log and a writer commits: a fifth of them with the pause that is
// the default, the rest without.
func prune(ctx context.Context, b *bench) (err error) {
	o, err := b.outfit(ctx, b.mysql)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	if err := execute(ctx, o.db, "GRANT DELETE ON "+o.name+".* TO "+o.name, "GRANT PROCESS ON *.* TO "+o.name); err != nil {
		return err
	}
	rows := b.scale(5_000_000)
	began := time.Now()
	if err := b.unsynced(ctx, func() error { return o.fill(ctx, rows) }); err != nil {
		return err
	}
	b.log.Printf("  wrote %d rows in %v", rows, time.Since(began).Round(time.Second))
	if err := o.begin(ctx); err != nil {
		return err
	}
	p, err := o.follow(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop(p)) }()
	span := 30 * time.Second
	if b.quick {
		span = 3 * time.Second
	}
	// To be compared with: the writer and the relay alone.
	quiet, end := context.WithTimeout(ctx, span)
	alone, err := o.steadily(quiet)
	end()
	if err != nil {
		return err
	}
	for _, part := range []struct {
		name  string
		flags []string
		share int
	}{
		{"1,000 rows and then 100 ms of pause", []string{"--older-than", "720h"}, rows / 5},
		{"without a pause", []string{"--older-than", "48h", "--pause", "0s"}, rows - rows/5},
	} {
		if err := o.pruneOnce(ctx, b, part.name, part.share, alone, part.flags...); err != nil {
			return err
		}
	}
	return nil
}

// pruneOnce deletes so many rows of the table, and compares the writer's commits
// meanwhile with those when it was alone.
func (o *outfit) pruneOnce(ctx context.Context, b *bench, name string, rows int, alone []time.Duration, flags ...string) error {
	writing, end := context.WithCancel(ctx)
	defer end()
	var beside []time.Duration
	var failed error
	var writer sync.WaitGroup
	writer.Go(func() { beside, failed = o.steadily(writing) })
	var out strings.Builder
	c, err := b.spawn(&out, append(surroundingsOfRelay(), "RELAY_MYSQL_DSN="+o.dsn), b.relay,
		append([]string{"prune", "--checkpoint", o.checkpoint(), "--log-format=json"}, flags...)...)
	if err != nil {
		return err
	}
	var peak float64
	var used time.Duration
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for running := true; running; {
		select {
		case <-c.ended:
			running = false
		case <-ctx.Done():
			return errors.Join(ctx.Err(), c.stop())
		case <-ticker.C:
			if now, err := peakMemory(c.cmd.Process.Pid); err == nil { // it may just have ended
				peak = max(peak, now)
			}
		}
	}
	took := time.Since(c.began)
	used = c.cmd.ProcessState.UserTime() + c.cmd.ProcessState.SystemTime()
	end()
	writer.Wait()
	if failed != nil {
		return failed
	}
	gone := regexp.MustCompile(`(?m)^deleted +(\d+) rows`).FindStringSubmatch(out.String())
	if c.cmd.ProcessState.ExitCode() != 0 || gone == nil {
		return fmt.Errorf("prune ended with %d:\n%s%s", c.cmd.ProcessState.ExitCode(), out.String(), c.tail())
	}
	if n, err := strconv.Atoi(gone[1]); err != nil || n != rows {
		return fmt.Errorf("prune deleted %s rows, want %d:\n%s", gone[1], rows, out.String())
	}
	what := fmt.Sprintf("%s rows of %s, %s", figure(float64(rows)), figure(float64(b.scale(5_000_000))), name)
	b.add(result{Section: "prune", Case: what, Unit: "rows/s", Relay: []float64{float64(rows) / took.Seconds()},
		Note: fmt.Sprintf("Rows of 300 bytes of payload in the seed table, deleted oldest first, which are all over the table, while a relay follows the log and the checkpoint is waited for. CPU of prune: %s µs a row. One run.", figure(used.Seconds()*1e6/float64(rows)))})
	b.add(result{Section: "prune", Case: what + ", peak memory", Unit: "MiB", Relay: []float64{peak}, Goal: atMost(ofValue, 128)})
	for _, q := range quantiles[:2] {
		b.add(result{Section: "prune", Case: what + ", commits beside it, " + q.name, Unit: "ms", Relay: []float64{quantile(beside, q.of)},
			Against: "the writer alone", Reference: []float64{quantile(alone, q.of)}})
	}
	return nil
}

// fill writes old rows: a fifth of them more than 30 days old, all more than 3.
// Their times have nothing to do with their ids, so that who deletes the oldest
// meets each page of the table again and again, as where ids are random. They are
// in no log, so that no relay needs to carry them first.
func (o *outfit) fill(ctx context.Context, rows int) error {
	conn, err := o.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	for _, setting := range []string{"sql_log_bin = 0", "cte_max_recursion_depth = 10000000"} {
		if _, err := conn.ExecContext(ctx, "SET SESSION "+setting); err != nil {
			return err
		}
	}
	const perTransaction = 250_000 // the undo log has its limits
	for first := 1; first <= rows; first += perTransaction {
		if _, err := conn.ExecContext(ctx, `
			INSERT INTO outbox (id, aggregate_id, topic, payload, created_at)
			WITH RECURSIVE counter (n) AS (SELECT ? UNION ALL SELECT n + 1 FROM counter WHERE n < ?)
			SELECT UNHEX(LPAD(HEX(n), 32, '0')), n % 5000, 'order.placed', ?,
				UTC_TIMESTAMP(6) - INTERVAL IF(n % 5 = 0, 31, 4) DAY - INTERVAL CRC32(n) % 86400000000 MICROSECOND FROM counter`,
			first, min(first+perTransaction-1, rows), plainPayload); err != nil {
			return err
		}
	}
	return nil
}

// steadily commits rows by schedule until the context ends, and returns how long
// each took from when it was due, sorted.
func (o *outfit) steadily(ctx context.Context) ([]time.Duration, error) {
	series, began := rand.Uint64(), time.Now()
	var mu sync.Mutex
	var all []time.Duration
	var failed error
	next := 0
	var writers sync.WaitGroup
	for range pruneWriters {
		writers.Go(func() {
			for {
				mu.Lock()
				n := next
				next++
				mu.Unlock()
				due := began.Add(time.Duration(float64(n) / pruneRate * float64(time.Second)))
				select {
				case <-ctx.Done():
					return
				case <-time.After(time.Until(due)):
				}
				err := o.insert(context.WithoutCancel(ctx), series, n, 1)
				mu.Lock()
				all = append(all, time.Since(due))
				failed = errors.Join(failed, err)
				mu.Unlock()
				if err != nil {
					return
				}
			}
		})
	}
	writers.Wait()
	return measured(all, 0), failed
}
