package cli_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// judge holds what one queue gave against the events from 1 to last, which one
// writer committed in that order on a rig that had begun: none lost, none
// invented, each aggregate's in order, each numbered as it was committed, also
// when it came again. It returns how many came again.
func (r *rig) judge(list []amqp.Delivery, last int) (duplicates int) {
	r.t.Helper()
	h := relaytest.History{Committed: map[string][]string{}, Deliveries: map[string][]relaytest.Delivery{}}
	number := map[string]int64{}
	for n := 1; n <= last; n++ {
		aggregate := strconv.Itoa(n % 100)
		h.Committed[aggregate] = append(h.Committed[aggregate], idText(n))
		number[idText(n)] = int64(n)
	}
	for i, sequence := range r.sequences(list) {
		m := list[i]
		h.Deliveries["0"] = append(h.Deliveries["0"], relaytest.Delivery{ID: m.MessageId, Aggregate: m.RoutingKey, Sequence: sequence})
		if want := number[m.MessageId]; sequence != want {
			r.t.Fatalf("event %s has sequence %d, want %d", m.MessageId, sequence, want)
		}
	}
	v := relaytest.Judge(h)
	if !v.OK() {
		r.t.Fatalf("of %d events: %d lost, first %q; %d phantom, first %q; %d out of order, first %q; %d sequence faults",
			last, len(v.Lost), head(v.Lost), len(v.Phantom), head(v.Phantom), len(v.OutOfOrder), head(v.OutOfOrder), len(v.SequenceFaults))
	}
	return v.Duplicates
}

func head(list []string) string { return strings.Join(list[:min(len(list), 1)], "") }

// load is one writer at work: events of 100 aggregates, three in a transaction.
type load struct {
	stop context.CancelFunc
	done sync.WaitGroup
	last atomic.Int64 // event that is known to be committed
	err  error
}

// underLoad writes the events from first on until the load is ended. It rides
// out a server that is away: a transaction whose outcome is unknown is written
// again, and found to be there if it is.
func (r *rig) underLoad(first int) *load {
	r.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	l := &load{stop: stop}
	l.last.Store(int64(first - 1))
	l.done.Go(func() {
		for ctx.Err() == nil && l.err == nil {
			l.err = r.write(ctx, l)
		}
	})
	r.t.Cleanup(func() {
		stop()
		l.done.Wait()
	})
	return l
}

// write commits the next three events, however often it takes.
func (r *rig) write(ctx context.Context, l *load) error {
	last := int(l.last.Load())
	var places []string
	var args []any
	for n := last + 1; n <= last+3; n++ {
		places = append(places, "(?, ?, 'order.placed', '{\"note\": \""+planted+"\"}', UTC_TIMESTAMP(6))")
		args = append(args, id(n), n%100)
	}
	statement := "INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES " + strings.Join(places, ", ")
	deadline := time.After(patience)
	for {
		_, err := r.db.ExecContext(context.Background(), statement, args...)
		var refusal *mysql.MySQLError
		if err == nil || errors.As(err, &refusal) && refusal.Number == 1062 { // ER_DUP_ENTRY: it had been committed
			l.last.Add(3)
			return nil
		}
		select {
		case <-time.After(20 * time.Millisecond): // the server is away
		case <-deadline:
			return err
		}
	}
}

// grown waits until the load has written n more events.
func (l *load) grown(d *daemon, n int64) {
	d.rig.t.Helper()
	want := l.last.Load() + n
	d.until("the load goes on", func() bool { return l.last.Load() >= want })
}

// end ends the load and returns its last event.
func (l *load) end(t testing.TB) int {
	t.Helper()
	l.stop()
	l.done.Wait()
	if l.err != nil {
		t.Fatalf("the writer of the test: %v", l.err)
	}
	return int(l.last.Load())
}

// bulk writes the events from first to last in one transaction, each with a
// payload of about so many bytes, of which 16 cannot be compressed.
func (r *rig) bulk(first, last, bytes int, settings ...string) {
	r.t.Helper()
	r.bulkOf(first, last, fmt.Sprintf("RPAD(LEFT(SHA2(n, 256), 32), %d, '-')", bytes), settings...)
}

// bulkOf is bulk with a note by an expression of the row's number n.
func (r *rig) bulkOf(first, last int, note string, settings ...string) {
	r.t.Helper()
	conn, err := r.db.Conn(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range append(append([]string{"SET SESSION cte_max_recursion_depth = 100000000"}, settings...), fmt.Sprintf(`
		INSERT INTO outbox (id, aggregate_id, topic, payload, created_at)
		WITH RECURSIVE counter (n) AS (SELECT %d UNION ALL SELECT n + 1 FROM counter WHERE n < %d)
		SELECT UNHEX(LPAD(HEX(n), 32, '0')), n %% 100, 'order.placed', JSON_OBJECT('order', n, 'note', %s), UTC_TIMESTAMP(6) FROM counter`,
		first, last, note)) {
		if _, err := conn.ExecContext(r.t.Context(), statement); err != nil {
			r.t.Fatalf("%.80s: %v", statement, err)
		}
	}
}

// dump is the server's thread that feeds the relay, and what it is at; 0 when
// there is none.
func (r *rig) dump() (thread int, state string) {
	r.t.Helper()
	rows, err := r.db.Query("SELECT id, state FROM performance_schema.processlist WHERE user = ? AND command = 'Binlog Dump GTID'", r.user)
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&thread, &state); err != nil {
			r.t.Fatal(err)
		}
	}
	return thread, state
}

// dumps is how many such threads there are. A session that begins has two for a
// moment.
func (r *rig) dumps() string {
	r.t.Helper()
	return r.text("SELECT COUNT(*) FROM performance_schema.processlist WHERE user = ? AND command = 'Binlog Dump GTID'", r.user)
}

// ended counts the sessions that ended with an error, as the log tells.
func (d *daemon) ended() int { return strings.Count(d.text(), `"message":"session ended`) }

// seeded prints the seed of a test that chooses.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64N(1e9)
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// TestFaultMySQLRestart: the server is restarted under load, cleanly and by
// SIGKILL. Seen to fail with the end of the stream taken for the end of the log
// (retry: the relay ends with 0), with sessions that begin at the server's
// gtid_executed and not at the checkpoint (begin: events are lost), and with
// ones that end without settling what is in flight (session.run: it comes
// twice).
func TestFaultMySQLRestart(t *testing.T) {
	t.Parallel()
	server := newMysqld(t)
	r := rigOn(t, databaseOn(t, server.root()), schema.SQL).begun()
	broker := r.toBroker()
	d := r.start("--partitions", "1")
	l := r.underLoad(1)
	for _, how := range []string{"clean", "SIGKILL"} {
		l.grown(d, 150)
		ended := d.ended()
		if how == "clean" {
			server.terminate()
		} else { // with events in flight
			broker.Stall(relaytest.Down)
			l.grown(d, 60)
			server.kill()
			broker.Flow(relaytest.Down)
		}
		d.until("the relay has noticed", func() bool { return d.ended() > ended })
		server.start()
		l.grown(d, 150)
		d.settled() // it follows again
	}
	last := l.end(t)
	d.settled()
	d.stop()
	if doubled := r.judge(r.take(0), last); doubled != 0 {
		t.Errorf("%d events came twice, though the relay was not killed", doubled)
	}
}

// TestFaultMySQLDumpKilled: the server's thread is killed while parts of a
// large transaction are out. With a position that moved at a part, the rest is
// lost; with one that did not move within it, the parts come twice.
func TestFaultMySQLDumpKilled(t *testing.T) {
	t.Parallel()
	const rows = 12_000 // of 2 KB: far more than sockets hold
	r := newRig(t).begun()
	r.bulk(1, rows, 2000)
	d := r.start("--partitions", "1", "--window", "200")
	for kill := range 2 {
		var thread int
		d.until("parts of the transaction are out, and not all is sent", func() bool {
			var state string
			thread, state = r.dump()
			return thread != 0 && state == "Sending binlog event to replica" && r.state().Sequence > int64(kill+1)*1000
		})
		ended := d.ended()
		r.exec(fmt.Sprintf("KILL %d", thread))
		d.until("the session has ended", func() bool { return d.ended() > ended })
		if state := r.state(); state.Partial == nil || state.Partial.Events != state.Sequence {
			t.Errorf("in the middle of the transaction the checkpoint says %+v", state)
		}
	}
	d.settled()
	d.stop()
	r.wantEvents(r.take(0), 1, rows)
}

// TestFaultMySQLSameServerID: two relays follow one server under one id, each
// with a checkpoint and an exchange of its own. Both deliver everything, and
// neither is disturbed. Seen to fail with a replica UUID that is not a fresh one
// for each dump (beginDump): the server ends the older dump with 1236, and the
// two cut each other off for ever.
func TestFaultMySQLSameServerID(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	other := *r
	other.exchange, other.dir = relaytest.Name(t), t.TempDir()
	t.Cleanup(other.dropTopology)
	r.begun()
	other.begun()
	const id = "2864434397"
	d, e := r.start("--partitions", "1", "--server-id", id), other.start("--partitions", "1", "--server-id", id)
	l := r.underLoad(1)
	for range 2 {
		l.grown(d, 90)
		d.until("the server has both as replicas", func() bool { return r.dumps() == "2" })
	}
	last := l.end(t)
	for _, each := range []*daemon{d, e} {
		each.settled()
		each.stop()
		if doubled := each.rig.judge(each.rig.take(0), last); doubled != 0 {
			t.Errorf("%d events came twice", doubled)
		}
		if each.ended() != 0 {
			t.Errorf("a session ended:\n%s", each.Tail())
		}
	}
}

// TestFaultMySQLPasswordChanged while the relay runs: what is connected stays,
// and when the link is cut the relay is unfit at once. Without the reply's
// number being looked at it would try the wrong password for ever.
func TestFaultMySQLPasswordChanged(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	p := r.toSource()
	d := r.start("--partitions", "1")
	r.insert(r.db, 1, 3)
	d.settled()
	r.exec("ALTER USER " + r.user + " IDENTIFIED BY 'another'")
	r.insert(r.db, 4, 6)
	d.settled()
	p.Cut()
	d.wantCode(78)
	if text := d.text(); !strings.Contains(text, r.user) || !strings.Contains(text, "--mysql-password-file") {
		t.Errorf("it says\n%s", text)
	}
	r.exec("ALTER USER " + r.user + " IDENTIFIED BY '" + secret + "'")
	r.insert(r.db, 7, 9)
	r.wantEvents(append(r.take(0), r.relayed()...), 1, 9)
}
