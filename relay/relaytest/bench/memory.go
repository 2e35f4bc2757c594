package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

const (
	// memoryGoal is in MiB.
	memoryGoal = 64
	// hugeRuns is how often at most a transaction of a gigabyte is relayed, which
	// takes a minute, and idleRuns how often nothing is.
	hugeRuns = 2
	idleRuns = 3
	// intervals of the GTID set of a server with a long history.
	intervals = 10_000
)

// memory measures the most memory that the relay has had resident.
func memory(ctx context.Context, b *bench) error {
	return errors.Join(b.memoryShared(ctx), b.memoryPrivate(ctx))
}

// memoryShared is what the test server can be used for.
func (b *bench) memoryShared(ctx context.Context) (err error) {
	o, err := b.outfit(ctx, b.mysql)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	if err := o.begin(ctx); err != nil {
		return err
	}
	idle := peaks("idle, ten seconds after its start")
	idle.Note = "VmHWM of /proc/PID/status: the peak since exec, in it the pages of the binary that are in use."
	for range min(b.runs, idleRuns) {
		peak, err := o.idle(ctx)
		if err != nil {
			return err
		}
		idle.Relay = append(idle.Relay, peak)
	}
	b.add(idle)
	return b.memoryOf(ctx, o, peaks(fmt.Sprintf("drain of %s events of 300 bytes", figure(float64(b.events)))), b.runs, b.events, o.small(ctx, b.events))
}

// memoryPrivate is what needs a server of its own.
func (b *bench) memoryPrivate(ctx context.Context) (err error) {
	server, err := b.private(ctx, "memory")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.close()) }()
	o, err := b.outfit(ctx, server.dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()

	const each = 2120 // bytes of a row in the log
	rows := b.scale(1 << 30 / each)
	size := fmt.Sprintf("%s GB", figure(float64(rows)*each/1e9))
	hard := "CONCAT_WS('', " + strings.TrimSuffix(strings.Repeat("SHA2(%d + n, 512), ", 16), ", ") + ")"
	salts := make([]any, 16)
	for i := range salts {
		salts[i] = i * rows
	}
	hard = fmt.Sprintf(hard, salts...)
	if err := b.memoryOf(ctx, o, peaks("one transaction of "+size), min(b.runs, hugeRuns), rows, o.huge(ctx, rows, "RPAD(SHA2(n, 512), 2048, '-')", "OFF")); err != nil {
		return err
	}
	if err := b.memoryOf(ctx, o, peaks("one compressed transaction of "+size), min(b.runs, hugeRuns), rows, o.huge(ctx, rows, hard, "ON")); err != nil {
		return err
	}
	large := peaks("two windows of 4,096 events of 64 KiB")
	large.Goal = goal{}
	large.Note = "For information: one window of them alone has 256 MiB."
	rows = b.scale(8192)
	if err := b.memoryOf(ctx, o, large, 1, rows, o.huge(ctx, rows, "RPAD(SHA2(n, 512), 65500, '-')", "OFF")); err != nil {
		return err
	}

	if err := execute(ctx, o.db, "SET GLOBAL gtid_purged = '+"+scattered(intervals)+"'"); err != nil {
		return err
	}
	rows = b.scale(20_000)
	r := peaks(fmt.Sprintf("a set of %s GTID intervals, drain of %s events", figure(intervals), figure(float64(rows))))
	return b.memoryOf(ctx, o, r, b.runs, rows, o.small(ctx, rows))
}

func peaks(what string) result {
	return result{Section: "memory", Case: what, Unit: "MiB", Goal: atMost(ofValue, memoryGoal)}
}

// memoryOf adds the peaks of relays that each send the same backlog.
func (b *bench) memoryOf(ctx context.Context, o *outfit, r result, runs, events int, write func(series uint64) error) error {
	_, before, err := o.logFrom(ctx, "")
	if err != nil {
		return err
	}
	began := time.Now()
	l, err := o.backlog(ctx, events, write)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Case, err)
	}
	_, after, err := o.logFrom(ctx, "")
	if err != nil {
		return err
	}
	b.log.Printf("  %d events written in %v, %d MB of log", events, time.Since(began).Round(time.Second), (after-before)/1e6)
	var rates []float64
	for range runs {
		d, err := l.drain(ctx)
		if err != nil {
			return fmt.Errorf("%s: %w", r.Case, err)
		}
		r.Relay = append(r.Relay, d.peak)
		rates = append(rates, float64(events)/d.took.Seconds())
	}
	r.Note = strings.TrimSpace(fmt.Sprintf("%s %s events, %s MB of log, %s events/s.", r.Note, figure(float64(events)), figure(float64(after-before)/1e6), figure(median(rates))))
	b.add(r)
	return nil
}

// idle is the peak of a relay that has nothing to do.
func (o *outfit) idle(ctx context.Context) (float64, error) {
	p, err := o.follow(ctx, "--listen=127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	over := time.Now().Add(10 * time.Second)
	err = await(ctx, p, "ten seconds are over", patience, func() bool { return time.Now().After(over) })
	if err != nil {
		return 0, errors.Join(err, p.Kill())
	}
	peak, err := peakMemory(p.PID())
	return peak, errors.Join(err, stop(p))
}

// huge writes events of one transaction, with a note that SQL makes from their
// number n.
func (o *outfit) huge(ctx context.Context, events int, note, compression string) func(series uint64) error {
	return func(series uint64) error {
		conn, err := o.db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		for _, statement := range []string{
			"SET SESSION cte_max_recursion_depth = 100000000",
			"SET SESSION binlog_transaction_compression = " + compression,
			fmt.Sprintf(`INSERT INTO outbox (id, aggregate_id, topic, payload, created_at)
				WITH RECURSIVE counter (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM counter WHERE n < %d - 1)
				SELECT UNHEX(CONCAT(LPAD(HEX(%d), 16, '0'), LPAD(HEX(n), 16, '0'))), n %% %d, 'order.placed', JSON_OBJECT('order', n, 'note', %s), UTC_TIMESTAMP(6) FROM counter`,
				events, series, aggregates, note),
			"SET SESSION binlog_transaction_compression = OFF",
		} {
			if _, err := conn.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%.60q: %w", statement, err)
			}
		}
		return nil
	}
}

// scattered is a GTID set with n intervals of one transaction each.
func scattered(n int) string {
	var set strings.Builder
	set.WriteString("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
	for i := range n {
		fmt.Fprintf(&set, ":%d", 2*i+1)
	}
	return set.String()
}
