package relaytest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// privateLimit is how long a private server may take to start, or to stop.
const privateLimit = 90 * time.Second

// PrivateMySQL starts a MySQL server for this test alone, with options as on
// mysqld's command line ("--gtid-mode=OFF"), ends it in the test's cleanup, and
// returns a root DSN to it, in no database.
func PrivateMySQL(t testing.TB, options ...string) string {
	t.Helper()
	return privateSource(t, "mysqld", options)
}

// PrivateMariaDB is PrivateMySQL for MariaDB.
func PrivateMariaDB(t testing.TB, options ...string) string {
	t.Helper()
	return privateSource(t, "mariadbd", options)
}

func privateSource(t testing.TB, kind string, options []string) string {
	t.Helper()
	port := freePort(t)
	server := startPrivate(t, kind, t.TempDir(), port, options...)
	t.Cleanup(func() { server.end(t) })

	dsn := fmt.Sprintf("root:relay@tcp(127.0.0.1:%d)/", port)
	db := DB(t, dsn)
	server.await(t, func() bool { return db.Ping() == nil })
	return dsn
}

// privateServer is a process of servers.sh in the foreground.
type privateServer struct {
	kind   string // "mysqld", "mariadbd", "rabbitmq"
	cmd    *exec.Cmd
	output *bytes.Buffer // complete once exited is closed
	exited chan struct{}
}

// startPrivate starts a server on what is in dir. The caller ends it.
func startPrivate(t testing.TB, kind, dir string, port int, options ...string) *privateServer {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{kind, dir, strconv.Itoa(port)}, options...)
	s := &privateServer{kind: kind, output: &bytes.Buffer{}, exited: make(chan struct{})}
	s.cmd = exec.Command(filepath.Join(root, "testdata", "servers.sh"), args...)
	s.cmd.Dir = root
	s.cmd.Stdout, s.cmd.Stderr = s.output, s.output
	s.cmd.WaitDelay = time.Second
	if err := s.cmd.Start(); err != nil {
		t.Fatalf("relaytest: start a private %s: %v", kind, err)
	}
	go func() {
		defer close(s.exited)
		_ = s.cmd.Wait() // the exit code after SIGTERM says nothing
	}()
	return s
}

// await waits until the server answers.
func (s *privateServer) await(t testing.TB, answers func() bool) {
	t.Helper()
	Wait(t, privateLimit, "the private "+s.kind+" answers", func() bool {
		select {
		case <-s.exited:
			t.Fatalf("relaytest: the private %s ended:\n%s", s.kind, s.output)
		default:
		}
		return answers()
	})
}

// end asks the server to stop, and waits: the directory under it goes next.
func (s *privateServer) end(t testing.TB) {
	_ = s.cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended
	select {
	case <-s.exited:
	case <-time.After(privateLimit):
		_ = s.cmd.Process.Kill()
		t.Errorf("relaytest: the private %s did not stop after SIGTERM", s.kind)
	}
}

// freePort finds a port below the range from which the kernel takes the ports
// of clients, so that no connection takes it before the server does.
func freePort(t testing.TB) int {
	t.Helper()
	port, err := findPort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// findPort is freePort for what is no test.
func findPort() (int, error) {
	for range 100 {
		port := 20000 + rand.IntN(10000)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			listener.Close()
			return port, nil
		}
	}
	return 0, errors.New("relaytest: no free port from 20000 to 29999")
}
