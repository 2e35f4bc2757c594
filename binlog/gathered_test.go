package binlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// gatherStream is a fakeStream that hands out no foreign transactions of their
// own, as one of FollowFrom.
func gatherStream(tb testing.TB, w *wire) *Stream {
	st := fakeStream(tb, w)
	st.seen, st.assembler.gather = emptySet(), st.gather
	return st
}

// showAll is show with what stands before the transaction.
func showAll(tx *Tx) string {
	text := ""
	for _, r := range tx.Before {
		text += fmt.Sprintf("(%s %d-%d) ", strings.TrimPrefix(r.Last.Tag, "blue"), r.First, r.Last.Number)
	}
	return strings.ReplaceAll(text, "( ", "(") + show(tx)
}

// TestStreamGathers: foreign transactions come with the next one that is to be
// handed out, or as the last of them at the end; and all are in what was seen.
func TestStreamGathers(t *testing.T) {
	tests := []struct {
		name string
		log  *fakeLog
		want []string
		seen string
	}{
		{
			name: "before one of ours",
			log:  newLog().gtid(1).begin().foreign().xid().gtid(2).begin().foreign().xid().gtid(3).begin().insert("a").xid(),
			want: []string{"(1-2) 3: a"},
			seen: fakeServer.String() + ":1-3",
		},
		{
			name: "none",
			log:  newLog().gtid(1).begin().insert("a").xid().gtid(2).begin().insert("b").xid(),
			want: []string{"1: a", "2: b"},
			seen: fakeServer.String() + ":1-2",
		},
		{
			name: "at the end",
			log:  newLog().gtid(1).begin().foreign().xid().gtid(2).query("CREATE TABLE t (i INT)").gtid(3).begin().foreign().query("COMMIT"),
			want: []string{"(1-2) 3:"},
			seen: fakeServer.String() + ":1-3",
		},
		{
			name: "a single one",
			log:  newLog().gtid(7).begin().foreign().xid(),
			want: []string{"7:"},
			seen: fakeServer.String() + ":7",
		},
		{
			name: "rolled back",
			log:  newLog().gtid(1).begin().insert("a").query("ROLLBACK").gtid(2).begin().query("SAVEPOINT s").insert("a").query("ROLLBACK TO s").xid().gtid(3).begin().insert("b").xid(),
			want: []string{"(1-2) 3: b"},
			seen: fakeServer.String() + ":1-3",
		},
		{
			name: "numbers with gaps and out of order",
			log:  newLog().gtid(5).begin().xid().gtid(7).begin().xid().gtid(6).begin().xid().gtid(8).begin().xid().gtid(20).begin().xid().gtid(9).begin().insert("a").xid(),
			want: []string{"(5-6) (7-8) (20-20) 9: a"},
			seen: fakeServer.String() + ":5-9:20",
		},
		{
			name: "two tags that take turns",
			log:  newLog().tagged("blue", 1).begin().xid().gtid(1).begin().xid().tagged("blue", 2).begin().xid().gtid(2).begin().xid().gtid(3).begin().insert("a").xid(),
			want: []string{"(1-2) (1-2) 3: a"},
			seen: fakeServer.String() + ":1-3:blue:1-2",
		},
		{
			name: "a change of the table",
			log:  newLog().gtid(1).begin().foreign().xid().gtid(2).query("ALTER TABLE outbox COMMENT 'x'").gtid(3).begin().foreign().xid(),
			want: []string{"(1-1) 2:", "3:"},
			seen: fakeServer.String() + ":1-3",
		},
		{
			name: "an XA transaction",
			log:  newLog().gtid(1).begin().foreign().xid().xaGroup(2, "X'61',X'',1", "a").gtid(3).begin().foreign().xid().gtid(4).query("XA COMMIT X'61',X'',1").gtid(5).begin().xid(),
			want: []string{"(1-1) prepared 2", "(3-3) 4 decides 2: a", "5:"},
			seen: fakeServer.String() + ":1-5",
		},
		{
			name: "MariaDB",
			log:  newLog().maria(1, 0).foreign().xid().maria(2, 0).foreign().xid().maria(9, 0).foreign().xid().maria(10, 0).insertV1("a").xid().maria(12, 0).xid(),
			want: []string{"(1-2) (9-9) 10: a", "12:"},
			seen: "0-1-12",
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			st := gatherStream(t, newWire().events(tt.log.events...))
			var got []string
			count, told := int64(0), emptySet()
			for {
				tx, err := st.Next(t.Context())
				if errors.Is(err, io.ErrUnexpectedEOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, showAll(tx))
				count += tx.Count()
				told.Cover(tx)
				if tx.CommittedAt.IsZero() || tx.Place.Offset == 0 {
					t.Errorf("%s is of %s, at %v", tx.GTID, tx.CommittedAt, tx.Place)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("transactions (-want +got):\n%s", diff)
			}
			if st.seen.String() != tt.seen || told.String() != tt.seen {
				t.Errorf("got %s seen, %s told, want %s", st.seen, told, tt.seen)
			}
			if tt.name != "an XA transaction" && tt.name != "MariaDB" && count != told.Count() {
				t.Errorf("counted %d transactions of %d", count, told.Count())
			}
		})
	}
}

// TestStreamGathersInParts: what stands before a transaction in parts comes with
// its last part, since its parts stay together.
func TestStreamGathersInParts(t *testing.T) {
	log := newLog().gtid(1).begin().foreign().xid().gtid(2).begin().inserts(partEvents + 200)
	st := gatherStream(t, newWire().events(log.foreign().xid().events...))
	var got []string
	for range 2 {
		tx, err := st.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fmt.Sprintf("%d events of %d, last %t, before %d", len(tx.Events), tx.GTID.Number, tx.Last, len(tx.Before)))
	}
	want := []string{"1100 events of 2, last false, before 0", "124 events of 2, last true, before 1"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
}

// TestStreamGathersNoMore: what is gathered is handed out though nothing follows,
// in the middle of a transaction that does not end, and before an error.
func TestStreamGathersNoMore(t *testing.T) {
	whole := newLog().gtid(1).begin().foreign().xid().gtid(2).begin().foreign().xid()
	ours, theirs := net.Pipe()
	defer theirs.Close()
	st := gatherStream(t, newWire())
	st.dump.conn = ours
	go func() {
		_, _ = theirs.Write(newWire().events(whole.gtid(3).begin().foreign().events...).data)
	}()
	seen := emptySet()
	for !seen.Has(GTID{Server: fakeServer, Number: 2}) {
		tx, err := st.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		seen.Cover(tx)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if tx, err := st.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %+v, %v, want %v", tx, err, context.Canceled)
	}
	bad := newLog().gtid(1).begin().foreign().xid().gtid(2).begin().foreign().xid().gtid(3).query("INSERT INTO outbox VALUES (1)")
	st = gatherStream(t, newWire().events(bad.events...))
	if tx, err := st.Next(t.Context()); err != nil || showAll(tx) != "(1-1) 2:" {
		t.Errorf("got %+v, %v, want the transactions before the bad one", tx, err)
	}
	var of *TxError
	if _, err := st.Next(t.Context()); !errors.As(err, &of) || of.GTID.Number != 3 {
		t.Errorf("got %v, want that of transaction 3", err)
	}
}

// TestStreamGathersNotTooMuch: they are handed out now and then while more come.
func TestStreamGathersNotTooMuch(t *testing.T) {
	log := newLog()
	for n := range int64(3 * gatheredBytes / 1000) {
		log.gtid(n + 1).begin().others().xid()
	}
	st := gatherStream(t, newWire().events(log.events...))
	handed, before := 0, int64(0)
	for {
		tx, err := st.Next(t.Context())
		if err != nil {
			break
		}
		if handed++; st.size-before > 2*gatheredBytes {
			t.Errorf("%d bytes were read before %s was handed out", st.size-before, tx.GTID)
		}
		before = st.size
	}
	if handed < 3 || handed > 100 {
		t.Errorf("handed out %d times", handed)
	}
}

// TestForeignAllocations: a foreign transaction costs no memory, with all that is
// in it. What is handed out for a thousand of them does.
func TestForeignAllocations(t *testing.T) {
	const n, most = 1000, 20
	for _, x := range foreignLoads {
		log := x.log(2 * n)
		st := gatherStream(t, newWire().events(log.events...))
		read := func(until int64) {
			for st.seen.Count() < until {
				if tx, err := st.Next(t.Context()); err != nil || len(tx.Events) > 0 {
					t.Fatalf("%s: got %+v, %v", x.name, tx, err)
				}
			}
		}
		next := inPlace(log.events)
		a := newAssembler(outboxTable(t))
		a.gather = func(*group) {}
		for range 20 { // what is kept from one to the next
			if err := feedOne(a, next); err != nil {
				t.Fatal(err)
			}
		}
		if got := testing.AllocsPerRun(10, func() {
			for range 100 {
				if err := feedOne(a, next); err != nil {
					t.Fatal(err)
				}
			}
		}); got > 0 {
			t.Errorf("%s: the assembler makes %.2f allocations for a foreign event", x.name, got/100)
		}
		if got := testing.AllocsPerRun(1, func() { read(2 * n) }); got > most {
			t.Errorf("%s: the stream makes %.0f allocations for %d foreign transactions, want %d at most", x.name, got, 2*n, most)
		}
	}
}

// feedOne gives an assembler one event of a foreign transaction.
func feedOne(a *assembler, next func() (rawEvent, error)) error {
	raw, checksum, err := a.event(next)
	if err != nil {
		return err
	}
	h, body, err := splitEvent(raw, checksum)
	if err != nil {
		return err
	}
	tx, err := a.feed(h, raw, body)
	if tx != nil {
		return fmt.Errorf("got %s, which is foreign", tx.GTID)
	}
	return err
}
