package binlog_test

import (
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// TestNewest: the newest transaction that the log has of each position is the one
// with which the server came to it, over files, empty ones too, domains and
// servers, XA transactions that are only prepared, and what is purged. Remembers
// knows it, and at another time does not.
func TestNewest(t *testing.T) { onEach(t, testNewest) }

func testNewest(t *testing.T, on flavor) {
	r := newRigOn(t, on.private(t), schema.SQL)
	server := r.open()
	table := r.table(server)
	type step struct {
		position *binlog.GTIDSet
		last     string // committed on the way from the position before
	}
	var steps []step
	conn := r.conn()
	before := r.executed(server)
	note := func() {
		t.Helper()
		now := r.executed(server)
		last := r.pick(now.Minus(before).String(), "")
		if r.mariadb() {
			last = r.text("SELECT @@GLOBAL.gtid_binlog_pos")
			if len(steps) > 0 {
				last = r.onText(conn, "SELECT @@SESSION.last_gtid")
			}
		}
		steps, before = append(steps, step{now, last}), now
	}
	insert := "INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (?, 7, 'orders', '{}')"
	r.on(conn, insert, newID())
	note()
	r.on(conn, insert, newID())
	note()
	r.exec("FLUSH BINARY LOGS")
	if r.mariadb() {
		r.on(conn, "SET SESSION server_id = 50")
	} else {
		r.on(conn, "SET gtid_next = '3e11fa47-71ca-11e1-9e33-c80aa9429562:blue:1'")
	}
	r.on(conn, insert, newID())
	note()
	r.on(conn, r.pick("SET gtid_next = AUTOMATIC", "SET SESSION gtid_domain_id = 5"))
	for range 2 {
		r.on(conn, insert, newID())
		note()
	}
	for _, statement := range []string{"XA START 'x'", "INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (0x01, 7, 'orders', '{}')", "XA END 'x'", "XA PREPARE 'x'"} {
		r.on(conn, statement)
	}
	note()
	r.on(conn, "XA COMMIT 'x'")
	note()
	r.exec("FLUSH BINARY LOGS")
	r.exec("FLUSH BINARY LOGS")

	for i, s := range steps {
		tx, err := server.Newest(r.ctx, s.position, table)
		if err != nil || tx == nil {
			t.Fatalf("%d: at %s: %v, %v", i, s.position, tx, err)
		}
		last := tx.GTID
		if last.IsZero() {
			last = tx.Prepared
		}
		if last.String() != s.last {
			t.Errorf("%d: at %s: got %s, want %s", i, s.position, last, s.last)
		}
		if err := server.Remembers(r.ctx, last.String(), tx.CommittedAt, table); err != nil {
			t.Errorf("%d: %v", i, err)
		}
		wantError(t, server.Remembers(r.ctx, last.String(), tx.CommittedAt.Add(-time.Second), table), binlog.ErrDiverged, "was reset or restored")
	}
	relaytest.Wait(t, limit, "the log is purged, which a reader of it holds up", func() bool {
		r.exec("PURGE BINARY LOGS TO '" + r.boundary("").file + "'")
		return len(r.logFiles()) == 1
	})
	for _, s := range []step{steps[0], steps[len(steps)-1], {position: parse(r, "")}} {
		if tx, err := server.Newest(r.ctx, s.position, table); tx != nil || err != nil {
			t.Errorf("purged: at %s: got %v, %v", s.position, tx, err)
		}
	}
	if !r.mariadb() {
		return
	}
	// Numbers that strict mode lets a session leave out: another transaction stands
	// where the one that is asked for would.
	r.on(conn, insert, newID())
	was := r.executed(server)
	var number int
	if _, err := fmt.Sscanf(r.onText(conn, "SELECT @@SESSION.last_gtid"), "5-50-%d", &number); err != nil {
		t.Fatal(err)
	}
	r.on(conn, fmt.Sprintf("SET SESSION gtid_seq_no = %d", number+3))
	r.on(conn, insert, newID())
	r.on(conn, insert, newID())
	hole := fmt.Sprintf("5-50-%d", number+1)
	wantError(t, server.Remembers(r.ctx, hole, time.Now(), table), binlog.ErrDiverged, fmt.Sprintf("another one in its place, 5-50-%d of ", number+3))
	if tx, err := server.Newest(r.ctx, was.Union(parse(r, hole)), table); err != nil || tx != nil && tx.GTID.Domain == 5 {
		t.Errorf("at the hole: got %v, %v", tx, err)
	}
	wantNext(r, r.followFrom(server, was.Union(parse(r, hole))), binlog.ErrDiverged, "missing the GTID "+hole)
}

// onText returns the one value that a query gives in a session, as text.
func (r *rig) onText(conn *sql.Conn, query string) (value string) {
	r.Helper()
	if err := conn.QueryRowContext(r.ctx, query).Scan(&value); err != nil {
		r.Fatalf("%s: %v", query, err)
	}
	return value
}
