package checkpoint

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	fileMode   = 0o640
	tempSuffix = ".relay-tmp" // one name: only the holder of the lock writes it
	lockSuffix = ".lock"
	keptLayout = "20060102T150405.000000Z" // sorts by time
)

// File is a checkpoint file under lock. Its methods may be called at the same
// time.
type File struct {
	path string // no symbolic link
	lock *lock

	mu     sync.Mutex // one at a time uses the disk
	kept   bool       // the damaged file has a copy; guarded by mu
	closed bool       // guarded by mu

	// The disk may hang, and who only wants to know what is held must not wait
	// for it. Written by the holder of mu.
	heldMu sync.Mutex
	state  State
	exists bool
	damage error // what Override passed over; nil once the file is whole
}

// Open locks the file at path, makes sure that its directory can be written,
// and reads it. That there is no file yet is no error: State says so.
//
// Errors wrap ErrLocked, ErrUnwritable, ErrCorrupt or ErrVersion, or are the
// system's. After an error nothing is locked.
func Open(path string) (*File, error) {
	f, err := Override(path)
	if err != nil {
		return nil, err
	}
	if f.damage != nil {
		return nil, cmp.Or(f.damage, f.Close())
	}
	return f, nil
}

// Override is Open for an operator who sets the position himself: a file that
// is corrupt or too new does not stop it, but is told by Damage, and Save does
// not replace such a file before Keep has made a copy of it.
func Override(path string) (*File, error) {
	path, err := resolve(path)
	if err != nil {
		return nil, err
	}
	l, err := acquire(path)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, lock: l}
	if err := f.prepare(); err != nil {
		return nil, cmp.Or(err, l.release())
	}
	return f, nil
}

// prepare does what Open does under the lock.
func (f *File) prepare() error {
	if err := f.probe(); err != nil {
		return unusable("write the file "+f.path+tempSuffix, f.path, err)
	}
	info, err := os.Lstat(f.path)
	if err == nil && !info.Mode().IsRegular() {
		return notRegular(f.path, info.Mode()) // no rename could replace it, or should
	}
	err = f.reload()
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrVersion) {
		f.damage, err = err, nil
	}
	return err
}

// probe removes the temporary file of a killed Save, and makes and removes one
// of its own, so that a directory that does not allow it, or cannot be synced,
// is found out now.
func (f *File) probe() error {
	tmp, err := f.temp()
	if err != nil {
		return err
	}
	return cmp.Or(tmp.Close(), os.Remove(tmp.Name()), syncDir(f.path))
}

// temp makes the temporary file, with the mode and the owner of a checkpoint.
func (f *File) temp() (*os.File, error) {
	name := f.path + tempSuffix
	if err := unix.Unlink(name); err != nil && err != unix.ENOENT {
		return nil, &fs.PathError{Op: "unlink", Path: name, Err: err}
	}
	tmp, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
	if err != nil {
		return nil, err
	}
	if err := own(tmp, f.path); err != nil {
		return nil, cmp.Or(err, tmp.Close(), os.Remove(name))
	}
	return tmp, nil
}

// Path is the path of the file that path leads to, after symbolic links: what
// stands beside the checkpoint is named after it.
func Path(path string) (string, error) { return resolve(path) }

// Path is the file's path, after symbolic links.
func (f *File) Path() string { return f.path }

// State returns what the file holds, without a look at the disk; false if there is no checkpoint yet, or
// if Damage is not nil.
func (f *File) State() (State, bool) {
	f.heldMu.Lock()
	defer f.heldMu.Unlock()
	return f.state.clone(), f.exists
}

// Damage is the error, wrapping ErrCorrupt or ErrVersion, that Override passed
// over; nil from Open, and once the file is whole again.
func (f *File) Damage() error {
	f.heldMu.Lock()
	defer f.heldMu.Unlock()
	return f.damage
}

// hold takes in what the file holds now.
func (f *File) hold(s State) {
	f.heldMu.Lock()
	defer f.heldMu.Unlock()
	f.state, f.exists, f.damage = s, true, nil
}

// Reload reads the file anew, for a session that begins again from what is
// durable. A file that was there and is gone is ErrCorrupt, not a beginning.
// After an error State is as before.
func (f *File) Reload() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return f.errClosed("reload")
	}
	return f.reload()
}

func (f *File) reload() error {
	s, err := Read(f.path)
	switch {
	case err == nil:
		f.hold(s)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	case f.exists || f.damage != nil:
		return damaged(f.path, fmt.Errorf("%w: it was removed while this relay runs", ErrCorrupt))
	}
	return nil
}

// Save replaces the file's content with s, whose Version and SavedAt it sets.
// On return s is durable; or there is an error, and the file holds the old
// state, whole. In one case, when only the last step fails, the sync of the
// directory, the file holds s, and a power cut may bring the old state back;
// State then tells s.
//
// Errors wrap ErrInvalid, ErrLocked or ErrUnwritable, or are the system's.
func (f *File) Save(s State) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return f.errClosed("save")
	}
	if f.damage != nil && !f.kept {
		return fmt.Errorf("checkpoint: save: no copy was kept of the damaged file: %w", f.damage)
	}
	if err := f.lock.check(); err != nil {
		return err
	}
	s = s.clone()
	s.Version, s.SavedAt = s.version(), time.Now().UTC()
	b, err := encode(s)
	if err != nil {
		return fmt.Errorf("%w: %w; this is a fault in the relay, please report it", ErrInvalid, err)
	}
	if _, err := parse(b); err != nil {
		return fmt.Errorf("%w: it would not be read back: %w; this is a fault in the relay, please report it", ErrInvalid, err)
	}
	if err := f.replace(b); err != nil {
		return unusable("save the file "+f.path, f.path, err)
	}
	f.hold(s)
	if err := syncDir(f.path); err != nil {
		return unusable("sync the directory of "+f.path, f.path, err)
	}
	return nil
}

// replace writes b, durably, to the temporary file and renames it.
func (f *File) replace(b []byte) error {
	tmp, err := f.temp()
	if err != nil {
		return err
	}
	err = writeSync(tmp, b)
	if err == nil {
		err = os.Rename(tmp.Name(), f.path)
	}
	if err != nil {
		os.Remove(tmp.Name()) // if not, the next Open does
	}
	return err
}

// Keep copies the file, as it is, damaged or not, to <path>.<UTC time> beside
// it, and returns the copy's path once the copy is durable. It never
// overwrites a file. Without a checkpoint there is nothing to keep, and it
// returns "".
func (f *File) Keep() (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return "", f.errClosed("keep a copy")
	}
	b, err := readFile(f.path)
	if errors.Is(err, fs.ErrNotExist) && !f.exists && f.damage == nil {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	for {
		name := f.path + "." + time.Now().UTC().Format(keptLayout)
		dst, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, fileMode)
		if errors.Is(err, fs.ErrExist) {
			continue // made within this microsecond
		}
		if err == nil {
			if err = own(dst, f.path); err != nil {
				dst.Close()
			} else {
				err = writeSync(dst, b)
			}
			if err == nil {
				err = syncDir(f.path)
			}
			if err != nil {
				os.Remove(name)
			}
		}
		if err != nil {
			return "", unusable("keep a copy of the file "+f.path, f.path, err)
		}
		f.kept = true
		return name, nil
	}
}

// isKept reports whether name is that of a copy that Keep made of path.
func isKept(path, name string) bool {
	at, ok := strings.CutPrefix(name, path+".")
	if !ok {
		return false
	}
	_, err := time.Parse(keptLayout, at)
	return err == nil
}

// Close gives the lock back. A second Close does nothing.
func (f *File) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	if err := f.lock.release(); err != nil {
		return fmt.Errorf("checkpoint: close the lock file: %w", err)
	}
	return nil
}

func (f *File) errClosed(doing string) error {
	return fmt.Errorf("checkpoint: %s %s: %w", doing, f.path, fs.ErrClosed)
}

// Read reads the file at path without its lock, also while a relay saves it:
// it sees the old state or the new one. It changes nothing.
//
// Errors wrap fs.ErrNotExist, ErrCorrupt, ErrVersion or ErrUnwritable, or are
// the system's.
func Read(path string) (State, error) {
	path, err := resolve(path)
	if err != nil {
		return State{}, err
	}
	b, err := readFile(path)
	if err != nil {
		return State{}, err
	}
	s, err := parse(b)
	if err != nil {
		return State{}, damaged(path, err)
	}
	return s, nil
}
