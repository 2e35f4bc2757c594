package exchange_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/relay/relaytest"
)

// TestObserver looks at queues before they are declared, which are not its own to
// declare, and then on the same connection at what is in them. Seen to fail
// without the channel set to nil after an error: the second look is on a channel
// that the broker has closed.
func TestObserver(t *testing.T) {
	cfg := config(t, scratch(t, 2), 2)
	o, err := exchange.Observe(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	look := func() []exchange.Queue {
		t.Helper()
		list, err := o.Queues(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	for _, q := range look() {
		if q.Found {
			t.Errorf("before: %+v", q)
		}
	}
	p := dial(t, cfg)
	for i := range 5 {
		p.Publish(newEvent(i))
		if r := receive(t, p); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	relaytest.Wait(t, 20*time.Second, "it sees five messages", func() bool {
		list := look()
		return list[0].Found && list[1].Found && list[0].Messages+list[1].Messages == 5
	})
	ended, end := context.WithCancel(t.Context())
	end()
	if _, err := o.Queues(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("after the context's end: %v", err)
	}
}
