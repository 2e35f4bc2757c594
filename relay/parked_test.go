package relay

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/checkpoint"
)

// parkFour parks four events of one aggregate and returns the file's path, its
// lines and the checkpoint's mark behind the first three.
func parkFour(t *testing.T) (path string, lines [][]byte, mark *checkpoint.Parked) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "checkpoint.json")
	l := mustLot(t, path)
	for n := range 4 {
		it := good(fmt.Sprint(n), "a")
		if n == 0 {
			it = bad("0", "a", "too long", false)
		}
		it.event.Sequence = int64(n + 1)
		l.takes(it)
		if _, err := l.add([]*item{it}); err != nil {
			t.Fatal(err)
		}
		if n == 2 {
			mark = l.mark()
		}
	}
	path += parkedSuffix
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return path, bytes.SplitAfter(content, []byte("\n"))[:4], mark
}

// TestParkedGuard: a file that is not what the checkpoint tells of is refused
// with 78, whatever was done to it; what no checkpoint tells of may be missing.
// Seen to fail without checksums and without the mark: all were read.
func TestParkedGuard(t *testing.T) {
	path, lines, mark := parkFour(t)
	edit := func(line int, before, after string) [][]byte {
		edited := slices.Clone(lines)
		edited[line] = bytes.Replace(edited[line], []byte(before), []byte(after), 1)
		if bytes.Equal(edited[line], lines[line]) {
			t.Fatalf("line %d has no %s", line, before)
		}
		return edited
	}
	bare, _ := unsealed(bytes.TrimSpace(lines[2]))
	for name, tt := range map[string]struct {
		lines [][]byte
		want  string // in the refusal; empty: read
	}{
		"whole":                     {lines, ""},
		"the last line half":        {append(slices.Clone(lines[:3]), lines[3][:20]), ""},
		"the last line gone":        {lines[:3], ""},
		"a line gone that counts":   {lines[:2], "its end was cut off"},
		"half a line that counts":   {append(slices.Clone(lines[:2]), lines[2][:20]), "its end was cut off"},
		"empty":                     {nil, "which has 0"},
		"a line in the middle gone": {slices.Delete(slices.Clone(lines), 1, 2), "line 2 has the checksum"},
		"the first line gone":       {lines[1:], "line 1 has the checksum"},
		"two swapped":               {[][]byte{lines[0], lines[2], lines[1], lines[3]}, "line 2 has the checksum"},
		"one twice":                 {append(slices.Clone(lines), lines[3]), "line 5 has the checksum"},
		"a sequence edited":         {edit(1, `"sequence":2`, `"sequence":5`), "line 2 has the checksum"},
		"a checksum taken out":      {[][]byte{lines[0], lines[1], append(bare, '\n'), lines[3]}, "line 3 has the checksum"},
		"no JSON":                   {[][]byte{[]byte("nothing\n")}, "line 1 is not one"},
		"gone, and was never there": {[][]byte{[]byte(`{"gone":"sent","id":"9"}` + "\n")}, "line 1 does not belong there"},
	} {
		if err := os.WriteFile(path, slices.Concat(tt.lines...), 0o640); err != nil {
			t.Fatal(err)
		}
		_, p, err := readParked(path)
		if err == nil {
			err = p.fits(mark)
		}
		switch {
		case tt.want == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case tt.want != "" && (err == nil || ExitCode(err) != ExitUnfit || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "--drop-all")):
			t.Errorf("%s: got %v, want %q", name, err, tt.want)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, p, err := readParked(path); err != nil || p.fits(nil) != nil || ExitCode(p.fits(mark)) != ExitUnfit {
		t.Errorf("without the file: %v, %v", err, p.fits(mark))
	}
}

// TestParkedOld: a file of which the checkpoint does not tell is refused when the
// position is behind its events, and read when it is before them, as after a
// crash between the two. Without the refusal an old file that was put back is sent
// again.
func TestParkedOld(t *testing.T) {
	path, lines, _ := parkFour(t)
	if err := os.WriteFile(path, slices.Concat(lines...), 0o640); err != nil {
		t.Fatal(err)
	}
	checkpointPath := strings.TrimSuffix(path, parkedSuffix)
	for sequence, want := range map[int64]int{0: 0, 1: ExitUnfit, 9: ExitUnfit} {
		_, err := parkedBeside(checkpointPath, checkpoint.State{Sequence: sequence}, true)
		if err == nil && want != 0 || err != nil && ExitCode(err) != want {
			t.Errorf("at sequence %d: %v", sequence, err)
		}
	}
	mark, err := resumedMark(checkpointPath, nil, Override{}, ParkBad, io.Discard)
	if err != nil || mark == nil || mark.Events != 4 {
		t.Fatalf("a resume takes %+v, %v", mark, err)
	}
	if _, err := parkedBeside(checkpointPath, checkpoint.State{Sequence: 9, Parked: mark}, true); err != nil {
		t.Error(err)
	}
}

// TestParkedBefore: the file of a relay that wrote no checksums is read and
// gone on with, and from then on guarded from its first line.
func TestParkedBefore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	before := `{"id":"1","aggregate_id":"a","reason":"too long","sequence":1}` + "\n" + `{"id":"2","aggregate_id":"a","behind":"1","sequence":2}` + "\n"
	if err := os.WriteFile(path+parkedSuffix, []byte(before), 0o640); err != nil {
		t.Fatal(err)
	}
	l := mustLot(t, path)
	if mark := l.mark(); mark == nil || mark.Events != 2 {
		t.Errorf("the checkpoint would have %+v", mark)
	}
	if _, err := l.add([]*item{good("3", "a")}); err != nil {
		t.Fatal(err)
	}
	if list, _, err := readParked(path + parkedSuffix); err != nil || len(list) != 3 {
		t.Errorf("%d events, %v", len(list), err)
	}
	content, err := os.ReadFile(path + parkedSuffix)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+parkedSuffix, bytes.Replace(content, []byte("long"), []byte("tall"), 1), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readParked(path + parkedSuffix); err == nil {
		t.Error("an edited line was read")
	}
}

// TestParkedRewritten: a file that was written anew fits the checkpoint before
// it and the one behind it, and is guarded in between as well. Seen to fail
// without the first line: a crash before the checkpoint's save left a pair that
// was refused.
func TestParkedRewritten(t *testing.T) {
	path, _, mark := parkFour(t)
	list, p, err := readParked(path)
	if err != nil {
		t.Fatal(err)
	}
	later, err := p.rewrite(list[1:], mark, nil)
	if err != nil || later.Events != 3 {
		t.Fatalf("got %+v, %v", later, err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut, want := range map[int]bool{0: true, 1: false, 2: false, 3: false} {
		lines := bytes.SplitAfter(content, []byte("\n"))[:4-cut]
		if err := os.WriteFile(path, slices.Concat(lines...), 0o640); err != nil {
			t.Fatal(err)
		}
		got, p, err := readParked(path)
		if err != nil || len(got) != 3-cut || (p.fits(mark) == nil) != want || (p.fits(later) == nil) != want {
			t.Errorf("%d lines cut off: %d events, %v; %v; %v", cut, len(got), err, p.fits(mark), p.fits(later))
		}
	}
	if _, p, err = readParked(path); err != nil {
		t.Fatal(err)
	}
	if none, err := p.rewrite(nil, mark, nil); err != nil || none != nil {
		t.Errorf("nothing waits, and the checkpoint would have %+v, %v", none, err)
	}
	if got, p, err := readParked(path); err != nil || len(got) != 0 || p.fits(mark) != nil {
		t.Errorf("%d events, %v, %v", len(got), err, p.fits(mark))
	}
}

// TestParkedMoved: the position does not pass an event whose line went into a
// file that is not there any more. Seen to fail without the look at the path.
func TestParkedMoved(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	l := mustLot(t, path)
	if err := os.Rename(path+parkedSuffix, path+".away"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.add([]*item{bad("1", "a", "too long", false)}); !errors.Is(err, ErrUnfit) {
		t.Errorf("got %v", err)
	}
}
