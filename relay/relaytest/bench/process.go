package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// child is a process that the bench has started.
type child struct {
	cmd   *exec.Cmd
	log   string // path of what it wrote to standard error
	began time.Time
	ended chan struct{}
}

// spawn starts a process, out of reach of a Ctrl-C in the terminal; it ends
// when the bench does. What it writes to standard output goes to out, nil:
// to its log.
func (b *bench) spawn(out io.Writer, env []string, binary string, args ...string) (*child, error) {
	c := &child{cmd: exec.Command(binary, args...), ended: make(chan struct{})}
	c.cmd.Env = env
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	file, err := os.CreateTemp(b.dir, "*.log")
	if err != nil {
		return nil, err
	}
	defer file.Close() // the child has its own
	c.log, c.cmd.Stdout, c.cmd.Stderr = file.Name(), out, file
	if out == nil {
		c.cmd.Stdout = file
	}
	c.began = time.Now()
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	go func() {
		defer close(c.ended)
		_ = c.cmd.Wait() // the state says it all
	}()
	return c, nil
}

// stop ends the process with SIGTERM, and after 30 seconds with SIGKILL.
func (c *child) stop() error {
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-c.ended:
		return nil
	case <-time.After(30 * time.Second):
		err := c.cmd.Process.Kill()
		<-c.ended
		return errors.Join(err, fmt.Errorf("%s did not stop in 30 s: %s", filepath.Base(c.cmd.Path), c.tail()))
	}
}

// tail is the end of what the process wrote.
func (c *child) tail() string {
	text, _ := os.ReadFile(c.log) // it may be gone
	return strings.TrimSpace(string(text[max(0, len(text)-1500):]))
}

// cpu is the processor time, of user and system, that a process has taken.
func cpu(pid int) (time.Duration, error) {
	// The clock of a process, as clock_getcpuclockid(3) has it: CPUCLOCK_SCHED is 2.
	var now unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &now); err != nil {
		return 0, fmt.Errorf("processor time of process %d: %w", pid, err)
	}
	return time.Duration(now.Nano()), nil
}

// mysqldCPU is the processor time of the MySQL server so far.
func (b *bench) mysqldCPU() (time.Duration, error) {
	text, err := os.ReadFile(filepath.Join(b.dir, "mysqld", "pid"))
	if err != nil {
		return 0, err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, err
	}
	return cpu(pid)
}

// relayProcess is a relay that runs.
type relayProcess struct {
	*child
	listen     string
	checkpoint string
}

// runRelay starts the relay behind a checkpoint, with further flags of `relay
// run`. The caller stops it.
func (b *bench) runRelay(dsn, broker, checkpoint string, flags ...string) (*relayProcess, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	listen := listener.Addr().String()
	listener.Close()
	args := append([]string{"run", "--mysql-dsn", dsn, "--amqp-url", broker, "--checkpoint", checkpoint, "--listen", listen}, flags...)
	c, err := b.spawn(nil, surroundingsOfRelay(), b.relay, args...)
	if err != nil {
		return nil, err
	}
	return &relayProcess{child: c, listen: listen, checkpoint: checkpoint}, nil
}

// surroundingsOfRelay is the environment without settings of a relay.
func surroundingsOfRelay() []string {
	var kept []string
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "RELAY_") {
			kept = append(kept, variable)
		}
	}
	return kept
}

// metric asks the relay for one of its metrics.
func (p *relayProcess) metric(ctx context.Context, name string) (float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.listen+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	for lines := bufio.NewScanner(response.Body); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), name+" "); found {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("/metrics has no %s", name)
}

// reading is where a relay was at a moment.
type reading struct {
	confirmed int64
	after     time.Duration // since its exec
	cpu       time.Duration
}

// awaitLimit is how long a relay may take for anything here.
const awaitLimit = 10 * time.Minute

// await waits until the relay has had n confirms. It asks often only when the
// last one is near, so that asking costs the relay next to nothing: the next
// question comes after half of the time that the rest should take.
func (p *relayProcess) await(ctx context.Context, n int) (reading, error) {
	ctx, cancel := context.WithTimeout(ctx, awaitLimit)
	defer cancel()
	const shortest, longest = 2 * time.Millisecond, 500 * time.Millisecond
	var before reading
	for {
		confirmed, err := p.metric(ctx, "relay_events_confirmed_total")
		now := reading{confirmed: int64(confirmed), after: time.Since(p.began)}
		pause := shortest // it has not begun
		switch {
		case err == nil && now.confirmed >= int64(n):
			now.cpu, err = cpu(p.cmd.Process.Pid)
			return now, err
		case err == nil && now.confirmed > before.confirmed && before.confirmed > 0:
			perEvent := float64(now.after-before.after) / float64(now.confirmed-before.confirmed)
			rest := time.Duration(perEvent * float64(int64(n)-now.confirmed))
			pause = min(max(rest/2, shortest), longest)
		}
		if now.confirmed > 0 {
			before = now
		}
		select {
		case <-time.After(pause):
		case <-p.ended:
			return now, fmt.Errorf("the relay ended by itself: %s", p.tail())
		case <-ctx.Done():
			return now, fmt.Errorf("the relay has had %d of %d confirms: %w: %s", now.confirmed, n, ctx.Err(), p.tail())
		}
	}
}

// profileInto writes a profile of the processor time of a relay that runs with
// --debug, over some seconds from now.
func (p *relayProcess) profileInto(ctx context.Context, path string, seconds int) error {
	var response *http.Response
	for {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, fmt.Sprintf("http://%s/debug/pprof/profile?seconds=%d", p.listen, seconds), nil)
		if err != nil {
			return err
		}
		if response, err = http.DefaultClient.Do(request); err == nil {
			break
		}
		select { // it does not listen yet
		case <-time.After(5 * time.Millisecond):
		case <-p.ended:
			return fmt.Errorf("the relay ended by itself: %s", p.tail())
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("no profile: %s", response.Status)
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, response.Body)
	return errors.Join(err, file.Close())
}
