package exchange

import (
	"io"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/schema"
)

// benchEvent is as those of `make bench`.
func benchEvent() *schema.Event {
	ev := fullEvent()
	ev.Headers, ev.Payload = nil, make([]byte, 300)
	return ev
}

// BenchmarkMessage makes the frames of one event.
func BenchmarkMessage(b *testing.B) {
	ev, m := benchEvent(), message{exchange: "outbox", frameMax: 131072}
	var buffer []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if buffer, err = m.append(buffer[:0], 1, ev); err != nil {
			b.Fatal(err)
		}
	}
	b.SetBytes(int64(len(buffer)))
}

// deaf is a broker that takes all that is published and says nothing.
func deaf(b *testing.B) string {
	return startBroker(b, func(f *fakeBroker) {
		f.on[methodPublish] = func(uint16) bool {
			io.Copy(io.Discard, f.conn) //nolint:errcheck // until the client goes
			return false
		}
		f.serve()
	})
}

// BenchmarkPublish is the way of one event to the socket.
func BenchmarkPublish(b *testing.B) {
	p, err := Dial(b.Context(), Config{URL: deaf(b), Exchange: "outbox"})
	if err != nil {
		b.Fatal(err)
	}
	defer p.Close()
	events := make([]*schema.Event, 64)
	for i := range events {
		events[i] = benchEvent()
	}
	var buffer []byte
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; n += len(events) {
		buffer, _ = p.frames(buffer[:0], events)
		if _, err := p.link.tap.Write(buffer); err != nil {
			b.Fatal(err)
		}
		p.channels[0].flights = p.channels[0].flights[:0] // nobody answers
	}
	b.StopTimer()
}

// BenchmarkPublishLibrary is the same with the client library, for comparison.
func BenchmarkPublishLibrary(b *testing.B) {
	conn, err := amqp.Dial(deaf(b))
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		b.Fatal(err)
	}
	ev := benchEvent()
	b.ReportAllocs()
	for b.Loop() {
		err := ch.Publish("outbox", ev.AggregateID, true, false, amqp.Publishing{
			Headers: amqp.Table{
				headerAggregateID: ev.AggregateID, headerAggregateType: ev.AggregateType, headerEventType: ev.EventType, headerTopic: ev.Topic,
				headerVersion: ev.Version, headerGTID: ev.GTID, headerCreatedAt: ev.CreatedAt.Format(createdAtLayout), headerSequence: ev.Sequence,
			},
			ContentType: ev.ContentType, DeliveryMode: amqp.Persistent, MessageId: ev.ID, Timestamp: ev.CreatedAt, Type: ev.Type(), AppId: appID, Body: ev.Payload,
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}
