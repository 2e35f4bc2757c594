package relaytest

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// Broker is a RabbitMQ broker of a test's own. Its methods are called by one
// goroutine at a time.
type Broker struct {
	URL string // of the vhost /, as guest

	root   string // of the module
	dir    string
	port   int
	server *privateServer
}

// PrivateRabbitMQ starts a RabbitMQ broker for this test alone, with the
// consistent-hash exchange's plugin, and ends it in the test's cleanup.
func PrivateRabbitMQ(t testing.TB) *Broker {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	b := &Broker{root: root, dir: t.TempDir(), port: freePort(t)}
	b.URL = fmt.Sprintf("amqp://guest:guest@127.0.0.1:%d/", b.port)
	b.server = b.begin(t)
	t.Cleanup(func() { b.server.end(t) }) // the last one: a subtest may have restarted it
	b.server.await(t, b.answers)
	return b
}

func (b *Broker) begin(t testing.TB) *privateServer {
	t.Helper()
	return startPrivate(t, "rabbitmq", b.dir, b.port)
}

func (b *Broker) answers() bool {
	return onBroker(b.URL, func(*amqp.Channel) error { return nil }) == nil
}

// Restart stops the broker cleanly and starts it again on what it has stored.
// Meanwhile runs while it is away.
func (b *Broker) Restart(t testing.TB, meanwhile func()) {
	t.Helper()
	b.server.end(t)
	meanwhile()
	b.server = b.begin(t)
	b.server.await(t, b.answers)
}

// Crash is Restart without the clean stop: the broker's runtime halts on the
// spot.
func (b *Broker) Crash(t testing.TB, meanwhile func()) {
	t.Helper()
	_, _ = b.ctl("eval", "erlang:halt(1, [{flush, false}]).") // nobody is left to answer
	select {
	case <-b.server.exited:
	case <-time.After(privateLimit):
		t.Fatalf("relaytest: the private rabbitmq did not halt:\n%s", b.server.output)
	}
	meanwhile()
	b.server = b.begin(t)
	b.server.await(t, b.answers)
}

// Ctl runs rabbitmqctl on the broker and returns what it printed.
func (b *Broker) Ctl(t testing.TB, args ...string) string {
	t.Helper()
	output, err := b.ctl(args...)
	if err != nil {
		t.Fatalf("relaytest: rabbitmqctl %v: %v\n%s", args, err, output)
	}
	return string(output)
}

func (b *Broker) ctl(args ...string) ([]byte, error) {
	cmd := exec.Command(filepath.Join(b.root, "testdata", "servers.sh"), append([]string{"rabbitmqctl", b.dir}, args...)...)
	cmd.Dir = b.root
	return cmd.CombinedOutput()
}
