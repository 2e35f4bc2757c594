package checkpoint_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/outboxrelay/relay/checkpoint"
)

// TestLook reads a file that another holds, damaged or not, and changes
// nothing. It fails with Override in its place: ErrLocked.
func TestLook(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	if f, err := checkpoint.Look(path); err != nil {
		t.Fatal(err)
	} else if _, exists := f.State(); exists {
		t.Error("there is no file, and it has a state")
	}
	holder, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Close()
	if err := os.WriteFile(path, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := checkpoint.Look(path)
	if err != nil || !errors.Is(f.Damage(), checkpoint.ErrCorrupt) {
		t.Fatalf("got %v, want a damaged file", err)
	}
	if err := f.Save(checkpoint.State{}); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("save: got %v, want %v", err, fs.ErrClosed)
	}
	if _, err := f.Keep(); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("keep: got %v, want %v", err, fs.ErrClosed)
	}
}

// TestHeld: a lock is seen without being taken, and is not when its holder is
// gone, whatever the lock file says.
func TestHeld(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	if pid, held := checkpoint.Held(path); held {
		t.Errorf("held by %d, with no lock file", pid)
	}
	f, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if pid, held := checkpoint.Held(path); !held || pid != os.Getpid() {
		t.Errorf("held: %t by %d, want by this process %d", held, pid, os.Getpid())
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".lock", []byte(strconv.Itoa(os.Getpid())), 0o640); err != nil { // as after SIGKILL
		t.Fatal(err)
	}
	if pid, held := checkpoint.Held(path); held {
		t.Errorf("held by %d, and only the file says so", pid)
	}
}
