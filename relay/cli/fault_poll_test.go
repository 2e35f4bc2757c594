package cli_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// pollers runs four of them on a writer's table until it has written so many
// events, and then until all are stamped; strike is done to them meanwhile. It
// returns what came of it.
func pollers(t *testing.T, on source, seed uint64, events int, strike func(start func() *daemon, list []*daemon, writing func() bool)) relaytest.Verdict {
	t.Helper()
	t.Logf("seed %d", seed)
	r := pollRig(t, on.database(t))
	w := &relaytest.Writer{DB: r.db, Seed: seed, Aggregates: 24, Rate: 600}
	if err := w.Schema(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writing sync.WaitGroup
	writing.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	start := func() *daemon {
		return r.startAs("poll", "--partitions", "2", "--interval", "200ms", "--batch", "20")
	}
	var list []*daemon
	for range 4 {
		list = append(list, start())
	}
	strike(start, list, func() bool { return w.Committed() < events })
	list[0].until("enough is written", func() bool { return w.Committed() >= events })
	stop()
	writing.Wait()
	list[0].stamped()
	for _, d := range list {
		d.stop()
	}
	history := w.Log()
	history.Deliveries = map[string][]relaytest.Delivery{}
	for n := range 2 {
		for _, d := range r.take(n) {
			history.Deliveries[r.queue(n)] = append(history.Deliveries[r.queue(n)], relaytest.Delivery{ID: d.MessageId, Aggregate: d.RoutingKey})
		}
	}
	v := relaytest.Judge(history)
	t.Logf("%d committed, %d deliveries, %d of them again", v.Committed, v.Deliveries, v.Duplicates)
	if len(v.Lost)+len(v.Phantom)+len(v.OutOfOrder) > 0 || v.Committed < events {
		t.Errorf("lost %v, phantom %v, out of order %v", v.Lost, v.Phantom, v.OutOfOrder)
	}
	return v
}

// TestPollers: four at once with writers: each event once, in order.
func TestPollers(t *testing.T) { onEach(t, testPollers) }

func testPollers(t *testing.T, on source) {
	v := pollers(t, on, rand.Uint64(), 1200, func(func() *daemon, []*daemon, func() bool) {})
	if v.Duplicates > 0 {
		t.Errorf("%d events came again, without a fault", v.Duplicates)
	}
}

// TestPollersKilled: pollers are killed again and again: nothing is lost and the
// order stays, what came twice is a batch for each kill at most.
func TestPollersKilled(t *testing.T) { onEach(t, testPollersKilled) }

func testPollersKilled(t *testing.T, on source) {
	seed := rand.Uint64()
	random, kills := rand.New(rand.NewPCG(seed, 1)), 0
	v := pollers(t, on, seed, 1500, func(start func() *daemon, list []*daemon, writing func() bool) {
		for ; writing() || kills < 6; kills++ {
			time.Sleep(time.Duration(random.IntN(250)) * time.Millisecond) // the moment is what is tried
			victim := random.IntN(len(list))
			if err := list[victim].Kill(); err != nil {
				t.Fatal(err)
			}
			list[victim] = start()
		}
	})
	t.Logf("%d kills", kills)
	if v.Duplicates > 20*kills {
		t.Errorf("%d events came again after %d kills of batches of 20", v.Duplicates, kills)
	}
}

// slowStamps makes every stamp wait while the test holds a lock, which free
// gives up.
func (r *rig) slowStamps() (free func()) {
	r.t.Helper()
	r.exec("CREATE TRIGGER slow BEFORE UPDATE ON outbox FOR EACH ROW DO GET_LOCK('" + r.database() + "', 60), RELEASE_LOCK('" + r.database() + "')")
	holder := r.session("DO GET_LOCK('" + r.database() + "', 60)")
	return func() {
		r.t.Helper()
		r.on(holder, "DO RELEASE_LOCK('"+r.database()+"')")
	}
}

// arrived waits until so many messages are in the first queue.
func (d *daemon) arrived(n int) {
	d.rig.t.Helper()
	d.until("the messages are in the queue", func() bool {
		got := 0
		err := d.rig.onBroker(func(channel *amqp.Channel) error {
			queue, err := channel.QueueDeclarePassive(d.rig.queue(0), true, false, false, false, nil)
			got = queue.Messages
			return err
		})
		return err == nil && got >= n
	})
}

// TestPollCrashBeforeStamp: killed when the broker has confirmed the batch and
// the stamp is under way, a poller has stamped nothing: the rows come again, and
// none is lost. The order publish, then stamp, is seen by the queue.
func TestPollCrashBeforeStamp(t *testing.T) { onEach(t, testPollCrashBeforeStamp) }

func testPollCrashBeforeStamp(t *testing.T, on source) {
	r := pollRig(t, on.database(t), schema.SQL)
	free := r.slowStamps()
	r.insert(r.db, 1, 5)
	d := r.poll()
	d.arrived(5)
	stamping := "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND state = 'User lock'"
	d.until("it stamps", func() bool { return r.text(stamping) == "1" })
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	if got := r.pending(); got != "5" {
		t.Errorf("%s rows are pending, want all", got)
	}
	free()
	relaytest.Wait(t, patience, "the server gives the stamp up", func() bool { return r.text(stamping) == "0" })
	d = r.poll()
	d.stamped()
	d.stop()
	var want []string
	for n := range 10 {
		want = append(want, idText(n%5+1))
	}
	if got := messageIDs(r.take(0)); !slices.Equal(got, want) {
		t.Errorf("got %v, want each twice", got)
	}
}

// TestPollStopWhileStamping: SIGTERM with a batch that is confirmed and not yet
// stamped: it is stamped, nothing comes again, and the exit code is 0.
func TestPollStopWhileStamping(t *testing.T) {
	t.Parallel()
	r := pollRig(t, database(t), schema.SQL)
	free := r.slowStamps()
	r.insert(r.db, 1, 5)
	d := r.poll()
	d.arrived(5)
	if err := d.Terminate(); err != nil {
		t.Fatal(err)
	}
	free()
	if got := d.Wait(); got != 0 {
		t.Errorf("it ended with %d, want 0", got)
	}
	if got := r.pending(); got != "0" {
		t.Errorf("%s rows are pending", got)
	}
	r.wantPolled(r.take(0), 1, 5)
}

// TestPollFrozenBroker: with a batch at a broker that says nothing, SIGTERM ends
// a poller with 75 after the drain timeout; nothing is stamped.
func TestPollFrozenBroker(t *testing.T) {
	t.Parallel()
	r := pollRig(t, database(t), schema.SQL)
	broker := r.toBroker()
	address := freeAddress(t)
	d := r.poll("--drain-timeout", "1s", "--listen", address)
	r.insert(r.db, 1, 5)
	d.stamped()
	broker.freeze()
	r.insert(r.db, 6, 10)
	d.until("its batch is on its way", func() bool { return metric(t, address, "relay_events_published_total") == 10 })
	if err := d.Terminate(); err != nil {
		t.Fatal(err)
	}
	if got := d.Wait(); got != 75 {
		t.Errorf("it ended with %d, want 75", got)
	}
	if got := r.pending(); got != "5" {
		t.Errorf("%s rows are pending, want 5", got)
	}
}

// TestPollAway: both servers go away and come back, one after the other, and
// SIGHUP: nothing is lost, and readiness says what is the matter.
func TestPollAway(t *testing.T) { onEach(t, testPollAway) }

func testPollAway(t *testing.T, on source) {
	r := pollRig(t, on.database(t), schema.SQL)
	broker, server := r.toBroker(), r.toSource()
	address := freeAddress(t)
	d := r.poll("--listen", address)
	ready := func(want int) func() bool {
		return func() bool { code, _ := get(address, "/readyz"); return code == want }
	}
	d.until("it is ready", ready(200))
	for i, p := range []proxy{broker, server} {
		r.insert(r.db, 20*i+1, 20*i+10)
		p.away()
		d.until("it is not ready", ready(503))
		r.insert(r.db, 20*i+11, 20*i+20)
		p.Accept()
		d.until("it is ready", ready(200))
		d.stamped()
	}
	if err := d.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	r.insert(r.db, 41, 50)
	d.stamped()
	d.stop()
	behind := map[string]bool{}
	for _, id := range messageIDs(r.take(0)) {
		behind[id] = true
	}
	if len(behind) != 50 {
		t.Errorf("%d events came, want 50", len(behind))
	}
	server.away()
	got := r.run("poll", "--partitions", "1", "--give-up-after", "1s", "--log-level", "error")
	got.want(t, 75, "1s", "relay poll")
	got.oneLine(t)
}

// TestPollNotify: systemd is told of readiness, life and the stop, as by run, and
// SIGUSR1 makes a poller log where it stands, without a place in a log.
func TestPollNotify(t *testing.T) {
	t.Parallel()
	r := pollRig(t, database(t), schema.SQL)
	systemd := listenAsSystemd(t)
	d := r.startWith([]string{"NOTIFY_SOCKET=" + systemd.path, "WATCHDOG_USEC=3000000"}, "poll", "--partitions", "1")
	d.until("READY=1 comes", func() bool { return systemd.has("READY=1") == 1 })
	alive := systemd.has("WATCHDOG=1")
	d.until("it tells of life", func() bool { return systemd.has("WATCHDOG=1") > alive })
	if err := d.Signal(syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	d.until("it logs where it stands", func() bool {
		return strings.Contains(d.text(), `{"state":"following; lag 0.0 s, 0 events in flight","ready":true,"lag_seconds":0,"time":`)
	})
	d.stop()
	relaytest.Wait(t, patience, "systemd is told of the stop", func() bool { return systemd.has("STOPPING=1") == 1 })
}
