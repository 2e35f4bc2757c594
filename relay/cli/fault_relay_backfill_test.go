package cli_test

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// TestFaultRelayBackfill: a table of 20,000 rows of which each tenth is stamped,
// or, asked for by the environment, of 10,000,000 of which each tenth is not, is
// backfilled while the relay is killed up to three times and a writer goes on. All that was not
// stamped comes, each aggregate's events in order and each event under one
// number; the kills cost no more than a window and what was settled since the
// last save; memory stays under 128 MiB. Seen to fail with a cursor that moves when a row is
// read, and with one that does not move: events come under other numbers.
func TestFaultRelayBackfill(t *testing.T) {
	t.Parallel()
	random := seeded(t)
	rows, stamped, limit, root := 20_000, 1, 2*patience, database
	if os.Getenv(envSoak) != "" {
		rows, stamped, limit = 10_000_000, 9, 60*time.Minute
		root = func(t testing.TB) string { return databaseOn(t, relaytest.PrivateMySQL(t)) }
	}
	r := rigOn(t, root(t), schema.SQL)
	began := time.Now()
	conn, err := r.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, setting := range []string{"sql_log_bin = 0", "cte_max_recursion_depth = 1000000"} {
		if _, err := conn.ExecContext(t.Context(), "SET SESSION "+setting); err != nil {
			t.Fatal(err)
		}
	}
	for first := 1; first <= rows; first += 500_000 { // a transaction's undo log has its limits, too
		if _, err := conn.ExecContext(t.Context(), `
			INSERT INTO outbox (id, aggregate_id, topic, payload, status, created_at)
			WITH RECURSIVE counter (n) AS (SELECT ? UNION ALL SELECT n + 1 FROM counter WHERE n < ?)
			SELECT UNHEX(LPAD(HEX(n), 32, '0')), n % 10000, 'order.placed', JSON_OBJECT('order', n, 'note', REPEAT('-', 100)),
				IF(n % 10 < ?, 'published', 'pending'), UTC_TIMESTAMP(6) FROM counter`, first, min(first+499_999, rows), stamped); err != nil {
			t.Fatal(err)
		}
	}
	conn.Raw(func(any) error { return driver.ErrBadConn }) // its settings go with it
	t.Logf("%d rows written in %s", rows, time.Since(began).Round(time.Second))

	const window = 1000
	r.relay("--partitions", "1", "--start", "latest") // declares the queue
	if err := os.Remove(r.checkpoint()); err != nil {
		t.Fatal(err)
	}
	c := r.collect(rows, stamped)
	began = time.Now()
	d := r.start("--partitions", "1", "--window", fmt.Sprint(window))
	l := r.underLoad(rows + 1)
	sent := rows - rows/10*stamped
	peak, kills := 0, 0
	for kills < 3 {
		at := int64(sent)*int64(kills)/4 + random.Int64N(int64(sent)/8)
		relaytest.Wait(t, limit, "it is time for a kill", func() bool {
			select {
			case <-d.Done():
				t.Fatalf("the relay ended with %d:\n%s", d.Wait(), d.Tail())
			default:
			}
			if fault := c.fault.Load(); fault != nil {
				t.Fatal(*fault)
			}
			return c.fresh.Load() > at
		})
		if r.state().Backfill == nil { // it was faster than this test
			break
		}
		peak = max(peak, peakMemory(t, d.pid()))
		d.killed()
		d = r.start("--partitions", "1", "--window", fmt.Sprint(window))
		kills++
	}
	if kills == 0 {
		t.Fatal("the backfill has ended too early for a kill")
	}
	relaytest.Wait(t, limit, "the backfill ends", func() bool { return r.exists() && r.state().Backfill == nil })
	t.Logf("backfilled in %s, with %d kills", time.Since(began).Round(time.Second), kills)
	l.grown(d, 30)
	last := l.end(t)
	executed := r.text("SELECT @@GLOBAL.gtid_executed")
	relaytest.Wait(t, limit, "the checkpoint covers what is committed", func() bool { return r.covers(executed) })
	peak = max(peak, peakMemory(t, d.pid()))
	d.stop()
	want := int64(sent + last - rows)
	relaytest.Wait(t, limit, "all has come", func() bool { return c.fresh.Load() >= want || c.fault.Load() != nil })
	c.end()
	if fault := c.fault.Load(); fault != nil {
		t.Fatal(*fault)
	}
	t.Logf("%d events, %d came again, peak resident memory %d KiB", c.fresh.Load(), c.again, peak)
	if got := c.fresh.Load(); got != want {
		t.Errorf("%d events came, want %d", got, want)
	}
	if c.again > sent/2 { // far more than three windows and saves, and less than beginning again costs
		t.Errorf("%d events came again", c.again)
	}
	if peak > memoryLimit {
		t.Errorf("the relay took %d KiB, more than %d", peak, memoryLimit)
	}
}

// collector takes partition 0 as it comes, and keeps a number for each event.
type collector struct {
	fresh atomic.Int64 // events that came
	again int          // and how often one came again
	fault atomic.Pointer[string]
	end   func() // waits until it is through
}

// collect takes what comes of the rows from 1 to last, so many in ten of which
// are stamped, and of later ones.
func (r *rig) collect(last, stamped int) *collector {
	r.t.Helper()
	c := &collector{}
	number := make([]int64, last+1, last+1_000_000) // of each event; 0: it has not come
	behind := map[string]int{}                      // newest event of each aggregate
	take := func(m amqp.Delivery) error {
		sequence, _ := m.Headers["sequence"].(int64)
		n64, err := strconv.ParseInt(m.MessageId[24:], 16, 64)
		n := int(n64)
		if err != nil || m.MessageId != idText(n) || n < 1 || n <= last && n%10 < stamped {
			return fmt.Errorf("event %s came, which is none or is stamped", m.MessageId)
		}
		for n >= len(number) {
			number = append(number, 0)
		}
		switch {
		case number[n] == sequence:
			c.again++
			return nil
		case number[n] != 0:
			return fmt.Errorf("event %d came with sequence %d and %d", n, number[n], sequence)
		case n < behind[m.RoutingKey]:
			return fmt.Errorf("event %d came behind %d of its aggregate", n, behind[m.RoutingKey])
		}
		number[n], behind[m.RoutingKey] = sequence, n
		c.fresh.Add(1)
		return nil
	}
	stop, done := make(chan struct{}), make(chan struct{})
	c.end = sync.OnceFunc(func() {
		close(stop)
		<-done
	})
	r.t.Cleanup(c.end)
	go func() {
		defer close(done)
		err := r.onBroker(func(channel *amqp.Channel) error {
			deliveries, err := channel.Consume(r.queue(0), "", true, false, false, false, nil)
			if err != nil {
				return err
			}
			for {
				select {
				case m, ok := <-deliveries:
					if !ok {
						return errors.New("the deliveries ended")
					}
					if err := take(m); err != nil {
						return err
					}
				case <-stop:
					return nil
				}
			}
		})
		if err != nil {
			text := err.Error()
			c.fault.Store(&text)
		}
	}()
	return c
}
