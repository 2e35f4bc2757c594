package cli_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// TestTLSUsage: flags for TLS that contradict the DSN, the URL or each other,
// and files that are of no use. No server is needed to tell. Without the checks
// the first five run on, without TLS or with a server that is not verified.
func TestTLSUsage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	authority := relaytest.NewAuthority(t, "Authority")
	ca := relaytest.Write(t, dir, "ca.pem", authority.Certificate)
	empty := relaytest.Write(t, dir, "empty.pem", []byte("no certificate\n"))
	certificate, key := authority.Issue(t, "client", time.Hour)
	cert := relaytest.Write(t, dir, "client.pem", certificate)
	keyFile := relaytest.Write(t, dir, "client-key.pem", key)
	_, key = authority.Issue(t, "other", time.Hour)
	otherKey := relaytest.Write(t, dir, "other-key.pem", key)
	certificate, key = authority.Issue(t, "old", -time.Hour)
	old, oldKey := relaytest.Write(t, dir, "old.pem", certificate), relaytest.Write(t, dir, "old-key.pem", key)
	missing := filepath.Join(dir, "missing.pem")

	r := &rig{t: t, dsn: "relay:" + secret + "@tcp(127.0.0.1:1)/shop", amqp: "amqps://relay:hunter2@127.0.0.1:1/", exchange: "x", dir: dir}
	dsn := func(end string) []string { return []string{"RELAY_MYSQL_DSN=" + r.dsn + end} }
	r.refuse(t, []refusal{
		{"skip-verify and an authority", []string{"run", "--mysql-tls-ca", ca}, dsn("?tls=skip-verify"), 64, []string{"tls=skip-verify", "--mysql-tls-ca", "leave tls=skip-verify away, or those"}},
		{"preferred and a name", []string{"check", "--mysql-tls-server-name", "db"}, dsn("?tls=preferred"), 64, []string{"tls=preferred", "leave tls=preferred away"}},
		{"no TLS and a certificate", []string{"status", "--mysql-tls-cert", cert, "--mysql-tls-key", keyFile}, dsn("?tls=false"), 64, []string{"tls=false", "leave tls=false away"}},
		{"plain AMQP and an authority", []string{"run", "--amqp-tls-ca", ca}, []string{"RELAY_AMQP_URL=amqp://relay:hunter2@127.0.0.1:1/"}, 64, []string{"--amqp-tls-ca", "type: --amqp-url amqps://"}},
		{"files in the URL and an authority", []string{"run", "--amqp-tls-ca", ca}, []string{"RELAY_AMQP_URL=" + r.amqp + "?cacertfile=/x"}, 64, []string{"--amqp-url has cacertfile", "take it out of the URL"}},
		{"a socket without a name", []string{"run", "--mysql-tls-ca", ca}, []string{"RELAY_MYSQL_DSN=relay:hunter2@unix(/run/mysqld.sock)/shop"}, 64, []string{"/run/mysqld.sock", "--mysql-tls-server-name"}},
		{"a certificate without its key", []string{"run", "--mysql-tls-cert", cert}, nil, 64, []string{"--mysql-tls-cert and --mysql-tls-key go together"}},
		{"a key without its certificate", []string{"run"}, []string{"RELAY_AMQP_TLS_KEY=" + keyFile}, 64, []string{"--amqp-tls-cert and --amqp-tls-key go together"}},
		{"no such file", []string{"run", "--mysql-tls-ca", missing}, nil, 78, []string{"--mysql-tls-ca", missing, "no such file"}},
		{"no certificate in the file", []string{"run", "--amqp-tls-ca", empty}, nil, 78, []string{"--amqp-tls-ca", empty, "has none in PEM form"}},
		{"a client's file without certificate", []string{"run", "--mysql-tls-cert", empty, "--mysql-tls-key", keyFile}, nil, 78, []string{"--mysql-tls-", empty, "PEM"}},
		{"another certificate's key", []string{"run", "--amqp-tls-cert", cert, "--amqp-tls-key", otherKey}, nil, 78, []string{"--amqp-tls-", cert, otherKey, "does not match"}},
		{"a client's certificate that has expired", []string{"run", "--mysql-tls-cert", old, "--mysql-tls-key", oldKey}, nil, 78, []string{old, "has expired on 20", "put a new one there"}},
	})
}

// TestTLSWarnings: a connection that leaves the host and can be read is warned
// of, once for each side, with what to type; one to this host is not. The
// addresses lead nowhere.
func TestTLSWarnings(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, dsn, amqp string
		want            []string // of each line
	}{
		{"elsewhere", "relay@tcp(192.0.2.1:3306)/shop", "amqp://relay@[2001:db8::1]:5672/", []string{`"side":"source","address":"192.0.2.1:3306","next":"--mysql-tls-ca FILE`, `"side":"broker","address":"[2001:db8::1]:5672","next":"--amqp-url amqps://`}},
		{"not verified", "relay@tcp(192.0.2.1:3306)/shop?tls=skip-verify", "amqps://relay@192.0.2.1/", []string{`"next":"--mysql-tls-ca FILE, without tls=skip-verify`}},
		{"preferred", "relay@tcp(192.0.2.1:3306)/shop?tls=preferred", "amqp://relay@localhost/", []string{`"next":"--mysql-tls-ca FILE, without tls=preferred`}},
		{"verified", "relay@tcp(192.0.2.1:3306)/shop?tls=true", "amqps://relay@192.0.2.1/", nil},
		{"here", "relay@tcp(localhost:1)/shop", "amqp://relay@[::1]:1/", nil},
		{"a socket", "relay@unix(/nowhere.sock)/shop", "amqp://relay@127.0.0.2:1/", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := &rig{t: t, dsn: c.dsn, amqp: c.amqp, exchange: "x", dir: t.TempDir()}
			got := r.run("run", "--give-up-after", "1ms")
			got.want(t, 75, c.want...)
			if n := strings.Count(got.stderr, `"side":`); n != len(c.want) {
				t.Errorf("%d warnings, want %d:\n%s", n, len(c.want), got.stderr)
			}
		})
	}
}
