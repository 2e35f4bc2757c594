package cli_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestScratch: the relay needs no file of the host's, as in a container made
// from scratch: no time zones, no users, no temporary directory. Without root
// it has the host's. Seen to fail without the import of time/tzdata.
func TestScratch(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	root := t.TempDir()
	binary, err := os.ReadFile(relayBinary(t))
	if err != nil {
		t.Fatal(err)
	}
	state := "/state"
	user := nobody()
	attributes := &syscall.SysProcAttr{Credential: user}
	if err := os.MkdirAll(root+state, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(root, "relay")
	syscall.ForkLock.RLock() // see relaytest.Build
	err = os.WriteFile(path, binary, 0o755)
	syscall.ForkLock.RUnlock()
	if err != nil {
		t.Fatal(err)
	}
	if user != nil {
		attributes.Chroot, path = root, "/relay"
		if err := os.Chown(root+state, int(user.Uid), int(user.Gid)); err != nil {
			t.Fatal(err)
		}
	} else {
		state = root + state
	}
	var output bytes.Buffer
	cmd := exec.CommandContext(t.Context(), path, "check", "--partitions", "1", "--time-zone", "Europe/Berlin")
	cmd.Env = []string{"RELAY_MYSQL_DSN=" + r.dsn, "RELAY_AMQP_URL=" + r.amqp, "RELAY_EXCHANGE=" + r.exchange, "STATE_DIRECTORY=" + state}
	cmd.Dir, cmd.Stdout, cmd.Stderr, cmd.SysProcAttr = "/", &output, &output, attributes
	if err := cmd.Run(); err != nil {
		t.Errorf("relay check: %v\n%s", err, output.String())
	}
}
