package checkpoint

import "errors"

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
