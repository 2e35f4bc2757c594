package cli_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// unchanged fails the test when the checkpoint is not as before, or a copy of
// it was kept.
func (r *rig) unchanged(t *testing.T, before []byte) {
	t.Helper()
	if after := mustRead(t, r.checkpoint()); !bytes.Equal(before, after) || len(r.kept()) != 0 {
		t.Errorf("the checkpoint was changed:\n%s\n%s\nkept: %v", before, after, r.kept())
	}
}

// TestResumeRefused: what run refuses, resume refuses before it moves the
// checkpoint. In each of these cases it had been moved.
func TestResumeRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	r.insert(r.db, 1, 1)
	set := r.state().GTIDSet
	r.relayed()
	before := mustRead(t, r.checkpoint())
	refused := func(t *testing.T, args []string, texts ...string) {
		t.Helper()
		got := r.run(append([]string{"resume", "--from-gtid", set}, args...)...)
		got.want(t, 78, texts...)
		got.oneLine(t)
		r.unchanged(t, before)
	}
	partition := []string{"--partitions", "1"}
	t.Run("parked events", func(t *testing.T) {
		line := `{"id":"1","aggregate_id":"1","topic":"t","created_at":"2026-01-02T15:04:05Z","content_type":"application/json","payload":{},"payload_bytes":"e30=","parked_at":"2026-01-02T15:04:05Z","reason":"it is too large"}` + "\n"
		if err := os.WriteFile(r.checkpoint()+".parked", []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(r.checkpoint() + ".parked")
		refused(t, partition, "1 events are parked", "--on-bad-event park")
		r.run("check", "--partitions", "1").want(t, 3, "FAIL  parked", "1 events are parked", "--on-bad-event park")
		r.run("check", "--partitions", "1", "--on-bad-event", "park").want(t, 0, "ok    parked")
	})
	t.Run("address in use", func(t *testing.T) {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		refused(t, append(partition, "--listen", listener.Addr().String()), "in use")
	})
	t.Run("rights of the user", func(t *testing.T) {
		r.exec("REVOKE REPLICATION SLAVE ON *.* FROM " + r.user)
		defer r.exec("GRANT REPLICATION SLAVE ON *.* TO " + r.user)
		refused(t, partition, "GRANT REPLICATION SLAVE")
	})
	t.Run("no exchange", func(t *testing.T) {
		refused(t, []string{"--exchange", r.exchange + "x"}, "does not exist")
	})
	// The same order without an obstacle.
	if _, ids := r.resumed("--from-gtid", set); !slices.Equal(ids, []string{idText(1)}) {
		t.Errorf("sent %v, want event 1", ids)
	}
}

// TestResumeDryRun works beside a relay that runs, of which it needs no lock,
// and neither does status. Seen to fail with the lock: 78.
func TestResumeDryRun(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	r.insert(r.db, 1, 1)
	d := r.start("--partitions", "1")
	d.settled()
	set := r.state().GTIDSet
	r.run("resume", "--from-gtid", set, "--dry-run").want(t, 0, "skipped      0 transactions")
	r.run("resume", "--from-file", r.end(), "--dry-run").want(t, 0, "resume from  ")
	r.run("resume", "--undo", "--dry-run").want(t, 78, "nothing to undo")
	r.run("status", "--partitions", "1").want(t, 0, "position     ")
	r.run("resume", "--from-gtid", set).want(t, 78, "locked")
	d.stop()
}

// TestResumeAdvice: what a refusal says to type is not refused with the same
// words, and skips nothing.
func TestResumeAdvice(t *testing.T) {
	t.Parallel()
	server := relaytest.PrivateMySQL(t)
	r := rigOn(t, databaseOn(t, server), schema.SQL).begun()
	r.insert(r.db, 1, 1)
	r.relay()
	r.purge()
	r.insert(r.db, 2, 2)
	began := r.text("SELECT DATE_FORMAT(UTC_TIMESTAMP(6), '%Y-%m-%dT%H:%i:%s.%fZ')")
	d := r.start()
	d.settled()
	d.stop()
	advised := func(got result) []string {
		t.Helper()
		_, set, found := strings.Cut(got.stderr, "--from-gtid '")
		if set, _, _ = strings.Cut(set, "'"); !found {
			t.Fatalf("it advises no set:\n%s", got.stderr)
		}
		return []string{"resume", "--dry-run", "--from-gtid", set}
	}
	const foreign = "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-57"
	for name, args := range map[string][]string{
		"empty set":         {"--from-gtid", ""},
		"foreign":           {"--from-gtid", r.state().GTIDSet + "," + foreign},
		"foreign and empty": {"--from-gtid", foreign},
		"too early":         {"--from-time", "2020-01-02T15:04:05Z"},
	} {
		t.Run(name, func(t *testing.T) {
			got := r.run(append([]string{"resume"}, args...)...)
			got.want(t, 78)
			got.oneLine(t)
			if strings.Contains(got.stderr, "--gap") {
				t.Errorf("there is no gap, and it says\n%s", got.stderr)
			}
			r.run(advised(got)...).want(t, 0, "skipped      0 transactions")
		})
	}
	// The oldest file has most likely begun within this very second, which is not
	// why a time behind its first transaction could be refused.
	r.run("resume", "--dry-run", "--from-time", began).want(t, 0, "resume from  ")
	for offset := range 4 {
		file, _, _ := strings.Cut(r.end(), ":")
		r.run("resume", "--from-file", fmt.Sprintf("%s:%d", file, offset), "--dry-run").want(t, 64, "--from-file "+file+":4")
	}
	// With a gap it is the other way round.
	r.insert(r.db, 3, 3)
	r.purge()
	r.run("resume", "--from-gtid", "").want(t, 78, "relay resume --gap backfill")
}
