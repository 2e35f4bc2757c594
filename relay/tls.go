package relay

import (
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strings"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/relay/certs"
)

// certificates are the files for TLS of one side. They are read for each
// session, as passwords are. The zero certificates are none: the DSN or URL
// tells.
type certificates struct {
	files certs.Files
	read  [sha256.Size]byte // what they had for this session
}

// next puts the files' configuration for the next session in its place.
func (c *certificates) next(config **tls.Config) error {
	if c.files == (certs.Files{}) {
		return nil
	}
	c.read = c.files.Sum()
	fresh, err := c.files.Config()
	if err != nil { // it may pass: somebody is writing them
		return fmt.Errorf("relay: files for TLS: %w", err)
	}
	*config = fresh
	return nil
}

// changed tells whether the files are others than for this session.
func (c *certificates) changed() bool { return c.files != (certs.Files{}) && c.read != c.files.Sum() }

// anotherCertificate tells whether an error is a refusal that may be mended by
// files which were changed meanwhile.
func (s *supervisor) anotherCertificate(err error) bool {
	return (errors.Is(err, binlog.ErrTLS) || errors.Is(err, binlog.ErrAuth)) && s.sourceTLS.changed() ||
		(errors.Is(err, exchange.ErrTLS) || errors.Is(err, exchange.ErrAuth)) && s.brokerTLS.changed()
}

// exposure is a connection that leaves this host and can be read, or led
// elsewhere, by who stands in between.
type exposure struct {
	side, address string
	what          string
	next          string // what to type
}

// exposures are those of both sides.
func (c *Config) exposures() (list []exposure) {
	const plain, unverified = "a connection is not encrypted", "a connection is to a server that is not verified"
	if dsn, _, _, err := c.Source.Parse(); err == nil && dsn.Net != "unix" && !loopback(dsn.Addr) {
		switch {
		case dsn.TLS == nil:
			list = append(list, exposure{"source", dsn.Addr, plain, "--mysql-tls-ca FILE, or tls=true in --mysql-dsn"})
		case dsn.TLS.InsecureSkipVerify: // with tls=preferred, too, which goes on without TLS where there is none
			list = append(list, exposure{"source", dsn.Addr, unverified, "--mysql-tls-ca FILE, without tls=" + dsn.TLSConfig + " in --mysql-dsn"})
		}
	}
	if u, err := url.Parse(exchange.Address(c.Broker.URL)); err == nil && u.Scheme == "amqp" && !loopback(u.Host) {
		list = append(list, exposure{"broker", u.Host, plain, "--amqp-url amqps://…, with --amqp-tls-ca FILE"})
	}
	return list
}

// loopback tells whether host:port is on this host, as far as that can be told
// without asking.
func loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return strings.EqualFold(host, "localhost")
	}
	return ip.Unmap().IsLoopback()
}
