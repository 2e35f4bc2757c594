package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLinks(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"data", "etc"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "data", "cp.json")
	link, second := filepath.Join(dir, "etc", "cp.json"), filepath.Join(dir, "etc", "second")
	dirLink := filepath.Join(dir, "etc", "data")
	for name, target := range map[string]string{link: "../data/cp.json", second: link, dirLink: "../data"} {
		if err := os.Symlink(target, name); err != nil {
			t.Fatal(err)
		}
	}
	for i, path := range []string{link, second, filepath.Join(dirLink, "cp.json"), file} {
		f := opened(t, path)
		if f.Path() != file {
			t.Errorf("%s leads to %s", path, f.Path())
		}
		s, ok := f.State()
		if ok != (i > 0) || s.Sequence != int64(i) {
			t.Errorf("%s: state %v %v", path, s, ok)
		}
		_, err := Open(file)
		oneLine(t, err, ErrLocked, file+".lock")
		s = simple
		s.Sequence = int64(i + 1)
		if err := f.Save(s); err != nil {
			t.Fatal(err)
		}
		f.Close()
		if s, err := Read(path); err != nil || s.Sequence != int64(i+1) {
			t.Errorf("read %v, %v", s, err)
		}
		if info, err := os.Lstat(link); err != nil || info.Mode().Type() != fs.ModeSymlink {
			t.Errorf("the link was replaced: %v, %v", info, err)
		}
	}
	loop := filepath.Join(dir, "loop")
	if err := os.Symlink("loop", loop); err != nil {
		t.Fatal(err)
	}
	_, err := Open(loop)
	oneLine(t, err, ErrUnwritable, loop)
}

func TestNotAFile(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	if err := unix.Mkfifo(pipe, 0o640); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, dir + "/", pipe, "/dev/null"} {
		for name, open := range map[string]func() error{
			"Read":     func() error { _, err := Read(path); return err },
			"Open":     func() error { _, err := Open(path); return err },
			"Override": func() error { _, err := Override(path); return err },
		} {
			if path == "/dev/null" && name != "Read" {
				continue // leave no lock file in /dev
			}
			t.Run(name+path, func(t *testing.T) {
				oneLine(t, open(), ErrCorrupt, filepath.Clean(path), "--checkpoint")
			})
		}
	}
}

func TestUnwritable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.relay-tmp", "b.lock"} {
		if err := os.MkdirAll(filepath.Join(dir, name, "full"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("elsewhere", filepath.Join(dir, "c.lock")); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		path  string
		parts []string
	}{
		{"", []string{"empty", "--checkpoint"}},
		{dir + "/none/cp.json", []string{"directory " + dir + "/none does not exist", "mkdir -p " + dir + "/none"}},
		{file + "/cp.json", []string{file + " is not a directory"}},
		{dir + "/a", []string{dir + "/a.relay-tmp"}},
		{dir + "/b", []string{dir + "/b.lock"}},
		{dir + "/c", []string{dir + "/c.lock"}},
		{dir + "/" + strings.Repeat("x", 250), []string{"too long"}},
	}
	for _, test := range tests {
		_, err := Open(test.path)
		oneLine(t, err, ErrUnwritable, test.parts...)
	}
	if _, err := os.Lstat(dir + "/elsewhere"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the lock was made through a link: %v", err)
	}
	// A directory that goes away is found by Save.
	gone := filepath.Join(dir, "gone")
	if err := os.Mkdir(gone, 0o755); err != nil {
		t.Fatal(err)
	}
	f := opened(t, gone+"/cp.json")
	if err := os.RemoveAll(gone); err != nil {
		t.Fatal(err)
	}
	if err := f.Save(simple); err == nil {
		t.Error("saved into a directory that is gone")
	}
}

// TestSaveFails: whatever step fails, the old file stays and the temporary
// file goes.
func TestSaveFails(t *testing.T) {
	path, names := place(t)
	f := opened(t, path)
	// A file-size limit makes the write fail half-way.
	var old unix.Rlimit
	if err := f.Save(simple); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	big := simple
	big.GTIDSet = strings.Repeat("x", 10000)
	saveErr := f.Save(big)
	_, keepErr := f.Keep()
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	oneLine(t, saveErr, syscall.EFBIG, path)
	if keepErr != nil {
		t.Error(keepErr)
	}
	after, err := os.ReadFile(path)
	if err != nil || string(before) != string(after) {
		t.Errorf("%v: the file is\n%s", err, after)
	}
	if s, ok := f.State(); !ok || s.GTIDSet != simple.GTIDSet {
		t.Errorf("in memory is %v, %v", s, ok)
	}
	for _, name := range names() {
		if strings.HasSuffix(name, tempSuffix) {
			t.Errorf("%s stays", name)
		}
	}
	if err := f.Save(big); err != nil {
		t.Errorf("afterwards: %v", err)
	}

	// The rename fails where a directory has taken the name.
	if err := errors.Join(os.Remove(path), os.MkdirAll(path+"/full", 0o755)); err != nil {
		t.Fatal(err)
	}
	if err := f.Save(simple); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("got error %v", err)
	}
	for _, name := range names() {
		if strings.HasSuffix(name, tempSuffix) {
			t.Errorf("%s stays", name)
		}
	}
}

func TestTooBig(t *testing.T) {
	path, _ := place(t)
	if err := os.WriteFile(path, nil, 0o640); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, 1<<40); err != nil {
		t.Fatal(err)
	}
	_, err := Read(path)
	oneLine(t, err, ErrCorrupt, fmt.Sprint(1<<40))
}
