package relaytest

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// build compiles the module's main package, once for each test process, and
// keeps the bytes: a file would have nobody to remove it.
var build = sync.OnceValues(func() ([]byte, error) {
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "relaytest-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	binary := filepath.Join(dir, "relay")
	cmd := exec.Command("go", "build", "-o", binary, ".")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("relaytest: go build: %w\n%s", err, output)
	}
	return os.ReadFile(binary)
})

// Build returns the path of a relay binary, built from the module as it is. It
// is removed with the test.
func Build(t testing.TB) string {
	t.Helper()
	binary, err := build()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "relay")
	// A child that is forked while the file is open for writing makes the
	// file impossible to execute (ETXTBSY) until the child has execed.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	if err := os.WriteFile(path, binary, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// Command is a relay to be started.
type Command struct {
	Binary string
	Args   []string
	// Env is added to the surroundings, from which every RELAY_ variable is
	// taken out: NAME=value.
	Env []string
	// Stderr is the file to which standard output and error are appended.
	// Defaults to nowhere.
	Stderr string
}

// Process is a relay that was started.
type Process struct {
	cmd    *exec.Cmd
	stderr string
	before int64         // bytes that stderr had when it was started
	done   chan struct{} // closed when it has ended
}

// Start starts the relay, out of reach of a Ctrl-C in the terminal. The caller
// ends it, and waits for it.
func (c Command) Start() (*Process, error) {
	cmd := exec.Command(c.Binary, c.Args...)
	cmd.Env = append(surroundings(), c.Env...)
	cmd.SysProcAttr = apart()
	var before int64
	if c.Stderr != "" {
		file, err := os.OpenFile(c.Stderr, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
		if err != nil {
			return nil, err
		}
		defer file.Close() // the child has its own
		if info, err := file.Stat(); err == nil {
			before = info.Size()
		}
		cmd.Stdout, cmd.Stderr = file, file
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("relaytest: start the relay: %w", err)
	}
	p := &Process{cmd: cmd, stderr: c.Stderr, before: before, done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = cmd.Wait() // the state says it all
	}()
	return p, nil
}

// surroundings is the environment without the settings of a relay.
func surroundings() []string {
	var kept []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "RELAY_") {
			kept = append(kept, variable)
		}
	}
	return kept
}

// Kill ends the relay with SIGKILL, and waits until it is gone.
func (p *Process) Kill() error { return p.end(syscall.SIGKILL) }

// Terminate asks the relay to stop, with SIGTERM, and does not wait.
func (p *Process) Terminate() error { return p.signal(syscall.SIGTERM) }

// Signal sends the relay any other signal.
func (p *Process) Signal(s syscall.Signal) error { return p.signal(s) }

// PID is the relay's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the relay has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until the relay has ended, and returns its exit code: -1 when a
// signal ended it.
func (p *Process) Wait() int {
	<-p.done
	return p.cmd.ProcessState.ExitCode()
}

func (p *Process) end(s syscall.Signal) error {
	err := p.signal(s)
	<-p.done
	return err
}

func (p *Process) signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// spoke reports whether the relay has written anything.
func (p *Process) spoke() bool {
	info, err := os.Stat(p.stderr)
	return err == nil && info.Size() > p.before
}

func (p *Process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Tail returns the end of what the relay wrote, about 2 KB.
func (p *Process) Tail() string { return tail(p.stderr) }

// tail returns the end of a log, about 2 KB, or nothing.
func tail(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer file.Close()
	const length = 2048
	if info, err := file.Stat(); err == nil && info.Size() > length {
		_, _ = file.Seek(-length, io.SeekEnd) // at worst it is the whole file
	}
	text, _ := io.ReadAll(file)
	return string(text)
}
