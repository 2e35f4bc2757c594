package binlog

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/outboxrelay/relay/schema"
)

// fileLog begins a log file on disk, with names in its table maps, behind the
// transactions 1 to previous of the fakeServer.
func fileLog(previous uint64) *fakeLog {
	l := (&fakeLog{names: true, offset: 4}).format(true)
	body := le.AppendUint64(nil, min(previous, 1))
	if previous > 0 {
		body = append(body, fakeServer[:]...)
		body = le.AppendUint64(le.AppendUint64(le.AppendUint64(body, 1), 1), previous+1)
	}
	return l.event(replication.PREVIOUS_GTIDS_EVENT, body)
}

// write makes the file.
func (l *fakeLog) write(tb testing.TB, name string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), name)
	if err := os.WriteFile(path, append([]byte(logMagic), bytes.Join(l.events, nil)...), 0o600); err != nil {
		tb.Fatal(err)
	}
	return path
}

// playFiles lists the ids of all events in files; of each its GTID's number
// stands before it.
func playFiles(tb testing.TB, wanted func(GTID) bool, paths ...string) (ids string, p *Playback, err error) {
	tb.Helper()
	archive, err := OpenArchive(tb.Context(), ArchiveConfig{Files: paths, Database: "shop", Table: "outbox"})
	if err != nil {
		return "", nil, err
	}
	p = archive.Play(tb.Context(), wanted)
	defer p.Close()
	var list []string
	for {
		tx, err := p.Next(tb.Context())
		if err == io.EOF {
			return strings.Join(list, " "), p, nil
		}
		if err != nil {
			return strings.Join(list, " "), p, err
		}
		for _, e := range tx.Events {
			list = append(list, fmt.Sprintf("%d%s", tx.GTID.Number, e.ID))
		}
	}
}

func all(GTID) bool { return true }

func only(numbers ...int64) func(GTID) bool {
	return func(g GTID) bool { return slices.Contains(numbers, g.Number) }
}

// full tells the columns' collations as well, which a definition is made of.
func (l *fakeLog) full() *fakeLog { l.metadata = true; return l }

// TestArchiveSeries: several files are one history. Those in another order,
// with one missing, one twice or of another server are refused before anything
// of them goes out, with what to give instead.
func TestArchiveSeries(t *testing.T) {
	one := fileLog(0).full().gtid(1).begin().insert("a").xid().rotate("binlog.000002", 4).write(t, "one")
	two := fileLog(1).full().gtid(2).begin().insert("b", "c").xid().gtid(3).begin().insert("d").xid().rotate("binlog.000003", 4).write(t, "two")
	empty := fileLog(3).full().event(replication.STOP_EVENT, nil).write(t, "empty")
	three := fileLog(3).full().gtid(4).begin().insert("e").xid().write(t, "three")
	again := fileLog(3).full().gtid(2).begin().insert("b").xid().write(t, "again")
	for _, tt := range []struct {
		files []string
		ids   string
		text  string // of the refusal
	}{
		{[]string{one, two, empty, three}, "1a 2b 2c 3d 4e", ""},
		{[]string{two}, "2b 2c 3d", ""},
		{[]string{two, three}, "2b 2c 3d 4e", ""},
		{[]string{empty}, "", ""},
		{[]string{two, one}, "", "type: --from-binlog " + one + " " + two},
		{[]string{one, three}, "", "2 transactions are missing: " + fakeServer.String() + ":2-3; give the files that have them as well, beginning with binlog.000002"},
		{[]string{one, one}, "", one + " was not written behind " + one + ": it does not know 1 transactions before it: " + fakeServer.String() + ":1"},
		{[]string{two, again}, "", again + " has transaction"},
	} {
		ids, _, err := playFiles(t, all, tt.files...)
		if ids != tt.ids || (err != nil) != (tt.text != "") || err != nil && (!errors.Is(err, ErrFiles) || !strings.Contains(err.Error(), tt.text)) {
			t.Errorf("%v: got %q and error %v, want %q and %q", tt.files, ids, err, tt.ids, tt.text)
		}
	}
}

// TestArchiveTorn: half of a transaction in a file that its server had closed
// is damage, also when a large part of it was whole; at the end of one in use
// it is not there. It fails when parts of it go out.
func TestArchiveTorn(t *testing.T) {
	many := make([]string, partEvents+1)
	for i := range many {
		many[i] = fmt.Sprintf("p%d", i)
	}
	torn := func() *fakeLog {
		return fileLog(0).full().gtid(1).begin().insert("a").xid().gtid(2).begin().insert(many...).insert("b")
	}
	ids, _, err := playFiles(t, all, torn().write(t, "closed"))
	if ids != "" || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "ends inside of transaction "+fakeServer.String()+":2") {
		t.Errorf("closed: got %q and error %v", ids, err)
	}
	within := torn().gtid(3).begin().insert("c").xid()
	if ids, _, err := playFiles(t, all, within.write(t, "within")); ids != "" || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "within before offset") {
		t.Errorf("within: got %q and error %v", ids, err)
	}
	open := torn()
	open.events[0][17] |= byte(replication.LOG_EVENT_BINLOG_IN_USE_F)
	path := open.write(t, "open")
	if ids, _, err := playFiles(t, all, path); ids != "1a" || err != nil {
		t.Errorf("in use: got %q and error %v, want 1a", ids, err)
	}
	next := fileLog(2).full().gtid(3).begin().insert("c").xid().write(t, "next")
	if ids, _, err := playFiles(t, all, path, next); ids != "" || !errors.Is(err, ErrFiles) || !strings.Contains(err.Error(), fakeServer.String()+":2") {
		t.Errorf("in use, and another behind it: got %q and error %v, want the transaction that is missing", ids, err)
	}
}

// TestArchiveGrows: what the server writes between the look at a file and its
// playback does not come.
func TestArchiveGrows(t *testing.T) {
	log := fileLog(0).full().gtid(1).begin().insert("a").xid()
	path := log.write(t, "log")
	archive, err := OpenArchive(t.Context(), ArchiveConfig{Files: []string{path}, Database: "shop", Table: "outbox"})
	if err != nil {
		t.Fatal(err)
	}
	log.gtid(2).begin().insert("b")
	if err := os.WriteFile(path, append([]byte(logMagic), bytes.Join(log.events, nil)...), 0o600); err != nil {
		t.Fatal(err)
	}
	p := archive.Play(t.Context(), all)
	defer p.Close()
	if tx, err := p.Next(t.Context()); err != nil || len(tx.Events) != 1 {
		t.Errorf("got %v, %v, want transaction 1", tx, err)
	}
	if tx, err := p.Next(t.Context()); err != io.EOF {
		t.Errorf("got %v, %v, want the end", tx, err)
	}
}

// TestArchiveChanges: a file that is not what it was when it was looked at is
// refused: cut off, behind whole transactions too, or another one in its place.
// It fails where what is gone is taken for the end.
func TestArchiveChanges(t *testing.T) {
	log := fileLog(0).full().gtid(1).begin().insert("a").xid()
	short := append([]byte(logMagic), bytes.Join(log.events, nil)...)
	path := log.gtid(2).begin().insert("b").xid().write(t, "log")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	other := fileLog(0).full().gtid(3).begin().insert("c").xid().write(t, "other")
	shorter := short[:len(short)-1]
	inUse := bytes.Clone(shorter)
	inUse[len(logMagic)+17] |= byte(replication.LOG_EVENT_BINLOG_IN_USE_F)
	for _, tt := range []struct {
		text   string
		change func() error
	}{
		{"ago, with whole", func() error { return os.WriteFile(path, short, 0o600) }},
		{"ago, with whole", func() error { return os.WriteFile(path, shorter, 0o600) }},
		{"ago, with whole", func() error { return os.WriteFile(path, inUse, 0o600) }},
		{"was replaced", func() error { return os.Rename(other, path) }},
	} {
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		archive, err := OpenArchive(t.Context(), ArchiveConfig{Files: []string{path}, Database: "shop", Table: "outbox"})
		if err == nil {
			err = tt.change()
		}
		if err != nil {
			t.Fatal(err)
		}
		p := archive.Play(t.Context(), all)
		defer p.Close()
		for err == nil {
			_, err = p.Next(t.Context())
		}
		if !strings.Contains(err.Error(), tt.text) || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v, want %q", err, tt.text)
		}
	}
}

// TestArchiveSelects: only what is wanted goes out, an XA transaction by the
// GTID that committed it. What cannot be read stops it only where it is wanted.
func TestArchiveSelects(t *testing.T) {
	log := func() *fakeLog { return fileLog(0).full().gtid(1).begin().insert("a").xid() }
	xa := log().xaGroup(2, "X'61',X'',1", "b").gtid(3).query("XA COMMIT X'61',X'',1").
		xaGroup(4, "X'62',X'',1", "c").gtid(5).query("XA ROLLBACK X'62',X'',1").xaGroup(6, "X'63',X'',1", "d").write(t, "xa")
	for _, tt := range []struct {
		wanted func(GTID) bool
		ids    string
	}{{all, "1a 3b"}, {only(1), "1a"}, {only(3), "3b"}, {only(2), ""}} {
		ids, p, err := playFiles(t, tt.wanted, xa)
		if ids != tt.ids || err != nil {
			t.Errorf("got %q, %v, want %q", ids, err, tt.ids)
		}
		if undecided := p.Undecided(); len(undecided) != 1 || undecided[0].Number != 6 {
			t.Errorf("got %v undecided, want transaction 6", undecided)
		}
	}
	text := log().gtid(2).begin().query("INSERT INTO outbox VALUES (1)").xid().write(t, "text")
	lost := log().gtid(2).query("XA COMMIT X'61',X'',1").write(t, "lost")
	for path, way := range map[string]string{text: "look for its rows in the table", lost: "in an earlier file"} {
		if ids, _, err := playFiles(t, only(1), path); ids != "1a" || err != nil {
			t.Errorf("%s: got %q, %v, want 1a alone", path, ids, err)
		}
		_, _, err := playFiles(t, all, path)
		if !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), way) || !strings.Contains(err.Error(), path) || strings.Contains(err.Error(), "resume") {
			t.Errorf("%s: got error %v, want %v with the way to go on", path, err, ErrUnreadable)
		}
	}
}

// TestArchiveLarge: events that are too large to be held are read where they
// stand: rows of the outbox, a compressed transaction with them; those of other
// tables are passed over. Their checksums are looked at all the same, and a file
// that ends in one is cut off. It fails when one is taken from a wrong offset.
func TestArchiveLarge(t *testing.T) {
	images := func(from string) (list [][]byte) {
		for n := range heldEvent/50000 + 10 {
			list = append(list, outboxRow(fmt.Sprint(from, n), strings.Repeat(from, 50000)))
		}
		return list
	}
	many := func(l *fakeLog, from string) *fakeLog {
		return l.outbox().rows(replication.WRITE_ROWS_EVENTv2, outboxID, len(outboxMapped), images(from)...)
	}
	inside := many((&fakeLog{inner: true, names: true}).full().begin(), "c").xid()
	log := many(fileLog(0).full().gtid(1).begin().insert("a").foreign(), "b")
	log.rows(replication.WRITE_ROWS_EVENTv2, foreignID, 1, make([]byte, heldEvent)).xid().
		gtid(2).compressed(replication.NONE, inside).gtid(3).compressed(replication.ZSTD, inside).gtid(4).begin().insert("d").xid()
	path := log.write(t, "log")
	ids, _, err := playFiles(t, all, path)
	if got, want := len(strings.Fields(ids)), 2+3*len(images("b")); got != want || err != nil || !strings.HasPrefix(ids, "1a 1b0 ") || !strings.HasSuffix(ids, " 4d") {
		t.Fatalf("got %d events, %v, want %d", got, err, want)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	if _, err := w.Write(content); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	rewrite := func(content []byte) (string, error) {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		ids, _, err := playFiles(t, all, path)
		return ids, err
	}
	if again, err := rewrite(packed.Bytes()); again != ids || err != nil {
		t.Errorf("packed: got %d events, %v", len(strings.Fields(again)), err)
	}
	at := len(logMagic)
	for i, raw := range log.events {
		if middle := at + len(raw)/2; len(raw) > heldEvent {
			damaged := bytes.Clone(content)
			damaged[middle] ^= 1
			if ids, err := rewrite(damaged); ids != "" || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "wrong checksum") {
				t.Errorf("event %d with a wrong bit: got %q, %v", i, ids, err)
			}
			if ids, err := rewrite(content[:middle]); ids != "" || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "copy it again") {
				t.Errorf("event %d cut off: got %q, %v", i, ids, err)
			}
			if ids, err := rewrite(content[:at+len(raw)-2]); ids != "" || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "copy it again") {
				t.Errorf("event %d cut off in its checksum: got %q, %v", i, ids, err)
			}
		}
		at += len(raw)
	}
}

// TestArchiveNames: columns without names need a server's definition, which is
// asked for once, and only then.
func TestArchiveNames(t *testing.T) {
	log := fileLog(0)
	log.names = false
	path := log.gtid(1).begin().insert("a").xid().gtid(2).begin().insert("b").xid().write(t, "log")
	if _, _, err := playFiles(t, all, path); !errors.Is(err, ErrFiles) || !strings.Contains(err.Error(), "--mysql-dsn") {
		t.Errorf("got error %v, want %v with --mysql-dsn", err, ErrFiles)
	}
	asked := 0
	cfg := ArchiveConfig{Files: []string{path}, Database: "shop", Table: "outbox", Define: func(context.Context) (*schema.Table, *GTIDSet, error) {
		asked++
		return outboxTable(t), emptySet(), nil
	}}
	archive, err := OpenArchive(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	p := archive.Play(t.Context(), all)
	defer p.Close()
	for n := range 2 {
		if tx, err := p.Next(t.Context()); err != nil || len(tx.Events) != 1 || tx.Events[0].Bad != nil {
			t.Fatalf("transaction %d: got %v, %v", n+1, tx, err)
		}
	}
	if asked != 1 {
		t.Errorf("the definition was asked for %d times", asked)
	}
}

// TestArchiveWithoutGTID: transactions that cannot be told apart are refused.
func TestArchiveWithoutGTID(t *testing.T) {
	path := fileLog(0).full().event(replication.ANONYMOUS_GTID_EVENT, make([]byte, 42)).begin().insert("a").xid().write(t, "log")
	if _, _, err := playFiles(t, all, path); !errors.Is(err, ErrFiles) || !strings.Contains(err.Error(), "gtid_mode") {
		t.Errorf("got error %v, want %v with gtid_mode", err, ErrFiles)
	}
}

// FuzzArchive reads any bytes as a log file. Whatever it makes of them, it
// comes to an end, without a panic; what goes out has a name, stands in the
// archive's set, and comes again when the file is read again.
func FuzzArchive(f *testing.F) {
	for _, name := range []string{"full.bin", "minimal.bin", "named.bin", "mariadb.bin"} {
		content, err := os.ReadFile(filepath.Join("..", "testdata", "binlog", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	for _, log := range []*fakeLog{
		fileLog(0).full().gtid(1).begin().insert("a").xid().rotate("binlog.000002", 4),
		fileLog(7).full().tagged("blue", 5).begin().insert("a").query("SAVEPOINT s").insert("b").query("ROLLBACK TO s").xid(),
		fileLog(1<<40).full().xaGroup(2, "X'61',X'',1", "b"),
	} {
		f.Add(append([]byte(logMagic), bytes.Join(log.events, nil)...))
	}
	path := filepath.Join(f.TempDir(), "log")
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		archive, err := OpenArchive(t.Context(), ArchiveConfig{Files: []string{path}, Database: "shop", Table: "outbox"})
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("got an error that names no file: %v", err)
			}
			return
		}
		read := func() (names []string, failed error) {
			p := archive.Play(t.Context(), all)
			defer p.Close()
			for range len(data) + 1<<20 {
				tx, err := p.Next(t.Context())
				if err != nil {
					return names, err
				}
				if !tx.GTID.IsZero() && !archive.Set.Has(tx.GTID) || tx.GTID.IsZero() && (tx.Prepared.IsZero() || len(tx.Events) > 0) {
					t.Errorf("got %+v, which is not in %s", tx, archive.Set)
				}
				names = append(names, fmt.Sprint(tx.GTID, tx.Prepared, len(tx.Events), tx.Last))
			}
			t.Error("no end")
			return nil, nil
		}
		first, err := read()
		second, again := read()
		if !slices.Equal(first, second) || (err == io.EOF) != (again == io.EOF) {
			t.Errorf("got %v, %v, and again %v, %v", first, err, second, again)
		}
	})
}

// TestArchiveAltered: files that do not name the columns are read by a server's
// definition on one side of a change, whichever is asked for, and never on both:
// without the refusal in Playback.define "b" is read by the columns of "a".
func TestArchiveAltered(t *testing.T) {
	log := fileLog(0)
	log.names = false
	path := log.gtid(1).begin().insert("a").xid().gtid(2).query("ALTER TABLE outbox MODIFY topic INT").gtid(3).begin().insert("b").xid().write(t, "binlog.000001")
	executed := emptySet() // by the server that tells the definition
	play := func(wanted func(GTID) bool) (ids []string, err error) {
		archive, err := OpenArchive(t.Context(), ArchiveConfig{
			Files: []string{path}, Database: "shop", Table: "outbox",
			Define: func(context.Context) (*schema.Table, *GTIDSet, error) { return outboxTable(t), executed, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		p := archive.Play(t.Context(), wanted)
		defer p.Close()
		for {
			tx, err := p.Next(t.Context())
			if err == io.EOF {
				return ids, nil
			}
			if err != nil {
				return ids, err
			}
			for _, e := range tx.Events {
				ids = append(ids, e.ID)
			}
		}
	}
	for want, wanted := range map[string]func(GTID) bool{"a": only(1), "b": only(3)} {
		if got, err := play(wanted); !slices.Equal(got, []string{want}) || err != nil {
			t.Errorf("got %q, %v, want %s", got, err, want)
		}
	}
	got, err := play(all)
	if !slices.Equal(got, []string{"a"}) || !errors.Is(err, ErrFiles) || !strings.Contains(err.Error(), ":2 changed it: ALTER TABLE outbox MODIFY topic INT; ") {
		t.Errorf("got %q, %v, want a and a refusal", got, err)
	}
	// A server that has executed the change says nothing of what stands before it.
	executed = archiveSet(t, path)
	for _, wanted := range []func(GTID) bool{only(1), all} {
		if got, err := play(wanted); len(got) > 0 || !errors.Is(err, ErrFiles) || !strings.Contains(err.Error(), "of another time") {
			t.Errorf("got %q, %v, want a refusal before the first event", got, err)
		}
	}
	if got, err := play(only(3)); !slices.Equal(got, []string{"b"}) || err != nil {
		t.Errorf("got %q, %v, want b", got, err)
	}
}

// archiveSet is all that stands in a file.
func archiveSet(t *testing.T, path string) *GTIDSet {
	t.Helper()
	archive, err := OpenArchive(t.Context(), ArchiveConfig{Files: []string{path}, Database: "shop", Table: "outbox"})
	if err != nil {
		t.Fatal(err)
	}
	return archive.Set
}
