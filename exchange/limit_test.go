package exchange

import (
	"errors"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/schema"
)

// TestLimit: the limit is taken from the broker's words, and the first event
// over it is the one that was refused; without a number, the largest.
func TestLimit(t *testing.T) {
	t.Parallel()
	doubt := events(4)
	for i, size := range []int{5000, 5001, 6000, 10} {
		doubt[i].Payload = make([]byte, size)
	}
	for text, want := range map[string]struct {
		id, reason string
		limit      int64
	}{
		"PRECONDITION_FAILED - message size 5001 is larger than configured max size 5000": {"b", "has 5001 bytes, the broker takes 5000 at most", 5000},
		"PRECONDITION_FAILED - message size 6000 is larger than max size 5500":            {"c", "has 6000 bytes, the broker takes 5500 at most", 5500},
		"PRECONDITION_FAILED - message is too large":                                      {"c", "message is too large", 0},
	} {
		limit := new(Limit)
		var bad *schema.BadEventError
		err := limit.learn(&amqp.Error{Code: amqp.PreconditionFailed, Reason: text}, doubt)
		if !errors.As(err, &bad) || bad.ID != want.id || bad.Sequence != doubt[0].Sequence || !strings.Contains(bad.Reason, want.reason) || limit.bytes.Load() != want.limit {
			t.Errorf("%s: got %v, and the limit %d", text, err, limit.bytes.Load())
		}
		if known := limit.check(doubt[2]) != nil; known != (want.limit > 0) {
			t.Errorf("%s: the next one is known to be too large: %v", text, known)
		}
		limit.forget()
		if err := limit.check(doubt[2]); err != nil {
			t.Errorf("%s: forgotten, and %v", text, err)
		}
	}
}

// TestReturnsOfOneID: of two events with one id, the second is returned, then
// both: each gets its own receipt. Seen to fail where returns were kept by
// message id: the first was told as returned, and the second as delivered.
func TestReturnsOfOneID(t *testing.T) {
	list := events(4)
	for i, ev := range list {
		ev.ID, ev.Sequence = "one", int64(i+1)
	}
	url := startBroker(t, func(b *fakeBroker) {
		count := 0
		b.on[methodPublish] = func(channel uint16) bool {
			if count++; count == len(list) {
				for _, i := range []int{1, 2, 3} {
					b.sendReturn(channel, list[i])
				}
				b.send(channel, methodAck, tagged(uint64(len(list)), 1)...)
			}
			return true
		}
		b.serve()
	})
	p := mustDial(t, url)
	for _, ev := range list {
		p.Publish(ev)
	}
	for _, r := range receive(t, p, len(list)) {
		var returned *ReturnError
		if errors.As(r.Err, &returned) != (r.Event.Sequence > 1) {
			t.Errorf("receipt of %d: got %v", r.Event.Sequence, r.Err)
		}
	}
}
