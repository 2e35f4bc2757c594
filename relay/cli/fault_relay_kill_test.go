package cli_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/relay/relaytest"
)

// killed ends the relay with SIGKILL.
func (d *daemon) killed() {
	d.rig.t.Helper()
	if err := d.Kill(); err != nil {
		d.rig.t.Fatal(err)
	}
}

// TestFaultRelayKilledUnconfirmed: events went to the broker, and nothing has
// come back, when the relay is killed. They must come again, since nobody can
// know that the broker has them. Seen to fail with a position that moves when an
// event is published (session.publish): none of the ten comes again.
func TestFaultRelayKilledUnconfirmed(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	p := r.toBroker()
	d := r.start("--partitions", "1")
	r.insert(r.db, 1, 2)
	d.settled()
	p.Stall(relaytest.Down)
	var mu sync.Mutex
	var sent bytes.Buffer
	p.Watch(relaytest.Up, func(b []byte) {
		mu.Lock()
		defer mu.Unlock()
		sent.Write(b)
	})
	r.insert(r.db, 3, 12)
	d.until("the last of the events went to the broker", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return bytes.Contains(sent.Bytes(), []byte(idText(12)))
	})
	before := r.state()
	saved := time.Now()
	d.until("the checkpoint could have been saved", func() bool { return time.Since(saved) > time.Second })
	d.killed()
	if after := r.state(); before.Sequence != 2 || after.Sequence != 2 || after.Partial != nil {
		t.Errorf("the checkpoint has moved: %+v", after)
	}
	r.flags = nil // past the proxy
	if doubled := r.judge(r.relayed(), 12); doubled != 10 {
		t.Errorf("%d events came twice; the ten that were published must", doubled)
	}
}

// TestFaultRelayKilledUnsaved: the broker's confirm has arrived, and the
// checkpoint does not say so yet, when the relay is killed. It is killed at
// the ack's frame again and again, until that was so three times. Seen to fail
// with events numbered anew by each process (newLedger), and with a position
// that is settled and saved at publish: no kill is between the two.
func TestFaultRelayKilledUnsaved(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	p := r.toBroker()
	address := freeAddress(t)
	proven, last := 0, 0
	for range 20 {
		d := r.start("--partitions", "1", "--listen", address)
		d.until("it follows", func() bool { code, _ := get(address, "/readyz"); return code == 200 })
		d.settled()
		acked := make(chan struct{})
		once := sync.OnceFunc(func() { close(acked) })
		p.Watch(relaytest.Down, func(b []byte) {
			if bytes.Contains(b, []byte{0, 60, 0, 80}) { // class basic, method ack
				once()
			}
		})
		last++
		r.insert(r.db, last, last)
		select {
		case <-acked:
		case <-time.After(patience):
			t.Fatal("the broker does not confirm")
		}
		confirmed := metric(t, address, "relay_events_confirmed_total")
		d.killed()
		p.Watch(relaytest.Down, nil)
		if confirmed >= 1 && r.state().Sequence < int64(last) {
			if proven++; proven == 3 {
				break
			}
		}
	}
	if proven < 3 {
		t.Errorf("only %d of %d kills were between confirm and save", proven, last)
	}
	if doubled := r.judge(r.relayed(), last); doubled < proven {
		t.Errorf("%d events came twice, and %d were not saved", doubled, proven)
	}
}

// TestFaultRelayKilledInSave: a relay was killed between the temporary file and
// the rename. What it left is not believed, however good it looks, and is
// removed; a checkpoint that believed it would skip events.
func TestFaultRelayKilledInSave(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	last := 0
	for _, kind := range []string{"empty", "half", "newer", "link"} {
		t.Run(kind, func(t *testing.T) {
			r.insert(r.db, last+1, last+5)
			last += 5
			left, elsewhere := r.checkpoint()+".relay-tmp", filepath.Join(t.TempDir(), "elsewhere.json")
			state := r.state()
			state.Sequence, state.GTIDSet = int64(last), r.text("SELECT @@GLOBAL.gtid_executed")
			file, err := checkpoint.Open(elsewhere)
			if err == nil {
				err = file.Save(state)
			}
			if err != nil {
				t.Fatal(err)
			}
			file.Close()
			newer := mustRead(t, elsewhere)
			switch kind {
			case "link":
				err = os.Symlink(elsewhere, left)
			case "newer":
				err = os.WriteFile(left, newer, 0o600)
			case "half":
				err = os.WriteFile(left, newer[:len(newer)/2], 0o600)
			case "empty":
				err = os.WriteFile(left, nil, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
			r.relay("--partitions", "1")
			if _, err := os.Lstat(left); err == nil {
				t.Errorf("%s is still there", left)
			}
			if !bytes.Equal(mustRead(t, elsewhere), newer) {
				t.Error("the relay wrote to the file behind the link")
			}
			if got := r.state().Sequence; got != int64(last) {
				t.Errorf("the checkpoint is at sequence %d, want %d", got, last)
			}
		})
	}
	r.wantEvents(r.take(0), 1, last)
}

// look is one at the metrics.
type look struct {
	at        time.Time
	confirmed float64 // events
}

// TestFaultRelayKilledInLargeTransaction: killed several times within one
// transaction, the relay sends again at most its window and what was confirmed
// since it last began to save: twice a save interval, since one save can be
// under way. With a position that knows only whole transactions, all of it
// would come again.
func TestFaultRelayKilledInLargeTransaction(t *testing.T) {
	t.Parallel()
	const rows, window, kills = 30_000, 500, 3
	r := newRig(t).begun()
	r.backlog(1, rows)
	address := freeAddress(t)
	bound := 0
	for kill := range kills {
		d := r.start("--partitions", "1", "--window", fmt.Sprint(window), "--listen", address)
		d.until("it follows", func() bool { code, _ := get(address, "/readyz"); return code == 200 })
		// How many are confirmed within two save intervals at most, measured.
		most, begun := 0.0, r.state().Sequence
		var looks []look
		d.until("the transaction is under way, and the last save is behind", func() bool {
			now := look{time.Now(), metric(t, address, "relay_events_confirmed_total")}
			looks = append(looks, now)
			for now.at.Sub(looks[0].at) > 500*time.Millisecond {
				looks = looks[1:]
			}
			most = max(most, now.confirmed-looks[0].confirmed)
			saved := r.state().Sequence
			return saved >= int64(kill+1)*rows/(kills+2) && int64(now.confirmed) > saved-begun // however slow the broker is
		})
		d.killed()
		bound += window + int(most)
		if state := r.state(); state.Partial == nil || state.Partial.Events != state.Sequence {
			t.Fatalf("killed in the middle, the checkpoint says %+v", state)
		}
	}
	doubled := r.judge(r.relayed(), rows)
	t.Logf("%d events came twice, the bound is %d", doubled, bound)
	if doubled > bound || doubled == 0 {
		t.Errorf("%d events came twice; the bound is %d", doubled, bound)
	}
}
