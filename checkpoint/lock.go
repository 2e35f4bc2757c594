package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// lock is a held flock on a file of its own.
type lock struct {
	path string
	f    *os.File
}

// acquire takes the lock on the checkpoint file, without waiting, and writes
// the process number into the lock file.
func acquire(file string) (*lock, error) {
	path := file + lockSuffix
	for range 10 {
		f, err := openLock(path, file)
		if err != nil {
			return nil, unusable("open the lock file "+path, path, err)
		}
		l := &lock{path: path, f: f}
		switch err := flock(f); {
		case errors.Is(err, unix.EWOULDBLOCK):
			holder := l.holder()
			f.Close()
			return nil, fmt.Errorf("%w: %s holds %s; stop that relay first, or, for another outbox, give a file of its own with --checkpoint; to look without the lock type: relay status",
				ErrLocked, holder, path)
		case err != nil:
			f.Close()
			return nil, fmt.Errorf("checkpoint: lock %s: the file system refuses flock: %w; choose a path on a local disk with --checkpoint",
				path, err)
		}
		if l.check() != nil { // removed between open and flock
			f.Close()
			continue
		}
		if err := l.sign(); err != nil {
			f.Close()
			return nil, unusable("write the lock file "+path, path, err)
		}
		return l, nil
	}
	return nil, fmt.Errorf("%w: the lock file %s is removed or replaced all the time; find out by whom, and begin again",
		ErrLocked, path)
}

// openLock opens the lock file, never through a symbolic link, and makes it if
// it is not there, with the owner of the checkpoint file.
func openLock(path, file string) (*os.File, error) {
	for range 10 {
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
		if !errors.Is(err, fs.ErrNotExist) {
			return f, err
		}
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, fileMode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := own(f, file); err != nil {
			f.Close()
			return nil, err
		}
		return f, nil
	}
	return nil, fs.ErrExist
}

func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err != unix.EINTR {
			return err
		}
	}
}

func (l *lock) sign() error {
	if err := l.f.Truncate(0); err != nil {
		return err
	}
	_, err := l.f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// holder names the process that the lock file speaks of.
func (l *lock) holder() string {
	b, _ := io.ReadAll(io.NewSectionReader(l.f, 0, 64))
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid <= 0 {
		return "another process"
	}
	return "process " + strconv.Itoa(pid)
}

// check reports whether the file at path is still the one that is locked.
func (l *lock) check() error {
	held, err := l.f.Stat()
	if err != nil {
		return err
	}
	there, err := os.Lstat(l.path)
	if err == nil && os.SameFile(held, there) {
		return nil
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return fmt.Errorf("%w: the lock file %s of this process %d was removed or replaced, another relay may be running; stop it, and start this one again",
		ErrLocked, l.path, os.Getpid())
}

func (l *lock) release() error {
	err := l.f.Truncate(0)
	return cmp.Or(err, l.f.Close()) // closing frees the lock
}
