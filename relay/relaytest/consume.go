package relaytest

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

// invoicesSQL has no unique key on the event's id: an effect that is applied
// twice is to be seen, not prevented.
const invoicesSQL = `CREATE TABLE invoices (
  id           BIGINT AUTO_INCREMENT PRIMARY KEY,
  event_id     VARCHAR(64) NOT NULL,
  aggregate_id VARCHAR(64) NOT NULL,
  amount       DECIMAL(12,2) NOT NULL)`

// consumerTries is how often a consumer begins again, after a tenth of a second,
// without a delivery in between before it gives up: a broker is away for less.
const consumerTries = 900

// Consumers are idempotent services, one for each queue: they write an invoice
// for each event, in the transaction of their inbox. They record all that they
// are sent, duplicates too, in its order.
type Consumers struct {
	// URL of the broker. Required.
	URL string
	// Queues to consume; they exist. Required.
	Queues []string
	// DB is the services' database. Required.
	DB *sql.DB

	mu         sync.Mutex
	deliveries map[string][]Delivery // by queue; guarded by mu, as what follows
	seenIDs    map[string]bool
	duplicates int
	ended      map[string]bool // queues whose end mark was met
	held       map[string]bool // queues that are not to be consumed now
	halt       map[string]context.CancelFunc
}

// Schema creates the inbox and the table of invoices.
func (c *Consumers) Schema(ctx context.Context) error {
	inbox := exchange.Inbox{DB: c.DB}
	for _, statement := range []string{inbox.Schema(), invoicesSQL} {
		if _, err := c.DB.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("relaytest: create the consumers' tables: %w", err)
		}
	}
	return nil
}

// Run consumes every queue until ctx ends, and then returns nil. A connection
// that is lost is made again. Call it once.
func (c *Consumers) Run(ctx context.Context) error {
	c.mu.Lock()
	c.deliveries = make(map[string][]Delivery)
	c.seenIDs = make(map[string]bool)
	c.ended = make(map[string]bool)
	c.held = make(map[string]bool)
	c.halt = make(map[string]context.CancelFunc)
	c.mu.Unlock()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failures := make([]error, len(c.Queues))
	var group sync.WaitGroup
	for i, queue := range c.Queues {
		group.Go(func() {
			if failures[i] = c.consume(ctx, queue); failures[i] != nil {
				stop()
			}
		})
	}
	group.Wait()
	return errors.Join(failures...)
}

// consume consumes one queue, again and again as long as that leads anywhere.
func (c *Consumers) consume(ctx context.Context, queue string) error {
	consumer := exchange.Consumer{
		URL:   c.URL,
		Queue: queue,
		Inbox: &exchange.Inbox{DB: c.DB},
		Handle: func(ctx context.Context, tx *sql.Tx, ev *schema.Event) error {
			c.record(queue, ev)
			return invoice(ctx, tx, ev)
		},
		OnDuplicate: func(ev *schema.Event) { c.record(queue, ev) },
	}
	for tries, seen := 0, 0; ; tries++ {
		err := c.turn(ctx, queue, consumer.Run)
		var bad *schema.BadEventError
		switch now := c.seen(queue); {
		case ctx.Err() != nil:
			return nil
		case err == nil: // it was held
			tries = 0
		case errors.Is(err, exchange.ErrQueue), errors.Is(err, exchange.ErrAuth), errors.As(err, &bad):
			return err
		case now > seen:
			tries, seen = 0, now
		case tries == consumerTries:
			return err
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return nil
		}
	}
}

// turn runs consume while the queue is not held.
func (c *Consumers) turn(ctx context.Context, queue string, consume func(context.Context) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if poll(ctx, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.halt[queue] = cancel
		return !c.held[queue]
	}) != nil {
		return nil
	}
	return consume(ctx)
}

// Hold lets a queue fill: nobody consumes it until Release. Run is under way.
func (c *Consumers) Hold(queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[queue] = true
	if halt := c.halt[queue]; halt != nil {
		halt()
	}
}

// Release ends Hold.
func (c *Consumers) Release(queue string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[queue] = false
}

// invoice is the business effect of an event.
func invoice(ctx context.Context, tx *sql.Tx, ev *schema.Event) error {
	if ev.AggregateID == markAggregate {
		return nil
	}
	var placed struct {
		Amount json.Number `json:"amount"`
	}
	if err := json.Unmarshal(ev.Payload, &placed); err != nil {
		return fmt.Errorf("relaytest: payload of event %s: %w", ev.ID, err)
	}
	_, err := tx.ExecContext(ctx, "INSERT INTO invoices (event_id, aggregate_id, amount) VALUES (?, ?, ?)",
		ev.ID, ev.AggregateID, placed.Amount.String())
	return err
}

// record notes what came out of a queue.
func (c *Consumers) record(queue string, ev *schema.Event) {
	d := Delivery{ID: ev.ID, Aggregate: ev.AggregateID, Sequence: ev.Sequence}
	c.mu.Lock()
	defer c.mu.Unlock()
	if d.Aggregate == markAggregate {
		c.ended[queue] = true
		return
	}
	c.deliveries[queue] = append(c.deliveries[queue], d)
	if c.seenIDs[d.ID] {
		c.duplicates++
		return
	}
	c.seenIDs[d.ID] = true
}

func (c *Consumers) seen(queue string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.deliveries[queue])
}

// Delivered returns the number of events received, each counted once.
func (c *Consumers) Delivered() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.seenIDs)
}

// Suppressed returns the number of messages received again.
func (c *Consumers) Suppressed() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.duplicates
}

// Ended reports whether each queue's end mark has been met.
func (c *Consumers) Ended() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.ended) == len(c.Queues)
}

// Deliveries returns what came out of each queue, in that order.
func (c *Consumers) Deliveries() map[string][]Delivery {
	c.mu.Lock()
	defer c.mu.Unlock()
	copied := maps.Clone(c.deliveries)
	for queue := range copied {
		copied[queue] = slices.Clone(copied[queue])
	}
	return copied
}

// Effects counts the invoices of each event.
func (c *Consumers) Effects(ctx context.Context) (map[string]int, error) {
	rows, err := c.DB.QueryContext(ctx, "SELECT event_id, COUNT(*) FROM invoices GROUP BY event_id")
	if err != nil {
		return nil, fmt.Errorf("relaytest: count invoices: %w", err)
	}
	defer rows.Close()
	effects := make(map[string]int)
	for rows.Next() {
		var id string
		var count int
		if err := rows.Scan(&id, &count); err != nil {
			return nil, err
		}
		effects[id] = count
	}
	return effects, rows.Err()
}
