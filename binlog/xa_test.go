package binlog

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/google/go-cmp/cmp"
)

// xaGroup is the first half of an XA transaction, as MySQL writes it.
func (l *fakeLog) xaGroup(number int64, xid string, ids ...string) *fakeLog {
	return l.gtid(number).query("XA START " + xid).insert(ids...).query("XA END " + xid).xaPrepare(false)
}

func TestAssemblerXA(t *testing.T) {
	const x, y = "X'61',X'',1", "X'62',X'0a',7"
	runAssembler(t, []assemblerTest{
		{
			name: "prepared and committed",
			log:  newLog().xaGroup(1, x, "a", "b").gtid(2).begin().insert("c").xid().gtid(3).query("XA COMMIT " + x),
			want: []string{"prepared 1", "2: c", "3 decides 1: a b"},
		},
		{
			name: "prepared and rolled back",
			log:  newLog().xaGroup(1, x, "a").gtid(2).query("XA ROLLBACK " + x),
			want: []string{"prepared 1", "2 decides 1:"},
		},
		{
			name: "two at once",
			log:  newLog().xaGroup(1, x, "a").xaGroup(2, y, "b").gtid(3).query("XA COMMIT " + y).gtid(4).query("XA COMMIT " + x),
			want: []string{"prepared 1", "prepared 2", "3 decides 2: b", "4 decides 1: a"},
		},
		{
			name: "one id after the other",
			log:  newLog().xaGroup(1, x, "a").gtid(2).query("XA ROLLBACK "+x).xaGroup(3, x, "b").gtid(4).query("XA COMMIT " + x),
			want: []string{"prepared 1", "2 decides 1:", "prepared 3", "4 decides 3: b"},
		},
		{
			name: "one phase",
			log:  newLog().gtid(1).query("XA START " + x).insert("a").query("XA END " + x).xaPrepare(true),
			want: []string{"1: a"},
		},
		{
			name: "with savepoints",
			log: newLog().gtid(1).query("XA START " + x).insert("a").query("SAVEPOINT s").insert("b").query("ROLLBACK TO s").
				query("XA END " + x).xaPrepare(false).gtid(2).query("XA COMMIT " + x),
			want: []string{"prepared 1", "2 decides 1: a"},
		},
		{
			name: "without outbox rows",
			log:  newLog().gtid(1).query("XA START " + x).foreign().query("XA END " + x).xaPrepare(false).gtid(2).query("XA COMMIT " + x),
			want: []string{"prepared 1", "2 decides 1:"},
		},
		{
			name: "prepared and left in doubt",
			log:  newLog().xaGroup(1, x, "a").gtid(2).begin().xid(),
			want: []string{"prepared 1", "2:"},
		},
		{
			name: "committed, prepared out of sight",
			log:  newLog().gtid(2).query("XA COMMIT " + x),
			err:  ErrUnreadable, text: "whose XA PREPARE is no longer in the log",
		},
		{
			name: "committed twice",
			log:  newLog().xaGroup(1, x, "a").gtid(2).query("XA COMMIT " + x).gtid(3).query("XA COMMIT " + x),
			want: []string{"prepared 1", "2 decides 1: a"},
			err:  ErrUnreadable, text: x,
		},
		{
			name: "rolled back, prepared out of sight",
			log:  newLog().gtid(2).query("XA ROLLBACK " + x),
			want: []string{"2:"},
		},
		{
			name: "torn",
			log:  newLog().gtid(1).query("XA START " + x).insert("a").gtid(2),
			err:  ErrTorn,
		},
		{
			name: "prepare without start",
			log:  newLog().gtid(1).begin().insert("a").xaPrepare(false),
			err:  ErrDamaged, text: "XA PREPARE",
		},
		{
			name: "prepare of nothing",
			log:  newLog().xaPrepare(false),
			err:  ErrDamaged, text: "XA PREPARE",
		},
	})
}

// TestAssemblerXAEvents: the events carry the GTID that committed them, by
// which the position moves.
func TestAssemblerXAEvents(t *testing.T) {
	log := newLog().xaGroup(1, "X'61',X'',1", "a", "b").gtid(2).query("XA COMMIT X'61',X'',1")
	a, next := newAssembler(outboxTable(t)), read(log.events)
	_, undecided := a.next(next)
	tx, err := a.next(next)
	if err := errors.Join(undecided, err); err != nil {
		t.Fatal(err)
	}
	if want := (GTID{Server: fakeServer, Number: 1}); tx.Prepared != want {
		t.Errorf("got prepared %s, want %s", tx.Prepared, want)
	}
	for _, e := range tx.Events {
		if want := fakeServer.String() + ":2"; e.GTID != want {
			t.Errorf("event %s: got GTID %s, want %s", e.ID, e.GTID, want)
		}
	}
}

// block is a row event with n rows and payloads of size bytes, to be written to
// a log again and again.
func block(n, size int) []byte {
	images := make([][]byte, n)
	for i := range images {
		images[i] = outboxRow("a", strings.Repeat("x", size))
	}
	return insideLog().rows(replication.WRITE_ROWS_EVENTv2, outboxID, len(outboxMapped), images...).last()
}

// blocks writes the same row event n times.
func (l *fakeLog) blocks(n int, raw []byte) *fakeLog {
	l.outbox()
	for range n {
		l.events = append(l.events, raw)
	}
	return l
}

// TestAssemblerXABound: undecided transactions are held within a bound, one by
// one and together, and what was decided makes room.
func TestAssemblerXABound(t *testing.T) {
	const size = 1 << 15
	quarter := block(heldBytes/4/(size+eventBytes), size)
	held := func(log *fakeLog) error { _, err := assemble(newAssembler(outboxTable(t)), log); return err }
	log := newLog()
	for i := range int64(6) {
		log.gtid(2*i+1).query("XA START X'61'").blocks(1, quarter).xaPrepare(false).
			gtid(2*i + 2).query([]string{"XA COMMIT X'61'", "XA ROLLBACK X'61'"}[i%2])
	}
	if err := held(log); err != nil {
		t.Errorf("six decided: %v", err)
	}
	log = newLog()
	for i, xid := range []string{"1", "2", "3", "4", "5"} {
		log.gtid(int64(i)+1).query("XA START "+xid).blocks(1, quarter).xaPrepare(false)
	}
	log.gtid(6).query("XA COMMIT 5")
	wantUnreadable(t, held(log), "XA transaction 5: more than 64 MiB of events wait for XA COMMIT")
	wantUnreadable(t, held(newLog().gtid(1).query("XA START 6").blocks(5, quarter).xaPrepare(false).gtid(2).query("XA COMMIT 6")), "XA transaction 6: more than 64 MiB")
}

// TestAssemblerXABoundOfSmallEvents: events without a payload take memory too,
// and what is rolled back makes room.
func TestAssemblerXABoundOfSmallEvents(t *testing.T) {
	raw := block(1000, 0)
	a := newAssembler(outboxTable(t))
	got, err := assemble(a, newLog().gtid(1).query("XA START X'61'").query("SAVEPOINT s").blocks(100, raw).query("ROLLBACK TO s").blocks(100, raw))
	if err != nil || got != nil || a.group.fault != nil {
		t.Errorf("got %q, %v, %v, want nothing yet", got, err, a.group.fault)
	}
	_, err = assemble(a, insideLog().blocks(50, raw).xaPrepare(false).gtid(2).query("XA COMMIT X'61'"))
	wantUnreadable(t, err, "wait for XA COMMIT")
}

// TestAssemblerXAOnly: what is read to find undecided transactions passes over
// everything else, whatever it is, and over decisions whose first half is gone.
func TestAssemblerXAOnly(t *testing.T) {
	const x, y = "X'61',X'',1", "X'62',X'',1"
	log := newLog().gtid(1).query("XA COMMIT "+y).
		gtid(2).begin().insert("a").query("INSERT INTO outbox VALUES (1)").xid().
		xaGroup(3, x, "b").xaGroup(4, y, "c").gtid(5).query("XA ROLLBACK " + y)
	a := newAssembler(outboxTable(t))
	a.pass = func(g *group) bool { return g.xa == "" }
	got, err := assemble(a, log)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"1:", "2:", "prepared 3", "prepared 4", "5 decides 4:"}, got); diff != "" {
		t.Errorf("transactions (-want +got):\n%s", diff)
	}
	if len(a.prepared) != 1 || len(a.prepared[x].events) != 1 || a.prepared[x].events[0].ID != "b" {
		t.Errorf("got %v left, want %s with event b", a.prepared, x)
	}
}
