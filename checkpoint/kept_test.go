package checkpoint

import (
	"os"
	"path/filepath"
	"testing"
)

// TestKept finds the newest copy that can be read, of this file and no other.
// It fails when the oldest is taken, or a damaged one.
func TestKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	file, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if got, _ := file.Kept(); got != "" {
		t.Errorf("without a copy it finds %s", got)
	}
	var newest string
	for n := range int64(3) {
		if err := file.Save(State{Flavor: "mysql", Table: "shop.outbox", Sequence: n}); err != nil {
			t.Fatal(err)
		}
		if newest, err = file.Keep(); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(newest)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		path + ".29990102T150405.000000Z":  whole[:len(whole)/2],
		path + ".30000102T150405.000000Z":  nil,
		path + ".zzz":                      whole,
		path + "2.29990102T150405.000000Z": whole,
	} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, state := file.Kept()
	if got != newest || state.Sequence != 2 {
		t.Errorf("got %s with the sequence %d, want %s with 2", got, state.Sequence, newest)
	}
}
