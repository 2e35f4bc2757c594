package cli_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// process stands in for a test where what is made serves them all: it is
// cleaned up by TestMain.
type process struct {
	testing.TB // the test that asked first
	dir        string
	cleanups   []func()
}

func (p *process) Cleanup(f func())                { p.cleanups = append(p.cleanups, f) }
func (p *process) Error(args ...any)               { fmt.Fprintln(os.Stderr, args...) }
func (p *process) Errorf(text string, args ...any) { fmt.Fprintf(os.Stderr, text+"\n", args...) }
func (p *process) TempDir() string                 { return p.dir }

// shared is one binary and one MySQL server for the whole process. The server
// is not the one of make up, so that the load of other packages' tests is not
// in its log.
var shared struct {
	once    sync.Once
	process *process
	binary  string
	server  string // root DSN
}

func TestMain(m *testing.M) {
	code := m.Run()
	if p := shared.process; p != nil {
		for _, cleanup := range slices.Backward(p.cleanups) {
			cleanup()
		}
		os.RemoveAll(p.dir)
	}
	os.Exit(code)
}

func share(t testing.TB) {
	t.Helper()
	shared.once.Do(func() {
		dir, err := os.MkdirTemp("", "relay-cli-")
		if err != nil {
			t.Fatal(err)
		}
		shared.process = &process{TB: t, dir: dir}
		shared.binary = filepath.Join(dir, "relay")
		// The link stays when the test's own goes.
		if err := errors.Join(os.Chmod(dir, 0o755), os.Link(relaytest.Build(t), shared.binary)); err != nil {
			t.Fatal(err)
		}
		shared.server = relaytest.PrivateMySQL(shared.process)
	})
	if shared.server == "" {
		t.Fatal("the server of all tests did not start")
	}
}

// relayBinary is the relay, built once.
func relayBinary(t testing.TB) string {
	share(t)
	return shared.binary
}

// database makes a database and returns a root DSN to it.
func database(t testing.TB) string {
	t.Helper()
	share(t)
	return databaseOn(t, shared.server)
}

// databaseOn makes one on a server of which it has a root DSN.
func databaseOn(t testing.TB, server string) string {
	t.Helper()
	cfg := mustDSN(t, server)
	cfg.DBName = relaytest.Name(t)
	if _, err := relaytest.DB(t, server).Exec("CREATE DATABASE " + cfg.DBName); err != nil {
		t.Fatal(err)
	}
	return cfg.FormatDSN()
}
