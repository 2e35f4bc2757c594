package relaytest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority issues certificates, to servers and clients.
type Authority struct {
	Name        string // CN
	Certificate []byte // PEM

	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

// NewAuthority makes one that nobody trusts yet.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	a := &Authority{Name: name, key: newKey(t)}
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().AddDate(1, 0, 0),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.certificate, a.Certificate = sign(t, template, template, a.key, a.key)
	return a
}

// Issue makes a certificate with its key, both PEM, for these hosts' names and
// addresses. A life below 0 ended that long ago.
func (a *Authority) Issue(t testing.TB, name string, life time.Duration, hosts ...string) (certificate, key []byte) {
	t.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour - life.Abs()), NotAfter: time.Now().Add(life),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	private := newKey(t)
	_, certificate = sign(t, template, a.certificate, private, a.key)
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, template, parent *x509.Certificate, of, by *ecdsa.PrivateKey) (*x509.Certificate, []byte) {
	t.Helper()
	var err error
	if template.SerialNumber, err = rand.Int(rand.Reader, big.NewInt(1<<62)); err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, of.Public(), by)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// Write puts a file into a directory, by a rename, readable by all: by a
// server, too, which has a user of its own. It returns the file's path.
func Write(t testing.TB, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	for _, err := range []error{os.MkdirAll(dir, 0o755), os.WriteFile(path+".new", content, 0o644), os.Rename(path+".new", path)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}
