package checkpoint

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Look is Override for one who only reads: it takes no lock, needs no right to
// write, and works also while a relay saves the file, of which it sees the old
// state or the new one. Keep, Reload and Save of such a File fail.
//
// Errors wrap ErrUnwritable, or are the system's.
func Look(path string) (*File, error) {
	path, err := resolve(path)
	if err != nil {
		return nil, err
	}
	f := &File{path: path, closed: true}
	err = f.reload()
	if errors.Is(err, ErrCorrupt) || errors.Is(err, ErrVersion) {
		f.damage, err = err, nil
	}
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Held tells whether a relay holds the lock of the checkpoint at path, and its
// process; 0 where that cannot be told. It asks the kernel (proc_locks(5)) and
// takes no lock, which could be in the way of a relay that starts. A relay in
// a container of its own is not seen.
func Held(path string) (pid int, held bool) {
	path, err := resolve(path)
	if err != nil {
		return 0, false
	}
	path += lockSuffix
	var file unix.Stat_t
	if err := unix.Lstat(path, &file); err != nil {
		return 0, false
	}
	if text, err := os.ReadFile(path); err == nil {
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	locks, _ := os.ReadFile("/proc/locks")
	// A file system may give its files another device number there than to stat:
	// then the process must be the one that has signed.
	device := fmt.Sprintf("%02x:%02x", unix.Major(uint64(file.Dev)), unix.Minor(uint64(file.Dev)))
	for line := range strings.Lines(string(locks)) { // 1: FLOCK ADVISORY WRITE 4711 08:01:123456 0 EOF
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "FLOCK" {
			continue
		}
		at, isOurs := strings.CutSuffix(fields[5], ":"+strconv.FormatUint(file.Ino, 10))
		holder, _ := strconv.Atoi(fields[4])
		if isOurs && (at == device || holder == pid && pid > 0) {
			return holder, true
		}
	}
	return 0, false
}
