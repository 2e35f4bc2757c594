package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// readFile reads a regular file of at most maxSize.
func readFile(path string) ([]byte, error) {
	// Without O_NONBLOCK opening a named pipe would wait for a writer.
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("checkpoint: there is no checkpoint at %s: %w; to make one type: relay run", path, err)
	case err != nil:
		return nil, unusable("read the file "+path, path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, unusable("read the file "+path, path, err)
	}
	if !info.Mode().IsRegular() {
		return nil, notRegular(path, info.Mode())
	}
	if info.Size() > maxSize {
		return nil, damaged(path, fmt.Errorf("%w: it has %d bytes, more than the %d that a checkpoint may have",
			ErrCorrupt, info.Size(), maxSize))
	}
	b, err := io.ReadAll(io.LimitReader(f, maxSize)) // the limit: should it grow meanwhile
	if err != nil {
		return nil, unusable("read the file "+path, path, err)
	}
	return b, nil
}

func notRegular(path string, mode fs.FileMode) error {
	what := "not a regular file (mode " + mode.String() + ")"
	if mode.IsDir() {
		what = "a directory"
	}
	return fmt.Errorf("%w: %s is %s; give the path of a file: --checkpoint %s",
		ErrCorrupt, path, what, filepath.Join(path, "checkpoint.json"))
}

// resolve makes path absolute and follows symbolic links, the last one also
// to a file that does not exist.
func resolve(path string) (string, error) {
	if path == "" {
		return "", fmt.Errorf("%w: the path is empty; give one with --checkpoint", ErrUnwritable)
	}
	given := path
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("checkpoint: %w", err)
	}
	for range 40 {
		dir, err := filepath.EvalSymlinks(filepath.Dir(path))
		if err != nil {
			return "", unusable("reach it", path, err)
		}
		path = filepath.Join(dir, filepath.Base(path))
		info, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			return path, nil
		}
		if err != nil {
			return "", unusable("look at the file "+path, path, err)
		}
		if info.Mode().Type() != fs.ModeSymlink {
			return path, nil
		}
		target, err := os.Readlink(path)
		if err != nil {
			return "", unusable("follow the link "+path, path, err)
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join(dir, target)
		}
		path = target
	}
	return "", fmt.Errorf("%w: %s leads through too many symbolic links; choose another path with --checkpoint",
		ErrUnwritable, given)
}

// Own gives f, just made beside the checkpoint at path, a checkpoint's mode,
// and, if made by root, its owner.
func Own(f *os.File, path string) error { return own(f, path) }

// own gives f, just made, its mode whatever the umask, and, if made by root,
// the owner of the file at path or else of the directory.
func own(f *os.File, path string) error {
	if err := f.Chmod(fileMode); err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return nil
	}
	like, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !like.Mode().IsRegular() {
		like, err = os.Stat(filepath.Dir(path))
	}
	if err != nil {
		return err
	}
	st, ok := like.Sys().(*syscall.Stat_t)
	if !ok || st.Uid == 0 {
		return nil
	}
	return f.Chown(int(st.Uid), int(st.Gid))
}

// writeSync writes b to f, makes it durable and closes f.
func writeSync(f *os.File, b []byte) error {
	_, err := f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return cmp.Or(err, f.Close())
}

// syncDir makes the names in path's directory durable.
func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return cmp.Or(d.Sync(), d.Close())
}
