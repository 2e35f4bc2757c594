package exchange_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

func recordEffect(ctx context.Context, tx *sql.Tx, ev *schema.Event) error {
	_, err := tx.ExecContext(ctx, "INSERT INTO effects (id, aggregate_id, sequence) VALUES (?, ?, ?)", ev.ID, ev.AggregateID, ev.Sequence)
	return err
}

func TestConsumerEndToEnd(t *testing.T) {
	name := scratch(t, 1)
	inbox := newInbox(t)
	p := dial(t, config(t, name, 1))
	const events = 50
	for round := range 2 { // each event twice
		for i := range events {
			p.Publish(newEvent(i))
			if r := receive(t, p); r.Err != nil {
				t.Fatalf("round %d: %v", round, r.Err)
			}
		}
	}

	broken := errors.New("broken")
	duplicates := 0
	done := make(chan struct{})
	failAt := 7
	c := &exchange.Consumer{
		URL: relaytest.AMQP(t), Queue: name + ".0", Prefetch: 16, Inbox: inbox,
		Handle: func(ctx context.Context, tx *sql.Tx, ev *schema.Event) error {
			if err := recordEffect(ctx, tx, ev); err != nil {
				return err
			}
			if ev.ID == newEvent(failAt).ID {
				return broken
			}
			if ev.ID == newEvent(3).ID {
				if diff := cmp.Diff(newEvent(3), ev); diff != "" {
					t.Errorf("event (-want +got):\n%s", diff)
				}
			}
			return nil
		},
		OnDuplicate: func(*schema.Event) {
			if duplicates++; duplicates == events {
				close(done)
			}
		},
	}
	if err := c.Run(t.Context()); !errors.Is(err, broken) {
		t.Fatalf("Run: got %v, want the handler's error", err)
	}
	if got := count(t, inbox.DB, "effects"); got != failAt {
		t.Errorf("%d effects after the handler's error, want %d", got, failAt)
	}

	failAt = -1
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	select {
	case <-done:
	case err := <-ended:
		t.Fatalf("Run: %v", err)
	case <-time.After(30 * time.Second):
		t.Fatal("not consumed after 30 s")
	}
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	rows, err := inbox.DB.QueryContext(t.Context(), "SELECT sequence FROM effects ORDER BY n")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var got []int64
	for rows.Next() {
		var n int64
		if err := rows.Scan(&n); err != nil {
			t.Fatal(err)
		}
		got = append(got, n)
	}
	var want []int64
	for i := range int64(events) {
		want = append(want, i+1)
	}
	if diff := cmp.Diff(want, got); diff != "" || rows.Err() != nil {
		t.Errorf("effects (-want +got), %v:\n%s", rows.Err(), diff)
	}
}

func TestConsumerErrors(t *testing.T) {
	name := scratch(t, 1)
	inbox := newInbox(t)
	c := &exchange.Consumer{URL: relaytest.AMQP(t), Queue: name + ".0", Inbox: inbox, Handle: recordEffect}
	if err := c.Run(t.Context()); !errors.Is(err, exchange.ErrQueue) {
		t.Errorf("queue missing: got %v, want ErrQueue", err)
	}

	dial(t, config(t, name, 1))
	ch := admin(t)
	if err := ch.PublishWithContext(t.Context(), "", name+".0", true, false, amqp.Publishing{Body: []byte("stray")}); err != nil {
		t.Fatal(err)
	}
	var bad *schema.BadEventError
	if err := c.Run(t.Context()); !errors.As(err, &bad) {
		t.Errorf("foreign message: got %v, want a *schema.BadEventError", err)
	}

	if _, err := ch.QueuePurge(name+".0", false); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context()) }()
	relaytest.Wait(t, 20*time.Second, "the consumer is there", func() bool {
		q, err := ch.QueueDeclarePassive(name+".0", true, false, false, false, nil)
		return err == nil && q.Consumers == 1
	})
	if _, err := ch.QueueDelete(name+".0", false, false, false); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-ended:
		if err == nil {
			t.Error("queue deleted: Run returned nil")
		}
	case <-time.After(20 * time.Second):
		t.Error("queue deleted: Run did not end")
	}
}
