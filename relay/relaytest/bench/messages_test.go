package main

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
)

func TestMessages(t *testing.T) {
	delivery := amqp.Delivery{
		Headers:    amqp.Table{"sequence": int64(7), "gtid": "u:1", "x-delivery-count": int64(1)},
		RoutingKey: "4711", ContentType: "application/json", DeliveryMode: 2, MessageId: "id", Type: "order.placed", AppId: "relay",
		Timestamp: time.Unix(1_700_000_000, 0).UTC(), Body: []byte("{}"), Exchange: "outbox", DeliveryTag: 3,
	}
	want := message{"4711", amqp.Publishing{
		Headers: amqp.Table{"sequence": int64(7), "gtid": "u:1"}, ContentType: "application/json", DeliveryMode: 2,
		MessageId: "id", Type: "order.placed", AppId: "relay", Timestamp: time.Unix(1_700_000_000, 0).UTC(), Body: []byte("{}"),
	}}
	m := messageOf(delivery)
	if m.sequence() != 7 {
		t.Errorf("got sequence %d", m.sequence())
	}
	path := filepath.Join(t.TempDir(), "messages")
	if err := saveMessages(path, []message{m, m, m}); err != nil {
		t.Fatal(err)
	}
	got, err := loadMessages(path, 2)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]message{want, want}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if _, err := loadMessages(path, 4); err == nil {
		t.Error("got 4 messages out of 3")
	}
}
