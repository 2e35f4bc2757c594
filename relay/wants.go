package relay

import (
	"fmt"
	"slices"

	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/schema"
)

// wants says which events are carried. The zero wants takes all.
type wants struct {
	topics schema.Topics
	before *schema.Topics // in a backfill, those whose rows are left out; nil: none are
	named  bool           // the table has a column for the topic: where that could not be read, the type is not known
}

// event tells whether one from the log is carried. A bad one is passed over only
// when its type is known.
func (w *wants) event(e *schema.Event) bool {
	return w.topics.All() || w.unsure(e) || w.topics.Want(e.Type())
}

// row tells whether one that a backfill has read is carried.
func (w *wants) row(e *schema.Event) bool {
	return w.event(e) && (w.before == nil || w.unsure(e) || !w.before.Want(e.Type()))
}

func (w *wants) unsure(e *schema.Event) bool {
	return e.Bad != nil && (e.Type() == "" || w.named && e.Topic == "")
}

// wantsOf is what the table's relay wants in a session that begins at the state.
func wantsOf(topics schema.Topics, state checkpoint.State, table *schema.Table) (wants, error) {
	w := wants{topics: topics}
	_, w.named = table.Column(schema.RoleTopic)
	if b := state.Backfill; b != nil && b.TopicsBefore != nil {
		before, err := topicsOf(b.TopicsBefore)
		if err != nil {
			return w, err
		}
		w.before = &before
	}
	return w, nil
}

// topicsOf are a checkpoint's.
func topicsOf(kept *checkpoint.Topics) (schema.Topics, error) {
	if kept == nil {
		return schema.Topics{}, nil
	}
	return schema.NewTopics(kept.Only, kept.Except)
}

// keptTopics are topics as a checkpoint has them; nil: all.
func keptTopics(t schema.Topics) *checkpoint.Topics {
	if t.All() {
		return nil
	}
	return &checkpoint.Topics{Only: slices.Clone(t.Only), Except: slices.Clone(t.Except)}
}

// mayWant refuses topics that cannot follow those of the checkpoint at path.
// widened tells that some may be wanted now that were not before.
func mayWant(path string, state checkpoint.State, topics schema.Topics) (widened bool, err error) {
	before, err := topicsOf(state.Topics)
	if err != nil || topics.Same(before) {
		return false, err
	}
	if state.Backfill != nil {
		return false, fmt.Errorf("%w: a backfill is under way by %s with other topics, and must end with them; start it as before, with its flags and%s, until relay status tells of no backfill, and then change them", ErrUnfit, path, withTopics(before))
	}
	widened = !topics.Within(before)
	if widened && state.Partial != nil {
		return false, fmt.Errorf("%w: %s stands %d events into transaction %s, whose events were chosen by other topics; start it as before, with its flags and%s, until the checkpoint has no partial, and then change them", ErrUnfit, path, state.Partial.Events, state.Partial.GTID, withTopics(before))
	}
	return widened, nil
}

// withTopics are the flags behind relay run for these topics.
func withTopics(t schema.Topics) string {
	if t.All() {
		return " without --only-topics and --except-topics"
	}
	return " " + t.String()
}
