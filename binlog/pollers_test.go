package binlog_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// TestPollPlan: the very statements of a poller find their rows by idx_dispatch,
// in its order, without a sort, whether the table is small, large, all pending or
// nearly all published; and a poll locks the rows that it takes, and no others.
func TestPollPlan(t *testing.T) { onEach(t, testPollPlan) }

func testPollPlan(t *testing.T, on flavor) {
	for _, shape := range []struct{ rows, pending int }{{3, 3}, {5000, 5000}, {5000, 10}} {
		r := on.rig(t, schema.SQL)
		for i := 0; i < shape.rows; i += 1000 {
			var places []string
			for n := i; n < min(i+1000, shape.rows); n++ {
				status := "published"
				if n >= shape.rows-shape.pending {
					status = "pending"
				}
				places = append(places, fmt.Sprintf("(x'%032x', %d, 't', '{}', '%s', '2026-01-01' + INTERVAL %d SECOND)", n*7919%1000003, n%10, status, n/3))
			}
			r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload, status, created_at) VALUES " + strings.Join(places, ", "))
		}
		p := r.poller(2, schema.Topics{})
		for _, q := range p.Statements(r.ctx) {
			if got := r.explain(q.Text, q.Args...); got != "idx_dispatch" {
				t.Errorf("%+v: %s\ngoes by %s", shape, q.Text, got)
			}
		}
		mine, _ := r.claim(p)
		rest, _ := r.claim(r.poller(10_000, schema.Topics{}))
		if got := len(rest.Events) + rest.Held; len(mine.Events) != 2 || got != shape.pending-2 {
			t.Errorf("%+v: one poller has %d rows, and another can have %d", shape, len(mine.Events), got)
		}
	}
}

// explain is the index by which a statement goes; with what else it does.
func (r *rig) explain(query string, args ...any) string {
	r.Helper()
	rows, err := r.db.QueryContext(r.ctx, "EXPLAIN "+r.pick("FORMAT=TRADITIONAL ", "")+query, args...)
	if err != nil {
		r.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		r.Fatal(err)
	}
	var key, extra sql.NullString
	for rows.Next() {
		cells := make([]any, len(columns))
		for i, name := range columns {
			switch name {
			case "key":
				cells[i] = &key
			case "Extra":
				cells[i] = &extra
			default:
				cells[i] = new(any)
			}
		}
		if err := rows.Scan(cells...); err != nil {
			r.Fatal(err)
		}
	}
	if strings.Contains(extra.String, "filesort") || strings.Contains(extra.String, "temporary") {
		return key.String + " and sorts: " + extra.String
	}
	return key.String
}

// TestPollRace: pollers and writers at once, by a seed: each row is published
// once, and those of an aggregate in the order of their commits.
func TestPollRace(t *testing.T) { onEach(t, testPollRace) }

func testPollRace(t *testing.T, on flavor) {
	const pollers, writers, each, aggregates = 4, 4, 60, 8
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := on.rig(t, `CREATE TABLE outbox (id BIGINT AUTO_INCREMENT PRIMARY KEY, aggregate_id BIGINT NOT NULL, topic VARCHAR(9) NOT NULL, payload BLOB NOT NULL,
		status ENUM('pending', 'published') DEFAULT 'pending', created_at DATETIME(6) NOT NULL, KEY idx_dispatch (status, created_at))`)
	r.exec("CREATE TABLE aggregates (id BIGINT PRIMARY KEY, events INT NOT NULL DEFAULT 0)")
	for i := range aggregates {
		r.exec("INSERT INTO aggregates (id) VALUES (?)", i)
	}
	failed := make(chan error, pollers+writers)
	for w := range writers {
		random := rand.New(rand.NewPCG(seed, uint64(w)))
		go func() { failed <- writeLocked(r.ctx, r.db, random, each, aggregates) }()
	}
	published := make(chan []schema.Event, pollers*writers*each)
	ctx, stop := context.WithCancel(r.ctx)
	defer stop()
	ended := make(chan error, pollers)
	for range pollers {
		p := r.poller(7, schema.Topics{})
		go func() {
			for ctx.Err() == nil {
				b, err := p.Claim(r.ctx)
				var list []string
				for _, e := range b.Events {
					list = append(list, e.ID)
				}
				if err == nil && len(list) > 0 {
					published <- b.Events // while the rows are held
				}
				if err == nil {
					err = p.Settle(r.ctx, list)
				}
				if err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	for range writers {
		if err := <-failed; err != nil {
			t.Fatal(err)
		}
	}
	relaytest.Wait(t, limit, "all is stamped", func() bool { return r.text("SELECT COUNT(*) FROM outbox WHERE status = 'pending'") == "0" })
	stop()
	for range pollers {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	close(published)
	n, last := 0, map[string]string{}
	for batch := range published {
		for _, e := range batch {
			n++
			if number := string(e.Payload); number <= last[e.AggregateID] {
				t.Errorf("aggregate %s: event %s behind %s", e.AggregateID, number, last[e.AggregateID])
			} else {
				last[e.AggregateID] = number
			}
		}
	}
	if n != writers*each {
		t.Errorf("%d events were published, want %d", n, writers*each)
	}
}

// writeLocked writes events of aggregates that it locks first, and numbers them.
func writeLocked(ctx context.Context, db *sql.DB, random *rand.Rand, n, aggregates int) error {
	for range n {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		aggregate := random.IntN(aggregates)
		for _, statement := range []string{
			"UPDATE aggregates SET events = events + 1 WHERE id = ?",
			"INSERT INTO outbox (aggregate_id, topic, payload, created_at) SELECT id, 't', LPAD(events, 4, '0'), SYSDATE(6) FROM aggregates WHERE id = ?",
		} {
			if _, err := tx.ExecContext(ctx, statement, aggregate); err != nil {
				return errors.Join(err, tx.Rollback())
			}
		}
		if err := tx.Commit(); err != nil {
			return err
		}
	}
	return nil
}
