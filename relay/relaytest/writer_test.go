package relaytest

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"
)

// TestWriter has a server of its own: its XA transactions would disturb others.
func TestWriter(t *testing.T) {
	server := PrivateMySQL(t)
	for _, c := range []struct {
		name string
		test func(t *testing.T, dsn string)
	}{
		{"knows what is in the table", testWriterKnows},
		{"knows what was committed when its connections are killed", testWriterKilled},
		{"asks what became of a commit", testWriterAsks},
		{"deletes when allowed", testWriterDeletes},
	} {
		t.Run(c.name, func(t *testing.T) {
			dsn, err := createDatabase(t.Context(), server, Name(t))
			if err != nil {
				t.Fatal(err)
			}
			c.test(t, dsn)
		})
	}
}

// writing starts a writer, with XA. The returned function stops it, and fails
// the test when it had failed.
func writing(t *testing.T, w *Writer) (stop func()) {
	t.Helper()
	w.AllowXA()
	if err := w.Schema(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// rowsOf reads the outbox: for each aggregate its ids, oldest first.
func rowsOf(t *testing.T, db *sql.DB) map[string][]string {
	t.Helper()
	rows, err := db.Query("SELECT id, aggregate_id FROM outbox ORDER BY aggregate_id, created_at")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	found := make(map[string][]string)
	for rows.Next() {
		var id []byte
		var aggregate string
		if err := rows.Scan(&id, &aggregate); err != nil {
			t.Fatal(err)
		}
		found[aggregate] = append(found[aggregate], uuid(id))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

func uuid(id []byte) string {
	h := hex.EncodeToString(id)
	return strings.Join([]string{h[:8], h[8:12], h[12:16], h[16:20], h[20:]}, "-")
}

func testWriterKnows(t *testing.T, dsn string) {
	w := &Writer{Seed: 1, DB: DB(t, dsn)}
	stop := writing(t, w)
	Wait(t, time.Minute, "400 events are committed", func() bool { return w.Committed() >= 400 })
	stop()

	log := w.Log()
	table := rowsOf(t, w.DB)
	if diff := cmp.Diff(table, log.Committed); diff != "" {
		t.Errorf("committed, in order (-table +log):\n%s", diff)
	}
	if len(log.RolledBack) == 0 {
		t.Error("nothing was rolled back")
	}
	var written, zeros int
	for _, ids := range table {
		for _, id := range ids {
			written++
			if strings.HasSuffix(id, "00") {
				zeros++
			}
			if slices.Contains(log.RolledBack, id) {
				t.Errorf("%s is in the table and was rolled back", id)
			}
		}
	}
	if written != w.Committed() || zeros == 0 {
		t.Errorf("%d rows, %d committed; %d ids end in a zero byte", written, w.Committed(), zeros)
	}
}

func testWriterKilled(t *testing.T, dsn string) {
	w := &Writer{Seed: 2, DB: DB(t, dsn)}
	stop := writing(t, w)
	var rounds int
	Wait(t, time.Minute, "a thousand events are committed in spite of twenty kills", func() bool {
		rounds++
		if rounds%5 == 0 {
			killConnections(t, w.DB)
		}
		return w.Committed() >= 1000 && rounds >= 100
	})
	stop()
	log := w.Log()
	if diff := cmp.Diff(rowsOf(t, w.DB), log.Committed); diff != "" {
		t.Errorf("committed, in order (-table +log):\n%s", diff)
	}
}

// cutConn is a connection to MySQL that is lost now and then as it sends COMMIT
// or a step of an XA transaction: in half of the cases the server gets it, in
// none the answer comes back.
type cutConn struct {
	net.Conn
	cuts *atomic.Int32
}

func (c cutConn) Write(b []byte) (int, error) {
	if (!bytes.Contains(b, []byte("COMMIT")) && !bytes.Contains(b, []byte("XA "))) || rand.IntN(10) > 0 {
		return c.Conn.Write(b)
	}
	c.cuts.Add(1)
	if rand.IntN(2) == 0 {
		_, _ = c.Conn.Write(b) // it is lost either way
	}
	c.Conn.Close()
	return 0, io.ErrUnexpectedEOF
}

func testWriterAsks(t *testing.T, dsn string) {
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	var cuts atomic.Int32
	mysql.RegisterDialContext("cut", func(ctx context.Context, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		return cutConn{conn, &cuts}, err
	})
	t.Cleanup(func() { mysql.DeregisterDialContext("cut") })
	config.Net, config.Logger = "cut", &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	w := &Writer{Seed: 4, DB: sql.OpenDB(connector)}
	t.Cleanup(func() { w.DB.Close() })
	stop := writing(t, w)
	Wait(t, time.Minute, "40 commits are cut off", func() bool { return cuts.Load() >= 40 })
	stop()
	if diff := cmp.Diff(rowsOf(t, w.DB), w.Log().Committed); diff != "" {
		t.Errorf("committed, in order (-table +log):\n%s", diff)
	}
}

// killConnections ends every other connection to the database of db.
func killConnections(t *testing.T, db *sql.DB) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	rows, err := conn.QueryContext(t.Context(),
		"SELECT id FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
	if err != nil {
		return // it was killed between two looks
	}
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			t.Fatal(err)
		}
		ids = append(ids, id)
	}
	rows.Close()
	for _, id := range ids {
		_, _ = conn.ExecContext(t.Context(), "KILL ?", id) // it may have ended
	}
}

func testWriterDeletes(t *testing.T, dsn string) {
	w := &Writer{Seed: 3, DB: DB(t, dsn)}
	stop := writing(t, w)
	Wait(t, time.Minute, "100 events are committed", func() bool { return w.Committed() >= 100 })
	var rows int
	count := func() int {
		if err := w.DB.QueryRow("SELECT COUNT(*) FROM outbox").Scan(&rows); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	w.AllowTidying()
	Wait(t, time.Minute, "rows are deleted", func() bool { return count()+50 < w.Committed() })
	stop()
}

func TestPlansFollowFromTheSeed(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	plans := func(seed uint64) (plans []plan) {
		p := newPlanner(seed, 0, 4, 64)
		for range 500 {
			plans = append(plans, p.next(now))
		}
		return plans
	}
	first := plans(1)
	if fmt.Sprint(first) != fmt.Sprint(plans(1)) {
		t.Error("the same seed gives other plans")
	}
	if fmt.Sprint(first) == fmt.Sprint(plans(2)) {
		t.Error("another seed gives the same plans")
	}
	var rolledBack, partly, foreign, distributed, zero int
	seen := make(map[[16]byte]bool)
	for _, plan := range first {
		for _, o := range slices.Concat(plan.kept(), plan.undone) {
			if seen[o.id] {
				t.Errorf("id %s twice", o.eventID())
			}
			seen[o.id] = true
			if o.id == [16]byte{} {
				zero++
			}
		}
		switch {
		case plan.xa:
			distributed++
		case plan.rollback:
			rolledBack++
		case len(plan.undone) > 0:
			partly++
		case plan.events() == 0:
			foreign++
		}
	}
	if rolledBack == 0 || partly == 0 || foreign == 0 || distributed == 0 || zero != 1 {
		t.Errorf("of 500 plans: %d rolled back, %d partly, %d foreign, %d distributed; %d ids of zeros, want 1",
			rolledBack, partly, foreign, distributed, zero)
	}
}
