package relay

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/rs/zerolog"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

// supply is a Source of transactions that are there already.
type supply struct {
	left []*binlog.Tx
}

func (s *supply) Next(context.Context) (*binlog.Tx, error) {
	if len(s.left) == 0 {
		return nil, io.EOF
	}
	tx := s.left[0]
	s.left = s.left[1:]
	return tx, nil
}

func (s *supply) Close() {}

// newSupply makes n events of 5,000 aggregates in transactions of size each.
func newSupply(n, size int) *supply {
	s, server := new(supply), uuid.New()
	for at := 0; at < n; at += size {
		tx := &binlog.Tx{GTID: binlog.GTID{Server: server, Number: int64(at/size) + 11}, CommittedAt: time.Now(), Last: true, Events: make([]schema.Event, size)}
		for i := range tx.Events {
			tx.Events[i] = schema.Event{ID: fmt.Sprint(at + i), AggregateID: fmt.Sprint((at + i) % 5000), Payload: make([]byte, 300)}
		}
		s.left = append(s.left, tx)
	}
	return s
}

// willing is a Publisher that confirms everything at once.
type willing struct {
	receipts chan []exchange.Receipt
}

func (w *willing) Publish(events ...*schema.Event) {
	list := make([]exchange.Receipt, len(events))
	for i, ev := range events {
		list[i].Event = ev
	}
	w.receipts <- list
}

func (w *willing) Receipts() <-chan []exchange.Receipt { return w.receipts }
func (w *willing) Blocked() (string, bool)             { return "", false }
func (w *willing) Err() error                          { return nil }

func benchSession(tb testing.TB, n, size int) *session {
	ledger, err := newLedger(checkpoint.State{Flavor: "mysql", Table: "shop.outbox"})
	if err != nil {
		tb.Fatal(err)
	}
	return &session{
		ledger: ledger, lanes: newLanes(Strict), source: newSupply(n, size), broker: &willing{make(chan []exchange.Receipt, 4096)},
		window: 4096, replays: true, drain: patience, board: newBoard(), log: zerolog.Nop(),
	}
}

// BenchmarkSession is what an event costs between the reader and the publisher.
func BenchmarkSession(b *testing.B) {
	for _, size := range []int{1, 10, 1000} {
		b.Run(fmt.Sprintf("transactions of %d", size), func(b *testing.B) {
			s := benchSession(b, b.N+size, size)
			b.ReportAllocs()
			b.ResetTimer()
			if err := s.run(b.Context()); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// TestSessionAllocates: an event costs no more than its share of what its
// transaction and the batch that it travels in cost.
func TestSessionAllocates(t *testing.T) {
	for size, most := range map[int]float64{1: 1.5, 1000: 0.1} {
		const n = 50_000
		sessions := make(chan *session, 3)
		for range cap(sessions) {
			sessions <- benchSession(t, n, size)
		}
		allocs := testing.AllocsPerRun(cap(sessions)-1, func() {
			if err := (<-sessions).run(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
		if allocs/n > most {
			t.Errorf("transactions of %d: %.2f allocations for each event, want %.2f at most", size, allocs/n, most)
		}
	}
}
