package cli_test

import (
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// TestReset: the server's log and GTIDs are reset, and it counts anew, past
// the relay's position. The GTIDs look as if they had been relayed; what they
// name now was not. Without the look at the last transaction's commit time the
// relay goes on, and the new events are lost.
func TestReset(t *testing.T) { onEach(t, testReset) }

func testReset(t *testing.T, on source) {
	reset := "RESET BINARY LOGS AND GTIDS"
	if on.name == "mariadb" {
		reset = "RESET MASTER"
	}
	server := on.private(t)
	again := func(r *rig) { // as many transactions as there were, and some
		position, second := r.set(r.state().GTIDSet), r.text("SELECT NOW()")
		relaytest.Wait(r.t, patience, "the server's clock goes on: MariaDB's commit times are whole seconds", func() bool { return r.text("SELECT NOW()") != second })
		r.exec(reset)
		for n := 100; !r.set(r.executed()).Contains(position); n++ {
			r.insert(r.db, n, n)
		}
		r.insert(r.db, 1, 3)
	}
	t.Run("while down", func(t *testing.T) {
		r := rigOn(t, databaseOn(t, server), schema.SQL).begun()
		r.insert(r.db, 11, 13)
		r.relayed()
		again(r)
		got := r.run("run", "--partitions", "1")
		got.want(t, 78, "diverged", "was reset or restored", "relay resume --from-gtid '")
		got.oneLine(t)
	})
	t.Run("while running", func(t *testing.T) {
		r := rigOn(t, databaseOn(t, server), schema.SQL).begun()
		d := r.start("--partitions", "1")
		r.insert(r.db, 11, 13)
		d.settled()
		again(r)
		d.wantCode(78)
	})
	// What it has now has numbers that count as relayed, and is not skipped by
	// the command that the refusal prints: seen to be lost with a command that goes
	// on from what the two have in common.
	t.Run("while down, and it has not come as far", func(t *testing.T) {
		r := rigOn(t, databaseOn(t, server), schema.SQL).begun()
		for n := 11; n <= 13; n++ {
			r.insert(r.db, n, n)
		}
		r.relayed()
		r.exec(reset)
		r.insert(r.db, 1, 3)
		got := r.run("run", "--partitions", "1")
		got.want(t, 78, "diverged", "itself numbered", "was reset or restored")
		way := regexp.MustCompile(`to send all that its log has now: relay resume --from-gtid '([^']*)' --yes`).FindStringSubmatch(got.stderr)
		if way == nil {
			t.Fatalf("it does not say what to type: %s", got.stderr)
		}
		d := r.startAs("resume", "--from-gtid", way[1], "--yes", "--partitions", "1")
		d.settled()
		d.stop()
		var came []string
		for _, m := range r.take(0) {
			came = append(came, m.MessageId)
		}
		if diff := cmp.Diff([]string{idText(1), idText(2), idText(3)}, came); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
	// No transaction was settled behind the place of the checkpoint. Without a
	// witness of that place the relay goes on behind what it never sent, and prune
	// deletes it.
	for _, tt := range []struct {
		name string
		to   func(*rig)
	}{
		{"behind a first start", func(r *rig) { r.begun() }},
		{"behind a start at the latest", func(r *rig) { r.relay("--partitions", "1", "--start", "latest") }},
		{"behind a resume", func(r *rig) {
			r.begun()
			r.insert(r.db, 11, 13)
			d := r.startAs("resume", "--from-gtid", r.executed(), "--yes", "--partitions", "1")
			d.settled()
			d.stop()
		}},
	} {
		t.Run("while down, "+tt.name, func(t *testing.T) {
			r := rigOn(t, databaseOn(t, server), schema.SQL).prunes()
			tt.to(r)
			again(r)
			const refusal = "was reset or restored"
			d := r.start("--partitions", "1")
			d.wantCode(78)
			if !strings.Contains(d.text(), refusal) {
				t.Errorf("it does not say that it %s:\n%s", refusal, d.Tail())
			}
			r.prune("--older-than", "0s").want(t, 78, refusal)
			if got := r.text("SELECT COUNT(*) FROM outbox WHERE id <= ?", id(3)); got != "3" {
				t.Errorf("%s of the 3 rows that were not sent are left", got)
			}
		})
	}
	t.Run("and idle since", func(t *testing.T) {
		r := rigOn(t, databaseOn(t, server), schema.SQL).begun()
		d := r.start("--partitions", "1")
		r.insert(r.db, 11, 13)
		d.settled()
		r.exec(reset)
		d.wantCode(78)
	})
}

// wantCode waits for the relay to end by itself.
func (d *daemon) wantCode(code int) {
	d.rig.t.Helper()
	select {
	case <-d.Done():
	case <-time.After(patience):
		d.rig.t.Fatalf("the relay goes on")
	}
	if got := d.Wait(); got != code {
		d.rig.t.Errorf("the relay ended with %d, want %d:\n%s", got, code, d.Tail())
	}
}
