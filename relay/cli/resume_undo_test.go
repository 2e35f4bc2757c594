package cli_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestResumeUndo: undo puts position and sequence back as they were, refuses to
// skip what it skips, and can be undone. It fails when undo keeps no copy, takes
// the oldest copy, or a copy that cannot be read.
func TestResumeUndo(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	r.run("resume", "--undo").want(t, 78, "nothing to undo", r.checkpoint())
	r.insert(r.db, 1, 1)
	r.relayed()
	middle := r.state().GTIDSet
	r.insert(r.db, 2, 2)
	r.insert(r.db, 3, 3)
	r.relayed()
	before := r.state()

	if _, ids := r.resumed("--from-gtid", middle); !slices.Equal(ids, []string{idText(2), idText(3)}) {
		t.Fatalf("sent %v, want events 2 and 3", ids)
	}
	replaced := r.state()
	if err := os.WriteFile(r.checkpoint()+".29990102T150405.000000Z", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	dry := r.run("resume", "--undo", "--dry-run")
	dry.want(t, 0, "put back     "+r.kept()[0], "resume from  "+before.GTIDSet+"\n", "skipped      0 transactions")
	if got := r.state(); got.Sequence != replaced.Sequence {
		t.Error("a dry run has changed the checkpoint")
	}
	r.saved("resume", "--undo")
	if got := r.state(); got.GTIDSet != before.GTIDSet || got.Sequence != before.Sequence || got.LastGTID != before.LastGTID {
		t.Errorf("undo gives %+v, want %+v", got, before)
	}
	r.saved("resume", "--undo", "--yes")
	if got := r.state(); got.GTIDSet != replaced.GTIDSet || got.Sequence != replaced.Sequence {
		t.Errorf("undoing that gives %+v, want %+v", got, replaced)
	}

	// What was to be sent again and is not yet, undo skips.
	r.saved("resume", "--from-gtid", middle)
	present := mustRead(t, r.checkpoint())
	got := r.run("resume", "--undo")
	got.want(t, 78, "--undo skips ", "--yes")
	got.oneLine(t)
	if !bytes.Equal(mustRead(t, r.checkpoint()), present) {
		t.Error("a refused undo has changed the checkpoint")
	}
	r.saved("resume", "--undo", "--yes")
	if got := r.state(); got.GTIDSet != replaced.GTIDSet || got.Sequence != replaced.Sequence {
		t.Errorf("undo gives %+v, want %+v", got, replaced)
	}
}

// saved runs a resume that saves its checkpoint and cannot relay: the broker is
// not there.
func (r *rig) saved(args ...string) {
	r.t.Helper()
	got := run(r.t, append(r.environment(), "RELAY_AMQP_URL=amqp://relay@127.0.0.1:1/", "RELAY_GIVE_UP_AFTER=1ms"), args...)
	got.want(r.t, 75, "kept         ")
	if strings.Contains(got.stdout, "following") {
		r.t.Error("it relays")
	}
}
