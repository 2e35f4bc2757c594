package binlog_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/schema"
)

// TestCreated: of every table that tells when a row was created, the rows of a
// time are those that a backfill has of it, with the same ids; and Rows and Has
// find them by these, and nothing else.
func TestCreated(t *testing.T) { onEach(t, testCreated) }

func testCreated(t *testing.T, on flavor) {
	for _, tt := range bothTables {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if on.name == "mysql" && tt.name == "uuid" {
				return // it has no such type
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
			created, timed := table.Column(schema.RoleCreatedAt)
			want, known := map[string]schema.Event{}, map[string]time.Time{}
			var all []string
			for _, tx := range r.backfill(server, "", "") {
				e := tx.Events[0]
				all, want[e.ID] = append(all, e.ID), e
				if timed && !(tt.name == "unsigned" && e.ID == "1") { // that one has NULL
					known[e.ID] = e.CreatedAt
				}
			}

			got := map[string]time.Time{}
			err := server.Created(r.ctx, table, time.Unix(0, 0), time.Now().Add(time.Hour), func(id string, at time.Time) error {
				got[id] = at
				return nil
			})
			if !timed {
				if !errors.Is(err, schema.ErrTable) || !strings.Contains(err.Error(), "ADD COLUMN created_at") {
					t.Errorf("without a time: got %v", err)
				}
			} else if err != nil {
				t.Fatal(err)
			} else if diff := cmp.Diff(known, got); diff != "" {
				t.Errorf("ids and times (-backfill +created):\n%s", diff)
			}
			for id, at := range known { // the first moment is in, the last is not
				for _, w := range []struct {
					from, to time.Time
					in       bool
				}{{at, at.Add(time.Second), true}, {at.Add(-time.Second), at, false}} {
					in := false
					err := server.Created(r.ctx, table, w.from, w.to, func(got string, _ time.Time) error {
						in = in || got == id
						return nil
					})
					if err != nil || in != w.in {
						t.Errorf("%s of %s from %s to %s: %v, %v, want %v", id, created.Type, w.from, w.to, in, err, w.in)
					}
				}
			}

			asked := []string{"no such", "", "-1", strings.ToUpper(all[0]) + " "}
			for i := range all {
				asked = append(asked, all[len(all)-1-i])
			}
			has, err := server.Has(r.ctx, table, asked)
			if err != nil {
				t.Fatal(err)
			}
			rows, err := server.Rows(r.ctx, table, asked)
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range asked {
				if _, there := want[id]; has[id] != there {
					t.Errorf("has %q: %v, want %v", id, has[id], there)
				}
			}
			for id, e := range rows {
				w := want[id]
				if _, timed := known[e.ID]; !timed {
					e.CreatedAt = w.CreatedAt // of the snapshot
				}
				if diff := cmp.Diff(w, e); diff != "" {
					t.Errorf("row %q (-backfill +rows):\n%s", id, diff)
				}
			}
			if len(rows) != len(all) {
				t.Errorf("%d rows, want %d", len(rows), len(all))
			}
		})
	}
}

// plan is what EXPLAIN tells of a query.
func (r *rig) plan(query string, args []any) string {
	r.Helper()
	rows, err := r.db.QueryContext(r.ctx, r.pick("EXPLAIN FORMAT=TRADITIONAL ", "EXPLAIN ")+query, args...)
	if err != nil {
		r.Fatal(err)
	}
	defer rows.Close()
	names, _ := rows.Columns()
	var plan []string
	for rows.Next() {
		cells := make([]any, len(names))
		for i := range cells {
			cells[i] = new(any)
		}
		if err := rows.Scan(cells...); err != nil {
			r.Fatal(err)
		}
		for i, name := range names {
			value := *cells[i].(*any)
			if b, ok := value.([]byte); ok {
				value = string(b)
			}
			plan = append(plan, fmt.Sprintf("%s=%v", name, value))
		}
	}
	return strings.Join(plan, " ")
}

// TestCreatedPlan: of the seed table it reads the index on status and creation
// time, and nothing else, also rows with an odd status; and the hours in which
// clocks are put back and forth belong where they belong.
func TestCreatedPlan(t *testing.T) { onEach(t, testCreatedPlan) }

func testCreatedPlan(t *testing.T, on flavor) {
	r := on.rig(t, schema.SQL)
	r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES " + strings.TrimSuffix(strings.Repeat("(RANDOM_BYTES(16), 1, 't', '{}', '2024-01-01'), ", 2000), ", "))
	r.exec("ANALYZE TABLE outbox")
	lax := r.conn("SET SESSION sql_mode = ''")
	r.on(lax, "INSERT INTO outbox (id, aggregate_id, topic, payload, status, created_at) VALUES (?, 1, 't', '{}', 'odd', '2024-06-01'), (?, 1, 't', '{}', 'published', '2024-06-01')", newID(), newID())
	server := r.open()
	table := r.table(server)
	n := 0
	from := time.Date(2024, 5, 1, 0, 0, 0, 0, time.UTC)
	if err := server.Created(r.ctx, table, from, from.AddDate(0, 2, 0), func(string, time.Time) error { n++; return nil }); err != nil || n != 2 {
		t.Errorf("%d rows, %v; want the two of June", n, err)
	}
	query, args, err := binlog.CreatedQuery(server, table, from, from.AddDate(0, 2, 0))
	if err != nil {
		t.Fatal(err)
	}
	undated, values := binlog.UndatedQuery(server, table)
	for _, q := range []struct {
		text string
		args []any
	}{{query, args}, {undated, values}} {
		text := r.plan(q.text, q.args)
		if !strings.Contains(text, "type=range") || !strings.Contains(text, "Using index") || strings.Contains(text, "key=<nil>") {
			t.Errorf("the plan of %s: %s", q.text, text)
		}
	}
	// The zero date stands where a column is NOT NULL; both stand in others.
	r.on(lax, "INSERT INTO outbox (id, aggregate_id, topic, payload, status, created_at) VALUES (?, 1, 't', '{}', 'odd', 0)", newID())
	for _, want := range []int64{1, 3} {
		count, mend, err := server.Undated(r.ctx, table)
		if err != nil || count != want {
			t.Errorf("undated: %d rows, %v; want %d", count, err, want)
		}
		if want == 3 {
			r.exec(mend)
		} else {
			r.exec("ALTER TABLE outbox MODIFY created_at DATETIME(6), MODIFY status ENUM('pending', 'published')")
			r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload, status, created_at) VALUES (?, 1, 't', '{}', 'published', NULL), (?, 1, 't', '{}', NULL, NULL)", newID(), newID())
		}
	}
	if count, _, err := server.Undated(r.ctx, table); err != nil || count != 0 {
		t.Errorf("undated after the statement: %d rows, %v", count, err)
	}
	r.exec("DELETE FROM outbox WHERE created_at > '2025-01-01'")

	r.exec("DELETE FROM outbox WHERE status <> 'published'")
	r.exec("ALTER TABLE outbox MODIFY status ENUM('pending', 'published', '😀')")
	r.exec("UPDATE outbox SET status = '😀'")
	smiling := r.open()
	n = 0
	if err := smiling.Created(r.ctx, r.table(smiling), from, from.AddDate(0, 2, 0), func(string, time.Time) error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("of a status that information_schema does not tell: %d rows, %v; want 1", n, err)
	}
	r.exec("UPDATE outbox SET status = 'pending'")

	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	local := r.open(func(c *binlog.Config) { c.Options.Zone = berlin })
	r.exec("DELETE FROM outbox")
	r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (RANDOM_BYTES(16), 1, 't', '{}', '2024-10-27 02:30:00'), (RANDOM_BYTES(16), 1, 't', '{}', '2024-10-27 03:30:00')")
	n = 0
	begin := time.Date(2024, 10, 27, 2, 0, 0, 0, time.UTC) // 03:00 in Berlin
	if err := local.Created(r.ctx, r.table(local), begin, begin.Add(time.Hour), func(string, time.Time) error { n++; return nil }); err != nil || n != 1 {
		t.Errorf("in the hour behind that which is there twice: %d rows, %v; want 1", n, err)
	}
}
