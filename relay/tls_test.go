package relay

import (
	"crypto/tls"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/relay/certs"
	"github.com/outboxrelay/relay/relay/relaytest"
)

// TestAnotherCertificate: a refusal is worth another attempt when the files of
// its side were changed since the session began, and only then; files that are
// of no use for a while are waited for.
func TestAnotherCertificate(t *testing.T) {
	dir := t.TempDir()
	ca := func() { relaytest.Write(t, dir, "ca.pem", relaytest.NewAuthority(t, "Authority").Certificate) }
	ca()
	r := &supervisor{sourceTLS: certificates{files: certs.Files{CA: filepath.Join(dir, "ca.pem")}}}
	var config, broker *tls.Config
	begin := func() {
		t.Helper()
		if err := r.sourceTLS.next(&config); err != nil {
			t.Fatal(err)
		}
		if err := r.brokerTLS.next(&broker); err != nil || broker != nil {
			t.Fatalf("got %v, %v of no files", broker, err)
		}
	}
	begin()
	refused := fmt.Errorf("%w: unknown authority", binlog.ErrTLS)
	for _, err := range []error{refused, binlog.ErrAuth, exchange.ErrTLS} {
		if r.anotherCertificate(err) {
			t.Errorf("%v with the same files is tried again", err)
		}
	}
	before := config
	ca()
	if !r.anotherCertificate(refused) || !r.anotherCertificate(binlog.ErrAuth) {
		t.Error("the files are new, and it is not tried again")
	}
	if r.anotherCertificate(exchange.ErrTLS) || r.anotherCertificate(binlog.ErrPurged) {
		t.Error("what the files do not mend is tried again")
	}
	begin()
	if config == before || config.RootCAs.Equal(before.RootCAs) {
		t.Error("the new file is not read")
	}
	if r.anotherCertificate(refused) {
		t.Error("the new files are refused, and tried again")
	}
	if err := os.Remove(filepath.Join(dir, "ca.pem")); err != nil {
		t.Fatal(err)
	}
	if err := r.sourceTLS.next(&config); err == nil || lasting(err) != 0 {
		t.Errorf("got %v of a file that is away, want what may pass", err)
	}
}
