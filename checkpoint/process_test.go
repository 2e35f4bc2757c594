package checkpoint

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const nobody = 65534

func TestLockInOneProcess(t *testing.T) {
	path, names := place(t)
	f := opened(t, path)
	for range 2 {
		_, err := Open(path)
		oneLine(t, err, ErrLocked, fmt.Sprintf("process %d holds %s.lock", os.Getpid(), path), "stop that relay")
		_, err = Override(path)
		oneLine(t, err, ErrLocked)
	}
	if err := f.Save(simple); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil {
		t.Error("the lock went with the rename")
	}
	f.Close()
	same(t, names(), "cp.json", "cp.json.lock")
	opened(t, path)
}

func TestLockInTwoProcesses(t *testing.T) {
	path, _ := place(t)
	holder := start(t, "hold", path, -1)
	if got := holder.line(t); got != "held" {
		t.Fatal(got)
	}
	_, err := Open(path)
	oneLine(t, err, ErrLocked, fmt.Sprintf("process %d holds", holder.cmd.Process.Pid))
	if got := start(t, "open", path, -1).line(t); !strings.Contains(got, "locked: process "+strconv.Itoa(holder.cmd.Process.Pid)) {
		t.Errorf("a third process got %q", got)
	}
	holder.kill(t, "")
	f, err := Open(path)
	if err != nil {
		t.Fatalf("after SIGKILL of the holder: %v", err)
	}
	defer f.Close()
	b, err := os.ReadFile(path + lockSuffix)
	if want := fmt.Sprintln(os.Getpid()); err != nil || string(b) != want {
		t.Errorf("the lock file holds %q, %v", b, err)
	}
}

func TestLockWithoutAHolderInIt(t *testing.T) {
	path, _ := place(t)
	opened(t, path)
	for _, text := range []string{"", "x\n", "-1\n", "0", strings.Repeat("9", 100)} {
		if err := os.WriteFile(path+lockSuffix, []byte(text), 0o640); err != nil {
			t.Fatal(err)
		}
		_, err := Open(path)
		oneLine(t, err, ErrLocked, "another process holds")
	}
}

func TestLockFileRemoved(t *testing.T) {
	path, _ := place(t)
	f := opened(t, path)
	if err := os.Remove(path + lockSuffix); err != nil {
		t.Fatal(err)
	}
	oneLine(t, f.Save(simple), ErrLocked, "removed or replaced", path+lockSuffix)
	second := opened(t, path)
	oneLine(t, f.Save(simple), ErrLocked)
	if err := second.Save(simple); err != nil {
		t.Fatal(err)
	}
}

// TestOneWinner: of many who open at the same time exactly one has the file.
func TestOneWinner(t *testing.T) {
	path, _ := place(t)
	for range 20 {
		var mu sync.Mutex
		var won []*File
		var all sync.WaitGroup
		for range 16 {
			all.Go(func() {
				f, err := Open(path)
				if err != nil {
					oneLine(t, err, ErrLocked)
					return
				}
				mu.Lock()
				defer mu.Unlock()
				won = append(won, f)
			})
		}
		all.Wait()
		if len(won) != 1 {
			t.Fatalf("%d have the lock", len(won))
		}
		won[0].Close()
	}
}

// TestKilledInSave kills a process that saves without a pause, at seeded
// times. What it had told as saved is there, the file is whole, and the next
// one goes on from it.
func TestKilledInSave(t *testing.T) {
	const seed = 20260102
	rnd := rand.New(rand.NewPCG(seed, 0))
	path, names := place(t)
	last, stale := int64(0), 0
	for round := range 20 {
		c := start(t, "save", path, -1)
		first, err := strconv.ParseInt(c.line(t), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if first != last+1 {
			t.Fatalf("round %d went on with %d after %d", round, first, last)
		}
		time.Sleep(time.Duration(rnd.IntN(60_000)) * time.Microsecond) // the seeded time of the fault
		told, err := strconv.ParseInt(c.kill(t, strconv.FormatInt(first, 10)), 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names() {
			if strings.HasSuffix(name, tempSuffix) {
				stale++
			}
		}
		s, err := Read(path)
		if err != nil {
			t.Fatalf("seed %d, round %d: %v", seed, round, err)
		}
		// One Save may be done and not told.
		if s.Sequence < told || s.Sequence > told+1 {
			t.Errorf("seed %d, round %d: told %d, on disk is %d", seed, round, told, s.Sequence)
		}
		if want := strings.Repeat(fmt.Sprintf("%d,", s.Sequence), 2000); s.GTIDSet != want {
			t.Errorf("seed %d, round %d: two states are mixed", seed, round)
		}
		last = s.Sequence
	}
	opened(t, path)
	same(t, names(), "cp.json", "cp.json.lock")
	t.Logf("%d states saved, %d temporary files left by the kills", last, stale)
}

// TestReadWhileSaved: a reader without the lock sees whole states that never
// go back.
func TestReadWhileSaved(t *testing.T) {
	path, _ := place(t)
	c := start(t, "save", path, -1)
	c.line(t)
	last := int64(0)
	for end := time.Now().Add(200 * time.Millisecond); time.Now().Before(end); {
		s, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if s.Sequence < last {
			t.Fatalf("%d after %d", s.Sequence, last)
		}
		last = s.Sequence
	}
	c.kill(t, "")
}

func TestKilledInKeep(t *testing.T) {
	rnd := rand.New(rand.NewPCG(7, 0))
	path, names := place(t)
	f := opened(t, path)
	if err := f.Save(full); err != nil {
		t.Fatal(err)
	}
	f.Close()
	for range 5 {
		c := start(t, "keep", path, -1)
		c.line(t)
		time.Sleep(time.Duration(rnd.IntN(5000)) * time.Microsecond)
		c.kill(t, "")
	}
	if _, err := Read(path); err != nil {
		t.Fatal(err)
	}
	cut := 0
	for _, name := range names() {
		if name := filepath.Join(filepath.Dir(path), name); isKept(path, name) {
			if _, err := Read(name); err != nil {
				oneLine(t, err, ErrCorrupt)
				cut++
			}
		}
	}
	if cut > 5 {
		t.Errorf("%d copies are damaged by 5 kills", cut)
	}
}

// asNobody runs a part as a user to whom permissions apply: nobody if the
// tests run as root, else the user who runs them.
func asNobody(t *testing.T, part, path string) string {
	t.Helper()
	uid := -1
	if os.Geteuid() == 0 {
		uid = nobody
	}
	return start(t, part, path, uid).line(t)
}

func TestNoPermission(t *testing.T) {
	dir := openDir(t)
	path := filepath.Join(dir, "cp.json")
	if err := os.WriteFile(path, golden(t, "v1.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o555); err != nil {
		t.Fatal(err)
	}
	const says = "cannot be kept there: user "
	got := asNobody(t, "open", path)
	for _, part := range []string{says, "in directory " + dir, "permission denied", "type: chown ", "--checkpoint"} {
		if !strings.Contains(got, part) {
			t.Errorf("got %q, want %q in it", got, part)
		}
	}
	// A lock that may be opened is not enough: the directory must be writable.
	if err := os.WriteFile(path+lockSuffix, nil, 0o600); err == nil {
		err = os.Chmod(path+lockSuffix, 0o666)
		if err != nil {
			t.Fatal(err)
		}
		if got := asNobody(t, "open", path); !strings.Contains(got, says) || !strings.Contains(got, tempSuffix) {
			t.Errorf("got %q", got)
		}
	}
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if got := asNobody(t, "read", path); !strings.Contains(got, says) || !strings.Contains(got, "may not read the file "+path) {
		t.Errorf("got %q", got)
	}
}

// TestRootLeavesTheOwner: what root does to a service's file leaves it usable
// for the service.
func TestRootLeavesTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give files away")
	}
	dir := openDir(t)
	if err := os.Chown(dir, nobody, nobody); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "cp.json")
	f := opened(t, path)
	kept := path
	for range 2 {
		if err := f.Save(simple); err != nil {
			t.Fatal(err)
		}
		var err error
		if kept, err = f.Keep(); err != nil {
			t.Fatal(err)
		}
	}
	f.Close()
	for _, name := range []string{path, path + lockSuffix, kept} {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if st := info.Sys().(*syscall.Stat_t); st.Uid != nobody || st.Gid != nobody {
			t.Errorf("%s belongs to %d:%d", name, st.Uid, st.Gid)
		}
	}
	if got := start(t, "open", path, nobody).line(t); got != "<nil>" {
		t.Errorf("the service got %q", got)
	}
}
