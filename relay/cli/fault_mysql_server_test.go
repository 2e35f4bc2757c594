package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
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
	command string // of servers.sh
	options []string
	process *os.Process   // of servers.sh, which the server ends with
	exited  chan struct{} // closed when it has ended
}

// newMysqld starts one, and ends it with the test.
func newMysqld(t testing.TB, options ...string) *mysqld {
	t.Helper()
	return startServer(t, "mysqld", options...)
}

// startServer starts a mysqld or mariadbd.
func startServer(t testing.TB, command string, options ...string) *mysqld {
	t.Helper()
	m := &mysqld{t: t, dir: t.TempDir(), command: command, options: options}
	for m.port == 0 { // one from which the kernel takes none for clients
		port := 20000 + rand.IntN(10000)
		if listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			listener.Close()
			m.port = port
		}
	}
	m.start()
	t.Cleanup(m.kill) // nobody needs its data
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
	cmd := exec.Command(script, append([]string{m.command, m.dir, strconv.Itoa(m.port)}, m.options...)...)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	exited := make(chan struct{})
	m.process, m.exited = cmd.Process, exited
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
func (m *mysqld) terminate() {
	m.t.Helper()
	if err := m.process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		m.t.Error(err)
	}
	<-m.exited
}

// kill ends the server as a power cut would.
func (m *mysqld) kill() {
	m.t.Helper()
	select {
	case <-m.exited:
		return
	default:
	}
	kill := exec.Command("docker", "kill", m.container())
	if m.container() == "" {
		kill = exec.Command("kill", "-KILL", strings.TrimSpace(string(mustRead(m.t, filepath.Join(m.dir, "pid")))))
	}
	if output, err := kill.CombinedOutput(); err != nil {
		m.t.Errorf("%v: %s", err, output)
	}
	<-m.exited
}

// container is the name of the server's; empty where there is no Docker.
func (m *mysqld) container() string {
	m.t.Helper()
	name, err := os.ReadFile(filepath.Join(m.dir, "container"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		m.t.Fatal(err)
	}
	return strings.TrimSpace(string(name))
}

// peer is where another server of the same kind reaches this one.
func (m *mysqld) peer() (host string, port int) {
	m.t.Helper()
	if m.container() == "" {
		return "127.0.0.1", m.port
	}
	address, err := exec.Command("docker", "inspect", "-f", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", m.container()).Output()
	if err != nil {
		m.t.Fatal(err)
	}
	return strings.TrimSpace(string(address)), 3306
}
