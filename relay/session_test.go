package relay

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

var errBroken = errors.New("broken by the test")

// ids numbers events, each of an aggregate of its own.
func ids(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("%d", i+1)
	}
	return list
}

func TestSessionRelays(t *testing.T) {
	t.Parallel()
	tr := begin(t, trialConfig{})
	tr.broker.confirmAll()
	tr.give(whole(11, "a-1", "b-1"), whole(12), whole(13, "c-1"))
	tr.wantSent("a-1", "b-1", "c-1")
	tr.stop()
	if err := tr.end(); err != nil {
		t.Error(err)
	}
	tr.wantSaved(progress{Set: upTo(13), Sequence: 3})
}

// TestSessionSavesOnTick saves what is settled without being told to stop.
func TestSessionSavesOnTick(t *testing.T) {
	t.Parallel()
	tr := begin(t, trialConfig{})
	tr.give(whole(11))
	tr.until("the checkpoint has moved", func() bool {
		state, err := checkpoint.Read(tr.file.Path())
		return err == nil && state.GTIDSet == upTo(11)
	})
}

func TestSessionKeepsWindow(t *testing.T) {
	t.Parallel()
	for _, order := range []Order{Strict, Pipelined} {
		tr := begin(t, trialConfig{window: 3, order: order})
		tr.give(whole(11, ids(10)...))
		tr.wantSent("1", "2", "3")
		for i := range 7 {
			tr.broker.decide(nil)
			tr.wantSent(ids(4 + i)...)
		}
		tr.stop()
		tr.broker.confirmAll()
		if err := tr.end(); err != nil {
			t.Error(err)
		}
		if tr.broker.most != 3 {
			t.Errorf("%s: %d events were in flight, want at most 3", order, tr.broker.most)
		}
	}
}

// TestSessionWindowCountsWaiting: events that wait in a lane count, too; else
// one busy aggregate would fill the memory.
func TestSessionWindowCountsWaiting(t *testing.T) {
	t.Parallel()
	tr := begin(t, trialConfig{window: 3})
	tr.give(whole(11, "a-1", "a-2", "a-3", "b-1"))
	tr.wantSent("a-1")
	tr.broker.decide(nil)
	tr.wantSent("a-1", "a-2", "b-1")
}

// TestSessionBoundsForeign holds an event back while others write beside the
// outbox: what is read ahead stays bounded.
func TestSessionBoundsForeign(t *testing.T) {
	t.Parallel()
	const window = 4
	tr := begin(t, trialConfig{window: window})
	tr.give(whole(11, "a-1"))
	tr.wantSent("a-1")
	read := 0
	for ; read < 100*window; read++ {
		select {
		case tr.source.out <- fetched{tx: whole(int64(12 + read))}:
			continue
		case <-time.After(200 * time.Millisecond): // nothing reads, as it should be
		}
		break
	}
	if read == 100*window {
		t.Fatalf("%d transactions were read behind an event that the broker does not confirm", read)
	}
	tr.broker.confirmAll()
	tr.give(whole(int64(12+read), "a-2"))
	tr.stop()
	if err := tr.end(); err != nil {
		t.Error(err)
	}
}

// TestSessionRefused: an event that was returned or nacked is sent again. In
// strict order nothing of its aggregate passes it, and others flow.
func TestSessionRefused(t *testing.T) {
	t.Parallel()
	for name, refusal := range map[string]error{"returned": &exchange.ReturnError{ID: "a-1"}, "nacked": exchange.ErrNacked} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tr := begin(t, trialConfig{})
			tr.give(whole(11, "a-1", "a-2"), whole(12, "b-1", "b-2"))
			tr.wantSent("a-1", "b-1")
			tr.broker.decide(refusal) // a-1
			tr.broker.decide(nil)     // b-1
			tr.wantSent("a-1", "b-1", "b-2")
			tr.broker.decide(nil) // b-2
			tr.wantSent("a-1", "b-1", "b-2", "a-1")
			tr.broker.decide(refusal)
			tr.wantSent("a-1", "b-1", "b-2", "a-1", "a-1")
			tr.wantSaved(progress{Set: upTo(10)})
			tr.broker.decide(nil)
			tr.wantSent("a-1", "b-1", "b-2", "a-1", "a-1", "a-2")
			tr.broker.decide(nil)
			tr.stop()
			if err := tr.end(); err != nil {
				t.Error(err)
			}
			tr.wantSaved(progress{Set: upTo(12), Sequence: 4})
		})
	}
}

// TestSessionDeclaresAgain: an event that comes back unrouted again and again
// ends the session of a relay that declares its queues, so that the next one
// declares them; it does not end that of another, which waits for its operator.
func TestSessionDeclaresAgain(t *testing.T) {
	t.Parallel()
	returned := &exchange.ReturnError{ID: "a-1"}
	for _, owner := range []bool{true, false} {
		t.Run(fmt.Sprintf("owner=%v", owner), func(t *testing.T) {
			t.Parallel()
			tr := begin(t, trialConfig{owner: owner, drain: 10 * time.Millisecond})
			tr.give(whole(11, "a-1"))
			var want []string
			for range returnTries {
				want = append(want, "a-1")
				tr.wantSent(want...)
				tr.broker.decide(returned)
			}
			if owner {
				if err := tr.end(); !errors.Is(err, returned) {
					t.Errorf("got %v, want %v", err, returned)
				}
				return
			}
			tr.wantSent(append(want, "a-1")...)
			tr.broker.confirmAll()
			tr.stop()
			if err := tr.end(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestSessionErrorLeavesRefused: a session that ends with an error takes in
// what is in flight and leaves what the broker refuses to the next one, long
// before the drain timeout. Seen to fail where it waited for what is refused.
func TestSessionErrorLeavesRefused(t *testing.T) {
	t.Parallel()
	tr := begin(t, trialConfig{drain: 10 * patience})
	tr.give(whole(11, "a-1", "a-2"), whole(12, "b-1", "b-2"))
	tr.wantSent("a-1", "b-1")
	tr.hand(fetched{err: errBroken})
	tr.broker.decide(exchange.ErrNacked) // a-1
	tr.broker.decide(nil)                // b-1
	tr.until("b-2 is sent behind it", func() bool { return slices.Contains(tr.broker.published(), "b-2") })
	for range 2 { // a-1 could be sent again by then
		tr.board.show(snapshot{following: true})
		tr.until("a tick is over", func() bool { return !tr.following() })
	}
	var err error
	tr.until("the session ends", func() bool {
		select {
		case err = <-tr.ended:
			return true
		default:
			tr.broker.refuseAll()
			return false
		}
	})
	if !errors.Is(err, errBroken) {
		t.Errorf("got %v, want %v", err, errBroken)
	}
	tr.wantSent("a-1", "b-1", "b-2")
	tr.wantSaved(progress{Set: upTo(10)})
}

// TestSessionStopSettlesRefused: what is refused while the session stops is
// sent again all the same.
func TestSessionStopSettlesRefused(t *testing.T) {
	t.Parallel()
	tr := begin(t, trialConfig{})
	tr.give(whole(11, "a-1", "a-2"))
	tr.wantSent("a-1")
	tr.stop()
	tr.broker.decide(exchange.ErrNacked)
	tr.wantSent("a-1", "a-1")
	tr.broker.confirmAll()
	if err := tr.end(); err != nil {
		t.Error(err)
	}
	tr.wantSent("a-1", "a-1", "a-2")
	tr.wantSaved(progress{Set: upTo(11), Sequence: 2})
}

func TestSessionBadEvent(t *testing.T) {
	t.Parallel()
	tr := begin(t, trialConfig{})
	tr.give(whole(11, "a-1"), whole(12, "b-1"))
	tr.wantSent("a-1", "b-1")
	tr.broker.decide(nil)
	tr.broker.decide(&schema.BadEventError{ID: "b-1", Reason: "too long"})
	err := tr.end()
	if code := ExitCode(err); code != ExitBadEvent {
		t.Errorf("exit code %d, want %d: %v", code, ExitBadEvent, err)
	}
	tr.wantSaved(progress{Set: upTo(11), Sequence: 1})
}

// TestSessionBrokerLost: what was settled is saved, and the session ends with
// an error although nobody knows why.
func TestSessionBrokerLost(t *testing.T) {
	t.Parallel()
	for _, why := range []error{errBroken, nil} {
		tr := begin(t, trialConfig{})
		tr.give(whole(11, "a-1"), whole(12, "b-1", "b-2"), whole(13, "c-1"))
		tr.wantSent("a-1", "b-1", "c-1")
		tr.broker.decide(nil)
		tr.broker.decide(nil)
		tr.wantSent("a-1", "b-1", "c-1", "b-2")
		tr.broker.decide(nil)
		tr.broker.breakDown(why)
		err := tr.end()
		if err == nil || !errors.Is(err, why) && why != nil {
			t.Errorf("broken by %v, the session ends with %v", why, err)
		}
		if code := ExitCode(err); code != ExitUnexpected {
			t.Errorf("exit code %d: another session would not begin", code)
		}
		tr.wantSaved(progress{Set: upTo(11), Sequence: 2, Partial: checkpoint.Partial{GTID: gtid(12).String(), Events: 1}})
		tr.broker = newFakeBroker() // closed once
	}
}

// TestSessionSourceLost settles and saves what is in flight before it ends.
func TestSessionSourceLost(t *testing.T) {
	t.Parallel()
	for _, lost := range []error{errBroken, binlog.ErrUnreadable} {
		tr := begin(t, trialConfig{})
		tr.give(whole(11, "a-1", "a-2"), whole(12, "b-1"))
		tr.wantSent("a-1", "b-1")
		tr.hand(fetched{err: lost})
		tr.broker.confirmAll()
		if err := tr.end(); !errors.Is(err, lost) {
			t.Errorf("the session ends with %v, want %v", err, lost)
		}
		tr.wantSent("a-1", "b-1", "a-2")
		tr.wantSaved(progress{Set: upTo(12), Sequence: 3})
	}
}

// TestSessionStopSettles admits no more than the window, stops, and settles
// that: of a transaction under way its part is saved, and the next session
// sends exactly the rest.
func TestSessionStopSettles(t *testing.T) {
	t.Parallel()
	tx := whole(11, ids(10)...)
	tr := begin(t, trialConfig{window: 4})
	tr.give(tx)
	tr.wantSent("1", "2", "3", "4")
	tr.stop()
	tr.broker.confirmAll()
	if err := tr.end(); err != nil {
		t.Error(err)
	}
	tr.wantSent("1", "2", "3", "4")
	tr.wantSaved(progress{Set: upTo(10), Sequence: 4, Partial: checkpoint.Partial{GTID: gtid(11).String(), Events: 4}})

	state, err := checkpoint.Read(tr.file.Path())
	if err != nil {
		t.Fatal(err)
	}
	again := begin(t, trialConfig{state: state})
	again.broker.confirmAll()
	again.give(tx)
	again.wantSent("5", "6", "7", "8", "9", "10")
	again.stop()
	if err := again.end(); err != nil {
		t.Error(err)
	}
	again.wantSaved(progress{Set: upTo(11), Sequence: 10})
}

// TestSessionStopUnconfirmed: the broker never confirms. The session gives up
// after the drain timeout and saves what is settled, no more.
func TestSessionStopUnconfirmed(t *testing.T) {
	t.Parallel()
	tr := begin(t, trialConfig{drain: 50 * time.Millisecond})
	tr.give(whole(11, "a-1"), whole(12, "b-1"), whole(13, "c-1"))
	tr.wantSent("a-1", "b-1", "c-1")
	tr.broker.decide(nil)
	tr.stop()
	err := tr.end()
	if !errors.Is(err, ErrUnavailable) || ExitCode(err) != ExitUnavailable {
		t.Errorf("the session ends with %v, want %v", err, ErrUnavailable)
	}
	tr.wantSaved(progress{Set: upTo(11), Sequence: 1})
}

// TestSessionStopBrokerLost: told to stop, and the broker is lost meanwhile.
func TestSessionStopBrokerLost(t *testing.T) {
	t.Parallel()
	tr := begin(t, trialConfig{})
	tr.give(whole(11, "a-1", "a-2"))
	tr.wantSent("a-1")
	tr.stop()
	tr.broker.decide(nil)
	tr.wantSent("a-1", "a-2")
	tr.broker.breakDown(errBroken)
	err := tr.end()
	if !errors.Is(err, ErrUnavailable) || !errors.Is(err, errBroken) {
		t.Errorf("the session ends with %v, want %v with its cause", err, ErrUnavailable)
	}
	tr.wantSaved(progress{Set: upTo(10), Sequence: 1, Partial: checkpoint.Partial{GTID: gtid(11).String(), Events: 1}})
	tr.broker = newFakeBroker()
}

// TestSessionSaveFails removes the checkpoint's directory under the session.
func TestSessionSaveFails(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]bool{"tick": false, "stop": true} {
		t.Run(name, func(t *testing.T) {
			tr := begin(t, trialConfig{})
			tr.broker.confirmAll()
			if err := os.RemoveAll(filepath.Dir(tr.file.Path())); err != nil {
				t.Fatal(err)
			}
			tr.give(whole(11, "a-1"))
			tr.wantSent("a-1")
			if stop {
				tr.stop()
			}
			err := tr.end()
			if err == nil || ExitCode(err) != ExitUnfit {
				t.Errorf("the session ends with %v, exit code %d, want %d", err, ExitCode(err), ExitUnfit)
			}
		})
	}
}

// TestSessionStrictOrder publishes a history in which the broker refuses at
// random: each aggregate's events come in commit order, each once.
func TestSessionStrictOrder(t *testing.T) {
	t.Parallel()
	n := seed(t)
	tr := begin(t, trialConfig{window: 16})
	want := map[string][]string{}
	var list []*binlog.Tx
	for i := range 60 {
		aggregate := fmt.Sprintf("%d", (uint64(i)*7+n)%5)
		id := fmt.Sprintf("%s-%d", aggregate, i)
		want[aggregate] = append(want[aggregate], id)
		list = append(list, whole(int64(11+i), id))
	}
	go func() {
		for _, tx := range list {
			tr.source.out <- fetched{tx: tx}
		}
	}()
	got := map[string][]string{}
	for i, taken := 0, 0; taken < 60; i++ {
		tr.until("an event is in flight", func() bool {
			tr.broker.mu.Lock()
			defer tr.broker.mu.Unlock()
			return len(tr.broker.flying) > 0
		})
		tr.broker.mu.Lock()
		oldest := *tr.broker.flying[0]
		tr.broker.mu.Unlock()
		if (uint64(i)+n)%9 == 0 {
			tr.broker.decide(exchange.ErrNacked)
			continue
		}
		got[oldest.AggregateID] = append(got[oldest.AggregateID], oldest.ID)
		taken++
		tr.broker.decide(nil)
	}
	tr.stop()
	if err := tr.end(); err != nil {
		t.Error(err)
	}
	for aggregate := range want {
		if !slices.Equal(got[aggregate], want[aggregate]) {
			t.Errorf("aggregate %s was taken as %v, committed as %v", aggregate, got[aggregate], want[aggregate])
		}
	}
}

// TestSessionStopUnsaved: told to stop, and the last save fails for a reason
// that may pass, as a full disk does. That is no clean end.
func TestSessionStopUnsaved(t *testing.T) {
	t.Parallel()
	tr := begin(t, trialConfig{})
	tr.give(whole(11, "a-1"))
	tr.wantSent("a-1")
	tr.stop()
	tr.file.Close() // a Save from here on fails
	tr.broker.decide(nil)
	if err := tr.end(); ExitCode(err) != ExitUnavailable {
		t.Errorf("the session ends with %v, exit code %d, want %d", err, ExitCode(err), ExitUnavailable)
	}
	tr.wantSaved(progress{Set: upTo(10)})
}
