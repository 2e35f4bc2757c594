package relaytest

import (
	"bytes"
	"database/sql"
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
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	dir, port := t.TempDir(), freePort(t)
	var output bytes.Buffer
	args := append([]string{"mysqld", dir, strconv.Itoa(port)}, options...)
	cmd := exec.Command(filepath.Join(root, "testdata", "servers.sh"), args...)
	cmd.Dir = root
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.WaitDelay = time.Second
	if err := cmd.Start(); err != nil {
		t.Fatalf("relaytest: start a private mysqld: %v", err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // the exit code after SIGTERM says nothing
	}()
	t.Cleanup(func() { endPrivate(t, cmd, exited) })

	dsn := fmt.Sprintf("root:relay@tcp(127.0.0.1:%d)/", port)
	db := DB(t, dsn)
	Wait(t, privateLimit, "the private mysqld answers", func() bool {
		select {
		case <-exited:
			t.Fatalf("relaytest: the private mysqld ended:\n%s", output.Bytes())
		default:
		}
		return answers(db)
	})
	return dsn
}

// endPrivate asks the server to stop, and waits: the directory under it goes next.
func endPrivate(t testing.TB, cmd *exec.Cmd, exited <-chan struct{}) {
	_ = cmd.Process.Signal(syscall.SIGTERM) // fails only when it has ended
	select {
	case <-exited:
	case <-time.After(privateLimit):
		_ = cmd.Process.Kill()
		t.Error("relaytest: the private mysqld did not stop after SIGTERM")
	}
}

func answers(db *sql.DB) bool { return db.Ping() == nil }

// freePort finds a port below the range from which the kernel takes the ports
// of clients, so that no connection takes it before the server does.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 20000 + rand.IntN(10000)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			listener.Close()
			return port
		}
	}
	t.Fatal("relaytest: no free port from 20000 to 29999")
	return 0
}
