package relaytest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
)

// killed kills the relay, and starts it again as systemd would.
func (s *soak) killed(ctx context.Context, random *rand.Rand) error {
	if err := s.killRelay(); err != nil {
		return err
	}
	return s.restart(ctx, random)
}

func (s *soak) restart(ctx context.Context, random *rand.Rand) error {
	if err := pause(ctx, between(random, 0, 300*time.Millisecond)); err != nil {
		return err
	}
	return s.startRelay()
}

// terminated stops the relay by SIGTERM. It must end in time, with 0; or with
// 75 where something kept the broker from confirming.
func (s *soak) terminated(ctx context.Context, random *rand.Rand) error {
	if err := pause(ctx, between(random, 0, time.Second)); err != nil {
		return err
	}
	relay := s.retire()
	if err := terminate(relay); err != nil {
		return err
	}
	if code := relay.Wait(); code != 0 && (code != 75 || !s.brokerAway.Load()) {
		return fmt.Errorf("the relay ended with exit code %d after SIGTERM:\n%s", code, relay.Tail())
	}
	return s.restart(ctx, random)
}

// hurried sends SIGKILL close behind SIGTERM.
func (s *soak) hurried(ctx context.Context, random *rand.Rand) error {
	relay := s.retire()
	if err := relay.Terminate(); err != nil {
		return err
	}
	if err := pause(ctx, between(random, 0, 20*time.Millisecond)); err != nil {
		return err
	}
	if err := relay.end(syscall.SIGKILL); err != nil {
		return err
	}
	if code := relay.Wait(); code != 0 && code != -1 {
		return fmt.Errorf("the relay ended with exit code %d after SIGTERM and SIGKILL:\n%s", code, relay.Tail())
	}
	return s.restart(ctx, random)
}

// large commits a transaction of many rows, and kills the relay when the
// broker has confirmed a part of it.
func (s *soak) large(ctx context.Context, random *rand.Rand) error {
	const rows, aggregates = 5000, 64
	owner := newPlanner(random.Uint64(), 1, 1, 0)
	for i := range aggregates {
		owner.aggregates = append(owner.aggregates, aggregateID(s.writer.Aggregates+i))
	}
	plan := plan{batch: true}
	for range rows {
		plan.before = append(plan.before, owner.order(time.Now(), owner.aggregate()))
	}
	written := make(chan error, 1)
	go func() { written <- (&scribe{Writer: s.writer, planner: owner}).perform(ctx, plan) }()
	if err := <-written; err != nil {
		return err
	}
	start, part := s.confirmed(), float64(random.IntN(rows))
	limited, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	_ = poll(limited, func() bool { return s.confirmed() >= start+part }) // rolled back, or sent by now: then it is a kill
	return s.killed(ctx, random)
}

// onMySQL runs a statement as root, again where it fails for the moment. What
// stays impossible for a while is given up: then another fault is at work.
func (s *soak) onMySQL(ctx context.Context, statement func(*sql.DB) error) error {
	limited, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	var err error
	_ = poll(limited, func() bool { // err tells
		err = statement(s.db)
		return err == nil || !transient(err)
	})
	if err != nil && transient(err) {
		return ctx.Err()
	}
	return err
}

// killDump kills the thread that sends the log to the relay.
func (s *soak) killDump(ctx context.Context, _ *rand.Rand) error {
	return s.onMySQL(ctx, func(db *sql.DB) error {
		var id int64
		err := db.QueryRowContext(ctx, "SELECT ID FROM performance_schema.processlist WHERE COMMAND LIKE 'Binlog Dump%' LIMIT 1").Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return err // not yet: transient
		}
		if err == nil {
			_, err = db.ExecContext(ctx, fmt.Sprintf("KILL %d", id))
		}
		var refusal *mysql.MySQLError
		if errors.As(err, &refusal) && refusal.Number == 1094 { // no such thread: it has just ended
			return nil
		}
		return err
	})
}

func (s *soak) flushLogs(ctx context.Context, _ *rand.Rand) error {
	return s.onMySQL(ctx, func(db *sql.DB) error {
		_, err := db.ExecContext(ctx, "FLUSH BINARY LOGS")
		return err
	})
}

func (s *soak) closeConnections(ctx context.Context, _ *rand.Rand) error {
	return s.rabbit.ctl(ctx, "close_all_connections", "by the soak")
}

// alarm raises the broker's memory alarm for a while: it blocks who publishes.
func (s *soak) alarm(ctx context.Context, random *rand.Rand) error {
	if err := s.rabbit.ctl(ctx, "set_vm_memory_high_watermark", "0.0001"); err != nil {
		return err
	}
	err := pause(ctx, between(random, 0, 2*time.Second))
	return errors.Join(err, s.rabbit.ctl(ctx, "set_vm_memory_high_watermark", "0.6"))
}

// reject makes one partition full, and refuse the most of what comes.
func (s *soak) reject(ctx context.Context, random *rand.Rand) error {
	queue := s.queues[random.IntN(len(s.queues))]
	s.consumers.Hold(queue)
	defer s.consumers.Release(queue)
	if err := s.rabbit.policy(ctx, "full", "^"+queue+"$", `{"delivery-limit":-1,"max-length":5,"overflow":"reject-publish"}`, 1); err != nil {
		return err
	}
	err := pause(ctx, between(random, time.Second, 3*time.Second))
	return errors.Join(err, s.rabbit.ctl(ctx, "clear_policy", "full"))
}
