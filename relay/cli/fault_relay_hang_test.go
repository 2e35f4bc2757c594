package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// freezable mounts a small ext4 file system for the rig's checkpoint, which
// freeze can stop: what writes to it then hangs. False: this user cannot.
func (r *rig) freezable() (freeze, thaw func(), ok bool) {
	r.t.Helper()
	image, dir := filepath.Join(r.dir, "image"), filepath.Join(r.dir, "disk")
	tool := func(args ...string) error { return exec.Command(args[0], args[1:]...).Run() }
	if err := os.WriteFile(image, make([]byte, 16<<20), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	if tool("mkfs.ext4", "-q", image) != nil || tool("mount", "-o", "loop", image, dir) != nil {
		return nil, nil, false
	}
	r.dir = dir
	thaw = func() { _ = tool("fsfreeze", "-u", dir) } // it may not be frozen
	freeze = func() {
		if err := tool("fsfreeze", "-f", dir); err != nil {
			r.t.Fatal(err)
		}
		r.t.Cleanup(thaw) // before the relay is killed, which would wait for the disk
	}
	r.t.Cleanup(func() {
		if err := tool("umount", "-l", dir); err != nil {
			r.t.Error(err)
		}
	})
	return freeze, thaw, true
}

// TestFaultRelayDiskHangs: a disk that does not come back from the save of the
// checkpoint. The relay says so and takes nothing new in, since a crash would
// send all of it again; when the disk is back it goes on, and nothing comes
// twice. Seen to fail with a session that relays on: all 2,000 are published.
func TestFaultRelayDiskHangs(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	freeze, thaw, ok := r.freezable()
	if !ok {
		return
	}
	address := freeAddress(t)
	d := r.begun().start("--partitions", "1", "--listen", address)
	r.insert(r.db, 1, 10)
	d.settled()
	freeze()
	r.insert(r.db, 11, 20) // whose save hangs
	d.until("it says that the disk hangs", func() bool {
		code, reason := get(address, "/readyz")
		return code == 503 && strings.Contains(reason, "the disk has been at the save of the checkpoint since")
	})
	for n := 21; n <= 2000; n += 20 {
		r.insert(r.db, n, min(n+19, 2000))
	}
	if n := metric(t, address, "relay_events_published_total"); n > 40 {
		t.Errorf("%v events were published", n)
	}
	thaw()
	d.settled()
	d.stop()
	if doubled := r.judge(r.take(0), 2000); doubled > 0 {
		t.Errorf("%d events came twice", doubled)
	}
}
