//go:build faults

package cli_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// mysqld is a server of a test's own that can be stopped, killed and started
// again. Where none of that is wanted, relaytest.PrivateMySQL is simpler.
type mysqld struct {
	t       testing.TB
	dir     string // the server's, with its data
	port    int
	options []string
	binary  string        // in the server's own view of the files; empty: that of the packages
	exited  chan struct{} // closed when it has ended
}

// newMysqld starts one, and ends it with the test.
func newMysqld(t testing.TB, options ...string) *mysqld {
	t.Helper()
	m := &mysqld{t: t, dir: t.TempDir(), options: options}
	for m.port == 0 { // one from which the kernel takes none for clients
		port := 20000 + rand.IntN(10000)
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			listener.Close()
			m.port = port
		}
	}
	m.start()
	t.Cleanup(m.terminate)
	return m
}

func (m *mysqld) addr() string { return fmt.Sprintf("127.0.0.1:%d", m.port) }

// root is a root DSN, in no database.
func (m *mysqld) root() string { return "root:relay@tcp(" + m.addr() + ")/" }

// start starts the server, and waits until it answers.
func (m *mysqld) start() {
	m.t.Helper()
	script, err := filepath.Abs("../../testdata/servers.sh")
	if err != nil {
		m.t.Fatal(err)
	}
	var output bytes.Buffer
	cmd := exec.Command(script, append([]string{"mysqld", m.dir, strconv.Itoa(m.port)}, m.options...)...)
	if m.binary != "" { // as the script does it, on data that are there already
		cmd = exec.Command("unshare", append([]string{"--mount", script, "enter", filepath.Join(filepath.Dir(script), "../.dev/mnt"), m.dir,
			"mysql", m.binary, "--no-defaults", "--basedir=/usr", "--datadir=/srv/data", "--tmpdir=/srv/tmp", "--socket=/srv/tmp/mysql.sock", "--pid-file=/srv/tmp/mysql.pid",
			"--log-bin=binlog", "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--mysqlx=OFF", "--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", m.port)}, m.options...)...)
	}
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	exited := make(chan struct{})
	m.exited = exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // that it has ended is all
	}()
	db := relaytest.DB(m.t, m.root())
	relaytest.Wait(m.t, 2*patience, "the server answers", func() bool {
		select {
		case <-exited:
			m.t.Fatalf("the server ended:\n%s", output.Bytes())
		default:
		}
		return db.Ping() == nil
	})
}

// terminate stops the server cleanly.
func (m *mysqld) terminate() { m.end(syscall.SIGTERM) }

// kill ends the server as a power cut would.
func (m *mysqld) kill() { m.end(syscall.SIGKILL) }

func (m *mysqld) end(signal syscall.Signal) {
	m.t.Helper()
	select {
	case <-m.exited:
		return
	default:
	}
	text, err := os.ReadFile(filepath.Join(m.dir, "pid"))
	if err != nil {
		m.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		m.t.Fatal(err)
	}
	if err := syscall.Kill(pid, signal); err != nil {
		m.t.Error(err)
	}
	<-m.exited
}
