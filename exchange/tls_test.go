package exchange_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/relay/relaytest"
)

// tlsFront speaks TLS in front of the test broker. It returns the amqps:// URL
// and a pool with the authority of its certificate, which httptest lends.
func tlsFront(t *testing.T) (string, *x509.CertPool) {
	t.Helper()
	lender := httptest.NewTLSServer(nil)
	t.Cleanup(lender.Close)
	pool := x509.NewCertPool()
	pool.AddCert(lender.Certificate())
	return frontOf(t, lender.TLS.Certificates[0]), pool
}

func frontOf(t *testing.T, certificate tls.Certificate) string {
	t.Helper()
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{certificate}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	u, err := url.Parse(relaytest.AMQP(t))
	if err != nil {
		t.Fatal(err)
	}
	broker := u.Host
	go func() {
		for {
			front, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer front.Close()
				back, err := net.Dial("tcp", broker)
				if err != nil {
					return
				}
				defer back.Close()
				go io.Copy(back, front) //nolint:errcheck // ends with the connection
				io.Copy(front, back)    //nolint:errcheck // ends with the connection
			}()
		}
	}()
	u.Scheme, u.Host = "amqps", listener.Addr().String()
	return u.String()
}

func TestTLS(t *testing.T) {
	name := scratch(t, 1)
	cfg := config(t, name, 1)
	var pool *x509.CertPool
	cfg.URL, pool = tlsFront(t)
	cfg.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	if found, err := exchange.Inspect(t.Context(), cfg); err != nil || found.TLS != "TLS 1.3 TLS_AES_128_GCM_SHA256, verified" {
		t.Errorf("got %q, %v", found.TLS, err)
	}
	p := dial(t, cfg)
	p.Publish(newEvent(1))
	if r := receive(t, p); r.Err != nil {
		t.Error(r.Err)
	}
	start := time.Now()
	p.Close()
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("Close took %v", took)
	}
	if cfg.TLS.ServerName != "" {
		t.Error("the caller's TLS configuration was changed")
	}
}

func TestTLSRefused(t *testing.T) {
	cfg := config(t, relaytest.Name(t), 0)
	plain, err := url.Parse(cfg.URL)
	if err != nil {
		t.Fatal(err)
	}
	plain.Scheme = "amqps"
	unknown, _ := tlsFront(t)
	for name, c := range map[string]struct{ url, text string }{
		"unknown authority":      {unknown, "which this host does not trust"},
		"port without TLS":       {plain.String(), "there is no TLS at that port"},
		"no file":                {unknown + "?cacertfile=/nowhere/ca.pem", "/nowhere/ca.pem"},
		"certificate, no key":    {unknown + "?certfile=/nowhere/c.pem", "go together"}, // amqp091-go goes on without it
		"file without authority": {unknown + "?cacertfile=tls_test.go", "has none in PEM form"},
	} {
		cfg.URL = c.url
		if _, err := exchange.Dial(t.Context(), cfg); !errors.Is(err, exchange.ErrTLS) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: got %v, want ErrTLS with %q", name, err, c.text)
		}
	}
}

// TestTLSByURL: the URL's own files for TLS are read. Seen to fail without
// them: the authority is unknown.
func TestTLSByURL(t *testing.T) {
	name := scratch(t, 0)
	cfg := config(t, name, 0)
	authority := relaytest.NewAuthority(t, "Authority")
	certificate, key := authority.Issue(t, "broker", time.Hour, "broker.test")
	pair, err := tls.X509KeyPair(certificate, key)
	if err != nil {
		t.Fatal(err)
	}
	cfg.URL = frontOf(t, pair) + "?server_name_indication=broker.test&cacertfile=" + relaytest.Write(t, t.TempDir(), "ca.pem", authority.Certificate)
	if found, err := exchange.Inspect(t.Context(), cfg); err != nil || !strings.HasSuffix(found.TLS, ", verified") {
		t.Errorf("got %q, %v", found.TLS, err)
	}
}
