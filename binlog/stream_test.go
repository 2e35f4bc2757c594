package binlog_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// TestStreamEnds: Next ends promptly with its context, and Close leaves
// nothing behind, neither here nor on the server. It runs alone: it counts
// goroutines.
func TestStreamEnds(t *testing.T) {
	for _, on := range flavors {
		t.Run(on.name, func(t *testing.T) { testStreamEnds(t, on) })
	}
}

func testStreamEnds(t *testing.T, on flavor) {
	r := on.rig(t, schema.SQL)
	name, dsn := r.user("%", "SELECT ON *.*", "REPLICATION SLAVE ON *.*")
	server := r.open(as(dsn))
	dumps := func() string {
		return r.text("SELECT COUNT(*) FROM "+r.pick("performance_schema", "information_schema")+".processlist WHERE user = ? AND command LIKE 'Binlog Dump%'", name)
	}
	before := runtime.NumGoroutine()
	for range 3 {
		stream, err := server.Follow(r.ctx, r.executed(server), r.table(server))
		if err != nil {
			t.Fatal(err)
		}
		relaytest.Wait(t, limit, "the server sends its log", func() bool { return dumps() == "1" })
		ctx, cancel := context.WithCancel(r.ctx)
		ended := make(chan error, 1)
		go func() {
			for {
				if _, err := stream.Next(ctx); err != nil {
					ended <- err
					return
				}
			}
		}()
		cancel()
		select {
		case err := <-ended:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("got error %v, want %v", err, context.Canceled)
			}
		case <-time.After(2 * time.Second):
			t.Fatal("Next does not end with its context")
		}
		stream.Close()
		relaytest.Wait(t, limit, "the server has ended the dump", func() bool { return dumps() == "0" })
	}
	relaytest.Wait(t, limit, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= before+1 })
}

// TestStreamCloseUnread: a stream whose events nobody reads can be closed.
func TestStreamCloseUnread(t *testing.T) { onEach(t, testStreamCloseUnread) }

func testStreamCloseUnread(t *testing.T, on flavor) {
	r := on.rig(t, schema.SQL)
	server := r.open()
	stream := r.follow(server)
	for range 200 { // more than is read ahead
		r.insert(newID(), "{}")
	}
	closed := make(chan struct{})
	go func() { stream.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(limit):
		t.Fatal("Close does not return")
	}
}

// TestStreamMoved: a server that is another one than was opened and checked,
// since its address has moved, is not followed; it may pass.
func TestStreamMoved(t *testing.T) { onEach(t, testStreamMoved) }

func testStreamMoved(t *testing.T, on flavor) {
	r := on.rig(t, schema.SQL)
	server := r.open()
	is := *server.Identity()
	*server.Identity() = "another server"
	_, err := server.Follow(r.ctx, r.executed(server), r.table(server))
	if err == nil || !strings.Contains(err.Error(), "another server") || !strings.Contains(err.Error(), is) || errors.Is(err, binlog.ErrDiverged) {
		t.Errorf("got error %v, want one that names both servers", err)
	}
}

// TestStreamTLS: the log comes by TLS too, events of many packets in it. A
// connection that is read past the encryption fails at the first packet.
func TestStreamTLS(t *testing.T) { onEach(t, testStreamTLS) }

func testStreamTLS(t *testing.T, on flavor) {
	r := on.rig(t, strings.Replace(schema.SQL, "JSON ", "LONGTEXT ", 1))
	name, dsn := r.user("%", "SELECT ON *.*", "REPLICATION SLAVE ON *.*")
	r.exec("ALTER USER " + name + " REQUIRE SSL")
	stream := r.follow(r.open(as(dsn + "?tls=skip-verify")))
	size := 20 << 20
	if r.mariadb() {
		size = 15 << 20 // its max_allowed_packet is 16 MiB
	}
	payload := strings.Repeat("x", size)
	r.insert(newID(), payload)
	r.insert(newID(), "{}")
	events := r.events(stream, 2)
	if len(events) != 2 || string(events[0].Payload) != payload || string(events[1].Payload) != "{}" {
		t.Errorf("got %d events, the first of %d bytes", len(events), len(events[0].Payload))
	}
}

// TestStreamRows: what a row becomes, in all that an event holds.
func TestStreamRows(t *testing.T) { onEach(t, testStreamRows) }

func testStreamRows(t *testing.T, on flavor) {
	r := on.rig(t, schema.SQL)
	server := r.open()
	stream := r.follow(server)
	payloads := []string{
		`{}`, `{"b": 1, "a": [1, 2.50, 1e3, -0.0, true, null], "c": {"ä": "雪 \u0001 < > & / \\ \""}}`,
		`{"amount": 12345678901234567890, "tiny": 1e-7, "large": 1.7976931348623157e308}`, `[]`, `"text"`, `null`,
	}
	var want []string
	for i, payload := range payloads {
		id := newID()
		for k := 15; k > 15-3*i && k >= 0; k-- { // none, three, six … zero bytes at the end
			id[k] = 0
		}
		want = append(want, uuid.UUID(id).String())
		r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (?, ?, 'orders', ?, '2024-07-01 12:34:56.000007')", id, -i, payload)
	}
	got := r.events(stream, len(payloads))
	for i, e := range got {
		id := uuid.MustParse(want[i])
		if diff := cmp.Diff(schema.Event{
			ID: want[i], AggregateID: fmt.Sprint(-i), Topic: "orders", ContentType: "application/json",
			Payload:   []byte(r.text("SELECT payload FROM outbox WHERE id = ?", id[:])),
			CreatedAt: time.Date(2024, 7, 1, 12, 34, 56, 7000, time.UTC), GTID: e.GTID,
		}, e); diff != "" {
			t.Errorf("%s (-want +got):\n%s", payloads[i], diff)
		}
		if prefix := r.pick(server.UUID+":", "0-1-"); !strings.HasPrefix(e.GTID, prefix) {
			t.Errorf("got GTID %s, want one of %s", e.GTID, prefix)
		}
	}
}

// TestStreamPlaces: where a transaction ends in the log, and when it was
// committed.
func TestStreamPlaces(t *testing.T) { onEach(t, testStreamPlaces) }

func testStreamPlaces(t *testing.T, on flavor) {
	r := on.rig(t, schema.SQL)
	server := r.open()
	stream := r.follow(server)
	before := time.Now()
	r.insert(newID(), "{}")
	tx := r.transactions(stream, func(tx *binlog.Tx) bool { return len(tx.Events) > 0 })
	last := tx[len(tx)-1]
	fine := false // a thousandth of all have no microseconds
	for range 4 {
		r.insert(newID(), "{}")
		more := r.transactions(stream, func(tx *binlog.Tx) bool { return len(tx.Events) > 0 })
		fine = fine || more[len(more)-1].CommittedAt.Nanosecond()%1e6 > 0
	}
	if !fine && !r.mariadb() { // which has none in its log
		t.Errorf("committed at %s, without microseconds", last.CommittedAt)
	}
	if d := last.CommittedAt.Sub(before); d < -time.Second || d > limit {
		t.Errorf("committed at %s, inserted at %s", last.CommittedAt, before)
	}
	if _, found := r.logFiles()[last.Place.File]; !found || last.Place.Offset < 4 {
		t.Errorf("got place %q at %d, want one in %v", last.Place.File, last.Place.Offset, r.logFiles())
	}
	behind, err := server.Behind(r.ctx, last.Place)
	if err != nil || behind < 0 {
		t.Errorf("behind by %d, %v", behind, err)
	}
	r.insert(newID(), fmt.Sprintf(`{"x": %q}`, strings.Repeat("x", 5000)))
	if more, err := server.Behind(r.ctx, last.Place); err != nil || more < behind+5000 {
		t.Errorf("behind by %d, %v, want more than %d", more, err, behind+5000)
	}
}

// TestStreamLarge: a transaction that is too large to be held comes in parts.
func TestStreamLarge(t *testing.T) { onEach(t, testStreamLarge) }

func testStreamLarge(t *testing.T, on flavor) {
	for _, compression := range []string{"OFF", "ON"} {
		t.Run("compression "+compression, func(t *testing.T) {
			t.Parallel()
			r := on.rig(t, strings.Replace(schema.SQL, "BINARY(16)  ", "BIGINT", 1))
			server := r.open()
			stream := r.follow(server)
			conn := r.conn(r.pick("SET SESSION cte_max_recursion_depth = 30000", "SET SESSION max_recursive_iterations = 30000"))
			if !r.mariadb() { // whose compression is of all sessions: see TestStreamPrivate
				r.on(conn, "SET SESSION binlog_transaction_compression = "+compression)
			} else if compression == "ON" {
				return
			}
			r.on(conn, `INSERT INTO outbox (id, aggregate_id, topic, payload)
				WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000) SELECT i, 1, 't', '{}' FROM n`)
			list := r.transactions(stream, func(tx *binlog.Tx) bool { return len(tx.Events) > 0 && tx.Last })
			list = slices.DeleteFunc(list, func(tx *binlog.Tx) bool { return len(tx.Events) == 0 && tx.GTID != list[len(list)-1].GTID })
			next := 1
			for i, tx := range list {
				if tx.Last != (i == len(list)-1) || tx.GTID != list[0].GTID {
					t.Errorf("part %d of %d: last %t, of %s", i, len(list), tx.Last, tx.GTID)
				}
				for _, e := range tx.Events {
					if e.ID != fmt.Sprint(next) {
						t.Fatalf("got event %s, want %d", e.ID, next)
					}
					next++
				}
			}
			if next != 20001 || len(list) < 10 {
				t.Errorf("got %d events in %d parts", next-1, len(list))
			}
		})
	}
}

// TestStreamTimes: DATETIME in the zone in which it was written, TIMESTAMP in
// UTC, in the stream and in a backfill.
func TestStreamTimes(t *testing.T) { onEach(t, testStreamTimes) }

func testStreamTimes(t *testing.T, on flavor) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		column string
		zone   *time.Location
		text   string
		want   time.Time
	}{
		{"DATETIME(6)", nil, "2024-07-01 12:00:00.123456", time.Date(2024, 7, 1, 12, 0, 0, 123456000, time.UTC)},
		{"DATETIME(6)", berlin, "2024-07-01 12:00:00.123456", time.Date(2024, 7, 1, 10, 0, 0, 123456000, time.UTC)},
		{"DATETIME(3)", berlin, "2024-01-01 00:00:00.5", time.Date(2023, 12, 31, 23, 0, 0, 500000000, time.UTC)},
		{"DATETIME", nil, "9999-12-31 23:59:59", time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)},
		{"TIMESTAMP(6)", berlin, "2024-07-01 12:00:00.123456", time.Date(2024, 7, 1, 7, 0, 0, 123456000, time.UTC)},
		{"TIMESTAMP", nil, "2024-07-01 12:00:00", time.Date(2024, 7, 1, 7, 0, 0, 0, time.UTC)},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.column, " ", tt.zone), func(t *testing.T) {
			t.Parallel()
			r := on.rig(t, "CREATE TABLE outbox (id INT PRIMARY KEY, aggregate_id INT, topic TEXT, payload TEXT, created_at "+tt.column+")")
			server := r.open(func(c *binlog.Config) { c.Options.Zone = tt.zone })
			stream := r.follow(server)
			r.on(r.conn("SET SESSION time_zone = '+05:00'"), "INSERT INTO outbox VALUES (1, 1, 't', 'p', ?)", tt.text)
			if got := r.events(stream, 1)[0].CreatedAt; !got.Equal(tt.want) || got.Location() != time.UTC {
				t.Errorf("stream: got %s, want %s", got, tt.want)
			}
			if got := r.backfill(server, "", "")[0].Events[0].CreatedAt; !got.Equal(tt.want) || got.Location() != time.UTC {
				t.Errorf("backfill: got %s, want %s", got, tt.want)
			}
		})
	}
}
