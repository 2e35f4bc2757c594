package binlog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxrelay/relay/relay/certs"
)

// secure puts the TLS of the connections into the DSN.
func (c Config) secure(dsn *mysql.Config) error {
	if c.TLS != nil {
		if dsn.TLSConfig != "" && dsn.TLSConfig != "true" {
			return fmt.Errorf("binlog: the DSN says tls=%s, and --mysql-tls-ca, -cert, -key or -server-name ask for TLS with a server that is verified: leave tls=%s away, or those", dsn.TLSConfig, dsn.TLSConfig)
		}
		dsn.TLS = c.TLS.Clone()
	}
	if dsn.TLS == nil {
		return nil
	}
	dsn.TLS.MinVersion = max(dsn.TLS.MinVersion, tls.VersionTLS12)
	if dsn.TLS.ServerName == "" && !dsn.TLS.InsecureSkipVerify {
		host, _, err := net.SplitHostPort(dsn.Addr)
		if err != nil {
			return fmt.Errorf("binlog: the address %s has no host's name for which the server's certificate could be: give --mysql-tls-server-name db.example.com, or, of a socket on this host, leave TLS away", dsn.Addr)
		}
		dsn.TLS.ServerName = host
	}
	if dsn.AllowFallbackToPlaintext {
		// The driver takes TLS out of the configuration of all connections when
		// the server has none; so each gets a copy.
		return dsn.Apply(mysql.BeforeConnect(func(context.Context, *mysql.Config) error { return nil }))
	}
	return nil
}

// observe keeps what a DSN's connections agree on with the server.
func (s *Server) observe(dsn *mysql.Config) {
	if dsn.TLS != nil {
		dsn.TLS.VerifyConnection = func(state tls.ConnectionState) error {
			s.agreed.Store(&state)
			return nil
		}
	}
}

// refused is the alert by which the server refuses the client's certificate,
// if that is why a first connection broke; else the error itself. With TLS 1.3
// the client takes itself for connected by then, and the driver does not tell
// the alert, or finds the connection closed before it reads it. So TLS is begun
// once more, and nothing else is said, until the alert comes.
func (s *Server) refused(ctx context.Context, err error) error {
	if s.dsn.TLS == nil || len(s.dsn.TLS.Certificates) == 0 || errors.As(err, new(*mysql.MySQLError)) || s.explainTLS(err) != nil {
		return err
	}
	conn, dialErr := s.dial(ctx)
	if dialErr != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(partingTime)) // the connection tells when it is read
	header := make([]byte, 4)
	if _, greeting := io.ReadFull(conn, header); greeting != nil {
		return err
	}
	if _, greeting := io.CopyN(io.Discard, conn, int64(le.Uint32(header)&0xffffff)); greeting != nil {
		return err
	}
	// Protocol::SSLRequest: flags, the largest packet, utf8mb4, a filler.
	request := le.AppendUint32([]byte{32, 0, 0, 1}, capabilities)
	request = append(le.AppendUint32(request, 1<<24), 45)
	if _, asking := conn.Write(append(request, make([]byte, 23)...)); asking != nil {
		return err
	}
	client := tls.Client(conn, s.dsn.TLS)
	again := client.HandshakeContext(ctx)
	if again == nil {
		_, again = client.Read(header)
	}
	if alert := certs.Alert(again); alert != nil {
		return alert
	}
	return err
}

// capabilities are CLIENT_PROTOCOL_41, CLIENT_SSL and CLIENT_SECURE_CONNECTION.
const capabilities = 1<<9 | 1<<11 | 1<<15

// TLS tells what was agreed with the server, as "TLS 1.3
// TLS_AES_128_GCM_SHA256, verified", or "no TLS".
func (s *Server) TLS() string { return certs.Describe(s.agreed.Load()) }

// replicaTLS is the configuration for a connection beside the driver's; nil:
// none is wanted, or it is only preferred and the server has none.
func (s *Server) replicaTLS() *tls.Config {
	if s.dsn.AllowFallbackToPlaintext && s.agreed.Load() == nil {
		return nil
	}
	return s.dsn.TLS
}

// explainTLS says why TLS failed; nil: that is not why.
func (s *Server) explainTLS(err error) error {
	var refusal *mysql.MySQLError
	switch {
	case errors.Is(err, mysql.ErrNoTLS):
		return fmt.Errorf("%w: %s at %s has no TLS, and the relay wants it; give the server a certificate (ssl_cert, ssl_key), or, where nobody can listen, leave --mysql-tls-… and tls= away", ErrTLS, s.Flavor.Product(), s.dsn.Addr)
	case errors.As(err, &refusal) && refusal.Number == 3159: // ER_SECURE_TRANSPORT_REQUIRED
		return fmt.Errorf("%w: %s at %s: %s; type: --mysql-tls-ca FILE, with the certificate of the server's authority", ErrTLS, s.Flavor.Product(), s.dsn.Addr, refusal.Message)
	}
	trouble := certs.Explain(err, s.dsn.TLS, "mysql")
	switch {
	case trouble == nil:
		return nil
	case trouble.Passes:
		return fmt.Errorf("binlog: TLS with %s at %s: %s", s.Flavor.Product(), s.dsn.Addr, trouble.Text)
	}
	return fmt.Errorf("%w: %s at %s: %s", ErrTLS, s.Flavor.Product(), s.dsn.Addr, trouble.Text)
}

// lacks is what may be missing where a user is refused: a server says of an
// account that must show a certificate only that access is denied.
func (s *Server) lacks() string {
	switch {
	case s.dsn.TLS == nil && s.dsn.Net != "unix":
		return "; or, if the account has REQUIRE SSL or X509, give --mysql-tls-ca FILE"
	case s.dsn.TLS != nil && len(s.dsn.TLS.Certificates) == 0:
		return "; or, if the account has REQUIRE X509, SUBJECT or ISSUER, give --mysql-tls-cert FILE --mysql-tls-key FILE"
	}
	return ""
}
