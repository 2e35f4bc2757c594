package relay

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/rs/zerolog"
)

// TestLast: what is noted is read again, by another relay too, which notes when
// it is over; a directory that takes nothing is no error.
func TestLast(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	read := func() LastError {
		t.Helper()
		e, err := readLast(path)
		if err != nil || e == nil {
			t.Fatalf("read %+v, %v", e, err)
		}
		return *e
	}
	if e, err := readLast(path); e != nil || err != nil {
		t.Errorf("of no file: %+v, %v", e, err)
	}
	l := openLast(path, zerolog.Nop())
	l.over() // of nothing
	if _, err := os.Stat(path + lastSuffix); err == nil {
		t.Error("a relay without an error has made a file")
	}
	l.failed(errors.New("away"), 0)
	if e := read(); e.Error != "away" || e.ExitCode != 0 || e.OverAt != nil || e.At.IsZero() {
		t.Errorf("got %+v", e)
	}
	l.failed(errors.New("refused"), 78)
	if e := read(); e.Error != "refused" || e.ExitCode != 78 {
		t.Errorf("got %+v", e)
	}
	if info, err := os.Stat(path + lastSuffix); err != nil || info.Mode() != 0o640 {
		t.Errorf("the file is %v, %v", info.Mode(), err)
	}
	if err := os.WriteFile(path+lastSuffix+".relay-tmp", []byte("half"), 0o600); err != nil { // of a killed one
		t.Fatal(err)
	}
	openLast(path, zerolog.Nop()).over()
	if e := read(); e.Error != "refused" || e.OverAt == nil || e.OverAt.Before(e.At) {
		t.Errorf("over: %+v", e)
	}
	if err := os.WriteFile(path+lastSuffix, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if e, err := readLast(path); err == nil {
		t.Errorf("of half a file: %+v", e)
	}
	openLast(path, zerolog.Nop()).failed(errors.New("again"), 0)
	if e := read(); e.Error != "again" {
		t.Errorf("over half a file: %+v", e)
	}
	openLast(filepath.Join(path, "nowhere"), zerolog.Nop()).failed(errors.New("away"), 0)
}
