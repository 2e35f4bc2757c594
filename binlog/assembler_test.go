package binlog

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/schema"
)

// show writes a transaction in one line: its number and tag, a part's mark,
// the XA PREPARE that it decides, the ids of its events; or that one is
// prepared.
func show(tx *Tx) string {
	var b strings.Builder
	if tx.GTID.IsZero() {
		return fmt.Sprintf("prepared %d", tx.Prepared.Number)
	}
	if tx.GTID.Tag != "" {
		b.WriteString(tx.GTID.Tag + ":")
	}
	fmt.Fprint(&b, tx.GTID.Number)
	if !tx.Last {
		b.WriteString("…")
	}
	if !tx.Prepared.IsZero() {
		fmt.Fprintf(&b, " decides %d", tx.Prepared.Number)
	}
	b.WriteString(":")
	for _, e := range tx.Events {
		b.WriteString(" " + e.ID)
	}
	return b.String()
}

// assemble reads a whole log.
func assemble(a *assembler, log *fakeLog) (got []string, err error) {
	next := read(log.events)
	for {
		tx, err := a.next(next)
		if err == io.EOF {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		got = append(got, show(tx))
	}
}

// assemblerTest is a log and the transactions that are to come of it. Where
// err is set, the log is to end in it, with text in its message.
type assemblerTest struct {
	name string
	log  *fakeLog
	want []string
	err  error
	text string
}

func runAssembler(t *testing.T, tests []assemblerTest) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := newAssembler(outboxTable(t))
			defer a.close()
			got, err := assemble(a, tt.log)
			if !errors.Is(err, tt.err) || (err != nil && !strings.Contains(err.Error(), tt.text)) {
				t.Errorf("got error %v, want %v with %q", err, tt.err, tt.text)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("transactions (-want +got):\n%s", diff)
			}
		})
	}
}

func TestAssembler(t *testing.T) {
	runAssembler(t, []assemblerTest{
		{
			name: "plain",
			log:  newLog().gtid(1).begin().insert("a").xid(),
			want: []string{"1: a"},
		},
		{
			name: "COMMIT as a statement",
			log:  newLog().gtid(1).begin().insert("a").query("COMMIT"),
			want: []string{"1: a"},
		},
		{
			name: "foreign rows only",
			log:  newLog().gtid(1).begin().foreign().xid().gtid(2).begin().foreign().insert("a").foreign().xid(),
			want: []string{"1:", "2: a"},
		},
		{
			name: "the table in another database",
			log: newLog().gtid(1).begin().table(outboxID, "shop2", "outbox", outboxMapped).
				rows(replication.WRITE_ROWS_EVENTv2, outboxID, len(outboxMapped), outboxRow("a", "")).xid(),
			want: []string{"1:"},
		},
		{
			name: "a table id used again for another table",
			log: newLog().gtid(1).begin().insert("a").table(outboxID, "shop", "orders", outboxMapped).
				rows(replication.WRITE_ROWS_EVENTv2, outboxID, len(outboxMapped), outboxRow("b", "")).xid(),
			want: []string{"1: a"},
		},
		{
			name: "two statements",
			log:  newLog().gtid(1).begin().insert("a").insert("b").xid(),
			want: []string{"1: a b"},
		},
		{
			name: "many rows in a statement, in two events",
			log: newLog().gtid(1).begin().insert("a", "b", "c").
				rows(replication.WRITE_ROWS_EVENTv2, outboxID, len(outboxMapped), outboxRow("d", "")).xid(),
			want: []string{"1: a b c d"},
		},
		{
			name: "rows of version 1",
			log: newLog().gtid(1).begin().outbox().
				rows(replication.WRITE_ROWS_EVENTv1, outboxID, len(outboxMapped), outboxRow("a", "")).xid(),
			want: []string{"1: a"},
		},
		{
			name: "tagged",
			log:  newLog().tagged("blue", 5).begin().insert("a").xid().gtid(5).begin().xid(),
			want: []string{"blue:5: a", "5:"},
		},
		{
			name: "updates and deletes",
			log: newLog().gtid(1).begin().outbox().
				rows(replication.UPDATE_ROWS_EVENTv2, outboxID, len(outboxMapped), outboxRow("a", "")).
				rows(replication.DELETE_ROWS_EVENTv2, outboxID, len(outboxMapped), outboxRow("b", "")).
				rows(replication.PARTIAL_UPDATE_ROWS_EVENT, outboxID, len(outboxMapped), outboxRow("c", "")).
				insert("d").xid(),
			want: []string{"1: d"},
		},
		{
			name: "rolled back",
			log:  newLog().gtid(1).begin().insert("a", "b").query("ROLLBACK").gtid(2).begin().insert("c").xid(),
			want: []string{"1:", "2: c"},
		},
		{
			name: "rolled back to a savepoint",
			log: newLog().gtid(1).begin().insert("a").query("SAVEPOINT `One`").insert("b").query("SAVEPOINT two").insert("c").
				query("ROLLBACK TO `one`").insert("d").xid(),
			want: []string{"1: a d"},
		},
		{
			name: "rolled back to a savepoint twice, and to one that was set again",
			log: newLog().gtid(1).begin().query("SAVEPOINT s").insert("a").query("ROLLBACK TO SAVEPOINT s").insert("b").
				query("ROLLBACK TO s").insert("c").query("SAVEPOINT s").insert("d").query("rollback to `s`").xid(),
			want: []string{"1: c"},
		},
		{
			name: "rolled back to an unknown savepoint",
			log:  newLog().gtid(1).begin().insert("a").query("ROLLBACK TO s"),
			err:  ErrUnreadable, text: "a savepoint that is not in the log",
		},
		{
			name: "rolled back to a savepoint that went with an earlier one",
			log: newLog().gtid(1).begin().query("SAVEPOINT a").insert("x").query("SAVEPOINT b").
				query("ROLLBACK TO a").query("ROLLBACK TO b"),
			err: ErrUnreadable, text: "a savepoint that is not in the log",
		},
		{
			name: "statements alone",
			log:  newLog().gtid(1).query("CREATE TABLE t (id INT)").gtid(2).query("DROP USER x").gtid(3).begin().insert("a").xid(),
			want: []string{"1:", "2:", "3: a"},
		},
		{
			name: "CREATE … SELECT",
			log:  newLog().gtid(1).begin().query("CREATE TABLE t (id INT) START TRANSACTION").foreign().insert("a").xid().gtid(2).begin().xid(),
			want: []string{"1: a", "2:"},
		},
		{
			name: "nothing behind a GTID that opens nothing",
			log:  newLog().gtid(1).event(replication.VIEW_CHANGE_EVENT, nil).gtid(2).begin().insert("a").xid(),
			want: []string{"1:", "2: a"},
		},
		{
			name: "checksums",
			log:  newLog().format(true).gtid(1).begin().insert("a").xid().rotate("binlog.000002", 4).format(false).gtid(2).begin().insert("b").xid(),
			want: []string{"1: a", "2: b"},
		},
		{
			name: "column names, in another order than the table's",
			log: (&fakeLog{names: true, metadata: true}).format(false).gtid(1).begin().
				table(outboxID, "shop", "outbox", []mapped{
					{"topic", typeVarchar, []byte{80, 0}}, {"extra", typeLong, nil}, {"PAYLOAD", typeBlob, []byte{2}},
					{"created_at", typeDatetime2, []byte{6}}, {"id", typeVarchar, []byte{80, 0}}, {"aggregate_id", typeLongLong, nil},
				}).
				rows(replication.WRITE_ROWS_EVENTv2, outboxID, 6, []byte("\x00\x02to\x05\x05\x05\x05\x01\x00p\x99\xb2\x44\x31\x05\x00\x00\x00\x02id\x07\x00\x00\x00\x00\x00\x00\x00")).xid(),
			want: []string{"1: id"},
		},
		{
			name: "what says nothing, and what may be ignored",
			log: newLog().event(replication.PREVIOUS_GTIDS_EVENT, make([]byte, 8)).event(replication.HEARTBEAT_EVENT, []byte("binlog.000001")).
				gtid(1).begin().event(replication.ROWS_QUERY_EVENT, []byte("x")).insert("a").ignorable(200).xid().
				event(replication.STOP_EVENT, nil),
			want: []string{"1: a"},
		},
	})
}

// ignorable writes an event of a type that no reader knows, with the flag that
// lets it pass.
func (l *fakeLog) ignorable(typ replication.EventType) *fakeLog {
	l.flags = replication.LOG_EVENT_IGNORABLE_F
	return l.event(typ, nil)
}

// TestAssemblerRefuses: what stops the relay. An incident event, and a type that
// no reader knows, are made up: only a debug build of the server writes them when
// it is told to.
func TestAssemblerRefuses(t *testing.T) {
	anonymous := newLog().gtid(1)
	anonymous.last()[4] = byte(replication.ANONYMOUS_GTID_EVENT)
	short := newLog().gtid(1)
	short.seal(short.last()[:headerSize+5])
	numberless := newLog().gtid(0)
	runAssembler(t, []assemblerTest{
		{name: "anonymous", log: anonymous, err: ErrSettings, text: "gtid_mode"},
		{name: "incident", log: newLog().event(replication.INCIDENT_EVENT, []byte{1, 0, 0}), err: ErrUnreadable, text: "incident"},
		{name: "unknown type", log: newLog().gtid(1).begin().event(200, nil), err: ErrUnreadable, text: "event type 200 is unknown"},
		{name: "GTID in a group", log: newLog().gtid(1).begin().insert("a").gtid(2), err: ErrTorn, text: ":1"},
		{name: "next file in a group", log: newLog().gtid(1).begin().insert("a").rotate("binlog.000002", 4), err: ErrTorn},
		{name: "new format in a group", log: newLog().gtid(1).begin().insert("a").format(false), err: ErrTorn},
		{name: "rows outside of a group", log: newLog().insert("a"), err: ErrDamaged, text: "outside of a transaction"},
		{name: "statement outside of a group", log: newLog().begin(), err: ErrDamaged, text: "outside of a transaction"},
		{name: "LOAD DATA outside of a group", log: newLog().load("LOAD"), err: ErrDamaged, text: "outside of a transaction"},
		{name: "half an integer", log: newLog().event(replication.INTVAR_EVENT, []byte{2, 1}), err: ErrDamaged, text: "integer"},
		{name: "end of no group", log: newLog().xid(), err: ErrDamaged},
		{name: "GTID cut short", log: short, err: ErrDamaged, text: "GTID"},
		{name: "GTID without a number", log: numberless, err: ErrDamaged, text: "GTID"},
		{
			name: "text insert", log: newLog().gtid(1).begin().query("INSERT INTO outbox (id) VALUES (1)"),
			err: ErrUnreadable, text: "INSERT on shop.outbox is in the log as text",
		},
		{
			name: "text insert behind a comment", log: newLog().gtid(1).begin().query("/* app */ insert\ninto `shop`.`outbox`(id) VALUES (1)"),
			err: ErrUnreadable, text: "binlog_format=STATEMENT",
		},
		{
			name: "text insert into another table", log: newLog().gtid(1).begin().query("INSERT INTO outbox_archive SELECT 1").xid(),
			want: []string{"1:"},
		},
		{
			name: "LOAD DATA as text", log: newLog().gtid(1).begin().load("LOAD DATA INTO TABLE `outbox`"),
			err: ErrUnreadable, text: "LOAD DATA",
		},
		{
			name: "LOAD DATA into another table", log: newLog().gtid(1).begin().load("LOAD DATA INTO TABLE `orders`").xid(),
			want: []string{"1:"},
		},
		{
			name: "other count of columns", log: newLog().gtid(1).begin().table(outboxID, "shop", "outbox", outboxMapped[:4]),
			err: ErrChanged, text: "the log has 4 columns and the definition 5",
		},
		{
			name: "other type of a column",
			log: newLog().gtid(1).begin().table(outboxID, "shop", "outbox", []mapped{
				outboxMapped[0], outboxMapped[1], outboxMapped[2], {"payload", typeJSON, []byte{4}}, outboxMapped[4]}),
			err: ErrChanged, text: "column 4, payload text, is stored as type 245",
		},
		{
			name: "no column of that name",
			log: (&fakeLog{names: true, metadata: true}).format(false).gtid(1).begin().table(outboxID, "shop", "outbox", []mapped{
				outboxMapped[0], outboxMapped[1], {"subject", typeVarchar, []byte{80, 0}}, outboxMapped[3], outboxMapped[4]}),
			err: ErrChanged, text: "shop.outbox lacks the column topic",
		},
		{
			name: "other type of a named column",
			log: (&fakeLog{names: true, metadata: true}).format(false).gtid(1).begin().table(outboxID, "shop", "outbox", []mapped{
				outboxMapped[0], outboxMapped[1], {"topic", typeDatetime2, []byte{6}}, outboxMapped[3], outboxMapped[4]}),
			err: ErrChanged, text: "column topic is datetime, which cannot hold the topic",
		},
		{
			name: "row cut short",
			log: newLog().gtid(1).begin().outbox().rows(replication.WRITE_ROWS_EVENTv2, outboxID, len(outboxMapped),
				outboxRow("a", "text")[:20]),
			err: ErrDamaged,
		},
		{
			name: "table map outside of a transaction", log: newLog().outbox(), err: ErrDamaged, text: "outside of a transaction",
		},
		{
			name: "rows of no column", // which have no end
			log:  newLog().gtid(1).begin().outbox().event(replication.WRITE_ROWS_EVENTv2, []byte{outboxID, 0, 0, 0, 0, 0, 1, 0, 2, 0, byte(len(outboxMapped)), 1 << 6, 1, 2, 3}),
			err:  ErrUnreadable, text: "rows of shop.outbox without any column: SET GLOBAL binlog_row_image = FULL",
		},
		{
			name: "rows of another count of columns",
			log: newLog().gtid(1).begin().outbox().rows(replication.WRITE_ROWS_EVENTv2, outboxID, 4,
				outboxRow("a", "text")),
			err: ErrDamaged, text: "rows of 4 columns behind a table map of 5",
		},
	})
}

func TestAssemblerBadEvent(t *testing.T) {
	row := outboxRow("a", "text")
	row[0] = 1 << 2 // NULL in topic: leave its bytes out
	row = append(row[:11:11], row[18:]...)
	log := newLog().gtid(1).begin().outbox().rows(replication.WRITE_ROWS_EVENTv2, outboxID, len(outboxMapped), row).xid()
	tx, err := newAssembler(outboxTable(t)).next(read(log.events))
	if err != nil {
		t.Fatal(err)
	}
	bad := tx.Events[0].Bad
	if bad == nil || string(bad.Row["payload"]) != "text" {
		t.Fatalf("got %+v, want it bad, with its row", tx.Events[0])
	}
	bad.Row = nil
	want := schema.BadEventError{ID: "a", GTID: fakeServer.String() + ":1", Broken: true, Reason: "column topic is NULL"}
	if diff := cmp.Diff(want, *bad); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
}

// TestAssemblerEvent looks at all that an event and its transaction hold.
func TestAssemblerEvent(t *testing.T) {
	log := newLog().format(true).gtid(3).begin().foreign().insert("a").xid()
	tx, err := newAssembler(outboxTable(t)).next(read(log.events))
	if err != nil {
		t.Fatal(err)
	}
	want := &Tx{
		GTID:        GTID{Server: fakeServer, Number: 3},
		CommittedAt: time.UnixMicro(fakeTime).UTC(),
		Events: []schema.Event{{
			ID: "a", AggregateID: "7", Topic: "orders", Payload: []byte("body of a"), ContentType: "text/plain;charset=utf-8",
			CreatedAt: time.Date(2024, 1, 2, 3, 4, 5, 678901000, time.UTC), GTID: fakeServer.String() + ":3",
		}},
		Last:  true,
		Place: Place{File: "binlog.000001", Offset: log.offset},
	}
	if diff := cmp.Diff(want, tx); diff != "" {
		t.Errorf("transaction (-want +got):\n%s", diff)
	}
}

// TestAssemblerRedefines: after a statement that may have changed the outbox the
// definition is found anew, when a row comes and only then, and a Tx tells of
// both. Without alters, or without the definition's being forgotten, the row of
// transaction 5 is refused.
func TestAssemblerRedefines(t *testing.T) {
	table := outboxTable(t)
	columns := append(outboxColumns(), schema.NewColumn("note", "int", "int", 0, ""))
	wider, err := schema.NewTable("shop", "outbox", columns, schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	a, asked := newAssembler(table), 0
	a.redefine = func() error { asked++; a.decoder.use(wider); return nil }
	widerRow := append(outboxRow("c", ""), 1, 0, 0, 0)
	log := newLog().
		gtid(1).begin().insert("a").xid().
		gtid(2).query("ALTER TABLE outbox_archive ADD note INT").gtid(3).begin().insert("b").xid().
		gtid(4).query("ALTER TABLE `shop`.`Outbox` ADD note INT").
		gtid(5).begin().table(outboxID, "shop", "outbox", append(outboxMapped[:5:5], mapped{"note", typeLong, nil})).
		rows(replication.WRITE_ROWS_EVENTv2, outboxID, 6, widerRow).
		table(outboxID, "shop", "outbox", append(outboxMapped[:5:5], mapped{"note", typeLong, nil})).xid()
	next := read(log.events)
	var got []string
	for range 5 {
		tx, err := a.next(next)
		if err != nil {
			t.Fatal(err)
		}
		line := show(tx) + tx.Altered
		if tx.Definition != nil {
			line += fmt.Sprintf(" %d columns", len(tx.Definition.Columns))
		}
		got = append(got, line)
	}
	if diff := cmp.Diff([]string{"1: a", "2:", "3: b", "4:ALTER TABLE `shop`.`Outbox` ADD note INT 0 columns", "5: c 6 columns"}, got); diff != "" {
		t.Errorf("transactions (-want +got):\n%s", diff)
	}
	if asked != 1 {
		t.Errorf("definition read again %d times, want 1", asked)
	}

	a = newAssembler(table)
	a.redefine = func() error { return errors.New("no server") }
	_, err = assemble(a, newLog().gtid(1).query("DROP TABLE outbox").gtid(2).begin().insert("a").xid())
	if err == nil || err.Error() != "no server" {
		t.Errorf("got error %v, want that of redefine", err)
	}
}
