package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// sink takes all that comes out of queues, without acknowledgements.
type sink struct {
	conn *amqp.Connection
	wg   sync.WaitGroup
}

// newSink begins to take messages; take is called with each of them, for each
// queue by one goroutine. The caller closes it.
func newSink(url string, queues []string, take func(*amqp.Delivery)) (*sink, error) {
	conn, err := amqp.Dial(url)
	if err != nil {
		return nil, err
	}
	s := &sink{conn: conn}
	for _, queue := range queues {
		channel, err := conn.Channel()
		var deliveries <-chan amqp.Delivery
		if err == nil {
			deliveries, err = channel.Consume(queue, "", true, false, false, false, nil)
		}
		if err != nil {
			s.close()
			return nil, fmt.Errorf("consume %s: %w", queue, err)
		}
		s.wg.Go(func() {
			for delivery := range deliveries {
				take(&delivery)
			}
		})
	}
	return s, nil
}

// close ends it: take is not called any more.
func (s *sink) close() error {
	err := s.conn.Close()
	s.wg.Wait()
	return err
}

// eventID is the nth event of a series, as the outbox has it.
func eventID(series uint64, n int) []byte {
	id := make([]byte, 16)
	binary.BigEndian.PutUint64(id, series)
	binary.BigEndian.PutUint64(id[8:], uint64(n))
	return id
}

// eventNumber is n of a message id; false for that of another series.
func eventNumber(series uint64, messageID string) (n int, ok bool) {
	id, err := hex.DecodeString(strings.ReplaceAll(messageID, "-", ""))
	if err != nil || len(id) != 16 || binary.BigEndian.Uint64(id) != series {
		return 0, false
	}
	return int(binary.BigEndian.Uint64(id[8:])), true
}

// arrivals waits for so many events of a series.
type arrivals struct {
	series uint64
	want   int
	came   chan struct{} // closed when all have come

	mu    sync.Mutex
	count int
}

func newArrivals(series uint64, want int) *arrivals {
	return &arrivals{series: series, want: want, came: make(chan struct{})}
}

func (a *arrivals) take(d *amqp.Delivery) {
	if _, ok := eventNumber(a.series, d.MessageId); !ok {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.count++; a.count == a.want {
		close(a.came)
	}
}

// await waits until all have come, while the relay runs.
func (a *arrivals) await(ctx context.Context, p *relaytest.Process, limit time.Duration) error {
	select {
	case <-a.came:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-p.Done():
		return fmt.Errorf("the relay ended with %d:\n%s", p.Wait(), p.Tail())
	case <-time.After(limit):
		return fmt.Errorf("%d of %d events came within %v:\n%s", a.taken(), a.want, limit, p.Tail())
	}
}

// taken is how many have come.
func (a *arrivals) taken() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.count
}
