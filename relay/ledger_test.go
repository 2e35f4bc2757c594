package relay

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/schema"
)

// origin is the server of the tests' transactions.
const origin = "3e11fa47-71ca-11e1-9e33-c80aa9429562"

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func gtid(number int64) binlog.GTID {
	return binlog.GTID{Server: uuid.MustParse(origin), Number: number}
}

// part makes a part of transaction number with the events of these ids; what
// stands before a dash in an id is its aggregate.
func part(number int64, last bool, ids ...string) *binlog.Tx {
	tx := &binlog.Tx{
		GTID: gtid(number), Last: last,
		CommittedAt: began.Add(time.Duration(number) * time.Second),
		Place:       binlog.Place{File: "binlog.000001", Offset: uint32(number)},
	}
	for _, id := range ids {
		tx.Events = append(tx.Events, event(id))
	}
	return tx
}

// whole makes a transaction in one part.
func whole(number int64, ids ...string) *binlog.Tx { return part(number, true, ids...) }

// row makes a transaction as a backfill hands it out.
func row(cursor, id string) *binlog.Tx {
	return &binlog.Tx{Events: []schema.Event{event(id)}, CommittedAt: began, Last: true, Cursor: cursor}
}

func event(id string) schema.Event {
	aggregate := id
	for i := range id {
		if id[i] == '-' {
			aggregate = id[:i]
		}
	}
	return schema.Event{ID: id, AggregateID: aggregate, Payload: []byte("{}")}
}

// start is the state of a checkpoint that covers the transactions up to
// number and so many events.
func start(number, sequence int64) checkpoint.State {
	return checkpoint.State{
		Flavor: "mysql", Table: "shop.outbox", Sequence: sequence,
		GTIDSet: fmt.Sprintf("%s:1-%d", origin, number), CommittedAt: began,
	}
}

func mustLedger(t *testing.T, state checkpoint.State) *ledger {
	t.Helper()
	l, err := newLedger(state)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// admitAll takes a transaction in as a session does; skipped events are nil.
func admitAll(l *ledger, tx *binlog.Tx) []*item {
	var items []*item
	for i := range tx.Events {
		items = append(items, l.admit(tx, i))
	}
	l.finish(tx)
	return items
}

// progress is what a checkpoint says of how far the relay has come.
type progress struct {
	Set      string
	Sequence int64
	Partial  checkpoint.Partial
	Backfill checkpoint.Backfill
}

func progressOf(s checkpoint.State) progress {
	p := progress{Set: s.GTIDSet, Sequence: s.Sequence}
	if s.Partial != nil {
		p.Partial = *s.Partial
	}
	if s.Backfill != nil {
		p.Backfill = *s.Backfill
	}
	return p
}

func wantProgress(t *testing.T, l *ledger, when string, want progress) {
	t.Helper()
	if diff := cmp.Diff(want, progressOf(l.snapshot())); diff != "" {
		t.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

func upTo(number int64) string { return fmt.Sprintf("%s:1-%d", origin, number) }

// TestLedgerSettlesPrefix settles out of order: the state moves only over what
// is settled with all before it.
func TestLedgerSettlesPrefix(t *testing.T) {
	l := mustLedger(t, start(10, 100))
	a, b, c := admitAll(l, whole(11, "a1", "a2")), admitAll(l, whole(12, "b1")), admitAll(l, whole(13, "c1", "c2", "c3"))
	for i, it := range append(append(append([]*item{}, a...), b...), c...) {
		if want := int64(101 + i); it.event.Sequence != want {
			t.Errorf("event %s has sequence %d, want %d", it.event.ID, it.event.Sequence, want)
		}
	}
	steps := []struct {
		settle *item
		want   progress
	}{
		{c[1], progress{Set: upTo(10), Sequence: 100}},
		{b[0], progress{Set: upTo(10), Sequence: 100}},
		{a[1], progress{Set: upTo(10), Sequence: 100}},
		{a[0], progress{Set: upTo(12), Sequence: 103}},
		{c[2], progress{Set: upTo(12), Sequence: 103}},
		{c[0], progress{Set: upTo(13), Sequence: 106}},
	}
	for _, step := range steps {
		l.settle(step.settle)
		wantProgress(t, l, "after "+step.settle.event.ID, step.want)
	}
	if l.unsettled() {
		t.Error("everything is settled, and the ledger says not")
	}
}

// TestLedgerPartial counts the settled events of a transaction, and covers it
// only at its end marker.
func TestLedgerPartial(t *testing.T) {
	l := mustLedger(t, start(10, 100))
	first := admitAll(l, part(11, false, "a", "b"))
	l.settle(first[0])
	wantProgress(t, l, "one of the first part", progress{Set: upTo(10), Sequence: 101, Partial: checkpoint.Partial{GTID: gtid(11).String(), Events: 1}})
	l.settle(first[1])
	wantProgress(t, l, "all of the first part", progress{Set: upTo(10), Sequence: 102, Partial: checkpoint.Partial{GTID: gtid(11).String(), Events: 2}})
	second := admitAll(l, part(11, false, "c"))
	third := admitAll(l, whole(11))
	wantProgress(t, l, "the end is in, an event before it is not settled", progress{Set: upTo(10), Sequence: 102, Partial: checkpoint.Partial{GTID: gtid(11).String(), Events: 2}})
	l.settle(second[0])
	wantProgress(t, l, "the end", progress{Set: upTo(11), Sequence: 103})
	if len(third) != 0 {
		t.Errorf("an end without events has %d items", len(third))
	}
}

// TestLedgerResumesPartial starts again in the middle of a transaction: exactly
// the leading events are skipped, in whatever parts they come, and the numbers
// go on.
func TestLedgerResumesPartial(t *testing.T) {
	ids := []string{"a", "b", "c", "d", "e"}
	for settled := int64(1); settled <= 5; settled++ {
		for cut := range 6 {
			state := start(10, 100+settled)
			state.Partial = &checkpoint.Partial{GTID: gtid(11).String(), Events: settled}
			l := mustLedger(t, state)
			items := append(admitAll(l, part(11, false, ids[:cut]...)), admitAll(l, whole(11, ids[cut:]...))...)
			for i, it := range items {
				switch {
				case int64(i) < settled && it != nil:
					t.Errorf("%d settled, cut at %d: event %d is sent again", settled, cut, i)
				case int64(i) >= settled && it == nil:
					t.Errorf("%d settled, cut at %d: event %d is skipped", settled, cut, i)
				case it != nil && it.event.Sequence != int64(101+i):
					t.Errorf("%d settled, cut at %d: event %d has sequence %d, want %d", settled, cut, i, it.event.Sequence, 101+i)
				}
			}
			for i := settled; i < 5; i++ {
				l.settle(items[i])
				if i < 4 {
					wantProgress(t, l, "within", progress{Set: upTo(10), Sequence: 101 + i, Partial: checkpoint.Partial{GTID: gtid(11).String(), Events: i + 1}})
				}
			}
			wantProgress(t, l, "at the end", progress{Set: upTo(11), Sequence: 105})
		}
	}
}

// TestLedgerResumesPartialLater meets another transaction first, as after a
// failover to a replica with another order: of that one nothing is skipped.
func TestLedgerResumesPartialLater(t *testing.T) {
	state := start(10, 103)
	state.Partial = &checkpoint.Partial{GTID: gtid(12).String(), Events: 3}
	l := mustLedger(t, state)
	other := whole(11, "x", "y", "z")
	for i := range other.Events {
		it := l.admit(other, i)
		if it == nil {
			t.Fatalf("event %d of another transaction is skipped: it is lost", i)
		}
		l.settle(it)
	}
	l.finish(other)
	items := admitAll(l, whole(12, "a", "b", "c", "d"))
	if items[2] != nil || items[3] == nil {
		t.Errorf("of the transaction that was settled in part, want the first 3 of 4 skipped; got %v", items)
	}
	l.settle(items[3])
	wantProgress(t, l, "at the end", progress{Set: upTo(12), Sequence: 107})
}

func TestLedgerForeignTransactions(t *testing.T) {
	l := mustLedger(t, start(10, 7))
	admitAll(l, whole(11))
	wantProgress(t, l, "a foreign transaction", progress{Set: upTo(11), Sequence: 7})
	if !l.dirty {
		t.Error("a foreign transaction does not make the state worth saving")
	}
	if want := began.Add(11 * time.Second); !l.snapshot().CommittedAt.Equal(want) || !l.newest.Equal(want) {
		t.Errorf("committed_at is %v, newest %v, want %v", l.snapshot().CommittedAt, l.newest, want)
	}
	if want := (binlog.Place{File: "binlog.000001", Offset: 11}); l.place != want {
		t.Errorf("place is %v, want %v", l.place, want)
	}
	held := admitAll(l, whole(12, "a"))
	admitAll(l, whole(13))
	wantProgress(t, l, "a foreign one behind an unsettled one", progress{Set: upTo(11), Sequence: 7})
	l.settle(held[0])
	wantProgress(t, l, "both", progress{Set: upTo(13), Sequence: 8})
}

// TestLedgerBefore covers what a transaction stands for besides itself with it,
// and not before; each of those is counted.
func TestLedgerBefore(t *testing.T) {
	l := mustLedger(t, start(10, 0))
	tx := whole(15, "a")
	tx.Before = []binlog.GTIDRange{{First: 11, Last: gtid(13)}, {First: 14, Last: gtid(14)}}
	items := admitAll(l, tx)
	wantProgress(t, l, "not settled", progress{Set: upTo(10)})
	l.settle(items[0])
	wantProgress(t, l, "settled", progress{Set: upTo(15), Sequence: 1})
	half := &binlog.Tx{Prepared: gtid(17), Last: true, Before: []binlog.GTIDRange{{First: 16, Last: gtid(16)}}}
	admitAll(l, half)
	wantProgress(t, l, "before one that is only prepared", progress{Set: upTo(16), Sequence: 1})
	if tx.Count() != 5 || half.Count() != 1 {
		t.Errorf("counted %d and %d transactions, want 5 and 1", tx.Count(), half.Count())
	}
}

// TestLedgerXA adds the GTID of XA PREPARE with that of XA COMMIT, and not
// before.
func TestLedgerXA(t *testing.T) {
	l := mustLedger(t, start(10, 0))
	admitAll(l, whole(12))
	decided := whole(13, "a")
	decided.Prepared = gtid(11)
	items := admitAll(l, decided)
	wantProgress(t, l, "prepared", progress{Set: origin + ":1-10:12"})
	l.settle(items[0])
	wantProgress(t, l, "committed", progress{Set: upTo(13), Sequence: 1})
}

func TestLedgerBackfill(t *testing.T) {
	state := start(10, 0)
	state.Backfill = &checkpoint.Backfill{After: "", Until: "c", SnapshotAt: began}
	l := mustLedger(t, state)
	a, b := admitAll(l, row("a", "1")), admitAll(l, row("b", "2"))
	l.settle(b[0])
	wantProgress(t, l, "the second row alone", progress{Set: upTo(10), Backfill: checkpoint.Backfill{Until: "c", SnapshotAt: began}})
	l.settle(a[0])
	wantProgress(t, l, "both rows", progress{Set: upTo(10), Sequence: 2, Backfill: checkpoint.Backfill{After: "b", Until: "c", SnapshotAt: began}})
	c := admitAll(l, row("c", "3"))
	admitAll(l, &binlog.Tx{Last: true, Exhausted: true})
	admitAll(l, whole(11))
	wantProgress(t, l, "the end is in, the last row is not settled", progress{Set: upTo(10), Sequence: 2, Backfill: checkpoint.Backfill{After: "b", Until: "c", SnapshotAt: began}})
	l.settle(c[0])
	wantProgress(t, l, "the end", progress{Set: upTo(11), Sequence: 3})
}

// TestLedgerSnapshotIsApart changes the ledger after a snapshot was taken.
func TestLedgerSnapshotIsApart(t *testing.T) {
	state := start(10, 0)
	state.Backfill = &checkpoint.Backfill{Until: "b", SnapshotAt: began}
	l := mustLedger(t, state)
	rows := append(admitAll(l, row("a", "1")), admitAll(l, row("b", "2"))...)
	l.settle(rows[0])
	first := l.snapshot()
	wantFirst := progressOf(first)
	l.settle(rows[1])
	admitAll(l, &binlog.Tx{Last: true, Exhausted: true})
	items := admitAll(l, part(11, false, "x", "y"))
	l.settle(items[0])
	second := l.snapshot()
	wantSecond := progressOf(second)
	l.settle(items[1])
	admitAll(l, whole(11))
	for _, c := range []struct {
		state checkpoint.State
		want  progress
	}{{first, wantFirst}, {second, wantSecond}} {
		if diff := cmp.Diff(c.want, progressOf(c.state)); diff != "" {
			t.Errorf("a snapshot has changed with the ledger (-before +after):\n%s", diff)
		}
	}
}

func TestLedgerRefusesBadSet(t *testing.T) {
	if _, err := newLedger(checkpoint.State{GTIDSet: "nonsense"}); err == nil {
		t.Error("a set that is none was accepted")
	}
}

// TestLedgerNothingSettled: before the first settled transaction the lag is
// that of what waits, and the checkpoint says nothing of it. It was 0 for as
// long as the broker refused everything.
func TestLedgerNothingSettled(t *testing.T) {
	l := mustLedger(t, checkpoint.State{Flavor: "mysql", Table: "shop.outbox"})
	admitAll(l, whole(1, "a"))
	admitAll(l, whole(2, "b"))
	if want := began.Add(time.Second); !l.newest.Equal(want) || !l.snapshot().CommittedAt.IsZero() {
		t.Errorf("newest is %v, want %v; committed_at is %v, want none", l.newest, want, l.snapshot().CommittedAt)
	}
}

// TestLedgerColumns: the state's columns are those behind its position, and not
// those of what is still in flight: where finish takes them over at once, they
// stand on disk before the position has come to the change.
func TestLedgerColumns(t *testing.T) {
	l, err := newLedger(checkpoint.State{Columns: []checkpoint.Column{{Name: "id", Type: "int"}}})
	if err != nil {
		t.Fatal(err)
	}
	names := func(want ...string) {
		t.Helper()
		var got []string
		for _, c := range l.snapshot().Columns {
			got = append(got, c.Name+" "+c.Type)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("columns (-want +got):\n%s", diff)
		}
	}
	before, altered, behind := whole(1, "a-1"), whole(2), whole(3, "a-2")
	altered.Definition = &binlog.Definition{}
	behind.Definition = &binlog.Definition{Columns: []schema.Column{schema.NewColumn("key", "binary", "binary(16)", 16, "")}}
	first := l.admit(before, 0)
	l.finish(before)
	l.finish(altered)
	second := l.admit(behind, 0)
	l.finish(behind)
	names("id int")
	l.settle(first)
	names()
	l.settle(second)
	names("key binary(16)")
	again := definition(checkpoint.State{Columns: columnsOf(outboxOf(t).Columns)}, binlog.Config{}, outboxOf(t))
	if again == nil || fmt.Sprint(again.Columns) != fmt.Sprint(outboxOf(t).Columns) {
		t.Errorf("a checkpoint's columns become %+v", again)
	}
	if unknown := definition(checkpoint.State{}, binlog.Config{}, outboxOf(t)); unknown != nil {
		t.Errorf("no columns become %+v", unknown)
	}
}

// outboxOf has a column of every kind that a checkpoint's must keep.
func outboxOf(t *testing.T) *schema.Table {
	t.Helper()
	table, err := schema.NewTable("shop", "outbox", []schema.Column{
		schema.NewColumn("id", "binary", "binary(16)", 16, ""),
		schema.NewColumn("aggregate_id", "bigint", "bigint unsigned", 0, ""),
		schema.NewColumn("topic", "enum", "enum('a','it''s (b)')", 36, "utf8mb4"),
		schema.NewColumn("event_type", "char", "char(9)", 9, "latin1"),
		schema.NewColumn("payload", "json", "json", 0, ""),
		schema.NewColumn("note", "decimal", "decimal(10,2)", 0, ""),
		schema.NewColumn("created_at", "timestamp", "timestamp(6)", 0, ""),
	}, schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}
