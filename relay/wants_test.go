package relay

import (
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/schema"
)

func mustTopics(t *testing.T, only, except string) schema.Topics {
	t.Helper()
	list := func(text string) []string {
		if text == "" {
			return nil
		}
		return strings.Split(text, ",")
	}
	topics, err := schema.NewTopics(list(only), list(except))
	if err != nil {
		t.Fatal(err)
	}
	return topics
}

// topical gives each event of tx the topic that stands before the dash in its id.
func topical(tx *binlog.Tx) *binlog.Tx {
	for i := range tx.Events {
		tx.Events[i].Topic = tx.Events[i].AggregateID
	}
	return tx
}

// TestSessionTopics: what is not wanted is numbered and passed over, in the middle
// of a transaction as well, and neither published nor counted.
func TestSessionTopics(t *testing.T) {
	t.Parallel()
	tr := begin(t, trialConfig{wants: wants{topics: mustTopics(t, "", "b"), named: true}})
	tr.give(topical(whole(11, "b-1", "a-1", "b-2", "b-3", "c-1")), topical(whole(12, "b-4")))
	tr.wantSent("a-1", "c-1")
	tr.broker.mu.Lock()
	numbers := []int64{tr.broker.flying[0].Sequence, tr.broker.flying[1].Sequence}
	tr.broker.mu.Unlock()
	if want := []int64{2, 5}; !slices.Equal(numbers, want) {
		t.Errorf("numbers %v, want %v", numbers, want)
	}
	tr.broker.decide(nil)
	tr.until("the checkpoint is behind the fourth", func() bool {
		state, err := checkpoint.Read(tr.file.Path())
		return err == nil && state.Sequence == 4 && state.Partial != nil && state.Partial.Events == 4
	})
	tr.broker.decide(nil)
	tr.stop()
	if err := tr.end(); err != nil {
		t.Error(err)
	}
	tr.wantSaved(progress{Set: upTo(12), Sequence: 6})
	for _, name := range []string{"relay_events_published_total", "relay_events_confirmed_total"} {
		if got := tr.metrics()[name]; got != 2 {
			t.Errorf("%s is %v, want 2", name, got)
		}
	}
}

// TestSessionTopicsBad: a bad event of a type that is not wanted is passed over;
// one whose type could not be read stops the relay.
func TestSessionTopicsBad(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		topic, eventType string
		named            bool
		stops            bool
	}{
		{"b", "x", true, false}, {"a", "x", true, true}, {"", "b", true, true}, {"", "b", false, false}, {"", "", false, true},
	} {
		tr := begin(t, trialConfig{wants: wants{topics: mustTopics(t, "a", ""), named: tt.named}})
		tx := whole(11, "1")
		e := &tx.Events[0]
		e.Topic, e.EventType, e.Bad = tt.topic, tt.eventType, &schema.BadEventError{ID: "1", Broken: true, Reason: "planted"}
		tr.give(tx)
		if tt.stops {
			if err := tr.end(); ExitCode(err) != ExitBadEvent {
				t.Errorf("%+v: got %v", tt, err)
			}
			continue
		}
		tr.give(topical(whole(12, "a-1")))
		tr.wantSent("a-1")
		tr.broker.decide(nil)
		tr.stop()
		if err := tr.end(); err != nil {
			t.Errorf("%+v: %v", tt, err)
		}
		tr.wantSaved(progress{Set: upTo(12), Sequence: 2})
	}
}

// TestSessionBackfillTopics: rows that are not wanted, or were before, are passed
// over without a number, since who carries them may take them out of the
// backfill's sight.
func TestSessionBackfillTopics(t *testing.T) {
	t.Parallel()
	before := mustTopics(t, "a", "")
	state := start(10, 100)
	state.Backfill = &checkpoint.Backfill{Until: "9", TopicsBefore: keptTopics(before)}
	tr := begin(t, trialConfig{state: state, wants: wants{topics: mustTopics(t, "", "c"), before: &before, named: true}})
	tr.give(topical(row("1", "a-1")), topical(row("2", "b-1")), topical(row("3", "c-1")), topical(row("4", "b-2")))
	tr.wantSent("b-1")
	tr.broker.confirmAll()
	tr.wantSent("b-1", "b-2")
	tr.stop()
	if err := tr.end(); err != nil {
		t.Error(err)
	}
	tr.wantSaved(progress{Set: upTo(10), Sequence: 102, Backfill: checkpoint.Backfill{After: "4", Until: "9", TopicsBefore: state.Backfill.TopicsBefore}})
}

// TestMayWant: which topics may follow those of a checkpoint.
func TestMayWant(t *testing.T) {
	all := [2]string{}
	only := func(globs string) [2]string { return [2]string{globs, ""} }
	except := func(globs string) [2]string { return [2]string{"", globs} }
	for _, tt := range []struct {
		before, now [2]string
		widened     bool
	}{
		{all, all, false}, {all, only("a"), false}, {all, except("a"), false}, {only("a"), all, true}, {except("a"), all, true},
		{only("a"), only("a,b"), true}, {only("a,b"), only("b"), false}, {only("a,b"), only("b,a"), false}, {only("a*"), only("ab"), false},
		{only("a*"), only("a*,b"), true}, {only("a?"), only("a*"), true}, {except("a"), except("a,b"), false}, {except("a,b"), except("a"), true},
		{except("a"), only("b*"), true}, {except("a"), only("b"), false}, {except("a"), only("a"), true}, {only("a"), [2]string{"a*", "a?*"}, true},
		{[2]string{"a*", "ab"}, [2]string{"a*", "ab,ac"}, false}, {[2]string{"a*", "ab"}, only("a*"), true}, {except("b"), [2]string{"c*", "b"}, false},
	} {
		before, now := mustTopics(t, tt.before[0], tt.before[1]), mustTopics(t, tt.now[0], tt.now[1])
		state := start(10, 0)
		state.Topics = keptTopics(before)
		got, err := mayWant("cp", state, now)
		if got != tt.widened || err != nil {
			t.Errorf("%v, then %v: widened %v, %v; want %v", tt.before, tt.now, got, err, tt.widened)
		}
		state.Partial = &checkpoint.Partial{GTID: gtid(11).String(), Events: 3}
		if _, err := mayWant("cp", state, now); (err != nil) != tt.widened {
			t.Errorf("%v, then %v, within a transaction: %v", tt.before, tt.now, err)
		}
		state.Backfill = &checkpoint.Backfill{}
		if _, err := mayWant("cp", state, now); (err != nil) == now.Same(before) || err != nil && (ExitCode(err) != ExitUnfit || !strings.Contains(err.Error(), "with its flags and "+strings.TrimSpace(withTopics(before)))) {
			t.Errorf("%v, then %v, within a backfill: %v", tt.before, tt.now, err)
		}
	}
}
