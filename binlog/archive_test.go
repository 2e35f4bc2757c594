package binlog_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/schema"
)

// captured reads a file of testdata/binlog.
func captured(tb testing.TB, name string) []byte {
	tb.Helper()
	content, err := os.ReadFile(filepath.Join("..", "testdata", "binlog", name))
	if err != nil {
		tb.Fatal(err)
	}
	return content
}

// keep writes a log file of this test.
func keep(tb testing.TB, name string, content []byte) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), name)
	if err := os.WriteFile(path, content, 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// eventsOf splits a log file's content behind its first four bytes.
func eventsOf(content []byte) (events [][]byte) {
	for rest := content[4:]; len(rest) > 0; {
		size := int(rest[9]) | int(rest[10])<<8 | int(rest[11])<<16
		events, rest = append(events, rest[:size]), rest[size:]
	}
	return events
}

// inUse marks a log file as one that its server had not closed.
func inUse(content []byte) []byte {
	content = bytes.Clone(content)
	content[4+17] |= 1
	return content
}

// TestArchiveRefusesFiles: what is no log file, or not a whole one, is named
// with what to do. It fails when any of these is read as an empty history.
func TestArchiveRefusesFiles(t *testing.T) {
	full := captured(t, "full.bin")
	encrypted := append([]byte("\xfdbin"), full[4:]...)
	old := bytes.Clone(full)
	old[4+19] = 3
	anonymous := append(bytes.Clone(full[:4]), slices.Concat(eventsOf(full)[0], eventsOf(full)[2])...)
	tests := []struct {
		name    string
		content []byte
		want    error
		text    string
	}{
		{"empty", nil, binlog.ErrFiles, "is no binlog file of MySQL or MariaDB"},
		{"foreign", []byte("#!/bin/sh\necho"), binlog.ErrFiles, `begins with "#!/b"`},
		{"encrypted", encrypted, binlog.ErrFiles, "mysqlbinlog --read-from-remote-server --raw encrypted"},
		{"magic only", full[:4], binlog.ErrDamaged, "no events"},
		{"no format description", append(bytes.Clone(full[:4]), eventsOf(full)[1]...), binlog.ErrDamaged, "want a format description"},
		{"of an old server", old, binlog.ErrFiles, "format 3"},
		{"without previous GTIDs", anonymous, binlog.ErrFiles, "gtid_mode=ON"},
		{"compressed and cut off", gzipped(t, full)[:len(full)/4], binlog.ErrDamaged, "it ends too early; copy it again"},
		{"compressed and cut off at once", gzipped(t, full)[:11], binlog.ErrDamaged, "it ends too early; copy it again"},
		{"compressed by half a head", gzipped(t, full)[:4], binlog.ErrDamaged, "it ends too early; copy it again"},
		{"two in one", append(bytes.Clone(full), full...), binlog.ErrFiles, "give each as a file of its own"},
		{"zeros behind", append(inUse(full), make([]byte, 100)...), binlog.ErrDamaged, "an event of 0 bytes; copy it again"},
		{"index of GTIDs", []byte("\xfe\xfe\x0c\x01\x01"), binlog.ErrFiles, "leave the .idx files out"},
		{"compressed nothing", gzipped(t, nil), binlog.ErrDamaged, "it ends too early; copy it again"},
		{"compressed, and more behind", append(gzipped(t, full), make([]byte, 20)...), binlog.ErrDamaged, "cannot be unpacked: gzip: invalid header"},
		{"compressed by zstd and cut off", []byte("\x28\xb5\x2f\xfd"), binlog.ErrDamaged, "it ends too early; copy it again"},
		{"compressed by another program", []byte("BZh91AY"), binlog.ErrFiles, "must be unpacked first"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			path := keep(t, tt.name, tt.content)
			_, _, err := playBack(t, archived(t, path))
			if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.text) || !strings.Contains(err.Error(), path) {
				t.Errorf("got error %v, want %v with %q and the path", err, tt.want, tt.text)
			}
		})
	}
	for _, path := range []string{t.TempDir(), filepath.Join(t.TempDir(), "none")} {
		if _, _, err := playBack(t, archived(t, path)); !errors.Is(err, binlog.ErrFiles) || !strings.Contains(err.Error(), path) {
			t.Errorf("got error %v, want %v with the path", err, binlog.ErrFiles)
		}
	}
}

func gzipped(tb testing.TB, content []byte) []byte {
	tb.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(content); err != nil {
		tb.Fatal(err)
	}
	if err := w.Close(); err != nil {
		tb.Fatal(err)
	}
	return out.Bytes()
}

// TestArchiveCompressed: a file that gzip or zstd has packed reads as the file
// itself.
func TestArchiveCompressed(t *testing.T) {
	named := captured(t, "named.bin")
	encoder, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	want, _, err := playBack(t, archived(t, keep(t, "log", named)))
	if err != nil || len(want) == 0 {
		t.Fatalf("got %d transactions, %v", len(want), err)
	}
	for _, content := range [][]byte{gzipped(t, named), encoder.EncodeAll(named, nil)} {
		got, _, err := playBack(t, archived(t, keep(t, "log", content)))
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v, transactions (-want +got):\n%s", err, diff)
		}
	}
}

// TestArchiveCut: of a file that is cut off anywhere, either all that is handed
// out is what the whole file gives up to there and the cut is between
// transactions, which is told, or nothing is handed out and the place is named.
// Of one that the server had not closed it is what was whole. It fails when the
// half of a transaction at the end goes out.
func TestArchiveCut(t *testing.T) {
	for name, step := range map[string]int{"full.bin": 1, "named.bin": 31, "mariadb.bin": 31} {
		t.Run(name, func(t *testing.T) { cutAnywhere(t, name, step) })
	}
}

func cutAnywhere(t *testing.T, name string, step int) {
	content := captured(t, name)
	path := keep(t, "log", content)
	cfg := archived(t, path)
	if name == "mariadb.bin" { // its columns have no names
		cfg.Define = func(context.Context) (*schema.Table, *binlog.GTIDSet, error) {
			none, err := binlog.ParseGTIDSet("")
			return mariaTable(t), none, err
		}
	}
	whole, _, err := playBack(t, cfg)
	if err != nil {
		t.Fatal(err)
	}
	events := eventsOf(content)
	head := 4 + len(events[0]) + len(events[1])
	ends := map[int]bool{head: true}                                       // of groups, and of the head
	for at, rest := head, events[2:]; rest[0][4] == 161; rest = rest[1:] { // MariaDB's binlog checkpoints
		at += len(rest[0])
		ends[at] = true
	}
	for _, tx := range whole {
		ends[int(tx.Place.Offset)] = true
	}
	for size := 0; size < int(whole[len(whole)-1].Place.Offset); size++ {
		if size%step != 0 && !ends[size] {
			continue
		}
		for _, open := range []bool{false, true} {
			part := content[:size]
			if open && size > 4+17 {
				part = inUse(part)
			}
			if err := os.WriteFile(path, part, 0o600); err != nil {
				t.Fatal(err)
			}
			got, _, err := playBack(t, cfg)
			want := 0
			for want < len(whole) && int(whole[want].Place.Offset) <= size {
				want++
			}
			switch {
			case size >= head && (open || ends[size]):
				if err != nil {
					t.Fatalf("cut at %d (in use: %t): %v", size, open, err)
				}
				if diff := cmp.Diff(whole[:want], got); diff != "" && want+len(got) > 0 {
					t.Fatalf("cut at %d: transactions (-want +got):\n%s", size, diff)
				}
				if ends[size] {
					if archive, err := binlog.OpenArchive(t.Context(), cfg); err != nil || archive.Ended {
						t.Fatalf("cut at %d: it is not told that the file has no end, %v", size, err)
					}
				}
			case err == nil || len(got) > 0 || !strings.Contains(err.Error(), path):
				t.Fatalf("cut at %d (in use: %t): got %d transactions and error %v, want none and one that names the file", size, open, len(got), err)
			case size >= head && (!errors.Is(err, binlog.ErrDamaged) || !strings.Contains(err.Error(), "copy it again")):
				t.Fatalf("cut at %d: got error %v, want %v with what to do", size, err, binlog.ErrDamaged)
			case size >= 4 && !errors.Is(err, binlog.ErrDamaged) && !errors.Is(err, binlog.ErrFiles):
				t.Fatalf("cut at %d: got error %v, want one that has a code", size, err)
			}
		}
	}
}

// TestArchiveFlips: a file with a wrong bit anywhere gives what it gave, or is
// refused before anything is handed out.
func TestArchiveFlips(t *testing.T) {
	full := captured(t, "full.bin")
	path := keep(t, "full.bin", full)
	whole, _, err := playBack(t, archived(t, path))
	if err != nil {
		t.Fatal(err)
	}
	for i := range full {
		content := bytes.Clone(full)
		content[i] ^= 1 << (i % 8)
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		got, _, err := playBack(t, archived(t, path))
		switch {
		case err != nil && len(got) > 0:
			t.Errorf("byte %d: got %d transactions, then %v", i, len(got), err)
		case err == nil && !cmp.Equal(whole, got):
			t.Errorf("byte %d: got other transactions:\n%s", i, cmp.Diff(whole, got))
		}
	}
}
