package cli_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// purge begins a new log file and purges those before it.
func (r *rig) purge() {
	r.t.Helper()
	executed := r.executed()
	relaytest.Wait(r.t, patience, "the log is purged, which a reader of it holds up", func() bool {
		r.exec("FLUSH BINARY LOGS", "PURGE BINARY LOGS TO '"+r.lastLog()+"'")
		return r.set(r.purged()).Contains(r.set(executed))
	})
}

// created writes one event whose row says that it is so many hours old.
func (r *rig) created(n, hours int) {
	r.t.Helper()
	if _, err := r.db.Exec("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (?, ?, 'order.placed', '{}', UTC_TIMESTAMP(6) - INTERVAL ? HOUR)", id(n), n%100, hours); err != nil {
		r.t.Fatal(err)
	}
}

// TestResumeGap: what is purged before it was relayed, and still in the table,
// is sent; then the log is followed. It fails when the range ends at a row that
// was created after its commit's time, when the position is not moved behind
// the gap, or when what the log brings is sent out of the table as well.
func TestResumeGap(t *testing.T) { onEach(t, testResumeGap) }

func testResumeGap(t *testing.T, on source) {
	server := on.private(t)
	for _, layout := range []struct{ name, ddl string }{
		{"ordered by time", schema.SQL},
		{"ordered by id", "CREATE TABLE outbox (seq BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY, id BINARY(16) NOT NULL, aggregate_id BIGINT NOT NULL, topic VARCHAR(120) NOT NULL, payload JSON NOT NULL, status ENUM('pending','published') NOT NULL DEFAULT 'pending', created_at DATETIME(6) NOT NULL)"},
	} {
		t.Run(layout.name, func(t *testing.T) {
			r := rigOn(t, databaseOn(t, server), layout.ddl)
			want := idText
			if layout.ddl != schema.SQL {
				r.flags = []string{"--columns", "id=seq"}
				want = func(n int) string { return r.text("SELECT seq FROM outbox WHERE id = ?", id(n)) }
			}
			r.begun()
			r.created(1, 5) // too old to be sent again
			r.insert(r.db, 2, 2)
			if got := len(r.relayed()); got != 2 {
				t.Fatalf("sent %d events, want 2", got)
			}
			r.run("resume", "--gap", "backfill").want(t, 78, "nothing that was not relayed", "relay run")
			sequence := r.state().Sequence
			first := r.executed()
			for n := 3; n <= 12; n++ {
				r.insert(r.db, n, n)
			}
			r.created(13, -1) // by a clock that goes ahead; not by all of the margin
			r.exec("UPDATE outbox SET created_at = created_at - INTERVAL 1 SECOND WHERE id = UNHEX('" + hexID(13) + "')")
			r.exec("DELETE FROM outbox WHERE id = UNHEX('"+hexID(5)+"')", "UPDATE outbox SET status = 'published' WHERE id = UNHEX('"+hexID(6)+"')")
			r.purge()
			r.insert(r.db, 14, 15)
			refused := r.run("run", "--partitions", "1")
			refused.want(t, 78, "purged", "relay resume --gap backfill", fmt.Sprintf("no longer has %d transactions", r.set(r.purged()).Count()-r.set(first).Count()))
			before := mustRead(t, r.checkpoint())
			dry := r.run("resume", "--gap", "backfill", "--dry-run")
			dry.want(t, 0, "gap          ", "transactions are purged", "rows at most", "sent again   "+r.pick("1 of these rows", "")) // MariaDB has no fraction of the last commit's second
			if after := mustRead(t, r.checkpoint()); string(after) != string(before) {
				t.Error("a dry run has changed the checkpoint")
			}
			d := r.startAs("resume", "--gap", "backfill", "--partitions", "1")
			r.insert(r.db, 16, 16)
			d.settled()
			d.stop()
			list := r.take(0)
			got := messageIDs(list)
			var must []string
			for n := 2; n <= 16; n++ {
				if n != 5 && n != 6 {
					must = append(must, want(n))
				}
			}
			slices.Sort(must)
			if sorted := slices.Sorted(slices.Values(got)); !slices.Equal(sorted, must) {
				t.Errorf("sent %v, want %v", sorted, must)
			}
			for i, m := range list {
				if m.Headers["sequence"] != sequence+int64(i)+1 {
					t.Errorf("the event at %d has the sequence %v, want %d", i, m.Headers["sequence"], sequence+int64(i)+1)
				}
			}
			if kept := r.kept(); len(kept) != 1 || string(mustRead(t, kept[0])) != string(before) || !strings.Contains(d.text(), kept[0]) {
				t.Errorf("the old checkpoint is kept as %v", kept)
			}
			// Undone, it is before the gap again, and says so.
			r.run("resume", "--undo", "--dry-run").want(t, 0, "but          from there the relay cannot go on", "--gap backfill")
			r.run("resume", "--undo", "--partitions", "1").want(t, 78, "kept         ", "purged", "--gap backfill")
			if got := r.state(); got.Sequence != sequence || got.Backfill != nil || !strings.Contains(string(before), `"gtid_set": "`+got.GTIDSet+`"`) {
				t.Errorf("undo gives %+v, want\n%s", got, before)
			}
		})
	}
	// The rest of a backfill that was killed is older than the gap behind it: it
	// is lost unless both are joined.
	t.Run("killed in a backfill", func(t *testing.T) {
		const rows = 3000
		r := rigOn(t, databaseOn(t, server), schema.SQL)
		r.insert(r.db, 1, rows)
		r.exec("UPDATE outbox SET created_at = created_at - INTERVAL 5 HOUR")
		d := r.start("--partitions", "1", "--window", "1")
		d.until("some of the backfill is settled", func() bool { return r.exists() && r.state().Sequence > 10 })
		if err := d.Kill(); err != nil {
			t.Fatal(err)
		}
		if r.state().Backfill == nil {
			t.Fatal("the backfill had ended")
		}
		r.insert(r.db, rows+1, rows+10)
		r.purge()
		r.run("run", "--partitions", "1").want(t, 78, "purged", "--gap backfill")
		d = r.startAs("resume", "--gap", "backfill", "--partitions", "1")
		d.settled()
		d.stop()
		seen := map[string]int{}
		for _, id := range messageIDs(r.take(0)) {
			seen[id]++
		}
		for n := 1; n <= rows+10; n++ {
			if seen[idText(n)] == 0 {
				t.Fatal(fmt.Sprint("event ", n, " is lost"))
			}
		}
		if seen[idText(1)] != 1 { // it was settled long before the kill
			t.Error("the backfill began again")
		}
	})
	// The second gap begins where the first one ended: the events that were sent
	// for that one count as sent before. They did not, and nothing was said of what
	// was left of the first.
	t.Run("twice", func(t *testing.T) {
		const rows = 3000
		r := rigOn(t, databaseOn(t, server), schema.SQL).begun()
		r.created(rows+1, 5)
		r.created(rows+2, 0)
		r.relayed()
		r.insert(r.db, 1, rows)
		r.purge()
		d := r.startAs("resume", "--gap", "backfill", "--partitions", "1", "--window", "1")
		d.until("some of the backfill is settled", func() bool { return r.state().Sequence > 10 })
		if err := d.Kill(); err != nil {
			t.Fatal(err)
		}
		left := r.state().Backfill
		if left == nil {
			t.Fatal("the backfill had ended")
		}
		r.created(rows+3, 0)
		r.purge()
		r.take(0)
		r.run("resume", "--gap", "backfill", "--dry-run").want(t, 0, fmt.Sprint(rows+2, " rows at most: the rest of the backfill that was under way, from ", left.After, " on"))
		if _, ids := r.resumed("--gap", "backfill"); len(ids) != rows+2 {
			t.Errorf("sent %d events, want %d", len(ids), rows+2)
		}
		r.created(rows+4, 0)
		r.purge()
		r.run("resume", "--gap", "backfill", "--dry-run").want(t, 0, fmt.Sprint(rows+3, " rows at most, created from "), fmt.Sprint("sent again   ", rows+2, " of these rows"))
		if _, ids := r.resumed("--gap", "backfill"); len(ids) != rows+3 {
			t.Errorf("sent %d events, want %d", len(ids), rows+3)
		}
	})
	t.Run("no checkpoint", func(t *testing.T) {
		r := rigOn(t, databaseOn(t, server), schema.SQL)
		r.run("resume", "--gap", "backfill", "--yes").want(t, 78, "without a readable checkpoint", "--undo", "--start backfill")
	})
}
