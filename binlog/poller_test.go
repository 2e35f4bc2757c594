package binlog_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// poller makes one on a connection of its own.
func (r *rig) poller(limit int, topics schema.Topics, changes ...func(*binlog.Config)) *binlog.Poller {
	r.Helper()
	server := r.open(changes...)
	table, requirements, err := server.CheckPolling(r.ctx)
	for _, requirement := range requirements {
		if err == nil {
			err = requirement.Err()
		}
	}
	if err != nil {
		r.Fatal(err)
	}
	p, err := server.Poller(r.ctx, table, topics, limit)
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(p.Close)
	return p
}

// claim claims a batch, whose ids it returns.
func (r *rig) claim(p *binlog.Poller, without ...string) (binlog.Batch, []string) {
	r.Helper()
	b, err := p.Claim(r.ctx, without...)
	if err != nil {
		r.Fatal(err)
	}
	list := []string{}
	for _, e := range b.Events {
		list = append(list, e.ID)
	}
	return b, list
}

// settle stamps rows and ends the batch.
func (r *rig) settle(p *binlog.Poller, ids ...string) {
	r.Helper()
	if err := p.Settle(r.ctx, ids); err != nil {
		r.Fatal(err)
	}
}

// numbered makes a table of layout relay whose ids are numbers, in the order of
// created_at, and rows from 1 on of these aggregates.
func (r *rig) numbered(aggregates ...int) {
	r.Helper()
	r.exec(`CREATE TABLE outbox (id BIGINT PRIMARY KEY, aggregate_id BIGINT NOT NULL, topic VARCHAR(99) NOT NULL DEFAULT 't', payload LONGBLOB NOT NULL,
		status ENUM('pending', 'published') DEFAULT 'pending', created_at DATETIME(6) NOT NULL, published_at DATETIME(6), KEY idx_dispatch (status, created_at))`)
	for i, aggregate := range aggregates {
		r.exec("INSERT INTO outbox (id, aggregate_id, payload, created_at) VALUES (?, ?, '', '2026-01-01' + INTERVAL ? SECOND)", i+1, aggregate, i+1)
	}
}

// TestPollAsBackfill: of every table that can tell, a batch has the events of a
// backfill; stamped, they are no more pending.
func TestPollAsBackfill(t *testing.T) { onEach(t, testPollAsBackfill) }

func testPollAsBackfill(t *testing.T, on flavor) {
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
		if _, err := r.table(server).Status(); err != nil {
			_, requirements, err := server.CheckPolling(r.ctx)
			if refusal := requirements[1].Err(); err != nil || !errors.Is(refusal, schema.ErrTable) || !strings.Contains(refusal.Error(), ".outbox ADD COLUMN ") {
				t.Errorf("%s: got %v, %v", tt.name, err, refusal)
			}
			r.exec("ALTER TABLE outbox ADD COLUMN status ENUM('pending','published') NOT NULL DEFAULT 'pending', ADD COLUMN published_at DATETIME(6) NULL")
			server = r.open()
		}
		want := map[string]schema.Event{}
		for _, tx := range r.backfill(server, "", "") {
			want[tx.Events[0].ID] = tx.Events[0]
		}
		created, timed := r.table(server).Column(schema.RoleCreatedAt)
		p := r.poller(10, schema.Topics{})
		b, got := r.claim(p)
		if len(b.Events) != len(want) || b.Full {
			t.Errorf("%s: got %v, full %v", tt.name, got, b.Full)
		}
		for _, e := range b.Events {
			without := cmp.Options{}
			if !timed || tt.name == "unsigned" && e.ID == "1" { // created_at is NULL
				without = cmp.Options{cmpopts.IgnoreFields(schema.Event{}, "CreatedAt")}
				if off := time.Since(e.CreatedAt).Abs(); off > limit {
					t.Errorf("%s: created %s ago", tt.name, off)
				}
			}
			if diff := cmp.Diff(want[e.ID], e, without); diff != "" {
				t.Errorf("%s: backfill and poll (-backfill +poll):\n%s", tt.name, diff)
			}
		}
		if timed && created.Kind == schema.Time && !slices.IsSortedFunc(b.Events, func(a, b schema.Event) int { return a.CreatedAt.Compare(b.CreatedAt) }) && tt.name != "unsigned" {
			t.Errorf("%s: the order is %v", tt.name, got)
		}
		r.settle(p, got[:1]...)
		if _, rest := r.claim(p); !slices.Equal(rest, got[1:]) {
			t.Errorf("%s: got %v behind %v", tt.name, rest, got[:1])
		}
		if _, named := r.table(server).Column(schema.RoleAggregateID); named {
			r.settle(p)
			var aggregates []string
			for _, e := range b.Events {
				aggregates = append(aggregates, e.AggregateID)
			}
			if _, rest := r.claim(p, aggregates...); len(rest) > 0 {
				t.Errorf("%s: got %v without the aggregates %q", tt.name, rest, aggregates)
			}
		}
		r.settle(p)
		r.claim(p)
		r.settle(p, got[1:]...)
		if _, none := r.claim(p); len(none) != 0 {
			t.Errorf("%s: still pending: %v", tt.name, none)
		}
		r.settle(p)
		r.exec("DROP TABLE outbox")
	}
}

// TestPollShared: two pollers have no row in common, and an aggregate of which
// the other has an earlier row is left for later; what was not stamped comes
// again, and all that a dead one had.
func TestPollShared(t *testing.T) { onEach(t, testPollShared) }

func testPollShared(t *testing.T, on flavor) {
	r := on.rig(t, "")
	r.numbered(1, 2, 3, 4, 1, 5, 2, 6)
	a, b := r.poller(4, schema.Topics{}), r.poller(4, schema.Topics{})
	first, got := r.claim(a)
	if want := []string{"1", "2", "3", "4"}; !slices.Equal(got, want) || !first.Full || first.Held != 0 {
		t.Errorf("got %v, %+v, want %v", got, first, want)
	}
	second, got := r.claim(b)
	if want := []string{"6", "8"}; !slices.Equal(got, want) || second.Held != 2 { // 5 and 7 stand behind 1 and 2
		t.Errorf("got %v, %d held, want %v", got, second.Held, want)
	}
	r.settle(b, "6")
	r.settle(a, "1", "3", "4") // 2 was refused
	_, got = r.claim(b)
	if want := []string{"2", "5", "7", "8"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	b.Close() // as one that is killed: nothing is stamped
	relaytest.Wait(t, limit, "the rows of the dead poller are free", func() bool {
		_, got = r.claim(a)
		r.settle(a)
		return slices.Equal(got, []string{"2", "5", "7", "8"})
	})
}

// TestPollGuard: whatever keeps an earlier row of an aggregate from being
// claimed, its later ones are left, and other aggregates go.
func TestPollGuard(t *testing.T) { onEach(t, testPollGuard) }

func testPollGuard(t *testing.T, on flavor) {
	r := on.rig(t, "")
	r.numbered(1, 2, 1, 3, 1)
	p := r.poller(100, schema.Topics{})
	want := func(what string, held int, ids ...string) {
		t.Helper()
		b, got := r.claim(p)
		if !slices.Equal(got, ids) || b.Held != held {
			t.Errorf("%s: got %v, %d held, want %v, %d", what, got, b.Held, ids, held)
		}
		r.settle(p)
	}
	other := r.conn()
	r.on(other, "BEGIN")
	r.on(other, "SELECT * FROM outbox WHERE id = 3 FOR UPDATE")
	want("the third is locked", 1, "1", "2", "4")
	r.on(other, "ROLLBACK")
	want("it is free", 0, "1", "2", "3", "4", "5")

	r.on(other, "BEGIN")
	r.on(other, "UPDATE outbox SET status = 'published' WHERE id = 1")
	want("the first is being stamped", 2, "2", "4")
	r.on(other, "COMMIT")
	want("it is stamped", 0, "2", "3", "4", "5")

	r.on(other, "BEGIN")
	r.on(other, "INSERT INTO outbox (id, aggregate_id, payload, created_at) VALUES (6, 3, '', '2026-01-01')")
	want("a row is written before the others, and not committed", 0, "2", "3", "4", "5")
	r.on(other, "COMMIT")
	want("it is committed", 0, "6", "2", "3", "4", "5")
}

// TestPollOrder: by created_at, where that is equal by the id, and rows without
// one first: NULL, then a zero date. Seen to fail with the server's sql_mode.
func TestPollOrder(t *testing.T) { onEach(t, testPollOrder) }

func testPollOrder(t *testing.T, on flavor) {
	r := on.rig(t, "")
	r.numbered(1, 1, 1, 1, 1, 1)
	zero := r.conn("SET SESSION sql_mode = ''")
	r.on(zero, "ALTER TABLE outbox MODIFY created_at DATETIME(6) NULL")
	r.on(zero, "UPDATE outbox SET created_at = CASE id WHEN 6 THEN NULL WHEN 5 THEN '0000-00-00' WHEN 4 THEN NULL ELSE '2026-01-01' END")
	want := []string{"4", "6", "5", "1", "2", "3"}
	for limit := 1; limit <= len(want); limit++ {
		p := r.poller(limit, schema.Topics{})
		var all []string
		for {
			_, got := r.claim(p)
			r.settle(p, got...)
			if len(got) == 0 {
				break
			}
			all = append(all, got...)
		}
		if !slices.Equal(all, want) {
			t.Errorf("%d at a time: got %v, want %v", limit, all, want)
		}
		p.Close()
		r.exec("UPDATE outbox SET status = 'pending'")
	}
}

// TestPollTopics: what is wanted is found by the statement, as Topics has it, so
// that a batch is not full of what is not; and what is not holds nothing up.
func TestPollTopics(t *testing.T) { onEach(t, testPollTopics) }

func testPollTopics(t *testing.T, on flavor) {
	texts := []string{"", "a", "A", "ä", "a ", " a", "a_b", "aXb", "a%b", "a|b", `a\b`, "a'b", "order.placed", "ORDER.placed", "a\nb", "雪", "雪b", "😀"}
	globs := []string{"*", "?", "a*", "a?b", "a_b", "a%b", "a|b", `a\b`, "a'b", "*.placed", "order.*", "ä", "雪*", "?b", "😀", "a ", "* *"}
	for _, create := range []string{
		"topic VARCHAR(99) CHARACTER SET utf8mb4",
		"topic VARCHAR(99) CHARACTER SET utf8mb4, event_type VARCHAR(99) CHARACTER SET latin1",
		"topic TEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin, event_type ENUM('', 'a', 'order.placed')",
	} {
		r := on.rig(t, "CREATE TABLE outbox (id BIGINT PRIMARY KEY, aggregate_id BIGINT, payload BLOB, status VARCHAR(20) DEFAULT 'pending', created_at DATETIME, "+create+", KEY (status, created_at))")
		for i, text := range texts {
			r.exec("INSERT INTO outbox (id, aggregate_id, payload, created_at, topic) VALUES (?, 1, '', '2026-01-01', ?)", i+1, text)
		}
		if strings.Contains(create, "event_type") {
			r.exec("UPDATE outbox SET event_type = 'a' WHERE id IN (1, 5)")
			r.exec("INSERT INTO outbox VALUES (0, 1, '', 'pending', '2026-01-01', '', 'order.placed')")
		}
		p := r.poller(1000, schema.Topics{})
		all, _ := r.claim(p)
		r.settle(p)
		p.Close()
		if len(all.Events) < len(texts) {
			t.Fatalf("%s: %d events", create, len(all.Events))
		}
		for _, glob := range globs {
			for _, except := range [][]string{nil, {"*b*"}, {glob}} {
				topics, err := schema.NewTopics([]string{glob, "order.placed"}, except)
				if err != nil {
					t.Fatal(err)
				}
				want := []string{}
				for _, e := range all.Events {
					if topics.Want(e.Type()) {
						want = append(want, e.ID)
					}
				}
				p := r.poller(1000, topics)
				if _, got := r.claim(p); !slices.Equal(got, want) {
					t.Errorf("%s: %q without %q: got %v, want %v", create, topics.Only, topics.Except, got, want)
				}
				r.settle(p)
				p.Close()
			}
		}
	}
}

// TestPollLarge: a batch ends where its payloads are many, and the rest comes next.
func TestPollLarge(t *testing.T) {
	t.Parallel()
	r := newRig(t, "")
	r.numbered(1, 1, 2, 1, 2)
	r.exec("UPDATE outbox SET payload = REPEAT('x', 12 << 20)")
	p := r.poller(100, schema.Topics{})
	var got []string
	for range 3 {
		b, some := r.claim(p)
		got = append(got, fmt.Sprint(some, b.Full))
		r.settle(p, some...)
	}
	if want := []string{"[1 2 3] true", "[4 5] false", "[] false"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestPollOldest: the age of what waits, and rows that no poll would find.
func TestPollOldest(t *testing.T) { onEach(t, testPollOldest) }

func testPollOldest(t *testing.T, on flavor) {
	r := on.rig(t, "")
	r.numbered(1, 1)
	topics, _ := schema.NewTopics(nil, []string{"other"})
	p := r.poller(100, topics)
	oldest := func() string {
		t.Helper()
		at, pending, err := p.Oldest(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(at.Format(time.RFC3339), " ", pending)
	}
	if got, want := oldest(), "2026-01-01T00:00:01Z true"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	r.exec("UPDATE outbox SET topic = 'other' WHERE id = 1")
	if got, want := oldest(), "2026-01-01T00:00:02Z true"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	r.exec("UPDATE outbox SET status = NULL WHERE id = 1")
	if err := p.Unstamped(r.ctx); err != nil {
		t.Errorf("of a topic that is not wanted: %v", err)
	}
	r.exec("UPDATE outbox SET status = NULL WHERE id = 2")
	if got, want := oldest(), "0001-01-01T00:00:00Z false"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	err := p.Unstamped(r.ctx)
	var bad *schema.BadEventError
	if !errors.As(err, &bad) || bad.ID != "2" {
		t.Fatalf("got %v", err)
	}
	_, fix, _ := strings.Cut(err.Error(), "and all like it: ")
	r.exec(fix)
	if err := p.Unstamped(r.ctx); err != nil {
		t.Error(err)
	}
	if _, got := r.claim(p); !slices.Equal(got, []string{"2"}) {
		t.Errorf("got %v", got)
	}
}

// TestPollNeeds: what a poller refuses, with the statement that mends it, and
// what it can do without.
func TestPollNeeds(t *testing.T) { onEach(t, testPollNeeds) }

func testPollNeeds(t *testing.T, on flavor) {
	r := on.rig(t, schema.SQL)
	table := strings.ReplaceAll(r.text("SELECT DATABASE()"), "`", "") + ".outbox"
	check := func(changes ...func(*binlog.Config)) (advice string, refusal error) {
		t.Helper()
		server := r.open(changes...)
		_, requirements, err := server.CheckPolling(r.ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, requirement := range requirements {
			if refusal == nil {
				refusal = requirement.Err()
			}
			if !requirement.OK && requirement.Advice {
				advice += requirement.Fix
			}
		}
		return advice, refusal
	}
	quoted := "`" + strings.Replace(table, ".", "`.`", 1) + "`"
	_, dsn := r.user("%", "SELECT ON "+quoted)
	if _, err := check(as(dsn)); !errors.Is(err, binlog.ErrGrant) || !strings.Contains(err.Error(), "GRANT SELECT, UPDATE ON "+quoted) {
		t.Errorf("got %v", err)
	}
	_, dsn = r.user("%", "SELECT, UPDATE ON "+quoted)
	if advice, err := check(as(dsn)); err != nil || advice != "" {
		t.Errorf("got %v, %s", err, advice)
	}
	r.insert(newID(), "{}")
	p := r.poller(10, schema.Topics{}, as(dsn))
	_, got := r.claim(p)
	r.settle(p, got...)
	if left := r.text("SELECT COUNT(*) FROM outbox WHERE status = 'pending'"); left != "0" || len(got) != 1 {
		t.Errorf("got %v, left %s", got, left)
	}
	p.Close()

	for _, step := range []struct{ change, refusal, advice string }{
		{"ALTER TABLE outbox DROP KEY idx_dispatch", "", "ALTER TABLE " + table + " ADD KEY idx_dispatch (`status`, `created_at`)"},
		{"ALTER TABLE outbox ADD KEY other (status, created_at, aggregate_id)", "", "ALTER TABLE " + table + " ADD KEY idx_dispatch (`status`, `created_at`)"},
		{"ALTER TABLE outbox ADD KEY fits (status, created_at, id, topic)", "", ""},
		{"ALTER TABLE outbox DROP PRIMARY KEY", "ALTER TABLE " + table + " ADD UNIQUE KEY (`id`)", ""},
		{"ALTER TABLE outbox ADD UNIQUE KEY (id), ENGINE=MyISAM", "ALTER TABLE " + table + " ENGINE=InnoDB", ""},
		{"ALTER TABLE outbox ENGINE=InnoDB, DROP COLUMN status", "ALTER TABLE " + table + " ADD COLUMN status ENUM('pending','published')", ""},
	} {
		r.exec(step.change)
		advice, err := check()
		if advice != step.advice || (err == nil) != (step.refusal == "") || err != nil && !strings.Contains(err.Error(), step.refusal) {
			t.Errorf("%s: got %v; %s", step.change, err, advice)
		}
	}
}
