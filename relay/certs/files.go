// Package certs is what the connections to both servers have in common about
// TLS: it reads a client's files, and says in words what is wrong where a
// server and a client do not agree. It imports nothing of the relay.
package certs

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"
)

// Files say whom a client believes, and who it is. The files are PEM.
type Files struct {
	CA         string // certificates of the authorities that are believed. Defaults to the system's.
	Cert, Key  string // the client's certificate, with those between it and its authority, and its key. Both or none.
	ServerName string // for which the server's certificate must be. Defaults to the host that is dialled.
}

// Config reads the files. The server is verified, and TLS is 1.2 or later.
func (f Files) Config() (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.ServerName}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, fmt.Errorf("certificates of the authorities: %w", err)
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("certificates of the authorities: %s has none in PEM form (-----BEGIN CERTIFICATE-----)", f.CA)
		}
	}
	if f.Cert == "" && f.Key == "" {
		return config, nil
	}
	if f.Cert == "" || f.Key == "" {
		return nil, errors.New("a client's certificate and its key go together: give both files, or none")
	}
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		return nil, fmt.Errorf("client's certificate %s with key %s: %w", f.Cert, f.Key, err)
	}
	if end := pair.Leaf.NotAfter; time.Now().After(end) {
		return nil, fmt.Errorf("client's certificate %s has expired on %s; put a new one there, and its key", f.Cert, end.Format(time.RFC3339))
	}
	config.Certificates = []tls.Certificate{pair}
	return config, nil
}

// Sum tells contents of the files from others. A file that cannot be read
// counts as empty.
func (f Files) Sum() [sha256.Size]byte {
	sum := sha256.New()
	for _, path := range []string{f.CA, f.Cert, f.Key} {
		if path != "" {
			text, _ := os.ReadFile(path)
			fmt.Fprintf(sum, "%d ", len(text))
			sum.Write(text)
		}
	}
	return [sha256.Size]byte(sum.Sum(nil))
}
