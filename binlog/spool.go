package binlog

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
)

// createSpool makes a file for an event that is too large for memory. It has
// no name, so that it ends with the process.
func createSpool(dir string) (*os.File, error) {
	file, err := os.CreateTemp(dir, ".relay-spool-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file.Name()); err != nil {
		file.Close()
		return nil, err
	}
	return file, nil
}

// explainSpool sorts the failures of that file: what is full may be emptied;
// a directory that takes no file will not begin to.
func explainSpool(dir string, err error) error {
	dir = cmp.Or(dir, os.TempDir())
	const what = "a compressed transaction that is too large for memory is put into a file"
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return fmt.Errorf("binlog: %s, and there is no room in directory %s: %w; make room, see: df -h %s", what, dir, err, dir)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %s, and directory %s takes none: %w; move the checkpoint to a directory that does, with --checkpoint", ErrSpool, what, dir, err)
	}
	return fmt.Errorf("binlog: %s in directory %s: %w", what, dir, err)
}
