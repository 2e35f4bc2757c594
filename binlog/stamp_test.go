package binlog_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/schema"
)

// TestStamp: of every table that can tell, the rows named are marked, once, and
// a backfill then leaves them out.
func TestStamp(t *testing.T) { onEach(t, testStamp) }

func testStamp(t *testing.T, on flavor) {
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
		all := r.backfill(server, "", "")
		stamped := all[0].Events[0].ID
		err := server.Stamp(r.ctx, table, []string{stamped})
		if _, ok := table.Column(schema.RoleStatus); !ok {
			if !errors.Is(err, schema.ErrTable) || !strings.Contains(err.Error(), "ALTER TABLE "+table.String()+" ADD COLUMN status") {
				t.Errorf("%s: got %v", tt.name, err)
			}
		} else {
			if err != nil {
				t.Fatalf("%s: %v", tt.name, err)
			}
			if got, want := ids(r.backfill(server, "", "")), ids(all[1:]); got != want {
				t.Errorf("%s: pending behind the stamp: got %s, want %s", tt.name, got, want)
			}
		}
		r.exec("DROP TABLE outbox")
	}
}

// TestStampTime: published_at is the server's time in the table's zone, is set
// once, and needs the privilege.
func TestStampTime(t *testing.T) { onEach(t, testStampTime) }

func testStampTime(t *testing.T, on flavor) {
	r := on.rig(t, schema.SQL)
	id := newID()
	r.insert(id, `{}`)
	kolkata, err := time.LoadLocation("Asia/Kolkata")
	if err != nil {
		t.Fatal(err)
	}
	server := r.open(func(c *binlog.Config) { c.Options.Zone = kolkata })
	table, event := r.table(server), r.backfill(server, "", "")[0].Events[0]
	for range 2 {
		if err := server.Stamp(r.ctx, table, []string{event.ID, "00000000-0000-0000-0000-000000000000"}); err != nil {
			t.Fatal(err)
		}
	}
	if off := r.text("SELECT ABS(TIMESTAMPDIFF(MINUTE, UTC_TIMESTAMP(6) + INTERVAL '5:30' HOUR_MINUTE, published_at)) FROM outbox WHERE status = 'published'"); off != "0" {
		t.Errorf("published_at is %s min off", off)
	}
	_, dsn := r.user("%", "SELECT ON *.*")
	refused := r.open(as(dsn))
	if err := refused.Stamp(r.ctx, table, []string{event.ID}); !errors.Is(err, binlog.ErrGrant) || !strings.Contains(err.Error(), "GRANT SELECT, UPDATE ON") {
		t.Errorf("got %v", err)
	}
}
