package exchange_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/relay/relaytest"
)

// TestReaderOfGrowingStream: reading a stream to which others write ends, with
// all that was there at its beginning, in order and each once; messages of before
// the time are left out as far as the broker can tell. Seen to fail where the
// end is the beginning of the last chunk.
func TestReaderOfGrowingStream(t *testing.T) {
	t.Parallel()
	ch := admin(t)
	stream := relaytest.Name(t)
	if _, err := ch.QueueDeclare(stream, true, false, false, false, amqp.Table{"x-queue-type": "stream"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ch.QueueDelete(stream, false, false, false) }) //nolint:errcheck // it is a test's
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	sent := 0
	send := func(n int) {
		t.Helper()
		var last *amqp.DeferredConfirmation
		for range n {
			var err error
			last, err = ch.PublishWithDeferredConfirm("", stream, true, false, amqp.Publishing{MessageId: fmt.Sprint(sent)})
			if err != nil {
				t.Fatal(err)
			}
			sent++
		}
		if !last.Wait() {
			t.Fatal("not confirmed")
		}
	}
	read := func(from time.Time) (list []string) {
		t.Helper()
		r, err := exchange.OpenReader(t.Context(), config(t, stream, 0), stream)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		err = r.Read(t.Context(), from, func(m *exchange.Message) error {
			list = append(list, m.ID)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	ordered := func(list []string, first int) {
		t.Helper()
		for i, id := range list {
			if id != fmt.Sprint(first+i) {
				t.Fatalf("message %d is %s, want %d", i, id, first+i)
			}
		}
	}

	send(5000)
	list := read(time.Now().Add(-time.Hour))
	if ordered(list, 0); len(list) != 5000 {
		t.Fatalf("%d messages, want 5000", len(list))
	}
	if list := read(time.Now().Add(time.Hour)); len(list) != 0 {
		t.Errorf("%d messages of the future", len(list))
	}

	stop := make(chan struct{})
	var writing sync.WaitGroup
	began := make(chan struct{})
	writing.Go(func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				return
			default:
				send(20)
			}
			if n == 5 {
				close(began)
			}
		}
	})
	<-began
	list = read(time.Now().Add(-time.Hour))
	close(stop)
	writing.Wait()
	if ordered(list, 0); len(list) < 5100 {
		t.Errorf("%d messages, want 5100 at least", len(list))
	}
	t.Logf("%d of %d messages read", len(list), sent)
}

// TestReaderRefuses: a queue that is not there, or of which the management API
// does not tell what it is.
func TestReaderRefuses(t *testing.T) {
	t.Parallel()
	ch := admin(t)
	queue := relaytest.Name(t)
	if _, err := ch.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": "quorum"}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ch.QueueDelete(queue, false, false, false) }) //nolint:errcheck // it is a test's
	cfg := config(t, queue, 0)
	cfg.ManagementURL = "http://127.0.0.1:1"
	for _, name := range []string{queue, queue + ".none"} {
		if r, err := exchange.OpenReader(t.Context(), cfg, name); !errors.Is(err, exchange.ErrQueue) {
			t.Errorf("%s: got %v, %v", name, r, err)
		}
	}
}
