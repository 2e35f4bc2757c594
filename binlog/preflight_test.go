package binlog_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// preflight looks, and returns what was found by name.
func preflight(r *rig, server *binlog.Server, running bool) map[string]binlog.Requirement {
	r.Helper()
	list, err := server.Preflight(r.ctx, running)
	if err != nil {
		r.Fatal(err)
	}
	found := map[string]binlog.Requirement{}
	for _, one := range list {
		found[one.Name] = one
	}
	return found
}

// looks compares a requirement: whether it is met, and what the texts have.
func looks(t *testing.T, got binlog.Requirement, ok bool, texts ...string) {
	t.Helper()
	if got.OK != ok {
		t.Errorf("%s is ok: %t, want %t: %+v", got.Name, got.OK, ok, got)
	}
	for _, text := range texts {
		if !strings.Contains(got.Found+"\n"+got.Fix, text) {
			t.Errorf("%s has no %q: %+v", got.Name, text, got)
		}
	}
}

// TestPreflightServerID: the server's own id and that of another replica are
// refused, that of the relay itself is not.
func TestPreflightServerID(t *testing.T) { onEach(t, testPreflightServerID) }

func testPreflightServerID(t *testing.T, on flavor) {
	r := on.rig(t, schema.SQL)
	server := r.open()
	looks(t, preflight(r, server, false)["server id"], true, ", free")
	r.follow(server)
	relaytest.Wait(t, limit, "the server lists the replica", func() bool {
		return !strings.HasSuffix(preflight(r, server, true)["server id"].Found, ", free")
	})
	looks(t, preflight(r, server, true)["server id"], true, "of the relay that runs here")
	looks(t, preflight(r, server, false)["server id"], false, "another replica is connected from", "relay run --server-id ")

	own := r.open(func(c *binlog.Config) { fmt.Sscan(r.text("SELECT @@server_id"), &c.ServerID) })
	looks(t, preflight(r, own, false)["server id"], false, "the server's own", "relay run --server-id ")

	name, dsn := r.user("%", "SELECT ON *.*", grantSlave, grantClient)
	got := preflight(r, r.open(as(dsn)), false)["server id"]
	if r.mariadb() { // which shows replicas to few
		looks(t, got, false, "cannot be seen", "GRANT REPLICATION MASTER ADMIN ON *.* TO '"+name+"'@'%'")
		if !got.Advice {
			t.Errorf("what cannot be seen is no advice: %+v", got)
		}
		r.exec(got.Fix)
		got = preflight(r, r.open(as(dsn)), false)["server id"]
	}
	looks(t, got, true, ", free")
}

// TestPreflightRetention: on a server that keeps its log for an hour a week is
// advised, and what is to be typed mends it.
func TestPreflightRetention(t *testing.T) { onEach(t, testPreflightRetention) }

func testPreflightRetention(t *testing.T, on flavor) {
	r := newRigOn(t, on.private(t, "--binlog-expire-logs-seconds=3600"), schema.SQL)
	server := r.open()
	got := preflight(r, server, false)["retention"]
	looks(t, got, false, "kept for 1 h; ", " in ", "604800")
	if !got.Advice || got.Err() != nil {
		t.Errorf("a short retention is no advice: %+v", got)
	}
	r.exec(got.Fix)
	looks(t, preflight(r, server, false)["retention"], true, "kept for 7 d; ")
	r.exec("SET GLOBAL binlog_expire_logs_seconds = 0")
	looks(t, preflight(r, server, false)["retention"], true, "kept for ever; ")
	if r.mariadb() && r.text("SELECT COUNT(*) FROM information_schema.global_variables WHERE variable_name = 'max_binlog_total_size'") == "1" { // since 11.4
		r.exec("SET GLOBAL max_binlog_total_size = 5000000000")
		looks(t, preflight(r, server, false)["retention"], true, "kept for ever, up to 5.0 GB; ")
	}
}

// TestPreflightClock: of a server whose clock goes wrong, played by the session
// variable timestamp, it is told by how much.
func TestPreflightClock(t *testing.T) { onEach(t, testPreflightClock) }

func testPreflightClock(t *testing.T, on flavor) {
	r := on.rig(t, "")
	looks(t, preflight(r, r.open(), false)["clock"], true, "this host's")
	for where, at := range map[string]time.Time{"ahead of": time.Now().Add(time.Hour), "behind": time.Now().Add(-time.Hour)} {
		server := r.open(func(c *binlog.Config) { c.DSN += fmt.Sprintf("?timestamp=%d", at.Unix()) })
		got := preflight(r, server, false)["clock"]
		looks(t, got, false, where+" this host's")
		if !regexp.MustCompile(`^the server's is (1h0m|59m)`).MatchString(got.Found) || !got.Advice {
			t.Errorf("the clock is %+v", got)
		}
	}
}

// TestPrepared: who may ask is told how many XA transactions are prepared; who
// may not, that it is not known.
func TestPrepared(t *testing.T) { onEach(t, testPrepared) }

func testPrepared(t *testing.T, on flavor) {
	r := newRigOn(t, on.private(t), schema.SQL)
	if n, known, err := r.open().Prepared(r.ctx); n != 0 || !known || err != nil {
		t.Errorf("prepared: %d, known %t, %v", n, known, err)
	}
	conn := r.conn("XA START 'a'", "INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (UNHEX('01'), 7, 'o', '{}')", "XA END 'a'", "XA PREPARE 'a'")
	if n, known, err := r.open().Prepared(r.ctx); n != 1 || !known || err != nil {
		t.Errorf("prepared: %d, known %t, %v; want 1", n, known, err)
	}
	_, dsn := r.user("%", "SELECT ON *.*", grantSlave, grantClient)
	if n, known, err := r.open(as(dsn)).Prepared(r.ctx); known != r.mariadb() || n > 1 || err != nil {
		t.Errorf("prepared for a user without the privilege: %d, known %t, %v", n, known, err)
	}
	r.on(conn, "XA ROLLBACK 'a'")
}

// TestSpan: two units at most, the largest.
func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0 s", 1500 * time.Millisecond: "1 s", 59 * time.Second: "59 s", 3 * time.Minute: "3 min",
		61 * time.Minute: "1 h 1 min", 604800 * time.Second: "7 d", 100 * time.Hour: "4 d 4 h",
	} {
		if got := binlog.Span(d); got != want {
			t.Errorf("Span(%s) = %q, want %q", d, got, want)
		}
	}
}
