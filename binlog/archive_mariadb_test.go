package binlog

import (
	"bytes"
	"errors"
	"hash/crc32"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"
)

// mariaFile begins a log file of MariaDB behind the last transactions of each
// server in each domain.
func mariaFile(previous ...GTID) *fakeLog {
	l := (&fakeLog{names: true, offset: 4}).format(true).full()
	return l.list(previous...)
}

func (l *fakeLog) list(previous ...GTID) *fakeLog {
	body := le.AppendUint32(nil, uint32(len(previous)))
	for _, g := range previous {
		body = le.AppendUint64(le.AppendUint32(le.AppendUint32(body, g.Domain), g.ServerID), uint64(g.Number))
	}
	return l.event(replication.MARIADB_GTID_LIST_EVENT, body)
}

// by makes the last event one of another server.
func (l *fakeLog) by(server uint32) *fakeLog {
	le.PutUint32(l.last()[5:], server)
	return l.seal(l.last())
}

// TestArchiveMariaDB is TestArchiveSeries on MariaDB: the GTID list at a file's
// beginning names each server's last transaction. A single transaction can be
// asked for, and so can what another server committed. It fails when what a
// position says is taken for the set of what the files have.
func TestArchiveMariaDB(t *testing.T) {
	gtid := func(server uint32, number int64) GTID { return GTID{ServerID: server, Number: number} }
	const standalone = mariaStandalone
	one := mariaFile(gtid(2, 5)).maria(6, 0).insert("a").xid().maria(7, standalone).query("CREATE TABLE t (i INT)").rotate("binlog.000002", 4).write(t, "one")
	two := mariaFile(gtid(2, 5), gtid(1, 7)).maria(8, 0).insert("b", "c").xid().maria(9, 0).by(2).insert("d").xid().rotate("binlog.000003", 4).write(t, "two")
	three := mariaFile(gtid(1, 8), gtid(2, 9)).maria(10, 0).insert("e").xid().event(replication.STOP_EVENT, nil).write(t, "three")
	other := mariaFile(gtid(3, 9)).maria(10, 0).by(3).insert("x").xid().write(t, "other")
	first := mariaFile().maria(1, 0).insert("x").xid().write(t, "first")
	disorder := mariaFile().maria(5, 0).insert("x").xid().maria(4, 0).by(2).insert("y").xid().write(t, "disorder")
	mysql := fileLog(0).full().gtid(1).begin().insert("a").xid().write(t, "mysql")
	for _, tt := range []struct {
		files []string
		only  func(GTID) bool
		ids   string
		text  string // of the refusal
	}{
		{[]string{one, two, three}, all, "6a 8b 8c 9d 10e", ""},
		{[]string{two, three}, all, "8b 8c 9d 10e", ""},
		{[]string{one, two, three}, only(8, 10), "8b 8c 10e", ""},
		{[]string{two, one}, nil, "", "type: --from-binlog " + one + " " + two},
		{[]string{one, three}, nil, "", " 2 transactions are missing: 0-2-8..9; give the files that have them as well, beginning with binlog.000002"},
		{[]string{two, two}, nil, "", two + " was not written behind " + two + ": it does not know 2 transactions before it: 0-1-8,0-2-9"},
		{[]string{two, other}, nil, "", "or on another server"},
		{[]string{first, other}, nil, "", other + " was not written behind " + first},
		{[]string{first, mysql}, nil, "", mysql + " was not written behind " + first},
		{[]string{mysql, first}, nil, "", first + " was not written behind " + mysql},
		{[]string{disorder}, nil, "", "gtid_strict_mode was OFF when it was written; leave this file out"},
	} {
		ids, _, err := playFiles(t, tt.only, tt.files...)
		if ids != tt.ids || (err != nil) != (tt.text != "") || err != nil && (!strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "resume")) {
			t.Errorf("%v: got %q and error %v, want %q and %q", tt.files, ids, err, tt.ids, tt.text)
		}
	}
	archive, err := OpenArchive(t.Context(), ArchiveConfig{Files: []string{two, three}, Database: "shop", Table: "outbox"})
	if err != nil || archive.Set.String() != "0-1-8,0-2-9,0-1-10" || archive.Set.Count() != 3 || !archive.Ended {
		t.Errorf("got %s, ended: %t, %v", archive.Set, archive.Ended, err)
	}
}

// TestArchiveMariaDBXA: what is prepared in one file and committed in the next
// goes by the GTID of XA COMMIT; what is not decided is named. It fails where
// that has no GTID of its own, as on MySQL.
func TestArchiveMariaDBXA(t *testing.T) {
	xidB := append(bytes.Clone(xidA[:6]), 'b')
	one := mariaFile().maria(1, mariaPreparedXA, xidA...).insert("a").query("XA END "+textA).xaPrepare(false).rotate("two", 4).write(t, "one")
	two := mariaFile(GTID{ServerID: 1, Number: 1}).maria(2, mariaPreparedXA, xidB...).insert("b").query("XA END X'62',X'',1").xaPrepare(false).
		maria(3, mariaStandalone|mariaCompletedXA, xidA...).query("XA COMMIT "+textA).rotate("three", 4).write(t, "two")
	ids, p, err := playFiles(t, all, one, two)
	if ids != "3a" || err != nil {
		t.Fatalf("got %q, %v, want 3a", ids, err)
	}
	if undecided := p.Undecided(); len(undecided) != 1 || undecided[0].String() != "0-1-2" {
		t.Errorf("got %v undecided, want 0-1-2", undecided)
	}
	if ids, _, err := playFiles(t, all, two); ids != "" || !errors.Is(err, ErrUnreadable) || !strings.Contains(err.Error(), "earlier file") {
		t.Errorf("without the first half: got %q, %v", ids, err)
	}
}

// TestArchiveRefusesKinds: files that a server writes, and that are no plain
// part of its log, are told by their beginnings. A plain copy of an encrypted
// file says that it was encrypted, too, and is read.
func TestArchiveRefusesKinds(t *testing.T) {
	begin := func() *fakeLog { return (&fakeLog{names: true, offset: 4}).format(true).full() }
	relayLog := fileLog(0)
	relayLog.events[0][17] |= byte(replication.LOG_EVENT_RELAY_LOG_F)
	head := relayLog.events[0]
	le.PutUint32(head[len(head)-checksumSize:], crc32.ChecksumIEEE(head[:len(head)-checksumSize]))
	start := func() *fakeLog { return begin().event(replication.MARIADB_START_ENCRYPTION_EVENT, make([]byte, 17)) }
	for name, tt := range map[string]struct {
		log  *fakeLog
		text string
	}{
		"relay log":              {relayLog, "is a relay log"},
		"encrypted":              {start().event(113, []byte("secret")), "is encrypted (encrypt_binlog=ON)"},
		"encrypted, alike":       {start().list().by(77), "is encrypted (encrypt_binlog=ON)"},
		"encrypted, and no more": {start(), "does not begin with the GTIDs before it"},
	} {
		path := tt.log.write(t, "log")
		if _, _, err := playFiles(t, all, path); !errors.Is(err, ErrFiles) || !strings.Contains(err.Error(), path+" "+tt.text) {
			t.Errorf("%s: got %v, want %q", name, err, tt.text)
		}
	}
	if ids, _, err := playFiles(t, all, start().list().maria(1, 0).insert("a").xid().write(t, "plain")); ids != "1a" || err != nil {
		t.Errorf("a plain copy: got %q, %v", ids, err)
	}
}

// TestArchiveEnded: whether the last file has its end is told. It fails where a
// file that is cut off between transactions looks whole.
func TestArchiveEnded(t *testing.T) {
	log := func() *fakeLog { return fileLog(0).full().gtid(1).begin().insert("a").xid() }
	for path, want := range map[string]bool{
		log().write(t, "cut"):                                     false,
		log().rotate("binlog.000002", 4).write(t, "rotated"):      true,
		log().event(replication.STOP_EVENT, nil).write(t, "stop"): true,
	} {
		archive, err := OpenArchive(t.Context(), ArchiveConfig{Files: []string{path}, Database: "shop", Table: "outbox"})
		if err != nil || archive.Ended != want {
			t.Errorf("%s: got %t, %v, want %t", path, archive.Ended, err, want)
		}
	}
}

// TestArchiveMapped: a change of the table's definition behind its rows, or text
// that changes it, does not make the rows unseen.
func TestArchiveMapped(t *testing.T) {
	log := fileLog(0).full().gtid(1).begin().insert("a").xid().gtid(2).query("ALTER TABLE outbox ADD x INT").write(t, "log")
	for _, tt := range []struct {
		only func(GTID) bool
		want bool
	}{{all, true}, {only(1), true}, {only(2), false}} {
		if _, p, err := playFiles(t, tt.only, log); err != nil || p.Mapped() != tt.want {
			t.Errorf("got %t, %v, want %t", p.Mapped(), err, tt.want)
		}
	}
}

// TestArchiveUnseen: text of another table is told, where it is wanted: a
// trigger may have written into the outbox. Seen to fail where nothing was noted.
func TestArchiveUnseen(t *testing.T) {
	log := fileLog(0).full().gtid(1).begin().query("INSERT INTO orders VALUES (1)").xid().gtid(2).begin().insert("a").xid().write(t, "log")
	for _, tt := range []struct {
		only func(GTID) bool
		want bool
	}{{all, true}, {only(2), false}} {
		if ids, p, err := playFiles(t, tt.only, log); ids != "2a" || err != nil || p.Unseen() != tt.want {
			t.Errorf("got %q, %v, and %t, want %t", ids, err, p.Unseen(), tt.want)
		}
	}
}

// TestArchiveMariaDBTorn: a GTID alone is half of a transaction, that of one
// statement too, and what the server writes behind it after the first look is
// not half of one. It fails where the GTID is not known as a beginning.
func TestArchiveMariaDBTorn(t *testing.T) {
	log := mariaFile().maria(1, 0).insert("a").xid().maria(2, mariaStandalone)
	closed := log.write(t, "closed")
	if ids, _, err := playFiles(t, all, closed); ids != "" || !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "ends inside of transaction 0-1-2; copy it again") {
		t.Errorf("got %q, %v", ids, err)
	}
	log.events[0][17] |= byte(replication.LOG_EVENT_BINLOG_IN_USE_F)
	open := log.write(t, "open")
	archive, err := OpenArchive(t.Context(), ArchiveConfig{Files: []string{open}, Database: "shop", Table: "outbox"})
	if err != nil || archive.Set.String() != "0-1-1" {
		t.Fatalf("got %s, %v", archive.Set, err)
	}
	log.query("CREATE TABLE t (i INT)").maria(3, 0).insert("b")
	if err := os.WriteFile(open, append([]byte(logMagic), bytes.Join(log.events, nil)...), 0o600); err != nil {
		t.Fatal(err)
	}
	p := archive.Play(t.Context(), all)
	defer p.Close()
	if tx, err := p.Next(t.Context()); err != nil || tx.GTID.Number != 1 {
		t.Errorf("got %v, %v, want transaction 1", tx, err)
	}
	if tx, err := p.Next(t.Context()); err != io.EOF {
		t.Errorf("got %v, %v, want the end", tx, err)
	}
}
