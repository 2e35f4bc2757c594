package checkpoint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

var (
	// ErrCorrupt: the file is there but is not what Save wrote.
	ErrCorrupt = errors.New("checkpoint: the file is corrupt")

	// ErrVersion: the file is whole and from a newer version of the relay.
	ErrVersion = errors.New("checkpoint: the file is from a newer relay")

	// ErrLocked: another process, or another File of this one, holds the
	// lock; from Save: the lock that this File held is no longer the lock.
	ErrLocked = errors.New("checkpoint: the file is locked")

	// ErrUnwritable: the directory cannot take the file, or this user may not
	// read or write there. Trying again does not help.
	ErrUnwritable = errors.New("checkpoint: the file cannot be kept there")

	// ErrInvalid: Save was given a state that no file may hold.
	ErrInvalid = errors.New("checkpoint: the state is not valid")
)

// damaged completes an error of parse with the file and the ways out.
func damaged(path string, err error) error {
	first := "type: relay resume --from-gtid SET"
	if errors.Is(err, ErrVersion) {
		first = "run the relay that wrote it, or " + first
	}
	if kept, _ := newestKept(path); kept != "" {
		return fmt.Errorf("%w; file %s; %s, or restore the kept copy (events since then are sent again): cp %s %s",
			err, path, first, kept, path)
	}
	return fmt.Errorf("%w; file %s; %s, or restore a copy that you kept", err, path, first)
}

// unusable explains an error of the system with the directory, the user and
// what to do. Doing is a verb phrase, name the file concerned.
func unusable(doing, name string, err error) error {
	dir, who := filepath.Dir(name), whoami()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%w: directory %s does not exist (%s: %w); type: mkdir -p %s",
			ErrUnwritable, dir, doing, err, dir)
	case errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %s is not a directory (%s: %w); choose another path with --checkpoint",
			ErrUnwritable, dir, doing, err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: directory %s is on a read-only file system (%s: %w); move the checkpoint to another directory and give its path with --checkpoint",
			ErrUnwritable, dir, doing, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: user %s may not %s in directory %s (%w); type: chown %s %s %s*, or move the checkpoint elsewhere and give its path with --checkpoint",
			ErrUnwritable, who, doing, dir, err, strings.Fields(who)[0], dir, strings.TrimSuffix(name, lockSuffix))
	case errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENAMETOOLONG), errors.Is(err, syscall.EISDIR):
		return fmt.Errorf("%w: user %s cannot %s in directory %s (%w); choose another path with --checkpoint",
			ErrUnwritable, who, doing, dir, err)
	case errors.Is(err, syscall.EBUSY):
		return fmt.Errorf("%w: %s is a mount point and cannot be replaced (%s: %w); mount its directory instead",
			ErrUnwritable, name, doing, err)
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return fmt.Errorf("checkpoint: %s: no room in directory %s for user %s: %w; make room, see: df -h %s",
			doing, dir, who, err, dir)
	}
	return fmt.Errorf("checkpoint: %s, directory %s, user %s: %w", doing, dir, who, err)
}

// whoami is the effective user: "relay (uid 998)", or "998 (uid 998)" where
// it has no name.
func whoami() string {
	uid := strconv.Itoa(os.Geteuid())
	name := uid
	if u, err := user.LookupId(uid); err == nil && len(strings.Fields(u.Username)) == 1 {
		name = u.Username
	}
	return name + " (uid " + uid + ")"
}
