package relaytest

import (
	"syscall"
	"testing"
)

// Broker is a RabbitMQ broker of a test's own. Its methods are called by one
// goroutine at a time.
type Broker struct {
	URL string // of the vhost /, as guest

	server *server
}

// Restart stops the broker cleanly and starts it again on what it has stored.
// Meanwhile runs while it is away.
func (b *Broker) Restart(t testing.TB, meanwhile func()) {
	t.Helper()
	b.again(t, syscall.SIGTERM, meanwhile)
}

// Crash is Restart without the clean stop: the broker is killed on the spot.
func (b *Broker) Crash(t testing.TB, meanwhile func()) {
	t.Helper()
	b.again(t, syscall.SIGKILL, meanwhile)
}

func (b *Broker) again(t testing.TB, signal syscall.Signal, meanwhile func()) {
	t.Helper()
	if err := b.server.again(t.Context(), signal, meanwhile); err != nil {
		t.Fatal(err)
	}
}

// Ctl runs rabbitmqctl on the broker and returns what it printed.
func (b *Broker) Ctl(t testing.TB, args ...string) string {
	t.Helper()
	output, err := b.server.query(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return output
}
