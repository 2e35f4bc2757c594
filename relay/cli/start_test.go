package cli_test

import (
	"context"
	"slices"
	"sync"
	"testing"
)

func TestStartBackfill(t *testing.T) { onEach(t, testStartBackfill) }

func testStartBackfill(t *testing.T, on source) {
	r := on.rig(t)
	r.insert(r.db, 1, 5)
	r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload, status) VALUES (x'" + hexID(99) + "', 1, 't', '{}', 'published')")
	d := r.start("--partitions", "1", "--start", "backfill")
	d.settled()
	r.insert(r.db, 6, 7)
	d.settled()
	d.stop()
	list := r.take(0)
	r.wantEvents(list, 1, 7)
	if _, has := list[0].Headers["gtid"]; has {
		t.Error("a row from the table has a gtid, which nothing can know")
	}
	if len(r.relayed("--start", "backfill")) != 0 {
		t.Error("with a checkpoint, --start backfill sends the table again")
	}
}

func TestStartLatest(t *testing.T) { onEach(t, testStartLatest) }

func testStartLatest(t *testing.T, on source) {
	r := on.rig(t)
	r.insert(r.db, 91, 95)
	d := r.start("--partitions", "1", "--start", "latest")
	d.settled()
	r.insert(r.db, 1, 2)
	d.settled()
	d.stop()
	r.wantEvents(r.take(0), 1, 2)
}

// TestBackfillUnderLoad starts with rows in the table while more are written,
// and kills the relay in the middle: none is lost, and what comes twice was in
// the window or not yet saved.
func TestBackfillUnderLoad(t *testing.T) {
	t.Run("whole", func(t *testing.T) { t.Parallel(); backfillUnderLoad(t, sources[0], 0) })
	for _, on := range sources {
		t.Run("killed, "+on.name, func(t *testing.T) { t.Parallel(); backfillUnderLoad(t, on, 3) })
	}
}

func backfillUnderLoad(t *testing.T, on source, kills int) {
	const before = 6000
	r := on.rig(t)
	r.insert(r.db, 1, before)
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	written := before
	writer.Go(func() {
		for ctx.Err() == nil {
			r.insert(r.db, written+1, written+2)
			written += 2
		}
	})
	args := []string{"--partitions", "1", "--window", "64"}
	for kill := range kills {
		d := r.start(args...)
		d.until("the backfill is under way", func() bool {
			return r.exists() && r.state().Sequence > int64(kill+1)*100
		})
		if err := d.Kill(); err != nil {
			t.Fatal(err)
		}
		if kill == 0 && r.state().Backfill == nil {
			t.Error("the backfill was over before the relay was killed: that proves nothing")
		}
	}
	d := r.start(args...)
	d.until("the backfill is over", func() bool { return r.exists() && r.state().Backfill == nil })
	stop()
	writer.Wait()
	d.settled()
	d.stop()

	seen, last := map[string]int64{}, map[string]int64{} // number by event, and by aggregate
	doubled := 0
	for _, m := range r.take(0) {
		number := m.Headers["sequence"].(int64)
		if was, again := seen[m.MessageId]; again {
			if doubled++; was != number {
				t.Errorf("event %s had sequence %d and has %d", m.MessageId, was, number)
			}
			continue
		}
		seen[m.MessageId] = number
		if number <= last[m.RoutingKey] {
			t.Errorf("event %s of aggregate %s has sequence %d behind %d", m.MessageId, m.RoutingKey, number, last[m.RoutingKey])
		}
		last[m.RoutingKey] = number
	}
	for n := 1; n <= written; n++ {
		if _, ok := seen[idText(n)]; !ok {
			t.Fatalf("event %d of %d is lost", n, written)
		}
	}
	if len(seen) != written {
		t.Errorf("%d events came, %d were committed", len(seen), written)
	}
	t.Logf("%d events, %d of them twice, %d kills", written, doubled, kills)
	if kills == 0 && doubled != 0 {
		t.Errorf("%d events came twice without a fault", doubled)
	}
}

// TestPartitions: declared twice, the topology is the same; and with 0 nothing
// is declared, and a ready exchange serves.
func TestPartitions(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.relay("--partitions", "4")
	r.insert(r.db, 1, 400)
	r.relay("--partitions", "4")
	r.insert(r.db, 401, 420)
	r.relay("--partitions", "0")
	home := map[string]int{}
	var got []string
	for n := range 4 {
		list := r.take(n)
		if len(list) == 0 {
			t.Errorf("queue %s got nothing", r.queue(n))
		}
		for _, m := range list {
			if at, known := home[m.RoutingKey]; known && at != n {
				t.Errorf("aggregate %s is in queues %d and %d", m.RoutingKey, at, n)
			}
			home[m.RoutingKey] = n
			got = append(got, m.MessageId)
		}
	}
	slices.Sort(got)
	if got = slices.Compact(got); len(got) != 420 {
		t.Errorf("%d events came, want 420", len(got))
	}
}
