package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// TestJournal: where standard error leads to systemd's journal, each line begins
// with its level, the last one included; elsewhere none does.
func TestJournal(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, journal := range []bool{true, false} {
		log := filepath.Join(t.TempDir(), "log")
		if err := os.WriteFile(log, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(log)
		if err != nil {
			t.Fatal(err)
		}
		env := r.environment()
		if stat := info.Sys().(*syscall.Stat_t); journal {
			env = append(env, fmt.Sprintf("JOURNAL_STREAM=%d:%d", stat.Dev, stat.Ino))
		}
		c := relaytest.Command{Binary: relayBinary(t), Args: []string{"run", "--give-up-after", "1ms", "--amqp-url", "amqp://127.0.0.1:1/"}, Env: env, Stderr: log}
		p, err := c.Start()
		if err != nil {
			t.Fatal(err)
		}
		if code := p.Wait(); code != 75 {
			t.Errorf("exit code %d, want 75", code)
		}
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSpace(string(text)), "\n")
		last := lines[len(lines)-1]
		if journal != strings.HasPrefix(last, "<3>relay: gave up") || !journal && !strings.HasPrefix(last, "relay: gave up") {
			t.Errorf("journal %v: the last line is %q", journal, last)
		}
	}
	// The levels of lines in the log.
	log := filepath.Join(t.TempDir(), "log")
	file, err := os.Create(log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	c := relaytest.Command{
		Binary: relayBinary(t), Args: []string{"run", "--partitions", "1"}, Stderr: log,
		Env: append(r.environment(), fmt.Sprintf("JOURNAL_STREAM=%d:%d", stat.Dev, stat.Ino)),
	}
	p, err := c.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Kill() })
	relaytest.Wait(t, patience, "it follows", func() bool { return strings.Contains(p.Tail(), `"following"`) })
	if err := p.Terminate(); err != nil {
		t.Fatal(err)
	}
	if code := p.Wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	for line := range strings.Lines(p.Tail()) {
		if !strings.HasPrefix(line, `<6>{"level":"info"`) {
			t.Errorf("a line is %q", line)
		}
	}
}
