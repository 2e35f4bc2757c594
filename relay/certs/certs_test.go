package certs_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/relay/relay/certs"
	"github.com/outboxrelay/relay/relay/relaytest"
)

// shake lets a client and a server begin TLS, and returns what the client is
// told, behind the handshake too.
func shake(t *testing.T, client, server *tls.Config) error {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		if server == nil {
			fmt.Fprint(conn, "220 another protocol\r\n")
			io.Copy(io.Discard, conn) //nolint:errcheck // ends with the connection
			return
		}
		if secured := tls.Server(conn, server); secured.Handshake() == nil {
			fmt.Fprint(secured, "hello")
		}
	}()
	conn, err := tls.Dial("tcp", listener.Addr().String(), client)
	if err == nil {
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
	}
	return err
}

func pair(t *testing.T, a *relaytest.Authority, life time.Duration, hosts ...string) []tls.Certificate {
	t.Helper()
	p, err := tls.X509KeyPair(a.Issue(t, "me", life, hosts...))
	if err != nil {
		t.Fatal(err)
	}
	return []tls.Certificate{p}
}

// TestExplain: what becomes of each way in which TLS fails.
func TestExplain(t *testing.T) {
	authority, other := relaytest.NewAuthority(t, "Authority"), relaytest.NewAuthority(t, "Other")
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(authority.Certificate)
	client := func(change func(*tls.Config)) *tls.Config {
		c := &tls.Config{RootCAs: pool, ServerName: "db.test", Certificates: pair(t, authority, time.Hour)}
		change(c)
		return c
	}
	as := func(c *tls.Config) {}
	good := &tls.Config{Certificates: pair(t, authority, time.Hour, "db.test")}
	demanding := &tls.Config{Certificates: good.Certificates, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool}
	older := demanding.Clone()
	older.MaxVersion = tls.VersionTLS12
	for _, c := range []struct {
		name           string
		client, server *tls.Config
		text           string // empty: no trouble
		passes         bool
	}{
		{"nothing", client(as), demanding, "", false},
		{"authority", client(as), &tls.Config{Certificates: pair(t, other, time.Hour, "db.test")}, `"CN=me" is of the authority "CN=Other", and no authority in the file of --amqp-tls-ca has issued it`, false},
		{"system's authorities", client(func(c *tls.Config) { c.RootCAs = nil }), good, "which this host does not trust; type: --amqp-tls-ca FILE", false},
		{"name", client(func(c *tls.Config) { c.ServerName = "mq.test" }), good, `is for db.test, and not for "mq.test"; if that is the server, type: --amqp-tls-server-name db.test`, false},
		{"no names", client(as), &tls.Config{Certificates: pair(t, authority, time.Hour)}, `"CN=me" has no host's name (subjectAltName), and is to be for "db.test"`, false},
		{"expired", client(as), &tls.Config{Certificates: pair(t, authority, -time.Hour, "db.test")}, `"CN=me" has expired on ` + time.Now().UTC().Format("2006"), true},
		{"not yet valid", client(func(c *tls.Config) { c.Time = func() time.Time { return time.Now().AddDate(-1, 0, 0) } }), good, "", true},
		{"no TLS", client(as), nil, "there is no TLS at that port", false},
		{"no client's certificate", client(func(c *tls.Config) { c.Certificates = nil }), demanding, "tls: certificate required; if it wants a certificate of its clients, type: --amqp-tls-cert FILE --amqp-tls-key FILE", false},
		{"no client's certificate, TLS 1.2", client(func(c *tls.Config) { c.Certificates = nil }), older, "if it wants a certificate of its clients, type: --amqp-tls-cert", false},
		{"client's certificate", client(func(c *tls.Config) { c.Certificates = pair(t, other, time.Hour) }), demanding, `refused the client's certificate "CN=me" of the authority "CN=Other": tls: `, false},
		{"client's certificate, TLS 1.2", client(func(c *tls.Config) { c.Certificates = pair(t, other, time.Hour) }), older, `refused the client's certificate "CN=me"`, false},
		{"version", client(func(c *tls.Config) { c.MinVersion = tls.VersionTLS13 }), older, "tls: protocol version not supported", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := shake(t, c.client, c.server)
			trouble := certs.Explain(err, c.client, "amqp")
			switch {
			case c.name == "not yet valid": // the clock of the words is the host's
				if trouble == nil || !trouble.Passes {
					t.Errorf("got %+v of %v, want what passes", trouble, err)
				}
			case c.text == "" && (err != nil || trouble != nil):
				t.Errorf("got %v, %+v", err, trouble)
			case c.text != "" && trouble == nil:
				t.Errorf("nothing is said about %v, want %q", err, c.text)
			case c.text != "" && (!strings.Contains(trouble.Text, c.text) || trouble.Passes != c.passes):
				t.Errorf("got %+v, want %q, passes %t", trouble, c.text, c.passes)
			}
		})
	}
	alert := &net.OpError{Op: "remote error", Err: tls.AlertError(80)} // internal_error
	if trouble := certs.Explain(fmt.Errorf("begin: %w", alert), nil, "mysql"); trouble == nil || !trouble.Passes {
		t.Errorf("got %+v of an error inside the server, want what passes", trouble)
	}
	if trouble := certs.Explain(errors.Join(io.EOF, &net.OpError{Op: "read", Err: io.EOF}), nil, "mysql"); trouble != nil {
		t.Errorf("got %+v of a broken link", trouble)
	}
}

// TestSum: files are told from others by what is in them.
func TestSum(t *testing.T) {
	dir := t.TempDir()
	f := certs.Files{CA: relaytest.Write(t, dir, "ca.pem", []byte("one")), Cert: dir + "/none.pem"}
	before := f.Sum()
	if f.Sum() != before {
		t.Error("the same files have two sums")
	}
	relaytest.Write(t, dir, "none.pem", []byte("new"))
	if f.Sum() == before {
		t.Error("a file that came changes nothing")
	}
	before = f.Sum()
	relaytest.Write(t, dir, "ca.pem", []byte("two"))
	if f.Sum() == before {
		t.Error("other contents change nothing")
	}
}
