package relaytest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// server is a MySQL server or a broker of a soak's own: it can be stopped,
// killed and started again on its data, at the same port. One goroutine at a
// time uses it.
type server struct {
	kind    string // "mysqld" or "rabbitmq", as testdata/servers.sh calls it
	root    string // of the module
	dir     string // its own, with all that it keeps
	port    int
	options []string
	ping    func() error

	exited chan struct{} // closed when it has ended; nil: never started
}

// newServer finds a place for a server, and does not start it.
func newServer(kind, dir string, options ...string) (*server, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	port, err := findPort()
	return &server{kind: kind, root: root, dir: dir, port: port, options: options}, err
}

func (s *server) addr() string    { return fmt.Sprintf("127.0.0.1:%d", s.port) }
func (s *server) logPath() string { return s.dir + ".log" }

func (s *server) script(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.root, "testdata", "servers.sh"), args...)
	cmd.Dir = s.root
	cmd.SysProcAttr = apart()
	return cmd
}

// start starts the server and waits until it answers.
func (s *server) start(ctx context.Context) error {
	output, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer output.Close() // the child has its own
	os.Remove(s.pidPath())
	cmd := s.script(context.Background(), append([]string{s.kind, s.dir, strconv.Itoa(s.port)}, s.options...)...)
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("relaytest: start a private %s: %w", s.kind, err)
	}
	exited := make(chan struct{})
	s.exited = exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // how a server ends after a signal says nothing
	}()
	ctx, cancel := context.WithTimeout(ctx, privateLimit)
	defer cancel()
	ended := false
	err = poll(ctx, func() bool {
		select {
		case <-exited:
			ended = true
		default:
		}
		return ended || s.ping() == nil
	})
	if ended || err != nil {
		return fmt.Errorf("relaytest: the private %s does not answer: see %s", s.kind, s.logPath())
	}
	return nil
}

func (s *server) pidPath() string { return filepath.Join(s.dir, "pid") }

// end sends a signal to the server and waits until it is gone.
func (s *server) end(signal syscall.Signal) error {
	if s.exited == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(context.Background(), privateLimit)
	defer cancel()
	var pid int
	err := poll(limited, func() bool { // it may only just have been started
		select {
		case <-s.exited:
			return true // its process id may be another's by now
		default:
		}
		text, err := os.ReadFile(s.pidPath())
		if err != nil {
			return false
		}
		pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		return err == nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("relaytest: the private %s wrote no process id to %s", s.kind, s.pidPath())
	case pid == 0:
		return nil
	}
	if err := syscall.Kill(pid, signal); err != nil && err != syscall.ESRCH {
		return fmt.Errorf("relaytest: end the private %s: %w", s.kind, err)
	}
	select {
	case <-s.exited:
		return nil
	case <-limited.Done():
		return fmt.Errorf("relaytest: the private %s, process %d, does not end after %v", s.kind, pid, signal)
	}
}

// again ends the server, by SIGTERM or SIGKILL, and starts it on its data.
func (s *server) again(ctx context.Context, signal syscall.Signal) error {
	if err := s.end(signal); err != nil {
		return err
	}
	return s.start(ctx)
}

// ctl runs rabbitmqctl on a broker.
func (s *server) ctl(ctx context.Context, args ...string) error {
	output, err := s.script(ctx, append([]string{"rabbitmqctl", s.dir}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("relaytest: rabbitmqctl %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return nil
}

// policy sets a broker's policy for the queues that pattern matches. The one
// with the highest priority holds, alone.
func (s *server) policy(ctx context.Context, name, pattern, definition string, priority int) error {
	return s.ctl(ctx, "set_policy", name, pattern, definition, "--priority", strconv.Itoa(priority), "--apply-to", "queues")
}
