package relaytest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shell starts a script in the place of a relay.
func shell(t *testing.T, script string, env ...string) *Process {
	t.Helper()
	command := Command{
		Binary: "/bin/sh",
		Args:   []string{"-c", script},
		Env:    env,
		Stderr: filepath.Join(t.TempDir(), "log"),
	}
	process, err := command.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { process.Kill() })
	return process
}

func TestProcessExitCodeAndOutput(t *testing.T) {
	t.Setenv("RELAY_EXCHANGE", "of the surroundings")
	p := shell(t, `echo "$GIVEN, $RELAY_EXCHANGE" >&2; exit 78`, "GIVEN=given")
	if code := p.Wait(); code != 78 {
		t.Errorf("exit code %d, want 78", code)
	}
	if tail := p.Tail(); tail != "given, \n" {
		t.Errorf("said %q", tail)
	}
	if err := p.Kill(); err != nil {
		t.Errorf("kill what has ended: %v", err)
	}
}

func TestProcessTerminate(t *testing.T) {
	p := shell(t, `trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done`)
	Wait(t, 10*time.Second, "the script is ready", func() bool { return strings.Contains(p.Tail(), "ready") })
	if err := p.Terminate(); err != nil {
		t.Fatal(err)
	}
	if code := p.Wait(); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
}

// A relay that has not got as far as to hear SIGTERM is not sent it: seen to
// fail, with the exit code of a process that a signal ended, when it was.
func TestTerminateAwaitsTheFirstWord(t *testing.T) {
	p := shell(t, `sleep 0.3; trap 'exit 3' TERM; echo ready; while :; do sleep 0.01; done`)
	if err := terminate(p); err != nil {
		t.Fatal(err)
	}
	if code := p.Wait(); code != 3 {
		t.Errorf("exit code %d, want 3", code)
	}
}

func TestProcessKill(t *testing.T) {
	p := shell(t, `trap '' TERM; while :; do sleep 0.01; done`)
	if err := p.Kill(); err != nil {
		t.Fatal(err)
	}
	if code := p.Wait(); code != -1 {
		t.Errorf("exit code %d, want -1: by a signal", code)
	}
}

func TestTailIsTheEnd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	if err := os.WriteFile(path, []byte(strings.Repeat("x", 5000)+"end"), 0o600); err != nil {
		t.Fatal(err)
	}
	tail := (&Process{stderr: path}).Tail()
	if len(tail) != 2048 || !strings.HasSuffix(tail, "xend") {
		t.Errorf("%d bytes, ending in %q", len(tail), tail[len(tail)-4:])
	}
}
