package relaytest

import (
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
)

// PrivateMySQL starts a MySQL server for this test alone, with options as on
// mysqld's command line ("--gtid-mode=OFF"), ends it in the test's cleanup, and
// returns a root DSN to it, in no database.
func PrivateMySQL(t testing.TB, options ...string) string {
	t.Helper()
	return startPrivate(t, kindMySQL, options...).url()
}

// PrivateMariaDB is PrivateMySQL for MariaDB.
func PrivateMariaDB(t testing.TB, options ...string) string {
	t.Helper()
	return startPrivate(t, kindMariaDB, options...).url()
}

// PrivateRabbitMQ starts a RabbitMQ broker for this test alone, with the
// consistent-hash exchange's plugin, and ends it in the test's cleanup.
func PrivateRabbitMQ(t testing.TB) *Broker {
	t.Helper()
	s := startPrivate(t, kindBroker)
	return &Broker{URL: s.url(), server: s}
}

// PrivateManagedRabbitMQ is PrivateRabbitMQ with RabbitMQ's management API, whose
// URL it returns.
func PrivateManagedRabbitMQ(t testing.TB) (b *Broker, api string) {
	t.Helper()
	s, err := newServer(kindBroker, filepath.Join(t.TempDir(), kindBroker))
	if err != nil {
		t.Fatal(err)
	}
	port, err := findPort()
	if err != nil {
		t.Fatal(err)
	}
	s.env = []string{fmt.Sprintf("MANAGEMENT_PORT=%d", port)}
	launch(t, s)
	return &Broker{URL: s.url(), server: s}, fmt.Sprintf("http://127.0.0.1:%d", port)
}

func startPrivate(t testing.TB, kind string, options ...string) *server {
	t.Helper()
	s, err := newServer(kind, filepath.Join(t.TempDir(), kind), options...)
	if err != nil {
		t.Fatal(err)
	}
	launch(t, s)
	return s
}

// launch starts a server until the test's cleanup.
func launch(t testing.TB, s *server) {
	t.Helper()
	t.Cleanup(func() {
		if err := s.end(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	})
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
}
