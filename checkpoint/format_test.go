package checkpoint

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const goldenDir = "../testdata/checkpoints"

var (
	simple = State{
		Version:     1,
		Flavor:      "mysql",
		GTIDSet:     "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-77:80:app:1-5",
		ServerUUID:  "3e11fa47-71ca-11e1-9e33-c80aa9429562",
		Sequence:    4711,
		Table:       "shop.outbox",
		SavedAt:     time.Date(2026, 1, 2, 15, 4, 5, 123456789, time.UTC),
		CommittedAt: time.Date(2026, 1, 2, 15, 4, 4, 900000000, time.UTC),
	}
	// columned is of version 2: it has columns.
	columned = State{
		Version:     2,
		Flavor:      "mysql",
		GTIDSet:     simple.GTIDSet,
		ServerUUID:  simple.ServerUUID,
		Sequence:    4711,
		Table:       "shop.outbox",
		SavedAt:     simple.SavedAt,
		LastGTID:    "3e11fa47-71ca-11e1-9e33-c80aa9429562:77",
		CommittedAt: simple.CommittedAt,
		Columns: []Column{
			{Name: "id", Type: "binary(16)", Octets: 16},
			{Name: "aggregate_id", Type: "bigint"},
			{Name: "état", Type: "enum('<a>','it''s')", Charset: "utf8mb4"},
			{Name: "payload", Type: "json"},
		},
		Partial: &Partial{GTID: "3e11fa47-71ca-11e1-9e33-c80aa9429562:78", Events: 12},
	}
	// chosen is of version 3: it has topics, and rows about to be stamped.
	chosen = State{
		Version:     3,
		Flavor:      "mysql",
		GTIDSet:     simple.GTIDSet,
		ServerUUID:  simple.ServerUUID,
		Sequence:    4711,
		Table:       "shop.outbox",
		SavedAt:     simple.SavedAt,
		CommittedAt: simple.CommittedAt,
		Columns:     columned.Columns,
		Topics:      &Topics{Only: []string{"order.*", "<é>"}},
		Backfill: &Backfill{
			After: `["7"]`, Until: `["99"]`, SnapshotAt: time.Date(2026, 1, 1, 0, 0, 0, 1000, time.UTC),
			TopicsBefore: &Topics{Only: []string{"order.placed"}, Except: []string{"*.test"}},
			Stamping:     &Stamping{After: `["9"]`, Sequence: 4713},
		},
	}
	// full has every field of version 1, and the characters that encoders escape in
	// different ways: a Go release that changes one must not make files of an
	// older build unreadable.
	full = State{
		Version:     1,
		Flavor:      "mysql",
		GTIDSet:     "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-77,\n4e11fa47-71ca-11e1-9e33-c80aa9429562:1-9",
		ServerUUID:  "3e11fa47-71ca-11e1-9e33-c80aa9429562",
		Sequence:    1<<63 - 1,
		Table:       "shop.outbox",
		SavedAt:     time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC),
		CommittedAt: time.Time{},
		Partial:     &Partial{GTID: "3e11fa47-71ca-11e1-9e33-c80aa9429562:78", Events: 12},
		Backfill: &Backfill{
			After:      "<a&b>\x00\x01\b\f\n\r\t\x1f\x7f\"\\/é\u2028\u2029\ufeff\ufffd\U0001f407",
			Until:      "  \"checksum\": \"sha256:00\"\n}\n",
			SnapshotAt: time.Date(2026, 1, 1, 0, 0, 0, 1000, time.UTC),
		},
	}
)

// TestGolden: a file of any version stays readable for ever, and is still what
// is written, v1-full.json apart: it says with the year 1 that committed_at is
// unknown. Do not write the golden files anew.
func TestGolden(t *testing.T) {
	for name, want := range map[string]State{"v1.json": simple, "v1-full.json": full, "v1-uncommitted.json": full, "v2.json": columned, "v3.json": chosen} {
		path := filepath.Join(goldenDir, name)
		got, err := Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b, err := encode(want)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b, file) && name != "v1-full.json" {
			t.Errorf("%s is now written as\n%s", name, b)
		}
	}
}

// TestChecksumByHand is the command of doc.go.
func TestChecksumByHand(t *testing.T) {
	for _, name := range []string{"v1.json", "v1-full.json", "v1-uncommitted.json", "v2.json", "v3.json"} {
		path := filepath.Join(goldenDir, name)
		out, err := exec.Command("sh", "-c", `sed 's/^  "checksum": ".*"$/  "checksum": ""/' "$1" | sha256sum`, "sh", path).Output()
		if err != nil {
			t.Fatal(err)
		}
		file, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		digits, _, _ := strings.Cut(string(out), " ")
		if !bytes.HasSuffix(file, []byte(sumBefore+sumKind+digits+sumAfter)) {
			t.Errorf("%s: by hand the checksum is %s", name, digits)
		}
	}
}

func golden(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(goldenDir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// refused fails unless parse refuses b as corrupt.
func refused(t *testing.T, b []byte, format string, args ...any) {
	t.Helper()
	s, err := parse(b)
	if !errors.Is(err, ErrCorrupt) || errors.Is(err, ErrVersion) {
		t.Errorf(format+": got error %v, want ErrCorrupt", append(args, err)...)
	}
	if diff := cmp.Diff(State{}, s); diff != "" {
		t.Errorf(format+": got a state with the error:\n%s", append(args, diff)...)
	}
}

func TestEveryBitFlipped(t *testing.T) {
	for _, name := range []string{"v1.json", "v1-full.json", "v1-uncommitted.json", "v2.json", "v3.json"} {
		b := golden(t, name)
		for i := range b {
			for bit := range 8 {
				b[i] ^= 1 << bit
				refused(t, b, "%s, byte %d, bit %d", name, i, bit)
				b[i] ^= 1 << bit
			}
			was := b[i]
			for _, c := range []byte("\x00 \n0129\"{},") {
				if c == was {
					continue
				}
				b[i] = c
				refused(t, b, "%s, byte %d is %q", name, i, c)
			}
			b[i] = was
		}
	}
}

func TestEveryCut(t *testing.T) {
	b := golden(t, "v1-full.json")
	for i := range b {
		refused(t, b[:i], "first %d bytes", i)
		if i > 0 {
			refused(t, b[i:], "without the first %d bytes", i)
		}
		zeros := append(bytes.Clone(b[:i]), make([]byte, len(b)-i)...)
		refused(t, zeros, "zeros from byte %d", i)
		refused(t, append(bytes.Clone(b[:i]), b[i+1:]...), "without byte %d", i)
		refused(t, append(append(bytes.Clone(b[:i]), ' '), b[i:]...), "a space before byte %d", i)
	}
}

// resealed is v1.json after an edit by someone who knows how to put the right
// checksum on it.
func resealed(t testing.TB, old, new string) []byte {
	t.Helper()
	b := golden(t, "v1.json")
	head := b[:bytes.LastIndex(b, []byte(sumBefore))]
	edited := bytes.Replace(head, []byte(old), []byte(new), 1)
	if bytes.Equal(head, edited) {
		t.Fatalf("no %q in v1.json", old)
	}
	sealed, err := seal(edited)
	if err != nil {
		t.Fatal(err)
	}
	return sealed
}

func TestParseRefuses(t *testing.T) {
	whole := string(golden(t, "v1.json"))
	edit := func(old, new string) string { return strings.Replace(whole, old, new, 1) }
	sealed := func(old, new string) string { return string(resealed(t, old, new)) }
	at := strings.LastIndex(whole, sumBefore)
	tests := []struct {
		name, file string
		want       error
		says       string
	}{
		{"empty", "", ErrCorrupt, "empty (0 bytes)"},
		{"a zero", "\x00", ErrCorrupt, "all zeros (1 bytes)"},
		{"zeros", strings.Repeat("\x00", len(whole)), ErrCorrupt, "all zeros"},
		{"a line feed", "\n", ErrCorrupt, `1 bytes that begin with "\n"`},
		{"text", "hello", ErrCorrupt, `begin with "hello"`},
		{"BOM", "\ufeff" + whole, ErrCorrupt, "edited"},
		{"null", "null", ErrCorrupt, "begin with"},
		{"empty object", "{}\n", ErrCorrupt, "last two lines"},
		{"cut", whole[:100], ErrCorrupt, "cut short"},
		{"half, then zeros", whole[:100] + strings.Repeat("\x00", 50), ErrCorrupt, `\x00`},
		{"no last line feed", strings.TrimSuffix(whole, "\n"), ErrCorrupt, "last two lines"},
		{"a line feed more", whole + "\n", ErrCorrupt, "last two lines"},
		{"garbage after", whole + "x", ErrCorrupt, "damaged"},
		{"twice", whole + whole, ErrCorrupt, "edited or damaged"},
		{"CR LF", strings.ReplaceAll(whole, "\n", "\r\n"), ErrCorrupt, "last two lines"},
		{"tabs", strings.ReplaceAll(whole, "  ", "\t"), ErrCorrupt, "last two lines"},
		{"compact", strings.Join(strings.Fields(whole), ""), ErrCorrupt, "last two lines"},
		{"edited set", edit(":1-77", ":1-78"), ErrCorrupt, "edited"},
		{"edited version", edit(`"version": 1`, `"version": 2`), ErrCorrupt, "edited"},
		{"field added", edit(`  "flavor"`, "  \"extra\": 1,\n  \"flavor\""), ErrCorrupt, "edited"},
		{"field removed", edit("  \"sequence\": 4711,\n", ""), ErrCorrupt, "edited"},
		{"no checksum", whole[:at-2] + "\n}\n", ErrCorrupt, "last two lines"},
		{"empty checksum", whole[:at] + sumBefore + sumAfter, ErrCorrupt, "last two lines"},
		{"upper-case checksum", whole[:at] + strings.ReplaceAll(strings.ToUpper(whole[at:]), "CHECKSUM\": \"SHA", "checksum\": \"sha"), ErrCorrupt, "last two lines"},
		{"other kind of checksum", edit("sha256:", "crc32c:"), ErrCorrupt, "last two lines"},
		{"only the last lines", whole[at:], ErrCorrupt, "edited"},

		{"newer", sealed(`"version": 1`, `"version": 4`), ErrVersion, "version is 4, this relay reads up to 3"},
		{"resealed: version 2 without columns", sealed(`"version": 1`, `"version": 2`), ErrCorrupt, "version is 2, want 1"},
		{"resealed: version 1 with columns", sealed(`"committed_at": "2026-01-02T15:04:04.9Z",`, "\"committed_at\": \"2026-01-02T15:04:04.9Z\",\n  \"columns\": [\n    {\n      \"name\": \"id\",\n      \"type\": \"int\"\n    }\n  ],"), ErrCorrupt, "version is 1, want 2"},
		{"newer with other fields", sealed(`"version": 1,`, "\"version\": 4,\n  \"extra\": {},"), ErrVersion, "version is 4"},

		{"resealed: version 0", sealed(`"version": 1`, `"version": 0`), ErrCorrupt, "version is 0"},
		{"resealed: version -1", sealed(`"version": 1`, `"version": -1`), ErrCorrupt, "version is -1"},
		{"resealed: version text", sealed(`"version": 1`, `"version": "1"`), ErrCorrupt, "version"},
		{"resealed: version null", sealed(`"version": 1`, `"version": null`), ErrCorrupt, "no version"},
		{"resealed: version huge", sealed(`"version": 1`, `"version": 1e99`), ErrCorrupt, "version"},
		{"resealed: no version", sealed("  \"version\": 1,\n", ""), ErrCorrupt, "no version"},
		{"resealed: not JSON", sealed(`"flavor"`, `flavor`), ErrCorrupt, "not JSON"},
		{"resealed: unknown field", sealed(`"version": 1,`, "\"version\": 1,\n  \"extra\": 1,"), ErrCorrupt, "extra"},
		{"resealed: missing field", sealed("  \"sequence\": 4711,\n", ""), ErrCorrupt, "not those of version 1"},
		{"resealed: repeated field", sealed(`"sequence": 4711,`, "\"sequence\": 4711,\n  \"sequence\": 4711,"), ErrCorrupt, "not those of version 1"},
		{"resealed: other case", sealed(`"sequence"`, `"Sequence"`), ErrCorrupt, "not those of version 1"},
		{"resealed: white space", sealed(`"sequence": `, `"sequence":  `), ErrCorrupt, "not those of version 1"},
		{"resealed: null partial", sealed(`"version": 1,`, "\"version\": 1,\n  \"partial\": null,"), ErrCorrupt, "not those of version 1"},
		{"resealed: zone", sealed(`05.123456789Z`, `05.123456789+01:00`), ErrCorrupt, "not those of version 1"},
		{"resealed: no time", sealed(`2026-01-02T15:04:05.123456789Z`, `yesterday`), ErrCorrupt, "yesterday"},
		{"resealed: sequence -1", sealed(`4711`, `-1`), ErrCorrupt, "sequence is -1"},
		{"resealed: sequence too big", sealed(`4711`, `9223372036854775808`), ErrCorrupt, "sequence"},
		{"resealed: no flavor", sealed(`"mysql"`, `""`), ErrCorrupt, "flavor is empty"},
		{"resealed: not UTF-8", sealed(`mysql`, "my\xffsql"), ErrCorrupt, "not those of version 1"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			s, err := parse([]byte(test.file))
			if !errors.Is(err, test.want) {
				t.Fatalf("got error %v, want %v", err, test.want)
			}
			if errors.Is(err, ErrCorrupt) && errors.Is(err, ErrVersion) {
				t.Error("the error is of both kinds")
			}
			if !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one line with %q", err, test.says)
			}
			if diff := cmp.Diff(State{}, s); diff != "" {
				t.Errorf("a state came with the error:\n%s", diff)
			}

			// From the file system it is the same, for everyone who reads.
			path := filepath.Join(t.TempDir(), "checkpoint.json")
			if err := os.WriteFile(path, []byte(test.file), 0o640); err != nil {
				t.Fatal(err)
			}
			_, rerr := Read(path)
			_, oerr := Open(path)
			for _, err := range []error{rerr, oerr} {
				if !errors.Is(err, test.want) || errors.Is(err, os.ErrNotExist) {
					t.Errorf("got error %v, want %v", err, test.want)
				}
				for _, part := range []string{path, "type: relay resume --from-gtid SET"} {
					if !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "\n") {
						t.Errorf("got %q, want one line with %q", err, part)
					}
				}
			}
			if b, err := os.ReadFile(path); err != nil || string(b) != test.file {
				t.Errorf("the damaged file was changed: %q, %v", b, err)
			}
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	tests := []struct {
		says string
		edit func(*State)
	}{
		{"flavor is empty", func(s *State) { s.Flavor = "" }},
		{"table is empty", func(s *State) { s.Table = "" }},
		{"version is 2", func(s *State) { s.Version = 2 }},
		{"version is 1, want 2", func(s *State) { s.Columns = []Column{{Name: "id"}} }},
		{"columns has one with the name \"\"", func(s *State) { s.Columns = []Column{{Type: "int"}} }},
		{"and -1 octets", func(s *State) { s.Columns = []Column{{Name: "id", Octets: -1}} }},
		{"columns.type is not UTF-8", func(s *State) { s.Columns = []Column{{Name: "id", Type: "\xff"}} }},
		{"version is 1, want 3", func(s *State) { s.Topics = &Topics{Only: []string{"a"}} }},
		{"topics has no globs", func(s *State) { s.Topics = &Topics{} }},
		{"topics has a glob that is empty", func(s *State) { s.Topics = &Topics{Except: []string{"a", ""}} }},
		{"topics has a glob that is empty or not UTF-8: \"\\xff\"", func(s *State) { s.Topics = &Topics{Only: []string{"\xff"}} }},
		{"backfill.topics_before has no globs", func(s *State) { s.Backfill.TopicsBefore = &Topics{} }},
		{`backfill.stamping is after "" with the sequence 9`, func(s *State) { s.Backfill.Stamping = &Stamping{Sequence: 9} }},
		{`the sequence 9, want one, and 10 or more`, func(s *State) { s.Sequence, s.Backfill.Stamping = 10, &Stamping{After: "a", Sequence: 9} }},
		{"sequence is -1", func(s *State) { s.Sequence = -1 }},
		{"partial.gtid is empty", func(s *State) { s.Partial.GTID = "" }},
		{"partial.events is 0", func(s *State) { s.Partial.Events = 0 }},
		{`backfill.after is not UTF-8: "\xff"`, func(s *State) { s.Backfill.After = "\xff" }},
		{"backfill.until is not UTF-8", func(s *State) { s.Backfill.Until = "a\xc3" }},
		{"gtid_set is not UTF-8", func(s *State) { s.GTIDSet = "\xed\xa0\x80" }},
		{"year", func(s *State) { s.CommittedAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }},
	}
	for _, test := range tests {
		s := full.clone()
		test.edit(&s)
		if _, err := encode(s); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("got error %v, want %q", err, test.says)
		}
	}
	if _, err := seal(make([]byte, maxSize)); err == nil || !strings.Contains(err.Error(), "at most") {
		t.Errorf("got error %v for a file that is too big", err)
	}
}
