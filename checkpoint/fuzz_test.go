package checkpoint

import (
	"bytes"
	"errors"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// FuzzParse: nothing makes parse panic, and what it accepts is what encode
// gives, byte for byte, yearOne apart. Each input is tried as a whole file, and as the part
// before the last two lines with a right checksum put to it.
func FuzzParse(f *testing.F) {
	for _, name := range []string{"v1.json", "v1-full.json", "v1-uncommitted.json"} {
		b := golden(f, name)
		f.Add(b)
		f.Add(b[:bytes.LastIndex(b, []byte(sumBefore))])
	}
	f.Add([]byte{})
	f.Add([]byte("{}\n"))
	f.Add([]byte("{\n"))
	f.Add(make([]byte, 512))
	f.Fuzz(func(t *testing.T, in []byte) {
		sealed, err := seal(in)
		if err != nil {
			t.Skip()
		}
		for _, b := range [][]byte{in, sealed} {
			s, err := parse(b)
			if err != nil {
				if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
					t.Fatalf("error of no kind: %v", err)
				}
				continue
			}
			again, err := encode(s)
			if err != nil {
				t.Fatalf("what was read cannot be written: %v", err)
			}
			if head, _, _ := open(b); bytes.Contains(head, []byte(yearOne)) {
				b, _ = seal(written(head))
			}
			if !bytes.Equal(b, again) {
				t.Fatalf("read\n%s\nwritten\n%s", b, again)
			}
		}
	})
}

// FuzzEncode: each state is refused or comes back as it was.
func FuzzEncode(f *testing.F) {
	f.Add("mysql", "u:1-5", "u", int64(7), "a.b", int64(1), "u:6", int64(2), "a", "b", true, true)
	f.Add("mariadb", "", "", int64(0), "a.b", int64(-1), "", int64(0), "\xff", "\u2028<>&", false, true)
	f.Fuzz(func(t *testing.T, flavor, set, uuid string, seq int64, table string, nanos int64,
		gtid string, events int64, after, until string, partial, backfill bool) {
		at := time.Unix(nanos/1e9, nanos%1e9)
		s := State{Version: 1, Flavor: flavor, GTIDSet: set, ServerUUID: uuid, Sequence: seq, Table: table,
			SavedAt: at, CommittedAt: at.Add(time.Hour)}
		if partial {
			s.Partial = &Partial{GTID: gtid, Events: events}
		}
		if backfill {
			s.Backfill = &Backfill{After: after, Until: until, SnapshotAt: at}
		}
		s = s.clone()
		b, err := encode(s)
		if err != nil {
			sound := utf8.ValidString(flavor+" "+set+" "+uuid+" "+table+" "+gtid+" "+after+" "+until) &&
				flavor != "" && table != "" && seq >= 0 && gtid != "" && events > 0
			if sound {
				t.Fatalf("refused: %v", err)
			}
			return
		}
		got, err := parse(b)
		if err != nil {
			t.Fatalf("written\n%s\nread: %v", b, err)
		}
		if diff := cmp.Diff(s, got); diff != "" {
			t.Fatalf("(-written +read):\n%s", diff)
		}
	})
}
