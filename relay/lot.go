package relay

import (
	"time"

	"github.com/outboxrelay/relay/checkpoint"
)

// lot is where bad events are put aside, with the later ones of their
// aggregates: a file of JSON lines beside the checkpoint. A line is synced
// before the position moves over its event. It is used by one goroutine, for
// one session: after an error it is opened again, from what is durable.
type lot struct {
	*parkedEnd
	waiting map[identity]bool
	held    map[string]string // by aggregate: the id of the event that holds it
}

// openLot opens the parked file beside a checkpoint, whose state it must fit.
func openLot(path string, state checkpoint.State) (*lot, error) {
	p, err := parkedBeside(path, state, true)
	if err != nil {
		return nil, err
	}
	l := &lot{waiting: map[identity]bool{}, held: map[string]string{}}
	for _, e := range p.events {
		l.waiting[identity{e.ID, e.Sequence}] = true
		l.hold(e.AggregateID, e.ID, e.Broken)
	}
	l.parkedEnd, err = p.open()
	return l, err
}

// mark is what the checkpoint must say of the file.
func (l *lot) mark() *checkpoint.Parked {
	if len(l.waiting) == 0 {
		return nil
	}
	return &checkpoint.Parked{Events: int64(len(l.waiting)), Sum: l.sum}
}

// hold makes later events of the aggregate wait for the one that is parked. Of
// a row whose aggregate could not be read it is not known which those are.
func (l *lot) hold(aggregate, id string, broken bool) {
	if broken && aggregate == "" {
		return
	}
	if _, held := l.held[aggregate]; !held {
		l.held[aggregate] = id
	}
}

// takes tells whether the item is to be parked: it is bad, or an earlier one
// of its aggregate is. A nil lot takes none.
func (l *lot) takes(it *item) bool {
	if l == nil {
		return false
	}
	if bad := it.event.Bad; bad != nil {
		l.hold(it.event.AggregateID, it.event.ID, bad.Broken)
		return true
	}
	_, held := l.held[it.event.AggregateID]
	return held
}

// add writes items and returns, when they are durable, those that are new: one
// that waits there already, from before a crash, is not written again.
func (l *lot) add(items []*item) (fresh []*item, err error) {
	for _, it := range items {
		who := identityOf(it.event)
		if l.waiting[who] {
			continue
		}
		l.waiting[who] = true
		line := newLine(it.event)
		line.ParkedAt = time.Now().UTC()
		if it.event.Bad == nil {
			line.Behind = l.held[it.event.AggregateID]
		}
		if err := l.line(&line); err != nil {
			return nil, err
		}
		fresh = append(fresh, it)
	}
	return fresh, l.sync()
}
