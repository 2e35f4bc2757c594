package binlog

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/google/go-cmp/cmp"
)

func wantUnreadable(t *testing.T, err error, text string) {
	t.Helper()
	if !errors.Is(err, ErrUnreadable) || !strings.Contains(fmt.Sprint(err), text) {
		t.Errorf("got error %v, want ErrUnreadable with %q", err, text)
	}
}

func wantDamaged(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("got error %v, want %v", err, ErrDamaged)
	}
}

// inserts writes n rows, in events of a hundred, with the ids e0, e1 ….
func (l *fakeLog) inserts(n int) *fakeLog {
	for i := 0; i < n; i += 100 {
		var ids []string
		for k := i; k < min(n, i+100); k++ {
			ids = append(ids, fmt.Sprintf("e%d", k))
		}
		l.insert(ids...)
	}
	return l
}

// parts reads one transaction's parts. It fails the test when they are not one
// transaction, or the wrong one of them is the last.
func parts(t *testing.T, log *fakeLog) (list []*Tx) {
	t.Helper()
	a := newAssembler(outboxTable(t))
	next := read(log.events)
	for {
		tx, err := a.next(next)
		if err != nil {
			t.Fatal(err)
		}
		if tx.GTID.Number != 1 || tx.CommittedAt.UnixMicro() != fakeTime {
			t.Errorf("part %d: transaction %s at %s", len(list), tx.GTID, tx.CommittedAt)
		}
		list = append(list, tx)
		if tx.Last {
			return list
		}
	}
}

func TestAssemblerParts(t *testing.T) {
	tests := []struct {
		rows  int
		parts int
	}{
		{0, 1}, {1, 1}, {partEvents - 100, 1}, {partEvents, 2}, {5000, 5},
	}
	for _, tt := range tests {
		var got, want []string
		list := parts(t, newLog().gtid(1).begin().inserts(tt.rows).xid())
		for i, tx := range list {
			for _, e := range tx.Events {
				got = append(got, e.ID)
			}
			if len(tx.Events) > partEvents+100 {
				t.Errorf("%d rows: part %d has %d events", tt.rows, i, len(tx.Events))
			}
		}
		for i := range tt.rows {
			want = append(want, fmt.Sprintf("e%d", i))
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%d rows (-want +got):\n%s", tt.rows, diff)
		}
		if len(list) != tt.parts {
			t.Errorf("%d rows: got %d parts, want %d", tt.rows, len(list), tt.parts)
		}
	}
}

// TestAssemblerPartsBySize: few events with large payloads are handed out in
// parts too.
func TestAssemblerPartsBySize(t *testing.T) {
	log := newLog().gtid(1).begin()
	for i := range 100 {
		log.outbox().rows(replication.WRITE_ROWS_EVENTv2, outboxID, len(outboxMapped),
			outboxRow(fmt.Sprint(i), strings.Repeat("x", 60_000)))
	}
	list := parts(t, log.xid())
	events := 0
	for _, tx := range list {
		size := 0
		for _, e := range tx.Events {
			if e.ID != fmt.Sprint(events) {
				t.Fatalf("event %d has the id %s", events, e.ID)
			}
			events++
			size += len(e.Payload)
		}
		if size > partBytes+60_000 {
			t.Errorf("a part of %d bytes", size)
		}
	}
	if events != 100 || len(list) < 5 {
		t.Errorf("got %d events in %d parts", events, len(list))
	}
}

// TestAssemblerPartsRolledBack: what was handed out cannot be taken back.
func TestAssemblerPartsRolledBack(t *testing.T) {
	tests := []struct {
		name string
		log  *fakeLog
		last string // of the transactions handed out
		text string // of the error; empty: none
	}{
		{"all", newLog().gtid(1).begin().inserts(1200).query("ROLLBACK"), "", "after 1100 of its events had been sent"},
		{"to before a part", newLog().gtid(1).begin().insert("a").query("SAVEPOINT s").inserts(1100).query("ROLLBACK TO s"),
			"", "after 1100 of its events had been sent"},
		{"to behind a part", newLog().gtid(1).begin().inserts(1200).query("SAVEPOINT s").insert("a").query("ROLLBACK TO s").insert("b").xid(),
			" e1199 b", ""},
		{"to just behind a part", newLog().gtid(1).begin().inserts(1100).query("SAVEPOINT s").insert("a").query("ROLLBACK TO s").insert("b").xid(),
			"1: b", ""},
		{"nothing sent", newLog().gtid(1).begin().inserts(1000).query("ROLLBACK"), "1:", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := assemble(newAssembler(outboxTable(t)), tt.log)
			if tt.text != "" {
				wantUnreadable(t, err, tt.text)
				return
			}
			if err != nil || !strings.HasSuffix(got[len(got)-1], tt.last) {
				t.Errorf("got %.40q, %v, want the end %q", got[len(got)-1], err, tt.last)
			}
		})
	}
}
