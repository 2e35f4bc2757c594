package checkpoint

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var apartFromSavedAt = cmpopts.IgnoreFields(State{}, "SavedAt")

// place is a path in a new directory, which it lists.
func place(t testing.TB) (path string, names func() []string) {
	t.Helper()
	dir := t.TempDir()
	return filepath.Join(dir, "cp.json"), func() []string {
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return names
	}
}

func opened(t testing.TB, path string) *File {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

func same(t testing.TB, got any, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// oneLine fails unless err is of a kind and one line with every part.
func oneLine(t testing.TB, err, kind error, parts ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got error %v, want %v", err, kind)
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %q", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("got %q, want %q in it", err, part)
		}
	}
}

func TestSave(t *testing.T) {
	path, names := place(t)
	if _, err := Read(path); !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrUnwritable) {
		t.Fatalf("Read without a file: %v", err)
	}
	f := opened(t, path)
	if _, ok := f.State(); ok {
		t.Error("a state before the first Save")
	}
	same(t, names(), "cp.json.lock")

	at := time.FixedZone("", 7200)
	for _, s := range []State{simple, full, simple} {
		s = s.clone()
		s.Version = 0
		s.CommittedAt = s.CommittedAt.In(at)
		before := time.Now()
		if err := f.Save(s); err != nil {
			t.Fatal(err)
		}
		s.Version = 1
		inMemory, ok := f.State()
		onDisk, err := Read(path)
		if !ok || err != nil {
			t.Fatal(ok, err)
		}
		if diff := cmp.Diff(inMemory, onDisk); diff != "" {
			t.Errorf("(-memory +disk):\n%s", diff)
		}
		if diff := cmp.Diff(s, onDisk, apartFromSavedAt); diff != "" {
			t.Errorf("(-saved +disk):\n%s", diff)
		}
		if onDisk.SavedAt.Before(before.Round(0)) || time.Since(onDisk.SavedAt) < 0 {
			t.Errorf("saved at %v, now is %v", onDisk.SavedAt, time.Now())
		}
		same(t, names(), "cp.json", "cp.json.lock")
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode() != 0o640 {
		t.Errorf("mode %v, error %v", info.Mode(), err)
	}

	want, _ := f.State()
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	got, ok := opened(t, path).State()
	if diff := cmp.Diff(want, got); !ok || diff != "" {
		t.Errorf("(-closed +opened):\n%s", diff)
	}
}

func TestUmaskDoesNotChangeTheMode(t *testing.T) {
	path, _ := place(t)
	old := syscall.Umask(0o777)
	f, err := Open(path)
	if err == nil {
		err = f.Save(simple)
	}
	syscall.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, name := range []string{path, path + lockSuffix} {
		if info, err := os.Stat(name); err != nil || info.Mode() != 0o640 {
			t.Errorf("%s: mode %v, error %v", name, info.Mode(), err)
		}
	}
}

// TestStateIsACopy: who changes what State returned, or what Save was given,
// changes nothing in the File.
func TestStateIsACopy(t *testing.T) {
	path, _ := place(t)
	f := opened(t, path)
	given := full.clone()
	if err := f.Save(given); err != nil {
		t.Fatal(err)
	}
	given.Partial.Events = 99
	got, _ := f.State()
	got.Backfill.After = "elsewhere"
	got, _ = f.State()
	if diff := cmp.Diff(full, got, apartFromSavedAt); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSaveRefusesWhatIsNotAState(t *testing.T) {
	path, names := place(t)
	f := opened(t, path)
	if err := f.Save(simple); err != nil {
		t.Fatal(err)
	}
	before, _ := f.State()
	bad := full.clone()
	bad.Backfill.After = "\xff"
	for _, s := range []State{{}, bad} {
		oneLine(t, f.Save(s), ErrInvalid, "report it")
	}
	got, err := Read(path)
	if diff := cmp.Diff(before, got); err != nil || diff != "" {
		t.Errorf("error %v (-want +got):\n%s", err, diff)
	}
	same(t, names(), "cp.json", "cp.json.lock")
}

func TestStaleFiles(t *testing.T) {
	path, names := place(t)
	stale := string(golden(t, "v1.json")) // whole, and still not the checkpoint
	foreign := []string{"cp.json.tmp", "cp.json.relay-tmp2", "other.json.relay-tmp", ".cp.json.relay-tmp"}
	for _, name := range append([]string{"cp.json.relay-tmp"}, foreign...) {
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte(stale), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	f := opened(t, path)
	if s, ok := f.State(); ok {
		t.Errorf("the temporary file was taken for the checkpoint: %v", s)
	}
	same(t, names(), ".cp.json.relay-tmp", "cp.json.lock", "cp.json.relay-tmp2", "cp.json.tmp", "other.json.relay-tmp")
}

func TestKeep(t *testing.T) {
	path, names := place(t)
	f := opened(t, path)
	if name, err := f.Keep(); name != "" || err != nil {
		t.Fatalf("kept %q, %v, though there is nothing", name, err)
	}
	kept := map[string]State{}
	for i := range 5 {
		s := simple
		s.Sequence = int64(i)
		if err := f.Save(s); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			name, err := f.Keep()
			if err != nil {
				t.Fatal(err)
			}
			if !isKept(path, name) || kept[name].Version != 0 {
				t.Errorf("kept as %s", name)
			}
			kept[name], _ = f.State()
		}
	}
	if got := len(names()); got != 15+2 {
		t.Errorf("%d files: %q", got, names())
	}
	for name, want := range kept {
		got, err := Read(name)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: error %v (-want +got):\n%s", name, err, diff)
		}
	}
}

func TestOverride(t *testing.T) {
	for _, kind := range []error{ErrCorrupt, ErrVersion} {
		path, _ := place(t)
		damage := []byte{} // empty
		if kind == ErrVersion {
			damage = resealed(t, `"version": 1`, `"version": 4`)
		}
		f := opened(t, path)
		if err := f.Save(full); err != nil {
			t.Fatal(err)
		}
		first, err := f.Keep()
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		if err := os.WriteFile(path, damage, 0o640); err != nil {
			t.Fatal(err)
		}

		_, err = Open(path)
		oneLine(t, err, kind, "relay resume --from-gtid SET", "cp "+first+" "+path)
		f, err = Override(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if s, ok := f.State(); ok {
			t.Errorf("a state from a damaged file: %v", s)
		}
		oneLine(t, f.Damage(), kind)
		oneLine(t, f.Reload(), kind)
		oneLine(t, f.Save(simple), kind, "no copy was kept")
		second, err := f.Keep()
		if err != nil {
			t.Fatal(err)
		}
		if b, err := os.ReadFile(second); err != nil || string(b) != string(damage) {
			t.Errorf("kept %q, %v", b, err)
		}
		// The newest copy is the damaged one: it is not what is offered.
		oneLine(t, f.Reload(), kind, "cp "+first+" "+path)
		if err := f.Save(simple); err != nil {
			t.Fatal(err)
		}
		if s, ok := f.State(); !ok || f.Damage() != nil || s.Sequence != simple.Sequence {
			t.Errorf("after Save: %v, %v, %v", s, ok, f.Damage())
		}
		f.Close()
		opened(t, path)
	}
}

func TestReload(t *testing.T) {
	path, _ := place(t)
	f := opened(t, path)
	if err := f.Reload(); err != nil {
		t.Fatalf("without a file: %v", err)
	}
	if err := os.WriteFile(path, golden(t, "v1.json"), 0o640); err != nil {
		t.Fatal(err)
	}
	if err := f.Reload(); err != nil {
		t.Fatal(err)
	}
	s, ok := f.State()
	if diff := cmp.Diff(simple, s); !ok || diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := os.Truncate(path, 10); err != nil {
		t.Fatal(err)
	}
	oneLine(t, f.Reload(), ErrCorrupt, "cut short")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	oneLine(t, f.Reload(), ErrCorrupt, "removed while this relay runs")
}

func TestClosed(t *testing.T) {
	path, _ := place(t)
	f := opened(t, path)
	for range 2 {
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	oneLine(t, f.Save(simple), fs.ErrClosed, path)
	oneLine(t, f.Reload(), fs.ErrClosed, path)
	_, err := f.Keep()
	oneLine(t, err, fs.ErrClosed, path)
}
