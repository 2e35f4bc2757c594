package exchange

import (
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/outboxrelay/relay/relay/certs"
)

// alertRecord is the first byte of an alert, in TLS (RFC 8446, section 5.1). No
// frame of AMQP 0-9-1 begins with it.
const alertRecord = 21

// security is the TLS of a connection: the one given, else what the URL's
// query says; nil for amqp://.
func (e endpoint) security(given *tls.Config) (*tls.Config, error) {
	if e.Scheme != "amqps" {
		return nil, nil
	}
	config := given.Clone()
	if config == nil {
		var err error
		config, err = certs.Files{CA: e.CACertFile, Cert: e.CertFile, Key: e.KeyFile, ServerName: e.ServerName}.Config()
		if err != nil {
			return nil, fmt.Errorf("%w: %w; look at cacertfile, certfile and keyfile in the URL", ErrTLS, err)
		}
	}
	config.ServerName = cmp.Or(config.ServerName, e.Host)
	return config, nil
}

// secured is a connection by TLS. With TLS 1.3 a broker refuses the client's
// certificate when the client takes itself for connected; the client library
// keeps only the text of that. The nil secured is a connection without TLS.
type secured struct {
	*tls.Conn
	alert atomic.Pointer[net.OpError] // by which the broker ended it
}

// secure begins TLS on a connection, which it closes when it fails.
func secure(ctx context.Context, conn net.Conn, config *tls.Config) (*secured, error) {
	s := &secured{Conn: tls.Client(conn, config)}
	if err := s.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, err
	}
	return s, nil
}

// Read keeps the alert.
func (s *secured) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if alert := certs.Alert(err); alert != nil {
		s.alert.Store(alert)
	}
	return n, err
}

// heard is the alert that ended the connection; else the error itself.
func (s *secured) heard(err error) error {
	if s != nil {
		if alert := s.alert.Load(); alert != nil {
			return alert
		}
	}
	return err
}

// String tells what was agreed.
func (s *secured) String() string {
	if s == nil {
		return certs.Describe(nil)
	}
	state := s.ConnectionState()
	return certs.Describe(&state)
}

// explainTLS says why TLS failed; nil: that is not why.
func (l *link) explainTLS(err error, config *tls.Config) error {
	if config == nil {
		if l.wire != nil && l.wire.first.Load() == alertRecord+1 {
			return fmt.Errorf("%w: %s wants TLS at that port; type: --amqp-url amqps://…", ErrTLS, l.endpoint)
		}
		return nil
	}
	trouble := certs.Explain(err, config, "amqp")
	switch {
	case trouble == nil:
		return nil
	case trouble.Passes:
		return fmt.Errorf("exchange: TLS with %s: %s", l.endpoint, trouble.Text)
	}
	return fmt.Errorf("%w: %s: %s", ErrTLS, l.endpoint, trouble.Text)
}
