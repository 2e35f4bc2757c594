package relaytest

import (
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

func startPrivate(t testing.TB, kind string, options ...string) *server {
	t.Helper()
	s, err := newServer(kind, filepath.Join(t.TempDir(), kind), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.end(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	})
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s
}
