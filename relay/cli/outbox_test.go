package cli_test

import (
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// TestOnlyCommitted: what was rolled back never arrives, and what was
// committed does, in whatever way.
func TestOnlyCommitted(t *testing.T) { onEach(t, testOnlyCommitted) }

func testOnlyCommitted(t *testing.T, on source) {
	r := on.rig(t)
	r.exec("CREATE TABLE orders (id INT PRIMARY KEY)")
	r.begun()
	conn, err := r.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	n := 0
	row := func() string {
		n++
		return fmt.Sprintf("INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'%032x', 1, 't', '{}')", n)
	}
	xid := "'" + r.exchange + "-%d'"
	for _, script := range []string{
		row(),                            // 1, alone
		"BEGIN; " + row() + "; COMMIT",   // 2
		"BEGIN; " + row() + "; ROLLBACK", // 3: never
		"BEGIN; INSERT INTO orders VALUES (4); " + row() + "; SAVEPOINT s; " + row() + "; ROLLBACK TO SAVEPOINT s; " + row() + "; COMMIT", // 4, 6; 5: never
		"BEGIN; " + row() + "; SAVEPOINT s; ROLLBACK TO SAVEPOINT s; ROLLBACK",                                                            // 7: never
		fmt.Sprintf("XA START "+xid+"; "+row()+"; XA END "+xid+"; XA PREPARE "+xid+"; XA ROLLBACK "+xid, 8, 8, 8, 8),                      // 8: never
		fmt.Sprintf("XA START "+xid+"; "+row()+"; XA END "+xid+"; XA PREPARE "+xid+"; XA COMMIT "+xid, 9, 9, 9, 9),                        // 9
		fmt.Sprintf("XA START "+xid+"; "+row()+"; XA END "+xid+"; XA COMMIT "+xid+" ONE PHASE", 10, 10, 10),                               // 10
		"UPDATE outbox SET status = 'published', published_at = UTC_TIMESTAMP(6)",                                                         // no events
		"DELETE FROM outbox", // no events
		row(),                // 11
		"REPLACE INTO orders VALUES (4)",
	} {
		for statement := range strings.SplitSeq(script, "; ") {
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
	}
	var want []string
	for _, n := range []int{1, 2, 4, 6, 9, 10, 11} {
		want = append(want, idText(n))
	}
	if got := messageIDs(r.relayed()); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestPreparedWhileAway: an XA transaction that is prepared before a stop and
// decided after the next start. It is not parallel to other tests: it keeps the
// position of every relay on its server back.
func TestPreparedWhileAway(t *testing.T) {
	for _, on := range sources {
		t.Run(on.name, func(t *testing.T) { t.Parallel(); preparedWhileAway(t, on) })
	}
}

func preparedWhileAway(t *testing.T, on source) {
	r := on.rig(t).begun()
	ids := map[string]int{"commit": 1, "rollback": 2}
	for name, n := range ids {
		conn, err := r.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		xid := "'" + r.exchange + name + "'"
		for _, statement := range []string{
			"XA START " + xid, fmt.Sprintf("INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'%032x', 1, 't', '{}')", n),
			"XA END " + xid, "XA PREPARE " + xid,
		} {
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		conn.Raw(func(any) error { return driver.ErrBadConn }) //nolint:errcheck // it ends the session, which MariaDB wants
	}
	d := r.start("--partitions", "1")
	r.insert(r.db, 3, 3)
	d.until("the event behind the prepared ones is settled", func() bool { return r.state().Sequence == 1 })
	d.stop()
	for name := range ids {
		if _, err := r.db.Exec("XA " + name + " '" + r.exchange + name + "'"); err != nil {
			t.Fatal(err)
		}
	}
	if got := messageIDs(r.relayed()); !slices.Equal(got, []string{idText(3), idText(1)}) {
		t.Errorf("got %v, want %s and then %s", got, idText(3), idText(1))
	}
}

// TestIdleOutbox: transactions beside the outbox move the checkpoint.
func TestIdleOutbox(t *testing.T) { onEach(t, testIdleOutbox) }

func testIdleOutbox(t *testing.T, on source) {
	r := on.rig(t)
	r.exec("CREATE TABLE notes (id INT PRIMARY KEY)")
	d := r.start("--partitions", "1")
	d.settled()
	before := r.state()
	r.exec("INSERT INTO notes VALUES (1)")
	d.settled()
	after := r.state()
	if before.GTIDSet == after.GTIDSet || after.Sequence != 0 {
		t.Errorf("the checkpoint went from %+v to %+v", before, after)
	}
	d.stop()
}

// TestBadRow: a row that cannot be a message ends the relay with 65, the
// event's id and its GTID; what was before it is settled, and nothing behind
// it is sent.
func TestBadRow(t *testing.T) { onEach(t, testBadRow) }

func testBadRow(t *testing.T, on source) {
	r := on.rig(t)
	r.exec("ALTER TABLE outbox ADD headers JSON")
	r.begun()
	r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'"+hexID(1)+"', 1, 't', '{}')",
		"INSERT INTO outbox (id, aggregate_id, topic, payload, headers) VALUES (x'"+hexID(2)+"', 1, 't', '{}', '{\""+strings.Repeat("h", 256)+"\":1}')",
		"INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'"+hexID(3)+"', 1, 't', '{}')")
	got := r.run("run", "--partitions", "1", "--log-level", "error")
	got.want(t, 65, idText(2), r.text(r.pick("SELECT @@server_uuid", "SELECT '0-1-'")))
	got.oneLine(t)
	r.wantEvents(r.take(0), 1, 1)
	if state := r.state(); state.Sequence != 1 {
		t.Errorf("the checkpoint is at sequence %d, want 1", state.Sequence)
	}
}

// backlog writes events in one transaction.
func (r *rig) backlog(first, last int) {
	r.t.Helper()
	r.transact(func(tx *sql.Tx) { r.insert(tx, first, last) })
}

func (r *rig) transact(f func(*sql.Tx)) {
	r.t.Helper()
	tx, err := r.db.Begin()
	if err != nil {
		r.t.Fatal(err)
	}
	defer tx.Rollback() //nolint:errcheck // it is committed below
	f(tx)
	if err := tx.Commit(); err != nil {
		r.t.Fatal(err)
	}
}
