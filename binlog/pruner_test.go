package binlog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

func (r *rig) prunable(server *binlog.Server) *binlog.Prunable {
	r.Helper()
	table, err := server.Prunable(r.ctx)
	if err != nil {
		r.Fatal(err)
	}
	return table
}

func (r *rig) pruner(server *binlog.Server, old binlog.Old) *binlog.Pruner {
	r.Helper()
	p, err := server.Pruner(r.ctx, r.prunable(server), old)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(p.Close)
	return p
}

// prune deletes all that is old, in batches, and sums up.
func (r *rig) prune(p *binlog.Pruner, batch int) (sum binlog.Deletion) {
	r.Helper()
	for {
		found, err := p.Rows(r.ctx)
		if err != nil {
			r.Fatal(err)
		}
		for some := range slices.Chunk(found.Rows, batch) {
			d, err := p.Delete(r.ctx, some)
			if err != nil {
				r.Fatal(err)
			}
			sum.Deleted, sum.Locked, sum.Changed = sum.Deleted+d.Deleted, sum.Locked+d.Locked, sum.Changed+d.Changed
		}
		if found.End {
			return sum
		}
	}
}

// prunables are tables of all the shapes that rows are walked along and deleted
// in: their rows are n, created n hours ago, with n even published.
var prunables = []struct{ name, create, insert, index string }{
	{"seed", schema.SQL,
		"INSERT INTO outbox (id, aggregate_id, topic, payload, status, created_at) VALUES (UNHEX(LPAD(HEX(%d), 32, '0')), 1, 't', '{}', '%s', '%s')", "idx_dispatch"},
	{"time first", strings.Replace(schema.SQL, "(status, created_at)", "(created_at)", 1),
		"INSERT INTO outbox (id, aggregate_id, topic, payload, status, created_at) VALUES (UNHEX(LPAD(HEX(%d), 32, '0')), 1, 't', '{}', '%s', '%s')", "idx_dispatch"},
	{"no index", "CREATE TABLE outbox (id VARCHAR(40) CHARACTER SET latin1 PRIMARY KEY, aggregate_id INT, topic VARCHAR(9), payload LONGTEXT, status VARCHAR(9), created_at TIMESTAMP(6) NULL)",
		"INSERT INTO outbox VALUES (CONCAT('é', %d), 1, 't', '{}', '%s', '%s')", "PRIMARY"},
	{"two keys", "CREATE TABLE outbox (id BIGINT UNSIGNED, aggregate_id INT, topic VARCHAR(9), payload LONGTEXT, status VARCHAR(9) CHARACTER SET latin1, created_at DATETIME, PRIMARY KEY (created_at, id), KEY (status, created_at))",
		"INSERT INTO outbox VALUES (%d, 1, 't', '{}', '%s', '%s')", "PRIMARY"},
	{"partitioned", "CREATE TABLE outbox (id BINARY(2), aggregate_id INT, topic VARCHAR(9), payload LONGTEXT, status VARCHAR(9) CHARACTER SET latin1, created_at DATETIME, PRIMARY KEY (id, created_at), KEY idx_dispatch (status, created_at)) PARTITION BY RANGE (TO_DAYS(created_at)) (PARTITION a VALUES LESS THAN (TO_DAYS('2020-01-01')), PARTITION b VALUES LESS THAN MAXVALUE)",
		"INSERT INTO outbox VALUES (%d, 1, 't', '{}', '%s', '%s')", "idx_dispatch"},
	{"other key", "CREATE TABLE outbox (n BIGINT AUTO_INCREMENT PRIMARY KEY, id BINARY(3), aggregate_id INT, topic VARCHAR(9), payload LONGTEXT, status VARCHAR(9), created_at DATETIME)",
		"INSERT INTO outbox (id, aggregate_id, topic, payload, status, created_at) VALUES (%d, 1, 't', '{}', '%s', '%s')", "PRIMARY"},
	{"eventuate", "CREATE TABLE outbox (id VARCHAR(255) PRIMARY KEY, destination VARCHAR(255), headers LONGTEXT, payload LONGTEXT, published SMALLINT DEFAULT 0, creation_time BIGINT, KEY (published, creation_time))",
		"INSERT INTO outbox VALUES (%d, 't', '{}', '{}', '%s' = 'published', UNIX_TIMESTAMP(CONVERT_TZ('%s', '+00:00', @@session.time_zone)) * 1000)", "published"},
}

// TestPruner: of each table the old rows go, and no others, in batches of
// whatever size; by the status only those that are published.
func TestPruner(t *testing.T) { onEach(t, testPruner) }

func testPruner(t *testing.T, on flavor) {
	for _, tt := range prunables {
		for _, published := range []bool{false, true} {
			name := fmt.Sprintf("%s, published %t", tt.name, published)
			r := on.rig(t, tt.create)
			now := time.Now().UTC().Truncate(time.Second)
			for n := 1; n <= 9; n++ {
				r.exec(fmt.Sprintf(tt.insert, n, []string{"published", "pending"}[n%2], now.Add(-time.Duration(n)*time.Hour).Format(time.DateTime)))
			}
			server := r.open()
			p := r.pruner(server, binlog.Old{Before: now.Add(-4*time.Hour + time.Minute), Published: published})
			want := map[bool]binlog.Deletion{false: {Deleted: 6}, true: {Deleted: 3}}[published]
			if got := r.prune(p, 2); got != want {
				t.Errorf("%s: got %+v, want %+v", name, got, want)
			}
			if got := r.text("SELECT COUNT(*) FROM outbox"); got != fmt.Sprint(9-want.Deleted) {
				t.Errorf("%s: %s rows are left, want %d", name, got, 9-want.Deleted)
			}
		}
	}
}

// TestPrunerPlan: the walk reads its index in its order, from its place on, and
// sorts nothing: so that a table of millions is read once.
func TestPrunerPlan(t *testing.T) { onEach(t, testPrunerPlan) }

func testPrunerPlan(t *testing.T, on flavor) {
	for _, tt := range prunables {
		sorted := on.name == "mariadb" && tt.name == "partitioned" // it sorts there what is left of the old rows
		r := on.rig(t, tt.create)
		now := time.Now().UTC()
		for n := 1; n <= 40; n++ {
			r.exec(fmt.Sprintf(tt.insert, n, []string{"published", "pending"}[n%2], now.Add(-time.Duration(n)*time.Minute).Format(time.DateTime)))
		}
		p := r.pruner(r.open(), binlog.Old{Before: now})
		for range 2 { // from the beginning, and from a place
			query, args := p.Plan(r.ctx, 10)
			rows, err := r.db.QueryContext(r.ctx, r.pick("EXPLAIN FORMAT=TRADITIONAL ", "EXPLAIN ")+query, args...)
			if err != nil {
				t.Fatal(err)
			}
			columns, err := rows.Columns()
			if err != nil {
				t.Fatal(err)
			}
			for rows.Next() {
				cells := make([]*string, len(columns))
				into := make([]any, len(columns))
				for i := range cells {
					into[i] = &cells[i]
				}
				if err := rows.Scan(into...); err != nil {
					t.Fatal(err)
				}
				plan := map[string]string{}
				for i, name := range columns {
					if cells[i] != nil {
						plan[name] = *cells[i]
					}
				}
				if plan["key"] != tt.index || plan["type"] == "ALL" || strings.Contains(plan["Extra"], "filesort") && !sorted || strings.Contains(plan["Extra"], "temporary") {
					t.Errorf("%s: plan %v of\n%s", tt.name, plan, query)
				}
			}
			rows.Close()
		}
	}
}

// TestPrunerLocked: rows that a writer has locked are passed over, at once, and
// he does not wait; rows that were changed since they were found stay.
func TestPrunerLocked(t *testing.T) { onEach(t, testPrunerLocked) }

func testPrunerLocked(t *testing.T, on flavor) {
	r := on.rig(t, schema.SQL)
	for n := range 6 {
		r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (UNHEX(LPAD(HEX(?), 32, '0')), 1, 't', '{}', '2020-01-01')", n)
	}
	server := r.open()
	p := r.pruner(server, binlog.Old{Before: time.Now()})
	found, err := p.Rows(r.ctx)
	if err != nil || len(found.Rows) != 6 || !found.End {
		t.Fatalf("found %d rows, %v", len(found.Rows), err)
	}
	if !found.Visible.Contains(r.executed(server)) && on.name == "mysql" {
		t.Error("the set lacks what was executed before")
	}
	writer := r.conn("BEGIN", "UPDATE outbox SET payload = '{\"n\": 1}' WHERE id = UNHEX(LPAD('0', 32, '0'))")
	r.exec("DELETE FROM outbox WHERE id = UNHEX(LPAD('1', 32, '0'))")
	r.exec("UPDATE outbox SET created_at = '2020-01-02' WHERE id = UNHEX(LPAD('2', 32, '0'))") // as one that was written again
	r.exec("UPDATE outbox SET created_at = '2120-01-02' WHERE id = UNHEX(LPAD('3', 32, '0'))")
	d, err := p.Delete(r.ctx, found.Rows)
	if want := (binlog.Deletion{Deleted: 2, Locked: 1, Changed: 3}); err != nil || d != want {
		t.Errorf("got %+v, %v, want %+v", d, err, want)
	}
	r.on(writer, "COMMIT")
	if got := r.text("SELECT COUNT(*) FROM outbox"); got != "3" {
		t.Errorf("%s rows are left, want 3", got)
	}
}

// TestPrunable: what is an inbox and what is none, and what can't be pruned.
func TestPrunable(t *testing.T) { onEach(t, testPrunable) }

func testPrunable(t *testing.T, on flavor) {
	inbox := (&exchange.Inbox{Table: "outbox"}).Schema()
	for _, tt := range []struct{ create, want string }{
		{inbox, "inbox"},
		{schema.SQL, "outbox"},
		// Its id has another name, which was not told.
		{"CREATE TABLE outbox (message_id BINARY(16) PRIMARY KEY, aggregate_id INT, topic VARCHAR(9), payload JSON, processed_at DATETIME)", "lacks the column"},
		{"CREATE TABLE outbox (id BINARY(16), aggregate_id INT, topic VARCHAR(9), payload JSON, created_at DATETIME)", "ADD PRIMARY KEY (`id`)"},
		{"CREATE TABLE outbox (id BINARY(16) PRIMARY KEY, aggregateid INT, aggregatetype VARCHAR(9), type VARCHAR(9), payload JSON)", "ADD COLUMN `timestamp`"},
		{"CREATE TABLE outbox (id DOUBLE, e BINARY(16), aggregate_id INT, topic VARCHAR(9), payload JSON, created_at DATETIME, PRIMARY KEY (id))", "cannot"},
	} {
		r := on.rig(t, tt.create)
		table, err := r.open().Prunable(r.ctx)
		got := "inbox"
		switch {
		case err != nil:
			got = err.Error()
		case table.Outbox != nil:
			got = "outbox"
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s: got %s, want %s", tt.create, got, tt.want)
		}
	}
}

// TestOwnedSet: gtid_owned as MySQL prints it, with something between two servers or
// without.
func TestOwnedSet(t *testing.T) {
	const a, b = "1220506b-eb13-457a-839d-5a412d6133f0", "484d0aaa-ed42-11f1-84be-02fc00000001"
	for text, want := range map[string]string{
		"":                                     "",
		a + ":7#12":                            a + ":7",
		a + ":7#12:9#13#14":                    a + ":7:9",
		a + ":7#12" + b + ":7330#45":           a + ":7," + b + ":7330",
		a + ":7#12,\n" + b + ":7330#45:7331#1": a + ":7," + b + ":7330-7331",
	} {
		if got, err := binlog.OwnedSet(text); err != nil || got.String() != want {
			t.Errorf("%q: got %v, %v, want %s", text, got, err, want)
		}
	}
}

// TestPrunerVisible: a transaction that has its GTID, and is not in gtid_executed
// yet, counts among those that the rows can be of: it can be seen a moment before.
func TestPrunerVisible(t *testing.T) {
	t.Parallel()
	r := newRig(t, schema.SQL)
	server := r.open()
	gtid := uuid.NewString() + ":7"
	owner := r.conn("SET gtid_next = '"+gtid+"'", "BEGIN")
	defer r.on(owner, "SET gtid_next = 'AUTOMATIC'")
	defer r.on(owner, "ROLLBACK")
	p := r.pruner(server, binlog.Old{Before: time.Now()})
	found, err := p.Rows(r.ctx)
	if err != nil {
		t.Fatal(err)
	}
	set, err := binlog.ParseGTIDSet(gtid)
	if err != nil {
		t.Fatal(err)
	}
	executed := r.executed(server)
	if executed.Contains(set) || !found.Visible.Contains(set) || !found.End {
		t.Errorf("executed %s, visible %s", executed, found.Visible)
	}
}

// TestPrunerZones: a time in a zone is compared as it was written there; of the
// hour that comes twice nothing goes before the second one is old.
func TestPrunerZones(t *testing.T) {
	t.Parallel()
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		before string // UTC
		want   int64
	}{
		{"2025-10-25T23:30:00Z", 1}, // 01:30
		{"2025-10-26T00:30:00Z", 1}, // 02:30, for the first time: a row of 02:10 may be of the second
		{"2025-10-26T01:30:00Z", 2}, // 02:30, for the second time
	} {
		r := newRig(t, schema.SQL)
		for n, at := range []string{"2025-10-26 01:10:00", "2025-10-26 02:10:00", "2025-10-26 02:40:00", "0000-00-00 00:00:00"} {
			r.on(r.conn("SET sql_mode = ''"), "INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (UNHEX(LPAD(HEX(?), 32, '0')), 1, 't', '{}', ?)", n, at)
		}
		before, err := time.Parse(time.RFC3339, tt.before)
		if err != nil {
			t.Fatal(err)
		}
		server := r.open(func(c *binlog.Config) { c.Options.Zone = berlin })
		if got := r.prune(r.pruner(server, binlog.Old{Before: before}), 10); got.Deleted != tt.want {
			t.Errorf("before %s: got %+v, want %d deleted", tt.before, got, tt.want)
		}
	}
}
