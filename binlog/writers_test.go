package binlog_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

const (
	writers    = 8
	perWriter  = 30 // transactions
	aggregates = 5
)

// version is the payload of an event: its aggregate's version, which grows by
// one with each event that is committed, in commit order, since the update of
// the aggregate's row locks it until then.
type version struct{ Version int }

// writer runs transactions of every kind on one session.
type writer struct {
	conn   *sql.Conn
	random *rand.Rand
	name   string
	n      int // of transactions
}

func (w *writer) exec(ctx context.Context, statements ...string) error {
	for _, s := range statements {
		if _, err := w.conn.ExecContext(ctx, s); err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// rows writes events, all by one statement, behind the aggregate's version.
func (w *writer) rows(ctx context.Context, aggregate, n int) error {
	if err := w.exec(ctx, fmt.Sprintf("UPDATE aggregates SET version = version + %d WHERE id = %d", n, aggregate)); err != nil {
		return err
	}
	var last int
	if err := w.conn.QueryRowContext(ctx, "SELECT version FROM aggregates WHERE id = ?", aggregate).Scan(&last); err != nil {
		return err
	}
	var values []string
	for v := last - n + 1; v <= last; v++ {
		values = append(values, fmt.Sprintf("(0x%x, %d, 't', '{\"version\": %d}')", newID(), aggregate, v))
	}
	return w.exec(ctx, "INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES "+strings.Join(values, ", "))
}

// transaction runs one transaction of a random kind. One that a deadlock ends
// is rolled back.
func (w *writer) transaction(ctx context.Context) error {
	w.n++
	xid := fmt.Sprintf("'%s-%d'", w.name, w.n)
	start, end, undo := "BEGIN", []string{"COMMIT"}, []string{"ROLLBACK"}
	kind := w.random.IntN(6)
	switch kind {
	case 0:
		end = undo
	case 1, 2, 3:
		decide := []string{"XA COMMIT " + xid, "XA ROLLBACK " + xid, "XA COMMIT " + xid + " ONE PHASE"}
		start, end, undo = "XA START "+xid, []string{"XA END " + xid, "XA PREPARE " + xid, decide[kind-1]}, []string{"XA END " + xid, "XA ROLLBACK " + xid}
		if kind == 3 {
			end = slices.Delete(end, 1, 2)
		}
	}
	if err := w.exec(ctx, start); err != nil {
		return err
	}
	err := w.body(ctx, 1+w.random.IntN(aggregates), kind > 3)
	if err == nil {
		return w.exec(ctx, end...)
	}
	var refusal *mysql.MySQLError
	if !errors.As(err, &refusal) || refusal.Number != 1213 { // ER_LOCK_DEADLOCK
		return err
	}
	for _, s := range undo {
		_, err = w.conn.ExecContext(ctx, s) // XA END repeats that there was a deadlock
	}
	return err
}

// body writes some events, and with part takes some others back.
func (w *writer) body(ctx context.Context, aggregate int, part bool) error {
	if err := w.rows(ctx, aggregate, 1+w.random.IntN(4)); err != nil || !part {
		return err
	}
	if err := w.exec(ctx, "SAVEPOINT part"); err != nil {
		return err
	}
	if err := w.rows(ctx, aggregate, 2); err != nil {
		return err
	}
	if err := w.exec(ctx, "ROLLBACK TO part"); err != nil {
		return err
	}
	return w.rows(ctx, aggregate, 1)
}

// testWriters: the stream brings the events of concurrent writers exactly once
// and in commit order, and nothing that was rolled back.
func testWriters(r *rig) {
	r.exec("CREATE TABLE aggregates (id INT PRIMARY KEY, version INT NOT NULL)")
	for i := range aggregates {
		r.exec("INSERT INTO aggregates VALUES (?, 0)", i+1)
	}
	seed := rand.Uint64()
	r.Logf("seed %d", seed)
	server := r.open()
	stream := r.follow(server)
	errs := make([]error, writers)
	var group sync.WaitGroup
	for i := range writers {
		w := &writer{random: rand.New(rand.NewPCG(seed, uint64(i))), name: fmt.Sprint(relaytest.Name(r), i)}
		if w.conn = r.conn(); !r.mariadb() {
			r.on(w.conn, fmt.Sprintf("SET SESSION binlog_transaction_compression = %d", i%2))
		}
		group.Go(func() {
			for range perWriter {
				if errs[i] = w.transaction(r.ctx); errs[i] != nil {
					return
				}
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		r.Fatal(err)
	}
	r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (?, 0, 'end', '{}')", newID())

	got := map[string]int{}
	seen := map[string]bool{}
	position := r.executed(server)
	for _, tx := range r.transactions(stream, func(tx *binlog.Tx) bool { return len(tx.Events) > 0 && tx.Events[0].Topic == "end" }) {
		for _, e := range tx.Events {
			var v version
			if err := json.Unmarshal(e.Payload, &v); err != nil {
				r.Fatal(err)
			}
			if e.Topic == "t" && v.Version != got[e.AggregateID]+1 {
				r.Errorf("aggregate %s: got version %d after %d", e.AggregateID, v.Version, got[e.AggregateID])
			}
			if seen[e.ID] {
				r.Errorf("event %s came twice", e.ID)
			}
			got[e.AggregateID], seen[e.ID] = v.Version, true
		}
		for _, g := range []binlog.GTID{tx.GTID, tx.Prepared} {
			if !g.IsZero() && !position.Contains(parse(r, g.String())) {
				r.Errorf("got %s, which the server has not executed", g)
			}
		}
	}
	for i := range aggregates {
		id := fmt.Sprint(i + 1)
		if want := r.text("SELECT version FROM aggregates WHERE id = ?", id); fmt.Sprint(got[id]) != want {
			r.Errorf("aggregate %s: got %d events, want %s", id, got[id], want)
		}
	}
	if rows := r.text("SELECT COUNT(*) FROM outbox"); rows != fmt.Sprint(len(seen)) {
		r.Errorf("got %d events, and the table has %s rows", len(seen), rows)
	}
}

func parse(r *rig, text string) *binlog.GTIDSet {
	r.Helper()
	set, err := binlog.ParseGTIDSet(text)
	if err != nil {
		r.Fatal(err)
	}
	return set
}

// testXAReadAgain: a relay that begins between the two halves of an XA
// transaction reads its rows, at a position without the first half, and at one
// with it, as gtid_executed has it, from which the log must be read again.
func testXAReadAgain(r *rig) {
	server := r.open()
	position := r.executed(server)
	conn := r.conn()
	id := newID()
	r.on(conn, "XA START 'half'")
	r.on(conn, "INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (?, 1, 't', '{}')", id)
	r.on(conn, "XA END 'half'")
	r.on(conn, "XA PREPARE 'half'")
	stream := r.followFrom(server, position)
	prepared := r.executed(server).String() // of MariaDB
	first := r.transactions(stream, func(tx *binlog.Tx) bool {
		return !tx.Prepared.IsZero() || r.mariadb() && tx.GTID.String() == prepared
	})
	if tx := first[len(first)-1]; tx.GTID.IsZero() == r.mariadb() || len(tx.Events) != 0 {
		r.Errorf("prepared: got %s with %d events, want none yet", tx.GTID, len(tx.Events))
	}
	r.exec("FLUSH BINARY LOGS")
	r.insert(newID(), "{}")
	r.exec("FLUSH BINARY LOGS") // the first half is in the last file but two
	r.insert(newID(), "{}")
	late := r.follow(r.open()) // behind the first half, as another replica
	r.on(conn, "XA COMMIT 'half'")
	for _, from := range []*binlog.Stream{stream, r.followFrom(r.open(), position), late} {
		list := r.transactions(from, func(tx *binlog.Tx) bool { return len(tx.Events) > 0 && tx.Events[0].Topic == "t" })
		tx := list[len(list)-1]
		if tx.Prepared.IsZero() != r.mariadb() || tx.GTID.IsZero() || tx.Events[0].GTID != tx.GTID.String() {
			r.Errorf("got %s, prepared as %s, event of %s", tx.GTID, tx.Prepared, tx.Events[0].GTID)
		}
	}
}

// failure reads until the stream fails, for want of which the test fails at its
// time limit; it may not bring events before.
func failure(r *rig, stream *binlog.Stream) error {
	r.Helper()
	for {
		tx, err := stream.Next(r.ctx)
		if err != nil {
			return err
		}
		if len(tx.Events) > 0 {
			r.Fatalf("got event %+v, want an error", tx.Events[0])
		}
	}
}

// wantNext wants this error from a stream.
func wantNext(r *rig, stream *binlog.Stream, want error, text string) {
	r.Helper()
	wantError(r, failure(r, stream), want, text)
}

// TestStreamPrivate is what other tests' transactions, or the server's
// settings, would disturb.
func TestStreamPrivate(t *testing.T) { onEach(t, testStreamPrivate) }

func testStreamPrivate(t *testing.T, on flavor) {
	dsn := on.private(t, "--binlog-row-metadata=FULL")
	if on.name == "mariadb" { // whose compression is of all sessions
		newRigOn(t, dsn, "SET GLOBAL log_bin_compress = ON, log_bin_compress_min_len = 10")
	}
	for _, tt := range []struct {
		name string
		test func(*rig)
	}{
		{"writers", testWriters},
		{"backfill of exactly the position", testBackfillExact},
		{"XA read again", testXAReadAgain},
		{"altered", testAltered},
		{"MariaDB's own", testMariaDB},
		{"text rows", testTextRows},
		{"logged columns", testLoggedColumns},
		{"purged", testPurged}, // the last: it purges the log
	} {
		t.Run(tt.name, func(t *testing.T) { tt.test(newRigOn(t, dsn, schema.SQL)) })
	}
}
