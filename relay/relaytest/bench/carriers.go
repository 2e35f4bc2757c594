package main

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// relaying carries by the relay.
func (o *outfit) relaying(ctx context.Context, _ uint64, _ int) (*carrier, error) {
	if err := o.begin(ctx); err != nil {
		return nil, err
	}
	p, err := o.follow(ctx)
	if err != nil {
		return nil, err
	}
	return &carrier{end: func() error { return stop(p) }}, nil
}

// sender is a channel with confirms, which somebody else takes.
type sender struct {
	channel  *amqp.Channel
	exchange string
	unknown  sync.WaitGroup // messages without a receipt
	nacked   chan uint64    // the first of them
	returned chan amqp.Return
}

func newSender(conn *amqp.Connection, exchange string) (*sender, error) {
	channel, err := conn.Channel()
	if err != nil {
		return nil, err
	}
	s := &sender{channel: channel, exchange: exchange, nacked: make(chan uint64, 1), returned: channel.NotifyReturn(make(chan amqp.Return, 1))}
	confirms := channel.NotifyPublish(make(chan amqp.Confirmation, 4096))
	if err := channel.Confirm(false); err != nil {
		return nil, err
	}
	go func() {
		for confirm := range confirms {
			if !confirm.Ack {
				select {
				case s.nacked <- confirm.DeliveryTag:
				default:
				}
			}
			s.unknown.Done()
		}
	}()
	return s, nil
}

// send sends an event as the relay would.
func (s *sender) send(ctx context.Context, id []byte, aggregate int64, created time.Time, body []byte) error {
	key := strconv.FormatInt(aggregate, 10)
	s.unknown.Add(1)
	err := s.channel.PublishWithContext(ctx, s.exchange, key, true, false, amqp.Publishing{
		Headers: amqp.Table{
			"aggregate_id": key, "topic": "order.placed", "created_at": created.UTC().Format("2006-01-02T15:04:05.000000Z07:00"),
			"gtid": "00000000-0000-0000-0000-000000000000:1", "sequence": int64(1),
		},
		ContentType: "application/json", DeliveryMode: amqp.Persistent, MessageId: messageID(id), Type: "order.placed",
		AppId: "bench", Timestamp: created.UTC().Truncate(time.Second), Body: body,
	})
	if err != nil {
		s.unknown.Done()
	}
	return err
}

// settle waits for the receipts of all that is sent, and wants them good.
func (s *sender) settle() error {
	settled := make(chan struct{})
	go func() {
		s.unknown.Wait()
		close(settled)
	}()
	select {
	case <-settled:
	case <-time.After(patience):
		return fmt.Errorf("the broker has not confirmed all within %v", patience)
	}
	select {
	case tag := <-s.nacked:
		return fmt.Errorf("the broker refused message %d", tag)
	case r := <-s.returned:
		return fmt.Errorf("the broker returned %s: %s", r.MessageId, r.ReplyText)
	default:
		return nil
	}
}

// messageID is an id as the relay writes it: a UUID.
func messageID(id []byte) string {
	text := hex.EncodeToString(id)
	return strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-")
}

// publishing carries by each writer itself: it sends when its commit has
// returned, on a channel of its own, and does not wait for the receipt.
func (o *outfit) publishing(ctx context.Context, series uint64, writers int) (*carrier, error) {
	conn, err := amqp.Dial(o.broker)
	if err != nil {
		return nil, err
	}
	senders := make([]*sender, writers)
	for i := range senders {
		if senders[i], err = newSender(conn, o.name); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
	}
	body := []byte(plainPayload)
	return &carrier{
		committed: func(writer, n int) error {
			return senders[writer].send(ctx, eventID(series, n), int64(n%aggregates), time.Now(), body)
		},
		end: func() (err error) {
			for _, s := range senders {
				err = errors.Join(err, s.settle())
			}
			return errors.Join(err, conn.Close())
		},
	}, nil
}

const (
	pollInterval = 200 * time.Millisecond
	pollBatch    = 100
)

// polling carries by a relay that asks the table for pending rows.
func (o *outfit) polling(ctx context.Context, _ uint64, _ int) (*carrier, error) {
	conn, err := amqp.Dial(o.broker)
	if err != nil {
		return nil, err
	}
	s, err := newSender(conn, o.name)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ticker := time.NewTicker(pollInterval)
		defer ticker.Stop()
		for {
			n, err := o.poll(ctx, s)
			if ctx.Err() != nil {
				ended <- nil
				return
			}
			if err != nil {
				ended <- fmt.Errorf("the polling relay: %w", err)
				return
			}
			if n == pollBatch {
				continue
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
			}
		}
	}()
	return &carrier{end: func() error {
		cancel()
		return errors.Join(<-ended, conn.Close())
	}}, nil
}

// poll sends one batch, waits for the receipts, and marks it as published.
func (o *outfit) poll(ctx context.Context, s *sender) (n int, err error) {
	// At REPEATABLE READ the locks on gaps would make the writers wait, and
	// deadlock.
	tx, err := o.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return 0, err
	}
	defer func() { _ = tx.Rollback() }() // nothing, when it is committed
	var ids []any
	err = func() error {
		rows, err := tx.QueryContext(ctx, "SELECT id, aggregate_id, payload FROM outbox WHERE status = 'pending' ORDER BY created_at LIMIT "+strconv.Itoa(pollBatch)+" FOR UPDATE SKIP LOCKED")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id, body []byte
			var aggregate int64
			if err := rows.Scan(&id, &aggregate, &body); err != nil {
				return err
			}
			if err := s.send(ctx, id, aggregate, time.Now(), body); err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return rows.Err()
	}()
	if err != nil || len(ids) == 0 {
		return 0, err
	}
	if err := s.settle(); err != nil {
		return 0, err
	}
	return len(ids), stamp(ctx, tx, ids)
}

// stamp marks rows as published and commits.
func stamp(ctx context.Context, tx *sql.Tx, ids []any) error {
	places := strings.TrimSuffix(strings.Repeat("?, ", len(ids)), ", ")
	if _, err := tx.ExecContext(ctx, "UPDATE outbox SET status = 'published', published_at = UTC_TIMESTAMP(6) WHERE id IN ("+places+")", ids...); err != nil {
		return err
	}
	return tx.Commit()
}
