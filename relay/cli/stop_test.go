package cli_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

// TestTwoRelays: the second on a checkpoint is refused and names the first.
func TestTwoRelays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	first := r.start("--partitions", "1")
	first.settled()
	pid := first.pid()
	cmdline, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !strings.HasPrefix(string(cmdline), relayBinary(t)) {
		t.Errorf("process %d is not the relay: %q, %v", pid, cmdline, err)
	}
	second := r.run("run")
	second.want(t, 78, fmt.Sprintf("process %d", pid), "locked")
	second.oneLine(t)
	r.insert(r.db, 1, 1)
	first.settled()
	first.stop()
	r.wantEvents(r.take(0), 1, 1)
	r.relay() // the lock went with its holder
}

// TestStopInLargeTransaction stops the relay in the middle of a transaction of
// 25,000 rows, twice: nothing comes twice, and each event keeps its number.
func TestStopInLargeTransaction(t *testing.T) {
	t.Parallel()
	const rows = 25_000
	r := newRig(t).begun()
	r.backlog(1, rows)
	for _, at := range []int64{1, rows / 5} {
		d := r.start("--partitions", "1", "--window", "500")
		d.until("the transaction is under way", func() bool { return r.state().Sequence >= at })
		d.stop()
		state := r.state()
		if state.Partial == nil || state.Partial.Events != state.Sequence {
			t.Fatalf("stopped in the middle, the checkpoint says %+v", state)
		}
		t.Logf("stopped after %d events", state.Sequence)
	}
	r.wantEvents(r.relayed(), 1, rows)
}

// TestStopUnderLoad stops the relay again and again while rows are written.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	ctx, stop := context.WithCancel(t.Context())
	var writer sync.WaitGroup
	written := 0
	writer.Go(func() {
		for ctx.Err() == nil {
			r.insert(r.db, written+1, written+3)
			written += 3
		}
	})
	for range 4 {
		before := r.state().Sequence
		d := r.start("--partitions", "1")
		d.until("some events are settled", func() bool { return r.state().Sequence >= before+50 })
		d.stop()
	}
	stop()
	writer.Wait()
	r.wantEvents(r.relayed(), 1, written)
}
