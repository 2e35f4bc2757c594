package exchange_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/relay/relaytest"
)

// newInbox makes an inbox and a table "effects" in a fresh database.
func newInbox(t *testing.T) *exchange.Inbox {
	t.Helper()
	inbox := &exchange.Inbox{DB: relaytest.DB(t, relaytest.MySQL(t))}
	for _, statement := range []string{
		inbox.Schema(), inbox.Schema(), // the second time it does nothing
		"CREATE TABLE effects (n BIGINT AUTO_INCREMENT PRIMARY KEY, id VARBINARY(255) NOT NULL, aggregate_id VARCHAR(300), sequence BIGINT)",
	} {
		if _, err := inbox.DB.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return inbox
}

func insertEffect(id string) func(context.Context, *sql.Tx) error {
	return func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (id) VALUES (?)", id)
		return err
	}
}

func count(t *testing.T, db *sql.DB, table string) (n int) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), "SELECT COUNT(*) FROM "+table).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestInboxOnce(t *testing.T) {
	inbox := newInbox(t)
	// All of these are different ids.
	ids := []string{"a", "A", "a ", "a\x00", "ä", "ae", strings.Repeat("x", 255), strings.Repeat("x", 254)}
	for i, id := range ids {
		for round := range 2 {
			fresh, err := inbox.Process(t.Context(), id, insertEffect(id))
			if err != nil || fresh != (round == 0) {
				t.Errorf("id %q, round %d: got %v, %v", id, round, fresh, err)
			}
		}
		if got := count(t, inbox.DB, "effects"); got != i+1 {
			t.Errorf("after id %q: %d effects, want %d", id, got, i+1)
		}
	}
	var distance int
	if err := inbox.DB.QueryRow("SELECT MAX(ABS(TIMESTAMPDIFF(SECOND, processed_at, UTC_TIMESTAMP(6)))) FROM processed_messages").Scan(&distance); err != nil || distance > 60 {
		t.Errorf("processed_at is %d s off: %v", distance, err)
	}
}

func TestInboxRefusesIDs(t *testing.T) {
	inbox := newInbox(t)
	for _, id := range []string{"", strings.Repeat("x", 256)} {
		if fresh, err := inbox.Process(t.Context(), id, insertEffect(id)); err == nil || fresh {
			t.Errorf("id of %d bytes: got %v, %v", len(id), fresh, err)
		}
	}
}

func TestInboxEffectError(t *testing.T) {
	inbox := newInbox(t)
	broken := errors.New("broken")
	fresh, err := inbox.Process(t.Context(), "1", func(ctx context.Context, tx *sql.Tx) error {
		if err := insertEffect("1")(ctx, tx); err != nil {
			return err
		}
		return broken
	})
	if !errors.Is(err, broken) || fresh {
		t.Errorf("got %v, %v", fresh, err)
	}
	if effects, ids := count(t, inbox.DB, "effects"), count(t, inbox.DB, "processed_messages"); effects != 0 || ids != 0 {
		t.Errorf("%d effects, %d ids after an error", effects, ids)
	}
	if fresh, err := inbox.Process(t.Context(), "1", insertEffect("1")); err != nil || !fresh {
		t.Errorf("again: got %v, %v", fresh, err)
	}
}

// A duplicate key in the effect is the effect's error, not a duplicate message.
func TestInboxDuplicateInEffect(t *testing.T) {
	inbox := newInbox(t)
	fresh, err := inbox.Process(t.Context(), "1", func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "INSERT INTO effects (n, id) VALUES (1, 'x'), (1, 'y')")
		return err
	})
	if err == nil || fresh {
		t.Errorf("got %v, %v", fresh, err)
	}
}

func TestInboxConcurrently(t *testing.T) {
	inbox := newInbox(t)
	for _, id := range []string{"one", "another"} {
		var fresh atomic.Int32
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				got, err := inbox.Process(t.Context(), id, insertEffect(id))
				if err != nil {
					t.Error(err)
				}
				if got {
					fresh.Add(1)
				}
			})
		}
		wg.Wait()
		if fresh.Load() != 1 {
			t.Errorf("%d of 8 were fresh", fresh.Load())
		}
	}
	if got := count(t, inbox.DB, "effects"); got != 2 {
		t.Errorf("%d effects, want 2", got)
	}
}

// While an effect runs, the second delivery waits; when the first fails, the
// second has the effect.
func TestInboxSecondTakesOver(t *testing.T) {
	inbox := newInbox(t)
	running, fail := make(chan struct{}), make(chan struct{})
	first := make(chan error, 1)
	go func() {
		_, err := inbox.Process(t.Context(), "1", func(context.Context, *sql.Tx) error {
			close(running)
			<-fail
			return errors.New("broken")
		})
		first <- err
	}()
	<-running
	second := make(chan bool, 1)
	go func() {
		fresh, err := inbox.Process(t.Context(), "1", insertEffect("1"))
		if err != nil {
			t.Error(err)
		}
		second <- fresh
	}()
	select {
	case <-second:
		t.Error("the second did not wait for the first")
	case <-time.After(200 * time.Millisecond):
	}
	close(fail)
	if err := <-first; err == nil {
		t.Error("the first did not fail")
	}
	if !<-second || count(t, inbox.DB, "effects") != 1 {
		t.Error("the second did not take over")
	}
}

func TestInboxTableName(t *testing.T) {
	db := relaytest.DB(t, relaytest.MySQL(t))
	var name string
	if err := db.QueryRow("SELECT DATABASE()").Scan(&name); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"odd`name", name + ".inbox"} {
		inbox := &exchange.Inbox{DB: db, Table: table}
		if _, err := db.Exec(inbox.Schema()); err != nil {
			t.Fatal(err)
		}
		if fresh, err := inbox.Process(t.Context(), "1", func(context.Context, *sql.Tx) error { return nil }); err != nil || !fresh {
			t.Errorf("table %q: got %v, %v", table, fresh, err)
		}
	}
}
