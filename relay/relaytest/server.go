package relaytest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// serverLimit is how long a server of a test's own may take to start, or to
// stop.
const serverLimit = 90 * time.Second

// The kinds of servers, as testdata/servers.sh calls them.
const (
	kindMySQL   = "mysqld"
	kindMariaDB = "mariadbd"
	kindBroker  = "rabbitmq"
)

// server is a MySQL or MariaDB server or a broker of a test's or a soak's own: it can be
// stopped, killed and started again on its data, at the same port. One
// goroutine at a time uses it.
type server struct {
	kind    string
	root    string // of the module
	dir     string // its own, with all that it keeps
	port    int
	options []string
	env     []string // settings for testdata/servers.sh

	exited chan struct{} // closed when it has ended; nil: never started
}

// newServer finds a place for a server, and does not start it. Options are
// those of mysqld's command line.
func newServer(kind, dir string, options ...string) (*server, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	port, err := findPort()
	return &server{kind: kind, root: root, dir: dir, port: port, options: options}, err
}

// findPort finds a port below the range from which the kernel takes the ports
// of clients, so that no connection takes it before the server does.
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

func (s *server) addr() string    { return fmt.Sprintf("127.0.0.1:%d", s.port) }
func (s *server) logPath() string { return s.dir + ".log" }
func (s *server) pidPath() string { return filepath.Join(s.dir, "pid") }

// url is a root DSN to a MySQL server, in no database; or a broker's URL, of
// the vhost / as guest.
func (s *server) url() string { return urlAt(s.kind, s.addr()) }

// urlAt is the url of a server that is reached at another address.
func urlAt(kind, addr string) string {
	if kind != kindBroker {
		return "root:relay@tcp(" + addr + ")/"
	}
	return "amqp://guest:guest@" + addr + "/"
}

func (s *server) answers(ctx context.Context) bool {
	if s.kind != kindBroker {
		return execOn(ctx, s.url(), "DO 1") == nil
	}
	return onBroker(s.url(), func(*amqp.Channel) error { return nil }) == nil
}

func (s *server) script(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, filepath.Join(s.root, "testdata", "servers.sh"), args...)
	cmd.Dir = s.root
	cmd.SysProcAttr = apart()
	return cmd
}

// start starts the server and waits until it answers. A broker chooses ports
// beside its own, which others can take before it does: one that ends at once is
// started again, twice at most.
func (s *server) start(ctx context.Context) error {
	for left := 2; ; left-- {
		ended, err := s.try(ctx)
		if !ended || left == 0 {
			return err
		}
	}
}

// try is start, once. It tells whether the server ended by itself.
func (s *server) try(ctx context.Context) (ended bool, err error) {
	output, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return false, err
	}
	defer output.Close() // the child has its own
	os.Remove(s.pidPath())
	cmd := s.script(context.Background(), append([]string{s.kind, s.dir, strconv.Itoa(s.port)}, s.options...)...)
	cmd.Stdout, cmd.Stderr, cmd.Env = output, output, append(os.Environ(), s.env...)
	if err := cmd.Start(); err != nil {
		return false, fmt.Errorf("relaytest: start a private %s: %w", s.kind, err)
	}
	exited := make(chan struct{})
	s.exited = exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // how a server ends after a signal says nothing
	}()
	ctx, cancel := context.WithTimeout(ctx, serverLimit)
	defer cancel()
	err = poll(ctx, func() bool {
		select {
		case <-exited:
			ended = true
		default:
		}
		return ended || s.answers(ctx)
	})
	if ended || err != nil {
		return ended, fmt.Errorf("relaytest: the private %s does not answer:\n%s", s.kind, tail(s.logPath()))
	}
	return false, nil
}

// end sends a signal to the server and waits until it is gone.
func (s *server) end(signal syscall.Signal) error {
	if s.exited == nil {
		return nil
	}
	limited, cancel := context.WithTimeout(context.Background(), serverLimit)
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
// Meanwhile runs while it is away, and may end a test.
func (s *server) again(ctx context.Context, signal syscall.Signal, meanwhile func()) (err error) {
	if s.kind == kindBroker && signal == syscall.SIGKILL {
		if err := s.ctl(ctx, "eval", syncNames); err != nil {
			return err
		}
	}
	if err := s.end(signal); err != nil {
		return err
	}
	defer func() { err = s.start(ctx) }()
	meanwhile()
	return nil
}

// syncNames has a broker write down where the logs of its quorum queues are,
// before it is killed. It keeps that in a DETS file, quorum/NODE/names.dets,
// and leaves the queue that was declared last in memory for about a second; no
// confirm waits for that. Killed before, RabbitMQ 4.3.6 does not find that
// queue's log ("configured member of queue … was not found on this node.
// Starting member as a new one. Context: name_not_registered") and starts it
// empty: a broker of one node loses what it had confirmed. Proved with a
// publisher that waits for each confirm, and no relay: halted 0.3 s after the
// declaration, the last queue was missing from the file and came back empty 5
// times of 5, and 5 times of 5 whole after this. Without it TestBrokerFaults/crash
// in relay/cli loses events.
const syncNames = "#{names := #{directory_rev := Names}} = ra_system:fetch(quorum_queues), ok = dets:sync(Names)."

// query runs rabbitmqctl on a broker and returns what it printed.
func (s *server) query(ctx context.Context, args ...string) (string, error) {
	output, err := s.script(ctx, append([]string{"rabbitmqctl", s.dir}, args...)...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("relaytest: rabbitmqctl %s: %w\n%s", strings.Join(args, " "), err, output)
	}
	return string(output), nil
}

// ctl is query for what prints nothing of interest.
func (s *server) ctl(ctx context.Context, args ...string) error {
	_, err := s.query(ctx, args...)
	return err
}

// policy sets a broker's policy for the queues that pattern matches. The one
// with the highest priority holds, alone.
func (s *server) policy(ctx context.Context, name, pattern, definition string, priority int) error {
	return s.ctl(ctx, "set_policy", name, pattern, definition, "--priority", strconv.Itoa(priority), "--apply-to", "queues")
}
