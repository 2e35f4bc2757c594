package exchange_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// admin is a plain channel to the test broker.
func admin(t *testing.T) *amqp.Channel {
	t.Helper()
	conn, err := amqp.Dial(relaytest.AMQP(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	return ch
}

// scratch returns a fresh exchange name, and deletes the exchange and its
// queues in the test's cleanup.
func scratch(t *testing.T, partitions int) string {
	t.Helper()
	name := relaytest.Name(t)
	t.Cleanup(func() {
		conn, err := amqp.Dial(relaytest.AMQP(t))
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		ch, err := conn.Channel()
		if err != nil {
			t.Error(err)
			return
		}
		if err := ch.ExchangeDelete(name, false, false); err != nil {
			t.Error(err)
		}
		for i := range partitions {
			if _, err := ch.QueueDelete(fmt.Sprintf("%s.%d", name, i), false, false, false); err != nil {
				t.Error(err)
			}
		}
	})
	return name
}

func config(t *testing.T, name string, partitions int) exchange.Config {
	t.Helper()
	return exchange.Config{URL: relaytest.AMQP(t), Exchange: name, Partitions: partitions}
}

// publisher hands out its receipts one by one.
type publisher struct {
	*exchange.Publisher
	held []exchange.Receipt
}

func dial(t *testing.T, cfg exchange.Config) *publisher {
	t.Helper()
	p, err := exchange.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return &publisher{Publisher: p}
}

func newEvent(n int) *schema.Event {
	return &schema.Event{
		ID: fmt.Sprintf("event-%d", n), AggregateID: fmt.Sprint(n % 97), Topic: "orders",
		Payload: fmt.Appendf(nil, `{"n": %d}`, n), ContentType: "application/json",
		CreatedAt: time.Date(2026, 1, 2, 3, 4, 5, 678_901_000, time.UTC), Sequence: int64(n) + 1,
	}
}

// receive waits for the next receipt.
func receive(t *testing.T, p *publisher) exchange.Receipt {
	t.Helper()
	r, ok := p.receive(t)
	if !ok {
		t.Fatalf("receipts closed: %v", p.Err())
	}
	return r
}

// receive waits for the next receipt; false: there is none any more.
func (p *publisher) receive(t *testing.T) (r exchange.Receipt, ok bool) {
	t.Helper()
	if len(p.held) == 0 {
		select {
		case p.held, ok = <-p.Receipts():
			if !ok {
				return r, false
			}
		case <-time.After(20 * time.Second):
			t.Fatal("no receipt after 20 s")
		}
	}
	r, p.held = p.held[0], p.held[1:]
	return r, true
}

// lost waits until the receipts are closed, and returns why and how many there
// were without an error.
func lost(t *testing.T, p *publisher) (confirmed int, err error) {
	t.Helper()
	for {
		r, ok := p.receive(t)
		if !ok {
			return confirmed, p.Err()
		}
		if r.Err != nil {
			t.Errorf("receipt of %s: %v", r.Event.ID, r.Err)
		}
		confirmed++
	}
}

// TestReceipts: each event has one receipt, with one channel and with several,
// and with one the events of an aggregate stand in its queue as they were
// published.
func TestReceipts(t *testing.T) {
	for _, channels := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d channels", channels), func(t *testing.T) { testReceipts(t, channels) })
	}
}

func testReceipts(t *testing.T, channels int) {
	const count, partitions, window = 10_000, 4, 500
	name := scratch(t, partitions)
	cfg := config(t, name, partitions)
	cfg.Channels = channels
	p := dial(t, cfg)
	sent, settled := 0, map[string]bool{}
	for len(settled) < count {
		for sent < count && sent-len(settled) < window {
			p.Publish(newEvent(sent))
			sent++
		}
		r := receive(t, p)
		if r.Err != nil || settled[r.Event.ID] {
			t.Fatalf("receipt of %s: %v; it had one: %v", r.Event.ID, r.Err, settled[r.Event.ID])
		}
		settled[r.Event.ID] = true
	}
	if channels == 1 {
		defer wantOrder(t, name, partitions, count)
	}

	// The count of a queue lags behind its confirms a little.
	total, used := 0, 0
	relaytest.Wait(t, 20*time.Second, "all messages are in the queues", func() bool {
		topology, err := exchange.Inspect(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		total, used = 0, 0
		for _, q := range topology.Queues {
			total += q.Messages
			if q.Messages > 0 {
				used++
			}
		}
		return total == count
	})
	if used < 2 {
		t.Errorf("97 aggregates went to %d of %d partitions", used, partitions)
	}
}

// wantOrder reads the queues and looks at each aggregate's order.
func wantOrder(t *testing.T, name string, partitions, count int) {
	t.Helper()
	ch := admin(t)
	last := map[string]int64{}
	for i := range partitions {
		queue := fmt.Sprintf("%s.%d", name, i)
		q, err := ch.QueueDeclarePassive(queue, true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		deliveries, err := ch.Consume(queue, "", true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		for range q.Messages {
			d := <-deliveries
			count--
			sequence, _ := d.Headers["sequence"].(int64)
			if sequence <= last[d.RoutingKey] {
				t.Fatalf("aggregate %s: %d comes behind %d", d.RoutingKey, sequence, last[d.RoutingKey])
			}
			last[d.RoutingKey] = sequence
		}
	}
	if count != 0 {
		t.Errorf("%d messages are missing", count)
	}
}

func TestUnroutableIsReturned(t *testing.T) {
	name := scratch(t, 1)
	p := dial(t, config(t, name, 1))
	ch := admin(t)
	publish := func(from int) (returned, good int) {
		for i := range 10 {
			p.Publish(newEvent(from + i))
		}
		for range 10 {
			r := receive(t, p)
			var ret *exchange.ReturnError
			switch {
			case r.Err == nil:
				good++
			case !errors.As(r.Err, &ret) || ret.ID != r.Event.ID || ret.AggregateID != r.Event.AggregateID || ret.Code != 312 || ret.Exchange != name || ret.Text != "NO_ROUTE":
				t.Errorf("got %v", r.Err)
			default:
				returned++
			}
		}
		return returned, good
	}
	if returned, good := publish(0); returned != 0 || good != 10 {
		t.Errorf("with a queue: %d returned, %d good", returned, good)
	}
	if err := ch.QueueUnbind(name+".0", "1", name, nil); err != nil {
		t.Fatal(err)
	}
	if returned, good := publish(10); returned != 10 || good != 0 {
		t.Errorf("without a queue: %d returned, %d good", returned, good)
	}
	if err := ch.QueueBind(name+".0", "1", name, false, nil); err != nil {
		t.Fatal(err)
	}
	if returned, good := publish(20); returned != 0 || good != 10 {
		t.Errorf("with a queue again: %d returned, %d good", returned, good)
	}
}

func TestNack(t *testing.T) {
	name := scratch(t, 1)
	ch := admin(t)
	if err := ch.ExchangeDeclare(name, "x-consistent-hash", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	_, err := ch.QueueDeclare(name+".0", true, false, false, false, amqp.Table{"x-max-length": int32(1), "x-overflow": "reject-publish"})
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.QueueBind(name+".0", "1", name, false, nil); err != nil {
		t.Fatal(err)
	}
	p := dial(t, config(t, name, 0))
	for i := range 20 {
		p.Publish(newEvent(i))
	}
	nacked := 0
	for range 20 {
		r := receive(t, p)
		if errors.Is(r.Err, exchange.ErrNacked) {
			nacked++
		} else if r.Err != nil {
			t.Error(r.Err)
		}
	}
	if nacked == 0 || nacked == 20 {
		t.Errorf("%d of 20 nacked", nacked)
	}
}

func TestUnfitTopology(t *testing.T) {
	ch := admin(t)
	url := relaytest.AMQP(t)
	tests := map[string]struct {
		partitions int
		prepare    func(name string) error
		want       error
		text       string
	}{
		"exchange missing": {0, nil, exchange.ErrExchange, "relay run --partitions 4"},
		"another type": {0, func(name string) error {
			return ch.ExchangeDeclare(name, "topic", true, false, false, false, nil)
		}, exchange.ErrExchange, "inequivalent arg 'type'"},
		"another type, to declare": {2, func(name string) error {
			return ch.ExchangeDeclare(name, "topic", true, false, false, false, nil)
		}, exchange.ErrExchange, "inequivalent arg 'type'"},
		"not durable": {0, func(name string) error {
			return ch.ExchangeDeclare(name, "x-consistent-hash", false, false, false, false, nil)
		}, exchange.ErrExchange, "inequivalent arg 'durable'"},
		"classic queue": {1, func(name string) error {
			_, err := ch.QueueDeclare(name+".0", true, false, false, false, nil)
			return err
		}, exchange.ErrQueue, "inequivalent arg"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			exchangeName := scratch(t, 2)
			if tt.prepare != nil {
				if err := tt.prepare(exchangeName); err != nil {
					t.Fatal(err)
				}
			}
			_, err := exchange.Dial(t.Context(), exchange.Config{URL: url, Exchange: exchangeName, Partitions: tt.partitions})
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) || !strings.Contains(err.Error(), exchangeName) {
				t.Errorf("got %v, want %v with %q", err, tt.want, tt.text)
			}
		})
	}
}

func TestDeclareTwice(t *testing.T) {
	name := scratch(t, 3)
	dial(t, config(t, name, 3))
	dial(t, config(t, name, 3))
	dial(t, config(t, name, 0))
}

func TestInspect(t *testing.T) {
	name := scratch(t, 2)
	cfg := config(t, name, 2)
	got, err := exchange.Inspect(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got.Found || !errors.Is(got.ExchangeErr, exchange.ErrExchange) || len(got.Queues) != 2 || got.Queues[0].Found ||
		got.Product != "RabbitMQ" || got.Version == "" || strings.Contains(got.Address, "@") {
		t.Errorf("before: %+v", got)
	}
	p := dial(t, cfg)
	for i := range 5 {
		ev := newEvent(i)
		ev.AggregateID = "one"
		p.Publish(ev)
		if r := receive(t, p); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	relaytest.Wait(t, 20*time.Second, "five messages are in one queue", func() bool {
		got, err = exchange.Inspect(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		return got.Queues[0].Messages+got.Queues[1].Messages == 5
	})
	if !got.Found || got.ExchangeErr != nil || !got.Queues[0].Found || !got.Queues[1].Found || got.Queues[1].Name != name+".1" {
		t.Errorf("after: %+v", got)
	}
}

func TestAccessRefused(t *testing.T) {
	good, err := url.Parse(relaytest.AMQP(t))
	if err != nil {
		t.Fatal(err)
	}
	vhost := *good
	vhost.Path = "/no-such-vhost"
	tests := map[string]struct{ url, password, text string }{
		"password": {good.String(), "wr0ng", "--amqp-password-file"},
		"vhost":    {vhost.String(), "", "rabbitmqctl add_vhost no-such-vhost"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := exchange.Config{URL: tt.url, Password: tt.password, Exchange: "outbox"}
			_, err := exchange.Dial(t.Context(), cfg)
			if !errors.Is(err, exchange.ErrAuth) || !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "wr0ng") {
				t.Errorf("Dial: got %v", err)
			}
			if _, err := exchange.Inspect(t.Context(), cfg); !errors.Is(err, exchange.ErrAuth) {
				t.Errorf("Inspect: got %v", err)
			}
		})
	}
}

func TestBadEvents(t *testing.T) {
	name := scratch(t, 1)
	p := dial(t, config(t, name, 1))
	long := strings.Repeat("k", 300)
	for i := range 40 {
		ev := newEvent(i)
		switch i % 4 {
		case 1:
			ev.Topic = long
		case 2:
			ev.AggregateID = long
		case 3:
			ev.Headers = map[string]any{"h": strings.Repeat("x", 200_000)}
		}
		p.Publish(ev)
	}
	for range 40 {
		r := receive(t, p)
		var bad *schema.BadEventError
		if isBad := errors.As(r.Err, &bad); isBad != (r.Event.Sequence%2 == 0) || isBad != (r.Err != nil) {
			t.Errorf("%s: %v", r.Event.ID, r.Err)
		}
	}
}

// Headers that a row may carry and that RabbitMQ knows by name must not end
// the channel.
func TestOddHeadersPass(t *testing.T) {
	name := scratch(t, 1)
	p := dial(t, config(t, name, 1))
	for i, header := range []string{
		"", "x-death", "x-delivery-count", "x-first-death-queue", "x-opt-a", "x-stream-filter-value",
		"x-match", "x-received-from", "timestamp_in_ms", "cc", "x-expires", "naïve", "\xff\xfe",
	} {
		ev := newEvent(i)
		ev.Headers = map[string]any{header: "text", "nil": nil, "bytes": []byte{0, 255}, "small": int8(-1), "float": float32(1)}
		p.Publish(ev)
		if r := receive(t, p); r.Err != nil {
			t.Errorf("header %q: %v", header, r.Err)
		}
	}
}

func TestTooLargeForTheBroker(t *testing.T) {
	name := scratch(t, 1)
	p := dial(t, config(t, name, 1))
	p.Publish(newEvent(1))
	large := newEvent(2)
	large.Payload = make([]byte, 17<<20) // RabbitMQ 4: 16 MiB; before: 128 MiB
	p.Publish(large)
	p.Publish(newEvent(3))
	confirmed, err := lost(t, p)
	var bad *schema.BadEventError
	if !errors.As(err, &bad) || bad.ID != large.ID || confirmed > 1 {
		t.Errorf("got %v after %d receipts, want a *schema.BadEventError of %s", err, confirmed, large.ID)
	}
}

// The broker closes the channel when the exchange is gone: what it has not
// confirmed by then gets no receipt, and none that is false. Who declares it
// does so with the next Dial; to who does not, it is a fault that lasts.
func TestExchangeDeletedWhilePublishing(t *testing.T) {
	for _, declares := range []bool{true, false} {
		t.Run(fmt.Sprintf("declares=%v", declares), func(t *testing.T) { testExchangeDeleted(t, declares) })
	}
}

func testExchangeDeleted(t *testing.T, declares bool) {
	name := scratch(t, 1)
	p := dial(t, config(t, name, 1))
	if !declares {
		p = dial(t, config(t, name, 0))
	}
	ch := admin(t)
	confirmed := 0
	for i := range 400 {
		p.Publish(newEvent(i))
	}
	for range 100 {
		if r := receive(t, p); r.Err != nil {
			t.Fatal(r.Err)
		}
		confirmed++
	}
	if err := ch.ExchangeDelete(name, false, false); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		p.Publish(newEvent(400 + i))
	}
	more, err := lost(t, p)
	confirmed += more
	if errors.Is(err, exchange.ErrExchange) == declares || !strings.Contains(err.Error(), name) || confirmed >= 500 {
		t.Errorf("got %v after %d receipts", err, confirmed)
	}
	relaytest.Wait(t, 20*time.Second, "every confirmed event is in the queue", func() bool {
		q, err := ch.QueueDeclarePassive(name+".0", true, false, false, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		return q.Messages >= confirmed
	})
	p.Publish(newEvent(1000)) // does nothing, and does not block
}

func TestCloseUnderLoad(t *testing.T) {
	name := scratch(t, 1)
	before := runtime.NumGoroutine()
	for round := range 5 {
		p := dial(t, config(t, name, 1))
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			for i := 0; ctx.Err() == nil; i++ {
				p.Publish(newEvent(i))
				time.Sleep(10 * time.Microsecond)
			}
		}()
		for range 100 * round {
			receive(t, p)
		}
		start := time.Now()
		p.Close()
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("Close took %v", took)
		}
		cancel()
		<-stopped
		for range p.Receipts() { //nolint:revive // until it is closed
		}
		if err := p.Err(); !errors.Is(err, exchange.ErrClosed) {
			t.Errorf("Err: got %v, want ErrClosed", err)
		}
		p.Close()
	}
	relaytest.Wait(t, 10*time.Second, "goroutines are gone", func() bool { return runtime.NumGoroutine() <= before })
}
