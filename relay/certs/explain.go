package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"
)

// Trouble is why TLS with a server failed, and what to type.
type Trouble struct {
	Text string
	// Passes: it may end without a change of the settings or files, as a
	// server's certificate that has expired and is renewed.
	Passes bool
}

// Explain finds what an error says about TLS; nil: nothing. The flags are those
// of the side: "mysql" stands for --mysql-tls-ca and the others.
func Explain(err error, config *tls.Config, side string) *Trouble {
	var name x509.HostnameError
	var invalid x509.CertificateInvalidError
	var unknown x509.UnknownAuthorityError
	var unverified *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	flag := "--" + side + "-tls-"
	switch alert := Alert(err); {
	case alert != nil:
		return explainAlert(alert, config, flag)
	case errors.As(err, &record):
		return &Trouble{Text: "there is no TLS at that port: the first bytes are those of another protocol; look at the address, or have the server's TLS switched on"}
	case errors.As(err, &name):
		return &Trouble{Text: wrongName(name, flag)}
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return &Trouble{Text: outOfTime(invalid.Cert), Passes: true}
	case errors.As(err, &unknown) && errors.As(err, &unverified) && len(unverified.UnverifiedCertificates) > 0:
		server := unverified.UnverifiedCertificates[0] // and behind it those that it adds, up to its authority's
		believed := "which this host does not trust"
		if config != nil && config.RootCAs != nil {
			believed = "and no authority in the file of " + flag + "ca has issued it"
		}
		return &Trouble{Text: fmt.Sprintf("the server's certificate %q is of the authority %q, %s; type: %sca FILE, with the certificate of the server's authority", server.Subject, server.Issuer, believed, flag)}
	case errors.As(err, &unverified):
		return &Trouble{Text: fmt.Sprintf("the server's certificate is not accepted: %v; look at it and at %sca", unverified.Err, flag)}
	}
	return nil
}

func wrongName(err x509.HostnameError, flag string) string {
	names := err.Certificate.DNSNames
	for _, ip := range err.Certificate.IPAddresses {
		names = append(names[:len(names):len(names)], ip.String())
	}
	if len(names) == 0 {
		return fmt.Sprintf("the server's certificate %q has no host's name (subjectAltName), and is to be for %q; give the server one that has: those which MySQL makes for itself have none", err.Certificate.Subject, err.Host)
	}
	return fmt.Sprintf("the server's certificate is for %s, and not for %q; if that is the server, type: %sserver-name %s", strings.Join(names, ", "), err.Host, flag, names[0])
}

func outOfTime(c *x509.Certificate) string {
	if time.Now().Before(c.NotBefore) {
		return fmt.Sprintf("the certificate %q is valid from %s on, and here it is %s; look at both clocks", c.Subject, c.NotBefore.UTC().Format(time.RFC3339), time.Now().UTC().Format(time.RFC3339))
	}
	return fmt.Sprintf("the certificate %q has expired on %s; put a new one on the server", c.Subject, c.NotAfter.UTC().Format(time.RFC3339))
}

// Alert is the alert by which the server ended TLS; nil: there is none in the
// error.
func Alert(err error) *net.OpError {
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "remote error" { // as crypto/tls calls it
		return op
	}
	return nil
}

// lasting are the alerts (RFC 8446, section 6) that come again each time, for
// what the client has sent or not.
var lasting = []tls.AlertError{
	40,             // handshake_failure
	42, 43, 44, 45, // bad, unsupported, revoked, expired certificate
	46, 48, 49, // certificate_unknown, unknown_ca, access_denied
	70, 71, // protocol_version, insufficient_security
	112, // unrecognized_name
	116, // certificate_required
}

func explainAlert(alert *net.OpError, config *tls.Config, flag string) *Trouble {
	t := &Trouble{Passes: true}
	for _, a := range lasting {
		if alert.Err.Error() == a.Error() { // its type is not exported
			t.Passes = false
		}
	}
	switch {
	case t.Passes:
		t.Text = fmt.Sprintf("the server ended TLS: %v", alert.Err)
	case config != nil && len(config.Certificates) > 0:
		t.Text = fmt.Sprintf("the server refused the client's certificate %q of the authority %q: %v; give one that it accepts: %scert FILE %skey FILE",
			config.Certificates[0].Leaf.Subject, config.Certificates[0].Leaf.Issuer, alert.Err, flag, flag)
	default:
		t.Text = fmt.Sprintf("the server ended TLS: %v; if it wants a certificate of its clients, type: %scert FILE %skey FILE", alert.Err, flag, flag)
	}
	return t
}

// Describe tells what was agreed with a server, as "TLS 1.3
// TLS_AES_128_GCM_SHA256, verified"; nil: there is no TLS.
func Describe(state *tls.ConnectionState) string {
	if state == nil {
		return "no TLS"
	}
	verified := "verified"
	if len(state.VerifiedChains) == 0 {
		verified = "not verified"
	}
	return fmt.Sprintf("%s %s, %s", tls.VersionName(state.Version), tls.CipherSuiteName(state.CipherSuite), verified)
}
