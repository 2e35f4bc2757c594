package binlog_test

import (
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/schema"
)

// TestSelect: of every kind of table, by every way to choose, the server and
// Selection.Takes agree; the rows are as a backfill has them.
func TestSelect(t *testing.T) { onEach(t, testSelect) }

func testSelect(t *testing.T, on flavor) {
	for _, tt := range bothTables {
		if on.name == "mysql" && tt.name == "uuid" {
			continue // it has no such type
		}
		if on.name == "mariadb" { // it has no keys of expressions
			tt.create = strings.Replace(tt.create, ", KEY ((aggregate_id * 2))", "", 1)
		}
		r := on.rig(t, tt.create)
		for _, row := range tt.rows {
			r.exec("INSERT INTO outbox VALUES " + row)
		}
		server := r.open()
		table := r.table(server)
		var all []schema.Event
		for _, tx := range r.backfill(server, "", "") {
			all = append(all, tx.Events...)
		}
		selections := []schema.Selection{{}}
		_, timed := table.Column(schema.RoleCreatedAt)
		for _, e := range all {
			typ := []rune(e.Type())
			selections = append(selections, schema.Selection{IDs: []string{e.ID}}, schema.Selection{IDs: []string{e.ID, all[0].ID}},
				schema.Selection{Aggregates: []string{e.AggregateID}}, schema.Selection{Topics: topics(t, "?"+string(typ[min(1, len(typ)):]))},
				schema.Selection{Topics: topics(t, string(typ[:len(typ)/2])+"*"), IDs: []string{e.ID}})
			if timed && tt.name != "unsigned" { // a row without a time is not chosen by time
				selections = append(selections, schema.Selection{Since: e.CreatedAt}, schema.Selection{Until: e.CreatedAt, Aggregates: []string{e.AggregateID}})
			}
		}
		selections = append(selections, schema.Selection{Topics: topics(t, "*")}, schema.Selection{Topics: topics(t, "%")}, schema.Selection{Topics: topics(t, "_")})
		for _, selection := range selections {
			want := slices.DeleteFunc(slices.Clone(all), func(e schema.Event) bool { return !selection.Takes(&e) })
			rows, err := server.Select(r.ctx, table, selection, "")
			if err != nil {
				t.Fatalf("%s: %+v: %v", tt.name, selection, err)
			}
			var got []schema.Event
			var cursors []string
			for {
				tx, err := rows.Next(r.ctx)
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatalf("%s: %+v: %v", tt.name, selection, err)
				}
				got, cursors = append(got, tx.Events...), append(cursors, tx.Cursor)
			}
			rows.Close()
			clear := func(list []schema.Event) []schema.Event {
				for i := range list {
					if !timed || tt.name == "unsigned" { // the snapshot's time stands in
						list[i].CreatedAt = time.Time{}
					}
				}
				return list
			}
			if diff := cmp.Diff(clear(want), clear(got), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("%s: %+v (-want +got):\n%s", tt.name, selection, diff)
			}
			if len(cursors) > 1 {
				rest, err := server.Select(r.ctx, table, selection, cursors[0])
				if err != nil {
					t.Fatal(err)
				}
				if tx, err := rest.Next(r.ctx); err != nil || tx.Cursor != cursors[1] {
					t.Errorf("%s: behind %s: got %+v, %v", tt.name, cursors[0], tx, err)
				}
				rest.Close()
			}
		}
		if !timed {
			if _, err := server.Select(r.ctx, table, schema.Selection{Since: time.Now()}, ""); !errors.Is(err, binlog.ErrSelection) {
				t.Errorf("%s has no created_at: got %v", tt.name, err)
			}
		}
		r.exec("DROP TABLE outbox")
	}
}

func topics(t *testing.T, only ...string) schema.Topics {
	t.Helper()
	topics, err := schema.NewTopics(slices.DeleteFunc(only, func(glob string) bool { return glob == "" }), nil)
	if err != nil {
		t.Fatal(err)
	}
	return topics
}
