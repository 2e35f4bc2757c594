package cli_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// smallDisk mounts a file system of 256 KB for the rig's checkpoint; only root
// can.
func (r *rig) smallDisk() (dir string) {
	r.t.Helper()
	dir = filepath.Join(r.dir, "disk")
	if err := os.Mkdir(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	r.mount("tmpfs", dir, "tmpfs", 0, "size=256k")
	r.dir = dir
	return dir
}

func (r *rig) mount(source, target, kind string, flags uintptr, data string) {
	r.t.Helper()
	if err := syscall.Mount(source, target, kind, flags, data); err != nil {
		r.t.Fatalf("mount on %s: %v", target, err)
	}
	r.t.Cleanup(func() {
		if err := syscall.Unmount(target, syscall.MNT_DETACH); err != nil && !errors.Is(err, syscall.EINVAL) {
			r.t.Error(err)
		}
	})
}

// maySmallDisk tells whether this user can mount one.
func maySmallDisk(t testing.TB) bool {
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=256k")
	if err == nil {
		err = syscall.Unmount(dir, 0)
	}
	return err == nil
}

// fill takes all the room that is left, and returns the file that has it.
func fill(t testing.TB, dir string) string {
	t.Helper()
	path := filepath.Join(dir, "filler")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for err == nil {
		_, err = file.Write(bytes.Repeat([]byte("x"), 4096))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	return path
}

// TestFaultRelayDiskFull: the checkpoint cannot be saved any more. What was
// published until then comes again once; while the disk is full nothing is
// published at all, since every session looks first whether it can save. With
// a relay that publishes first, the events would come again with every try.
func TestFaultRelayDiskFull(t *testing.T) {
	t.Parallel()
	t.Run("file size limit", func(t *testing.T) { // for any user
		t.Parallel()
		r := newRig(t).begun()
		limit := func(d *daemon, bytes uint64) {
			t.Helper()
			was := unix.Rlimit{}
			err := unix.Prlimit(d.pid(), unix.RLIMIT_FSIZE, nil, &was)
			was.Cur = bytes
			if err == nil {
				err = unix.Prlimit(d.pid(), unix.RLIMIT_FSIZE, &was, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		r.fullAndFree(func(d *daemon) (free func()) {
			limit(d, 0)
			return func() { limit(d, unix.RLIM_INFINITY) }
		})
	})
	if !maySmallDisk(t) {
		return
	}
	t.Run("no room", func(t *testing.T) {
		t.Parallel()
		r := newRig(t)
		dir := r.smallDisk()
		d := r.begun().fullAndFree(func(*daemon) (free func()) {
			filler := fill(t, dir)
			return func() {
				if err := os.Remove(filler); err != nil {
					t.Fatal(err)
				}
			}
		})
		if text := d.text(); !strings.Contains(text, "no room in directory "+dir) || !strings.Contains(text, "df -h "+dir) {
			t.Errorf("it says\n%s", d.Tail())
		}
	})
}

// fullAndFree is the relay before, while and after there is room to save. The
// log is no witness: it may have no room either.
func (r *rig) fullAndFree(fill func(*daemon) (free func())) *daemon {
	r.t.Helper()
	address := freeAddress(r.t)
	d := r.start("--partitions", "1", "--listen", address)
	published := func() float64 { return metric(r.t, address, "relay_events_published_total") }
	failures := func(n float64) func() bool {
		const name = `relay_reconnects_total{side="source"}`
		return func() bool {
			_, body := get(address, "/metrics")
			return strings.Contains(body, name) && metric(r.t, address, name) >= n
		}
	}
	r.insert(r.db, 1, 100)
	d.settled()
	free := fill(d)
	before := published()
	r.insert(r.db, 101, 150)
	d.until("a save has failed", failures(1))
	failed := published()
	r.insert(r.db, 151, 200)
	d.until("it has tried, and tried again", failures(4))
	if after := published(); after != failed || after > before+50 {
		r.t.Errorf("%v events were published before, %v until the save failed, and %v while there was no room", before, failed, after)
	}
	free()
	d.settled()
	d.stop()
	if doubled := r.judge(r.take(0), 200); doubled > 50 {
		r.t.Errorf("%d events came twice", doubled)
	}
	return d
}

// TestFaultRelayDiskFullSpool: a compressed transaction that is too large for
// memory finds no room beside the checkpoint. None of it is published; the
// relay says where there is to be room, and goes on when there is. Were the
// file elsewhere, as in a directory that is memory, it would not notice.
func TestFaultRelayDiskFullSpool(t *testing.T) {
	t.Parallel()
	if !maySmallDisk(t) {
		return
	}
	const rows, bytes = 3_000, 4_000 // 6 MB when compressed
	// The transaction would fill the small disks of the other tests, too.
	r := rigOn(t, databaseOn(t, relaytest.PrivateMySQL(t)), schema.SQL)
	dir := r.smallDisk()
	r.begun()
	address := freeAddress(t)
	d := r.start("--partitions", "1", "--listen", address)
	r.bulkOf(1, rows, hardNote(bytes), "SET SESSION binlog_transaction_compression = ON")
	d.until("it finds no room", func() bool {
		text := d.text()
		return strings.Contains(text, "no room in directory "+dir) && strings.Contains(text, "df -h "+dir)
	})
	if n := metric(t, address, "relay_events_published_total"); n != 0 {
		t.Errorf("%v events were published", n)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_REMOUNT, "size=64m"); err != nil {
		t.Fatal(err)
	}
	d.settled()
	d.stop()
	if doubled := r.judge(r.take(0), rows); doubled > 0 {
		t.Errorf("%d events came twice", doubled)
	}
}

// TestFaultRelayDiskReadOnly: the checkpoint's directory becomes read-only
// while the relay runs. It is unfit, says so, and has lost nothing. Seen to fail
// with ErrUnwritable out of relay's table of exit codes: it tries for ever.
func TestFaultRelayDiskReadOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	may := maySmallDisk(t)
	if may {
		r.smallDisk()
	}
	r.begun()
	d := r.start("--partitions", "1")
	r.insert(r.db, 1, 10)
	d.settled()
	word := "read-only"
	if may { // a mount over it: the one below is busy with the relay's lock file
		r.mount(r.dir, r.dir, "", syscall.MS_BIND, "")
		r.mount("", r.dir, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, "")
	} else {
		word = "may not"
		if err := os.Chmod(r.dir, 0o555); err != nil {
			t.Fatal(err)
		}
	}
	r.insert(r.db, 11, 20)
	d.wantCode(78)
	got := r.run("run", "--partitions", "1")
	got.want(t, 78, word, r.dir, "--checkpoint")
	got.oneLine(t)
	if may {
		if err := syscall.Unmount(r.dir, 0); err != nil {
			t.Fatal(err)
		}
	} else if err := os.Chmod(r.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if doubled := r.judge(append(r.take(0), r.relayed()...), 20); doubled > 10 {
		t.Errorf("%d events came twice", doubled)
	}
}
