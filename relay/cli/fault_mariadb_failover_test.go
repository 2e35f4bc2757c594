//go:build faults

package cli_test

import (
	"fmt"
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
	address := strings.Split(mustDSN(t, source).Addr, ":")
	replica.exec(fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='root', MASTER_PASSWORD='relay', MASTER_USE_GTID=slave_pos, MASTER_SSL=0, MASTER_CONNECT_RETRY=1", address[0], address[1]),
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
		return replica.text("SELECT COUNT(*) FROM information_schema.slave_status WHERE Gtid_IO_Pos = ?", received) == "1"
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

// rigOnExisting is r with its application at another server.
func rigOnExisting(r *rig, root string) *rig {
	r.t.Helper()
	cfg := mustDSN(r.t, root)
	cfg.DBName = r.database()
	there := *r
	there.root, there.db = cfg.FormatDSN(), relaytest.DB(r.t, cfg.FormatDSN())
	return &there
}
