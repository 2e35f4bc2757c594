package checkpoint

import (
	"os"
	"path/filepath"
)

// Kept finds the newest copy made by Keep that can be read: its path and what
// it holds. The path is empty when there is none.
func (f *File) Kept() (path string, s State) { return newestKept(f.path) }

func newestKept(path string) (string, State) {
	entries, _ := os.ReadDir(filepath.Dir(path)) // in order of names, so of time
	for i := len(entries) - 1; i >= 0; i-- {
		name := filepath.Join(filepath.Dir(path), entries[i].Name())
		if !isKept(path, name) {
			continue
		}
		b, err := readFile(name)
		if err != nil {
			continue
		}
		if s, err := parse(b); err == nil {
			return name, s
		}
	}
	return "", State{}
}
