package binlog

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/outboxrelay/relay/schema"
)

// cut takes bytes apart into events by the sizes in their headers; what is
// left at the end is one more.
func cut(data []byte) (events [][]byte) {
	for len(data) >= headerSize {
		size := int(min(int64(le.Uint32(data[9:])), int64(len(data))))
		if size < headerSize {
			break
		}
		events, data = append(events, data[:size]), data[size:]
	}
	if len(data) > 0 {
		events = append(events, data)
	}
	return events
}

// FuzzAssembler reads any bytes as a log. Whatever it makes of them, it comes
// to an end, without a panic, and every transaction has its name.
func FuzzAssembler(f *testing.F) {
	inside := insideLog().begin().insert("a").query("SAVEPOINT s").insert("b").query("ROLLBACK TO s").xid()
	for _, log := range []*fakeLog{
		newLog().gtid(1).begin().foreign().insert("a", "b").xid(),
		newLog().gtid(1).begin().insert("a").query("SAVEPOINT s").insert("b").query("SAVEPOINT t").query("ROLLBACK TO s").query("ROLLBACK TO t").xid(),
		newLog().tagged("blue", 5).begin().insert("a").query("ROLLBACK").gtid(2).query("DROP TABLE outbox").gtid(3).begin().insert("b").xid(),
		newLog().xaGroup(1, "X'61',X'',1", "a").gtid(2).query("XA COMMIT X'61',X'',1"),
		newLog().gtid(1).compressed(replication.ZSTD, inside).gtid(2).compressed(replication.NONE, inside),
		newLog().gtid(1).begin().insertID(7).textQuery("INSERT INTO outbox (id) VALUES ('x')").textQuery("UPDATE outbox SET id = 'x'").xid(),
		(&fakeLog{names: true}).format(false).gtid(1).begin().insert("a").xid(),
		newLog().maria(1, 0).insertV1("a").deflate(replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1, rowsHead).xid().
			maria(2, mariaPreparedXA, xidA...).insertV1("b").query("XA END "+textA).xaPrepare(false).
			maria(3, mariaStandalone|mariaCompletedXA, xidA...).query("XA COMMIT "+textA).deflate(replication.MARIADB_QUERY_COMPRESSED_EVENT, queryHead),
	} {
		f.Add(bytes.Join(log.events, nil))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a := newAssembler(outboxTable(t))
		a.redefine = func() error { a.decoder.use(outboxTable(t)); return nil }
		defer a.close()
		a.domain = func(GTID) (*reach, error) {
			return newReach("shop", "outbox", []object{{target, "shop", "orders", "REPLACE INTO outbox"}, {called, "shop", "emit", "REPLACE INTO outbox"}}, nil), nil
		}
		a.fetch = func(_ GTID, _ *insertion, ids []any, _ bool, from schema.Origin) ([]schema.Event, string, error) {
			return []schema.Event{{ID: fmt.Sprint(ids...), GTID: from.GTID, Topic: "t"}}, "", nil
		}
		next := read(cut(data))
		for range len(data) + 1<<20 { // a compressed event can hold many
			tx, err := a.next(next)
			if err != nil {
				if err != io.EOF && tx != nil {
					t.Errorf("got both %v and %v", tx, err)
				}
				return
			}
			if tx.GTID.IsZero() && (tx.Prepared.IsZero() || len(tx.Events) > 0) {
				t.Errorf("got a transaction without a name: %+v", tx)
			}
			for _, e := range tx.Events {
				if e.GTID != tx.GTID.String() || e.Bad == nil && e.Topic == "" && len(e.Payload) == 0 && e.ID == "" && e.AggregateID == "" {
					t.Errorf("got event %+v in %s", e, tx.GTID)
				}
			}
		}
		t.Error("no end")
	})
}

// FuzzTableMap reads any bytes as a table map: it refuses them as damaged, or
// gives as many names as columns.
func FuzzTableMap(f *testing.F) {
	for _, log := range []*fakeLog{
		insideLog().outbox(),
		(&fakeLog{inner: true, names: true}).outbox(),
		(&fakeLog{inner: true, names: true, metadata: true}).outbox(),
		insideLog().table(1<<40, "d", "t", []mapped{{"a", typeNewDecimal, []byte{10, 2}}, {"b", typeBit, []byte{1, 1}}, {"c", typeString, []byte{typeEnum, 1}}}),
		insideLog().table(1, "", "", nil),
	} {
		f.Add(log.last()[headerSize:])
	}
	full, err := os.ReadFile("../testdata/binlog/full.bin") // its table maps have all optional fields
	if err != nil {
		f.Fatal(err)
	}
	for _, event := range cut(full[4:]) {
		if replication.EventType(event[4]) == replication.TABLE_MAP_EVENT {
			f.Add(event[headerSize : len(event)-checksumSize])
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		before := bytes.Clone(body)
		tm, err := parseTableMap(body, len(body)%2 > 0)
		if !bytes.Equal(body, before) {
			t.Error("body changed")
		}
		if err != nil {
			wantDamaged(t, err)
			return
		}
		for i, m := range tm.metadata {
			if _, err := m.logged(schema.Column{Kind: schema.Enum, Charset: "utf8mb4"}); err == nil && len(m.labels) > len(body) {
				t.Errorf("column %d: got %d labels from %d bytes", i, len(m.labels), len(body))
			}
		}
		if len(tm.metadata) != len(tm.columns) {
			t.Errorf("got metadata of %d columns of %d", len(tm.metadata), len(tm.columns))
		}
		if tm.names != nil && len(tm.names) != len(tm.columns) {
			t.Errorf("got %d names for %d columns", len(tm.names), len(tm.columns))
		}
		if tm.names != nil {
			if table, err := tm.define(schema.Options{}, nil); err == nil && len(table.Columns) != len(tm.columns) {
				t.Errorf("defined %d columns out of %d", len(table.Columns), len(tm.columns))
			}
		}
		id, database, table, err := peekTableMap(body)
		if err != nil || id != tm.id || !bytes.Equal(database, tm.database) || !bytes.Equal(table, tm.table) {
			t.Errorf("peek: got %d %s.%s, %v, want %d %s.%s", id, database, table, err, tm.id, tm.database, tm.table)
		}
	})
}
