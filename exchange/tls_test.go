package exchange_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"net/url"
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
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: lender.TLS.Certificates})
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
	return u.String(), pool
}

func TestTLS(t *testing.T) {
	name := scratch(t, 1)
	cfg := config(t, name, 1)
	var pool *x509.CertPool
	cfg.URL, pool = tlsFront(t)
	cfg.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
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
	for name, url := range map[string]string{"unknown authority": unknown, "port without TLS": plain.String()} {
		cfg.URL = url
		if _, err := exchange.Dial(t.Context(), cfg); !errors.Is(err, exchange.ErrTLS) {
			t.Errorf("%s: got %v, want ErrTLS", name, err)
		}
	}
}
