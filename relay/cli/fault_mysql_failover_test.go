package cli_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// pair is two servers, of which one replicates from the other.
type pair struct {
	source, replica *mysqld
	ofReplica       *rig // for statements on the replica
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{source: newMysqld(t), replica: newMysqld(t, "--server-id=2")}
	p.ofReplica = &rig{t: t, root: p.replica.root(), db: relaytest.DB(t, p.replica.root())}
	// The root accounts that each made when it was set up are the same.
	host, port := p.source.peer()
	p.ofReplica.exec("RESET BINARY LOGS AND GTIDS",
		fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='%s', SOURCE_PORT=%d, SOURCE_USER='root', SOURCE_PASSWORD='relay', SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1, SOURCE_CONNECT_RETRY=1", host, port),
		"START REPLICA")
	return p
}

// address is one that leads to the source: what a relay and its application
// connect to. A failover moves it.
func (p *pair) address(t *testing.T) (proxy, string) {
	t.Helper()
	moved := proxy{relaytest.NewProxy(t, p.source.addr())}
	return moved, "root:relay@tcp(" + moved.Addr() + ")/"
}

// caughtUp waits until the replica has what the source has executed.
func (p *pair) caughtUp(executed string) {
	p.ofReplica.t.Helper()
	relaytest.Wait(p.ofReplica.t, patience, "the replica has caught up", func() bool {
		return p.ofReplica.text("SELECT GTID_SUBSET(?, @@GLOBAL.gtid_executed)", executed) == "1"
	})
}

// TestFaultMySQLFailover moves a relay to another server by GTID.
func TestFaultMySQLFailover(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	t.Run("with loss", p.failoverWithLoss)
	t.Run("to one that is behind", p.failoverBehind)
	t.Run("without loss", p.failoverWithoutLoss)
}

// failoverBehind: the replica has received what the relay has published, and
// has not applied it yet. The relay waits for it; without a look at what is
// received it takes that for a loss, and ends with 78.
func (p *pair) failoverBehind(t *testing.T) {
	moved, root := p.address(t)
	r := rigOn(t, databaseOn(t, root), schema.SQL).begun()
	d := r.startVia(moved, "--partitions", "1")
	r.insert(r.db, 1, 5)
	d.settled()
	p.caughtUp(r.text("SELECT @@GLOBAL.gtid_executed"))
	p.ofReplica.exec("STOP REPLICA SQL_THREAD")
	r.insert(r.db, 6, 10)
	executed := r.text("SELECT @@GLOBAL.gtid_executed")
	d.settled()
	relaytest.Wait(t, patience, "the replica has received it", func() bool {
		return p.ofReplica.text("SELECT GTID_SUBSET(?, GTID_SUBTRACT(CONCAT(@@GLOBAL.gtid_executed, ',', received_transaction_set), '')) FROM performance_schema.replication_connection_status", executed) == "1"
	})
	moved.Retarget(p.replica.addr())
	moved.Cut()
	d.until("it waits for the replica", func() bool { return strings.Contains(d.text(), "not yet applied them") })
	p.ofReplica.exec("START REPLICA SQL_THREAD")
	replica := p.ofReplica.text("SELECT @@server_uuid")
	d.until("it follows the replica", func() bool { return r.state().ServerUUID == replica })
	d.stop()
	r.wantEvents(r.take(0), 1, 10)
}

// failoverWithLoss: the replica never got what the relay has published. To go
// on there would be silent: the server skips what it lacks, and counts on from
// it, so that new events would get the names of old ones.
func (p *pair) failoverWithLoss(t *testing.T) {
	moved, root := p.address(t)
	r := rigOn(t, databaseOn(t, root), schema.SQL).begun()
	d := r.startVia(moved, "--partitions", "1")
	r.insert(r.db, 1, 5)
	d.settled()
	p.caughtUp(r.text("SELECT @@GLOBAL.gtid_executed"))
	p.ofReplica.exec("STOP REPLICA IO_THREAD")
	before := r.text("SELECT @@GLOBAL.gtid_executed")
	r.insert(r.db, 6, 7)
	r.insert(r.db, 8, 10)
	lost := r.text("SELECT GTID_SUBTRACT(@@GLOBAL.gtid_executed, ?)", before)
	d.settled()
	moved.Retarget(p.replica.addr())
	moved.Cut()
	d.wantCode(78)
	text := d.text()
	for _, want := range []string{"diverged", "2 transactions", lost, "a failover lost them", "relay resume --from-gtid"} {
		if !strings.Contains(text, want) {
			t.Errorf("it says nothing of %q:\n%s", want, d.Tail())
		}
	}
	r.wantEvents(r.take(0), 1, 10)
	// What it says to type skips nothing of the new server: that was the set of
	// all that the server has executed. And nothing is said to be sent again that
	// is not there.
	r.insert(r.db, 11, 12)
	_, set, _ := strings.Cut(text, "relay resume --from-gtid '")
	set, _, _ = strings.Cut(set, "'")
	r.run("resume", "--from-gtid", set, "--dry-run").want(t, 0, "lost         2 transactions", lost, "sent again   0 transactions", "skipped      0 transactions")
	if _, ids := r.resumed("--from-gtid", set); !slices.Equal(ids, []string{idText(11), idText(12)}) {
		t.Errorf("sent %v, want events 11 and 12", ids)
	}
	p.ofReplica.exec("START REPLICA IO_THREAD")
	p.caughtUp(before)
}

// failoverWithoutLoss: under load the address is moved, and the old server is
// gone. The relay goes on, and so does the sequence.
func (p *pair) failoverWithoutLoss(t *testing.T) {
	moved, root := p.address(t)
	r := rigOn(t, databaseOn(t, root), schema.SQL).begun()
	source := r.state().ServerUUID
	d := r.startVia(moved, "--partitions", "1")
	l := r.underLoad(1)
	l.grown(d, 150)
	onSource := relaytest.DB(t, p.source.root())
	if _, err := onSource.Exec("SET GLOBAL super_read_only = ON"); err != nil { // nothing is written there any more
		t.Fatal(err)
	}
	var executed string
	if err := onSource.QueryRow("SELECT @@GLOBAL.gtid_executed").Scan(&executed); err != nil {
		t.Fatal(err)
	}
	p.caughtUp(executed)
	p.ofReplica.exec("STOP REPLICA", "RESET REPLICA ALL")
	moved.Retarget(p.replica.addr())
	moved.Cut()
	p.source.kill()
	l.grown(d, 150)
	last := l.end(t)
	d.settled()
	d.stop()
	r.wantEvents(r.take(0), 1, last)
	state := r.state()
	if state.ServerUUID == source || state.Sequence != int64(last) {
		t.Errorf("the checkpoint says %+v", state)
	}
	if _, rest, _ := strings.Cut(state.GTIDSet, ","); !strings.Contains(rest, ":1-") {
		t.Errorf("the checkpoint's set has not both servers' transactions: %s", state.GTIDSet)
	}
}

// startVia starts a relay whose server is wherever the address leads. The
// application's own connections lead there as well.
func (r *rig) startVia(moved proxy, args ...string) *daemon {
	r.t.Helper()
	if at := mustDSN(r.t, r.dsn).Addr; at != moved.Addr() {
		r.t.Fatalf("the relay's server is at %s, and not at %s", at, moved.Addr())
	}
	return r.start(args...)
}
