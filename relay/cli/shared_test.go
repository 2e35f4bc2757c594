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
	"github.com/outboxrelay/relay/schema"
)

// process stands in for a test where what is made serves them all: it is
// cleaned up by TestMain.
type process struct {
	testing.TB // the test that asked first
	dir        string
	parent     *process // whose cleanups are this one's too
	mu         sync.Mutex
	cleanups   []func() // guarded by mu
}

func (p *process) Cleanup(f func()) {
	if p.parent != nil {
		p.parent.Cleanup(f)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cleanups = append(p.cleanups, f)
}
func (p *process) Error(args ...any)               { fmt.Fprintln(os.Stderr, args...) }
func (p *process) Errorf(text string, args ...any) { fmt.Fprintf(os.Stderr, text+"\n", args...) }
func (p *process) TempDir() string {
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		p.TB.Fatal(err)
	}
	return p.dir
}

// shared is one binary and a server of each flavor for the whole process. They
// are not those of make up, so that the load of other packages' tests is not in
// their logs.
var shared struct {
	once    sync.Once
	process *process
	binary  string
	mysql   sharedServer
	mariadb sharedServer
}

// sharedServer is started by the first test that asks for it.
type sharedServer struct {
	once sync.Once
	dsn  string // of root
}

func (s *sharedServer) get(t testing.TB, start func(testing.TB, ...string) string) string {
	t.Helper()
	share(t)
	s.once.Do(func() {
		s.dsn = start(&process{TB: t, dir: filepath.Join(shared.process.dir, relaytest.Name(t)), parent: shared.process})
	})
	if s.dsn == "" {
		t.Fatal("the server of all tests did not start")
	}
	return s.dsn
}

// source is a flavor of server to test on.
type source struct {
	name    string
	shared  func(testing.TB) string            // root DSN to the server of all tests
	private func(testing.TB, ...string) string // the same to a server of the test's own
}

var sources = []source{
	{"mysql", func(t testing.TB) string { return shared.mysql.get(t, relaytest.PrivateMySQL) }, relaytest.PrivateMySQL},
	{"mariadb", func(t testing.TB) string { return shared.mariadb.get(t, relaytest.PrivateMariaDB) }, relaytest.PrivateMariaDB},
}

// onEach runs a test on each flavor.
func onEach(t *testing.T, test func(*testing.T, source)) {
	t.Parallel()
	for _, on := range sources {
		t.Run(on.name, func(t *testing.T) { t.Parallel(); test(t, on) })
	}
}

// rig makes one with the seed table.
func (on source) rig(t testing.TB) *rig {
	t.Helper()
	return rigOn(t, on.database(t), schema.SQL)
}

// database makes one on the server of all tests.
func (on source) database(t testing.TB) string {
	t.Helper()
	return databaseOn(t, on.shared(t))
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
	})
	if shared.binary == "" {
		t.Fatal("the relay was not built")
	}
}

// relayBinary is the relay, built once.
func relayBinary(t testing.TB) string {
	share(t)
	return shared.binary
}

// database makes a database on MySQL and returns a root DSN to it.
func database(t testing.TB) string {
	t.Helper()
	return sources[0].database(t)
}

// databaseOn makes one on a server of which it has a root DSN.
func databaseOn(t testing.TB, server string) string {
	t.Helper()
	cfg := mustDSN(t, server)
	cfg.DBName = relaytest.Name(t)
	if _, err := relaytest.DB(t, server).Exec("CREATE DATABASE " + cfg.DBName + " CHARACTER SET utf8mb4"); err != nil {
		t.Fatal(err)
	}
	return cfg.FormatDSN()
}
