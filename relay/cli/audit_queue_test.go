package cli_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// bindQueue makes a queue of a kind that gets what goes to an exchange, and the
// exchange.
func (r *rig) bindQueue(exchange, queue, kind string) {
	r.t.Helper()
	err := r.onBroker(func(channel *amqp.Channel) error {
		if err := channel.ExchangeDeclare(exchange, "x-consistent-hash", true, false, false, false, nil); err != nil {
			return err
		}
		if _, err := channel.QueueDeclare(queue, true, false, false, false, amqp.Table{"x-queue-type": kind}); err != nil {
			return err
		}
		return channel.QueueBind(queue, "1", exchange, false, nil)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		err := r.onBroker(func(channel *amqp.Channel) error {
			_, err := channel.QueueDelete(queue, false, false, false)
			if err == nil {
				err = channel.ExchangeDelete(exchange, false, false)
			}
			return err
		})
		if err != nil {
			r.t.Error(err)
		}
	})
}

// send puts messages into a queue, past the exchange, and waits until the broker
// has them.
func (r *rig) send(queue string, messages ...amqp.Publishing) {
	r.t.Helper()
	r.sendTo("", queue, messages...)
}

// sendTo is send by way of an exchange.
func (r *rig) sendTo(exchange, key string, messages ...amqp.Publishing) {
	r.t.Helper()
	err := r.onBroker(func(channel *amqp.Channel) error {
		if err := channel.Confirm(false); err != nil {
			return err
		}
		for _, m := range messages {
			m.DeliveryMode = amqp.Persistent
			confirm, err := channel.PublishWithDeferredConfirmWithContext(r.t.Context(), exchange, key, true, false, m)
			if err != nil {
				return err
			}
			if _, err := confirm.WaitContext(r.t.Context()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}

func createdNow() amqp.Table {
	return amqp.Table{"created_at": time.Now().UTC().Add(-time.Second).Format(time.RFC3339Nano)}
}

// oldMessage is in no test's window.
var oldMessage = amqp.Publishing{MessageId: "old", Headers: amqp.Table{"created_at": "2001-01-01T00:00:00Z"}}

// TestAuditStream: a stream is read, and left as it is: it can be read again.
// What is missing there is found and sent again, what came twice is told, what
// nobody wrote is a difference.
func TestAuditStream(t *testing.T) {
	t.Parallel()
	newRig(t).auditsQueue("stream")
}

// TestAuditClassic: so is a classic queue, where the management API tells that
// it is one. A quorum queue, which would count the deliveries, is left alone,
// and so is a queue whose messages another consumer takes.
func TestAuditClassic(t *testing.T) {
	t.Parallel()
	b, api := relaytest.PrivateManagedRabbitMQ(t)
	r := newRig(t)
	r.dropTopology() // of the broker of all tests
	r.amqp = b.URL
	r.auditsQueue("classic", "--amqp-management-url", api)

	quorum := r.exchange + ".quorum"
	r.bindQueue(r.exchange+"2", quorum, "quorum")
	r.send(quorum, amqp.Publishing{MessageId: "a"})
	got := r.run("audit", "--audit-queue", quorum, "--amqp-management-url", api)
	got.want(t, 78, "drops a message", "--type stream")
	got.oneLine(t)
	err := r.onBroker(func(channel *amqp.Channel) error {
		d, ok, err := channel.Get(quorum, false)
		if !ok || d.Headers["x-delivery-count"] != nil {
			t.Errorf("the first message of the quorum queue has %v", d.Headers)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	err = r.onBroker(func(channel *amqp.Channel) error {
		if _, err := channel.Consume(r.exchange+".audit", "", false, false, false, false, nil); err != nil {
			return err
		}
		r.run("audit", "--audit-queue", r.exchange+".audit", "--amqp-management-url", api).want(t, 78, "1 consumers")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) auditsQueue(kind string, flags ...string) {
	t := r.t
	t.Helper()
	queue := r.exchange + ".audit"
	r.bindQueue(r.exchange, queue, kind)
	audit := func(args ...string) result {
		t.Helper()
		return r.run(append([]string{"audit", "--grace", "0s", "--audit-queue", queue}, append(args, flags...)...)...)
	}
	audit().wantFound(t, 0) // nothing was written yet, and the stream is empty
	r.relay()
	r.insert(r.db, 1, 1200)
	r.relay()
	for _, since := range [][]string{nil, {"--since", "1970-01-01T00:00:00Z"}} { // AMQP has no earlier time
		if s := audit(since...).wantFound(t, 0); s.Rows != 1200 || s.Messages != 1200 {
			t.Errorf("got %+v", s)
		}
	}
	r.unlogged(unloggedRow(2000, 7, "1 MINUTE"), unloggedRow(2001, 7, "2 MINUTE"))
	r.send(queue, amqp.Publishing{Headers: oldMessage.Headers}, amqp.Publishing{MessageId: idText(5), Headers: createdNow()}, amqp.Publishing{MessageId: "phantom", Headers: createdNow()},
		amqp.Publishing{Body: []byte("x"), Headers: createdNow()}, oldMessage)
	lines := []string{"duplicate 000000000005 *2", "missing 0000000007d0", "missing 0000000007d1", "unknown ", "unknown phantom"}
	got := audit()
	if s := got.wantFoundUnordered(t, 3, lines...); s.Messages != 1205 || s.Duplicates != 1 {
		t.Errorf("got %+v", s)
	}
	if s := audit("--republish").wantFoundUnordered(t, 3, lines...); s.Republished != 2 {
		t.Errorf("got %+v", s)
	}
	audit().wantFoundUnordered(t, 3, "duplicate 000000000005 *2", "unknown ", "unknown phantom")
}

// wantFoundUnordered is wantFound where the order of missing and unknown ids is
// no matter.
func (got result) wantFoundUnordered(t testing.TB, code int, lines ...string) found {
	t.Helper()
	got.want(t, code)
	text, summary := findings(t, got)
	seen := strings.Split(text, "\n")
	slices.Sort(seen)
	slices.Sort(lines)
	if diff := cmp.Diff(lines, seen); diff != "" {
		t.Errorf("findings (-want +got):\n%s%s", diff, got.stderr)
	}
	return summary
}
