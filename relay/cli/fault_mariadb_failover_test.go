package cli_test

import (
	"database/sql"
	"fmt"
	"net"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// TestFaultMariaDBFailover moves a relay to a replica that has received what was
// relayed and not yet applied it, has it promoted, and moves it back to the old
// source, which lacks what was written since, but has as many transactions. The
// relay waits for the replica, goes on with it under the other server's id, and
// ends with 78 at the old source. Positions compared by their numbers alone
// pass there, and the old source's next event is lost.
func TestFaultMariaDBFailover(t *testing.T) {
	t.Parallel()
	source, other := relaytest.PrivateMariaDB(t), relaytest.PrivateMariaDB(t, "--server-id=2")
	replica := &rig{t: t, root: other, db: relaytest.DB(t, other)}
	host, port := peerOf(t, source)
	replica.exec(fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='root', MASTER_PASSWORD='relay', MASTER_USE_GTID=slave_pos, MASTER_SSL=0, MASTER_CONNECT_RETRY=1", host, port),
		"START SLAVE")
	r := rigOn(t, databaseOn(t, source), schema.SQL).begun()
	moved := r.toSource()
	follows := func(d *daemon) int { return strings.Count(d.text(), `"message":"following"`) }
	d := r.start("--partitions", "1")
	r.insert(r.db, 1, 5)
	d.settled()
	caughtUp := func(variable string) func() bool {
		executed := r.set(r.executed())
		return func() bool { return r.set(replica.text("SELECT @@GLOBAL." + variable)).Contains(executed) }
	}
	relaytest.Wait(t, patience, "the replica has caught up", caughtUp("gtid_slave_pos"))
	replica.exec("STOP SLAVE SQL_THREAD")
	r.insert(r.db, 6, 10)
	d.settled()
	received := r.executed()
	relaytest.Wait(t, patience, "the replica has received it", func() bool {
		return replica.received() == received
	})
	before := follows(d)
	moved.Retarget(mustDSN(t, other).Addr)
	moved.Cut()
	d.until("it waits for the replica", func() bool { return strings.Contains(d.text(), "not yet applied them") })
	replica.exec("START SLAVE SQL_THREAD")
	d.until("it follows the replica", func() bool { return follows(d) > before })

	replica.exec("STOP SLAVE") // promoted
	promoted := rigOnExisting(r, other)
	promoted.insert(promoted.db, 11, 12)
	d.until("the promoted server's events are settled", func() bool { return r.state().Sequence == 12 })
	if state := r.state(); !strings.HasPrefix(state.GTIDSet, "0-2-") {
		t.Errorf("the position is %s, want one of server 2", state.GTIDSet)
	}

	r.insert(r.db, 21, 23) // the old source's own, under the same numbers
	moved.Retarget(mustDSN(t, source).Addr)
	moved.Cut()
	d.wantCode(78)
	for _, want := range []string{"diverged", "never executed: " + r.state().GTIDSet, "relay resume --from-gtid"} {
		if !strings.Contains(d.text(), want) {
			t.Errorf("it says nothing of %q:\n%s", want, d.Tail())
		}
	}
	r.wantEvents(r.take(0), 1, 12)
}

// received is the position up to which a replica has got its source's log.
func (r *rig) received() string {
	r.t.Helper()
	rows, err := r.db.Query("SHOW ALL SLAVES STATUS")
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil || !rows.Next() {
		r.t.Fatalf("it is no replica: %v, %v", err, rows.Err())
	}
	cells := make([]sql.RawBytes, len(columns))
	into := make([]any, len(columns))
	for i := range cells {
		into[i] = &cells[i]
	}
	if err := rows.Scan(into...); err != nil {
		r.t.Fatal(err)
	}
	return string(cells[slices.Index(columns, "Gtid_IO_Pos")])
}

// peerOf is the address of a private server for one like it, which can be in a
// container of its own.
func peerOf(t testing.TB, root string) (host, port string) {
	t.Helper()
	host, port, err := net.SplitHostPort(mustDSN(t, root).Addr)
	if err != nil {
		t.Fatal(err)
	}
	const format = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
	if address, err := exec.Command("docker", "inspect", "-f", format, "relay-mariadb-"+port).Output(); err == nil {
		return strings.TrimSpace(string(address)), "3306"
	}
	return host, port
}

// rigOnExisting is r with its application at another server.
func rigOnExisting(r *rig, root string) *rig {
	r.t.Helper()
	cfg := mustDSN(r.t, root)
	cfg.DBName = r.database()
	there := *r
	there.root, there.db = cfg.FormatDSN(), relaytest.DB(r.t, cfg.FormatDSN())
	return &there
}

// TestFaultMariaDBServerID: the last transaction that was relayed is the first of
// another server_id, as behind a failover. The one before it is not of that
// server, which has others behind it: a server that is asked for it refuses.
// Without a look for it under the other server's id the relay tries for ever,
// and prune ends with 75.
func TestFaultMariaDBServerID(t *testing.T) {
	t.Parallel()
	r := rigOn(t, databaseOn(t, relaytest.PrivateMariaDB(t, "--gtid-strict-mode=ON")), schema.SQL).prunes().begun()
	r.insert(r.db, 1, 1)
	conn, err := r.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "SET SESSION server_id = 50"); err != nil {
		t.Fatal(err)
	}
	r.insert(conn, 2, 2)
	r.relay("--partitions", "1")
	if last := r.state().LastGTID; !strings.HasPrefix(last, "0-50-") {
		t.Fatalf("the last transaction is %s, want one of server 50", last)
	}
	r.prune("--older-than", "0s").want(t, 0, "deleted      2 rows")
	r.insert(conn, 3, 3)
	r.relay("--partitions", "1")
	r.wantEvents(r.take(0), 1, 3)

	// A place that its log does not have, between two of one server.
	at := r.state().GTIDSet
	var number int
	if _, err := fmt.Sscanf(at, "0-50-%d", &number); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.ExecContext(t.Context(), fmt.Sprintf("SET SESSION gtid_seq_no = %d", number+10)); err != nil {
		t.Fatal(err)
	}
	r.insert(conn, 4, 4)
	hole := fmt.Sprintf("0-50-%d", number+5)
	r.run("resume", "--from-gtid", hole, "--yes", "--partitions", "1").want(t, 78, "diverged", "missing the GTID "+hole)
	r.run("resume", "--undo", "--dry-run").want(t, 0, "put back")
}
