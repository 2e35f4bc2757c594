package relaytest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// PrivateMySQL starts a MySQL server for this test alone, with options as on
// mysqld's command line ("--gtid-mode=OFF"), ends it in the test's cleanup, and
// returns a root DSN to it, in no database.
func PrivateMySQL(t testing.TB, options ...string) string {
	t.Helper()
	return PrivateMySQLIn(t, privateDir(t, kindMySQL), options...)
}

// PrivateMySQLIn is PrivateMySQL in a directory of the test's, whose directory
// tls the server sees as /srv/tls.
func PrivateMySQLIn(t testing.TB, dir string, options ...string) string {
	t.Helper()
	return startPrivate(t, kindMySQL, dir, options...).url()
}

// PrivateMariaDB is PrivateMySQL for MariaDB.
func PrivateMariaDB(t testing.TB, options ...string) string {
	t.Helper()
	return PrivateMariaDBIn(t, privateDir(t, kindMariaDB), options...)
}

// PrivateMariaDBIn is PrivateMySQLIn for MariaDB.
func PrivateMariaDBIn(t testing.TB, dir string, options ...string) string {
	t.Helper()
	return startPrivate(t, kindMariaDB, dir, options...).url()
}

// StartMySQL starts a MySQL server for a program that is no test, in dir, which
// keeps its data, its log beside it, and its process id in the file pid. It
// returns a root DSN, in no database; stop ends the server.
func StartMySQL(ctx context.Context, dir string, options ...string) (dsn string, stop func() error, err error) {
	s, err := newServer(kindMySQL, dir, options...)
	if err != nil {
		return "", nil, err
	}
	stop = func() error { return s.end(syscall.SIGTERM) }
	if err := s.start(ctx); err != nil {
		return "", nil, errors.Join(err, stop())
	}
	return s.url(), stop, nil
}

// PrivateRabbitMQ starts a RabbitMQ broker for this test alone, with the
// consistent-hash exchange's plugin, and ends it in the test's cleanup.
func PrivateRabbitMQ(t testing.TB) *Broker {
	t.Helper()
	s := startPrivate(t, kindBroker, privateDir(t, kindBroker))
	return &Broker{URL: s.url(), server: s}
}

// PrivateManagedRabbitMQ is PrivateRabbitMQ with RabbitMQ's management API, whose
// URL it returns.
func PrivateManagedRabbitMQ(t testing.TB) (b *Broker, api string) {
	t.Helper()
	s, err := newServer(kindBroker, privateDir(t, kindBroker))
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

// PrivateTLSRabbitMQ is PrivateRabbitMQ in a directory of the test's, with a
// second port, which it returns: there it speaks TLS with server.pem and
// server-key.pem of the directory's tls, and lets in who has a certificate of
// an authority in its ca.pem.
func PrivateTLSRabbitMQ(t testing.TB, dir string) (b *Broker, addr string) {
	t.Helper()
	port, err := findPort()
	if err != nil {
		t.Fatal(err)
	}
	s := startPrivate(t, kindBroker, dir, strconv.Itoa(port))
	return &Broker{URL: s.url(), server: s}, fmt.Sprintf("127.0.0.1:%d", port)
}

func privateDir(t testing.TB, kind string) string {
	t.Helper()
	return filepath.Join(t.TempDir(), kind)
}

func startPrivate(t testing.TB, kind, dir string, options ...string) *server {
	t.Helper()
	s, err := newServer(kind, dir, options...)
	if err != nil {
		t.Fatal(err)
	}
	launch(t, s)
	return s
}

// launch starts a server until the test's cleanup, which kills it: nobody needs
// its data, and a clean stop of MySQL takes seconds.
func launch(t testing.TB, s *server) {
	t.Helper()
	t.Cleanup(func() {
		if err := s.end(syscall.SIGKILL); err != nil {
			t.Error(err)
		}
	})
	if err := s.start(t.Context()); err != nil {
		t.Fatal(err)
	}
}
