package main

import (
	"bytes"
	"context"
	"net"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// A client's messages are confirmed, on several channels, in frames that come
// in pieces and in bodies of many frames.
func TestStub(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ended := make(chan error, 1)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			ended <- err
			return
		}
		defer conn.Close()
		ended <- (&stub{conn: conn, published: make(map[uint16]uint64)}).serve()
	}()
	conn, err := amqp.Dial("amqp://guest:guest@" + listener.Addr().String() + "/")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var confirms []*amqp.DeferredConfirmation
	for range 3 {
		channel, err := conn.Channel()
		if err != nil {
			t.Fatal(err)
		}
		if err := channel.ExchangeDeclarePassive("outbox", "x-consistent-hash", true, false, false, false, nil); err != nil {
			t.Fatal(err)
		}
		if q, err := channel.QueueDeclare("outbox.0", true, false, false, false, nil); err != nil || q.Name != "outbox.0" {
			t.Fatalf("got queue %q, %v", q.Name, err)
		}
		if err := channel.QueueBind("outbox.0", "1", "outbox", false, nil); err != nil {
			t.Fatal(err)
		}
		if err := channel.Confirm(false); err != nil {
			t.Fatal(err)
		}
		for _, size := range []int{0, 1, 300, 3 << 20} {
			confirm, err := channel.PublishWithDeferredConfirmWithContext(ctx, "outbox", "key", true, false, amqp.Publishing{Body: bytes.Repeat([]byte{frameEnd}, size)})
			if err != nil {
				t.Fatal(err)
			}
			confirms = append(confirms, confirm)
		}
	}
	for i, confirm := range confirms {
		if stored, err := confirm.WaitContext(ctx); err != nil || !stored {
			t.Errorf("message %d: got stored %v, %v", i, stored, err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err == nil {
		t.Error("the stub went on after the connection's end")
	}
}
