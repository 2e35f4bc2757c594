package cli_test

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// session is a connection of its own, with what it is told first.
func (r *rig) session(statements ...string) *sql.Conn {
	r.t.Helper()
	conn, err := r.db.Conn(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { conn.Close() })
	r.on(conn, statements...)
	return conn
}

func (r *rig) on(conn *sql.Conn, statements ...string) {
	r.t.Helper()
	for _, s := range statements {
		if _, err := conn.ExecContext(r.t.Context(), s); err != nil {
			r.t.Fatalf("%.200s: %v", s, err)
		}
	}
}

// written is an INSERT of the nth event.
func written(n int) string {
	return fmt.Sprintf("INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'%032x', 1, 't', '{}')", n)
}

// gtids are those of the messages.
func gtids(deliveries []amqp.Delivery) (list []string) {
	for _, d := range deliveries {
		gtid, _ := d.Headers["gtid"].(string)
		list = append(list, gtid)
	}
	return list
}

// TestTaggedGTIDs: transactions with tags are in the messages, in the
// checkpoint, and in the set that is resumed from.
func TestTaggedGTIDs(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	tagged := r.session("SET SESSION gtid_next = 'AUTOMATIC:blue'")
	r.on(tagged, written(1))
	r.exec(written(2))
	first := r.relayed()
	if got := messageIDs(first); !slices.Equal(got, []string{idText(1), idText(2)}) {
		t.Fatalf("got %v", got)
	}
	if got := gtids(first); !strings.Contains(got[0], ":blue:") || strings.Contains(got[1], ":blue:") {
		t.Errorf("gtids %v, want the first of them tagged", got)
	}
	middle := r.state().GTIDSet
	if !strings.Contains(middle, ":blue:") || r.text("SELECT GTID_SUBSET(?, ?)", gtids(first)[0], middle) != "1" {
		t.Errorf("the checkpoint has %s", middle)
	}
	r.on(tagged, written(3), "SET SESSION gtid_next = 'AUTOMATIC:green'", written(4))
	r.exec(written(5))
	want := []string{idText(3), idText(4), idText(5)}
	if got := messageIDs(r.relayed()); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if printed, ids := r.resumed("--from-gtid", middle); !slices.Equal(ids, want) || !strings.Contains(printed, middle) {
		t.Errorf("resumed from %s: sent %v, want %v\n%s", middle, ids, want, printed)
	}
	if got := messageIDs(r.relayed()); len(got) != 0 {
		t.Errorf("then sent %v again", got)
	}
	r.run("check", "--partitions", "1").want(t, 0, ":blue:", ":green:")
	r.run("status", "--partitions", "1").want(t, 0, ":blue:", ":green:")
}

// TestLargeGTIDSet: a set of 10,000 intervals, half of them with a tag, is
// saved, read, followed from, resumed from and reported on, in bounded memory.
func TestLargeGTIDSet(t *testing.T) {
	t.Parallel()
	const intervals = 10_000
	r := rigOn(t, databaseOn(t, relaytest.PrivateMySQL(t)), schema.SQL)
	var plain, tag strings.Builder
	for i := range intervals / 2 {
		fmt.Fprintf(&plain, ":%d", 2*i+1)
		fmt.Fprintf(&tag, ":%d", 2*i+1)
	}
	r.exec("SET GLOBAL gtid_purged = '+aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee" + plain.String() + ":blue" + tag.String() + "'")
	r.begun()
	size := len(r.state().GTIDSet)
	r.insert(r.db, 1, 500)
	d := r.start("--partitions", "1")
	d.settled()
	for n := 501; n <= 600; n++ { // each moves the checkpoint
		r.insert(r.db, n, n)
	}
	d.settled()
	peak := peakMemory(t, d.pid())
	d.stop()
	if got := messageIDs(r.take(0)); len(got) != 600 || got[599] != idText(600) {
		t.Errorf("got %d events", len(got))
	}
	set, err := binlog.ParseGTIDSet(r.state().GTIDSet)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(set.String(), ":") - 2; n < intervals { // one stands before a tag, one before the server's own
		t.Errorf("the checkpoint has %d intervals", n)
	}
	t.Logf("a set of %d bytes: peak resident memory %d KiB", size, peak)
	if peak > memoryLimit {
		t.Errorf("the relay took %d KiB, more than %d", peak, memoryLimit)
	}
	before := r.state().GTIDSet
	r.insert(r.db, 601, 601)
	r.run("status", "--partitions", "1").want(t, 0, "behind       1 transactions")
	r.run("check", "--partitions", "1").want(t, 0)
	if _, ids := r.resumed("--from-gtid", before); !slices.Equal(ids, []string{idText(601)}) {
		t.Errorf("resumed: sent %v", ids)
	}
	// One interval less is one that the server has purged.
	short := strings.Replace(before, ":blue:1:3:5:", ":blue:1:5:", 1)
	r.run("resume", "--from-gtid", short).want(t, 78, "purged", ":blue:3")
}

// TestPreparedWhileServerRestarts: XA transactions that are prepared when the
// server is killed, and decided when it is back, with the relay running on.
func TestPreparedWhileServerRestarts(t *testing.T) {
	t.Parallel()
	m := newMysqld(t)
	r := rigOn(t, databaseOn(t, m.root()), schema.SQL).begun()
	d := r.start("--partitions", "1")
	for n, xid := range []string{"kept", "undone"} {
		conn := r.session("XA START '"+xid+"'", written(n+1), "XA END '"+xid+"'", "XA PREPARE '"+xid+"'")
		conn.Close()
	}
	r.insert(r.db, 3, 3)
	d.until("the event behind the prepared ones is settled", func() bool { return r.state().Sequence == 1 })
	m.kill()
	m.start()
	rows, err := r.db.Query("XA RECOVER")
	if err != nil {
		t.Fatal(err)
	}
	recovered := 0
	for rows.Next() {
		recovered++
	}
	rows.Close()
	if recovered != 2 {
		t.Fatalf("the server has %d prepared transactions after its restart", recovered)
	}
	r.exec("XA ROLLBACK 'undone'", "XA COMMIT 'kept'")
	r.insert(r.db, 4, 4)
	d.until("all is settled", func() bool { return r.state().Sequence == 3 })
	d.stop()
	if got, want := messageIDs(r.take(0)), []string{idText(3), idText(1), idText(4)}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestMyISAM: an outbox without transactions is no outbox.
func TestMyISAM(t *testing.T) {
	t.Parallel()
	r := rigOn(t, database(t), strings.Replace(schema.SQL, "InnoDB", "MyISAM", 1))
	for _, command := range []string{"run", "check"} {
		got := r.run(command, "--partitions", "1")
		code := map[string]int{"run": 78, "check": 3}[command]
		got.want(t, code, "engine", "MyISAM", "ALTER TABLE "+r.database()+".outbox ENGINE=InnoDB")
		got.oneLine(t)
	}
	if r.exists() {
		t.Error("there is a checkpoint")
	}
}

// TestTextStatements: a row that a session wrote as text is fetched; where it
// cannot be told, the relay ends with 65 and says what the statement was.
func TestTextStatements(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	text := r.session("SET SESSION binlog_format = STATEMENT")
	r.on(text, written(1), "UPDATE outbox SET status = 'published'")
	r.insert(r.db, 2, 2)
	got := r.relayed()
	if ids := messageIDs(got); !slices.Equal(ids, []string{idText(1), idText(2)}) {
		t.Fatalf("got %v", ids)
	}
	if gtid := gtids(got)[0]; !strings.HasPrefix(gtid, r.text("SELECT @@server_uuid")) {
		t.Errorf("the first has the gtid %q", gtid)
	}
	r.on(text, "INSERT INTO outbox (id, aggregate_id, topic, payload) SELECT x'"+hexID(3)+"', 1, 't', '{}'")
	refused := r.run("run", "--partitions", "1", "--log-level", "error")
	refused.want(t, 65, "INSERT … SELECT on "+r.database()+".outbox is in the log as text", "relay resume --from-gtid")
	refused.oneLine(t)
	if got := messageIDs(r.take(0)); len(got) != 0 {
		t.Errorf("sent %v", got)
	}
}
