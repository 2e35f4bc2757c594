package cli_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/checkpoint"
)

// kept lists the copies of old checkpoints.
func (r *rig) kept() []string {
	r.t.Helper()
	var list []string
	entries, err := os.ReadDir(r.dir)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), "checkpoint.json.2") {
			list = append(list, filepath.Join(r.dir, entry.Name()))
		}
	}
	return list
}

// resumed runs resume as a daemon, until all is settled, and returns what it
// printed and what it sent.
func (r *rig) resumed(args ...string) (printed string, ids []string) {
	r.t.Helper()
	d := r.startAs("resume", append(args, "--partitions", "1")...)
	d.settled()
	d.stop()
	return d.text(), messageIDs(r.take(0))
}

func TestResume(t *testing.T) { onEach(t, testResume) }

func testResume(t *testing.T, on source) {
	r := on.rig(t).begun()
	r.insert(r.db, 1, 1)
	if got := messageIDs(r.relayed()); len(got) != 1 {
		t.Fatalf("got %v", got)
	}
	middle := r.state().GTIDSet // what is settled up to event 1
	r.insert(r.db, 2, 2)
	r.insert(r.db, 3, 3)
	if got := messageIDs(r.relayed()); len(got) != 2 {
		t.Fatalf("got %v", got)
	}
	before := mustRead(t, r.checkpoint())

	t.Run("dry run", func(t *testing.T) {
		got := r.run("resume", "--from-gtid", middle, "--dry-run")
		again := r.state().GTIDSet
		if r.mariadb() { // numbers of one domain, from the next to the last
			first, last := r.set(middle).Count()+1, r.set(again).Count()
			again = fmt.Sprintf("0-1-%d..%d", first, last)
		} else {
			again = r.text("SELECT GTID_SUBTRACT(?, ?)", again, middle)
		}
		got.want(t, 0, "resume from  "+middle, "sent again   ", " transactions: "+again, "skipped      0 transactions")
		if after := mustRead(t, r.checkpoint()); !bytes.Equal(before, after) || len(r.kept()) != 0 {
			t.Errorf("a dry run has changed the checkpoint:\n%s\n%s\nkept: %v", before, after, r.kept())
		}
	})
	t.Run("sends again", func(t *testing.T) {
		printed, ids := r.resumed("--from-gtid", middle)
		if !slices.Equal(ids, []string{idText(2), idText(3)}) || !strings.Contains(printed, "skipped      0 transactions") {
			t.Errorf("sent %v, printed\n%s", ids, printed)
		}
		kept := r.kept()
		if len(kept) != 1 || !bytes.Equal(mustRead(t, kept[0]), before) || !strings.Contains(printed, kept[0]) {
			t.Errorf("the old checkpoint is kept as %v", kept)
		}
	})
	t.Run("skips", func(t *testing.T) {
		r.insert(r.db, 4, 4)
		all := r.executed()
		before := mustRead(t, r.checkpoint())
		got := r.run("resume", "--from-gtid", all)
		got.want(t, 78, "skips ", "--yes", "--dry-run")
		if line := got.stderr; strings.Count(line, "\n") != 1 {
			t.Errorf("standard error:\n%s", line)
		}
		r.run("resume", "--from-gtid", all, "--dry-run").want(t, 0, "sent again   0 transactions", "skipped      ")
		if after := mustRead(t, r.checkpoint()); !bytes.Equal(before, after) {
			t.Error("a refused resume has changed the checkpoint")
		}
		r.insert(r.db, 5, 5)
		if _, ids := r.resumed("--from-gtid", all, "--yes"); !slices.Equal(ids, []string{idText(5)}) {
			t.Errorf("sent %v, want event 5 alone", ids)
		}
	})
	t.Run("beyond what is executed", func(t *testing.T) {
		foreign := r.pick("3e11fa47-71ca-11e1-9e33-c80aa9429562:1-57", "9-9-1")
		got := r.run("resume", "--from-gtid", foreign, "--yes")
		got.want(t, 78)
		ahead := r.run("resume", "--from-gtid", r.state().GTIDSet+","+foreign, "--yes")
		ahead.want(t, 78, "diverged", foreign, "relay resume --from-gtid")
		ahead.oneLine(t)
		other := r.run("resume", "--from-gtid", r.pick("0-1-57", "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-57"), "--yes")
		other.want(t, 78, "diverged", r.pick("is a position of MariaDB, and the server", "is a position of MySQL, and the server"), "relay status")
		other.oneLine(t)
	})
	t.Run("repairs", func(t *testing.T) {
		set := r.state().GTIDSet
		damaged := []byte("{\n  \"version\": 1,")
		if err := os.WriteFile(r.checkpoint(), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		r.run("run", "--partitions", "1").want(t, 78, "corrupt", r.checkpoint(), "relay resume --from-gtid")
		r.run("resume", "--from-gtid", set, "--dry-run").want(t, 0, "cannot be read")
		if !bytes.Equal(mustRead(t, r.checkpoint()), damaged) {
			t.Error("a dry run has changed the damaged file")
		}
		r.run("resume", "--from-gtid", set).want(t, 78, "cannot be told what", "--yes")
		r.insert(r.db, 6, 6)
		if _, ids := r.resumed("--from-gtid", set, "--yes"); !slices.Equal(ids, []string{idText(6)}) {
			t.Errorf("sent %v, want event 6 alone", ids)
		}
		if kept := r.kept(); !bytes.Equal(mustRead(t, kept[len(kept)-1]), damaged) {
			t.Error("the damaged file is not kept")
		}
	})
	t.Run("gives up a backfill", func(t *testing.T) {
		file, err := checkpoint.Open(r.checkpoint())
		if err != nil {
			t.Fatal(err)
		}
		state, _ := file.State()
		state.Backfill = &checkpoint.Backfill{Until: `["2026-03-01 00:00:00.000000","00000000000000000000000000000001"]`}
		if err := errors.Join(file.Save(state), file.Close()); err != nil {
			t.Fatal(err)
		}
		set := state.GTIDSet
		r.run("resume", "--from-gtid", set).want(t, 78, "skips 0 transactions", "backfill", "--yes")
		r.insert(r.db, 7, 7)
		if _, ids := r.resumed("--from-gtid", set, "--yes"); !slices.Equal(ids, []string{idText(7)}) {
			t.Errorf("sent %v, want event 7 alone", ids)
		}
	})
	t.Run("while a relay runs", func(t *testing.T) {
		d := r.start("--partitions", "1")
		d.settled()
		r.run("resume", "--from-gtid", middle).want(t, 78, "locked")
		d.stop()
	})
}

// resumePurged: what the server has purged cannot be followed. It purges the
// log, so it takes a server of its own.
func (r *rig) resumePurged(t *testing.T) {
	r.insert(r.db, 1, 1)
	if got := messageIDs(r.relayed("--start", "earliest")); !slices.Equal(got, []string{idText(1)}) {
		t.Errorf("--start earliest sent %v, want event 1", got)
	}
	early := r.state().GTIDSet
	conn, err := r.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if !r.mariadb() {
		if _, err := conn.ExecContext(t.Context(), "SET gtid_next = 'AUTOMATIC:nightly'"); err != nil {
			t.Fatal(err)
		}
	}
	r.insert(conn, 2, 2)
	r.purge()
	got := r.run("run", "--partitions", "1")
	got.want(t, 78, "purged", "relay resume --from-gtid")
	got.oneLine(t)
	r.run("check", "--partitions", "1").want(t, 3, "FAIL  checkpoint", "purged")
	r.run("status", "--partitions", "1").want(t, 3, "purged")
	r.run("resume", "--from-gtid", early).want(t, 78, "purged")
	executed := r.executed()
	r.run("resume", "--from-gtid", executed).want(t, 78, "skips 1 transactions", "--yes")
	r.insert(r.db, 3, 3)
	if _, ids := r.resumed("--from-gtid", executed, "--yes"); !slices.Equal(ids, []string{idText(3)}) {
		t.Errorf("sent %v, want event 3 alone", ids)
	}
}

func (r *rig) lastLog() string {
	r.t.Helper()
	var last string
	r.eachLog(func(name, _ string) bool { last = name; return true })
	return last
}
