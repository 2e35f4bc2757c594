package relaytest

import (
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
)

// MySQLServer is a MySQL server of a program's own, as PrivateMySQL is a
// test's. One goroutine at a time uses it.
type MySQLServer struct {
	DSN string // of root, in no database

	server *server
}

// StartMySQL starts a MySQL server in dir, an absolute path, with options as on
// mysqld's command line. The caller closes it.
func StartMySQL(ctx context.Context, dir string, options ...string) (*MySQLServer, error) {
	s, err := newServer(kindMySQL, dir, options...)
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		_ = s.end(syscall.SIGKILL) // the error says it all
		return nil, err
	}
	return &MySQLServer{DSN: s.url(), server: s}, nil
}

// Close kills the server and removes all that it has.
func (m *MySQLServer) Close() error {
	if err := m.server.end(syscall.SIGKILL); err != nil {
		return err
	}
	return os.RemoveAll(m.server.dir)
}

// PID is the server's process id.
func (m *MySQLServer) PID() (int, error) {
	text, err := os.ReadFile(m.server.pidPath())
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// Copy is the command that copies the server's log files, from the one named
// first to the last, byte for byte into dir, an absolute path, as mysqlbinlog
// does it from a remote server. It is to be started.
func (m *MySQLServer) Copy(ctx context.Context, first, dir string) *exec.Cmd {
	cmd := m.server.script(ctx, "mysqlbinlog", dir,
		"--read-from-remote-server", "--raw", "--to-last-log", "--result-file=./",
		"--host=127.0.0.1", "--port="+strconv.Itoa(m.server.port), "--user=root",
		"--ssl-mode=DISABLED", "--get-server-public-key", first)
	cmd.Env = append(os.Environ(), "MYSQL_PWD=relay")
	return cmd
}
