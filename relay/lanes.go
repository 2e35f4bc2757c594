package relay

// Order is how far events wait for each other.
type Order string

// The orders.
const (
	// Strict sends an event only after the one before it of the same
	// aggregate is confirmed, so that no refusal can let a later one pass.
	Strict Order = "strict"
	// Pipelined sends everything in commit order without that wait. An event
	// that the broker refuses is sent again behind later ones.
	Pipelined Order = "pipelined"
)

// strictChannels is how many channels a relay in strict order publishes on.
const strictChannels = 4

// lanes keeps the events of one aggregate behind each other. It is used by
// one goroutine.
type lanes struct {
	order Order
	// last holds, for each aggregate with an event on its way, the last of its
	// lane: the one on its way, or that which waits behind all others.
	last map[string]*item
}

func newLanes(order Order) *lanes {
	return &lanes{order: order, last: map[string]*item{}}
}

// enter tells whether the item may be sent now; else it waits in its lane.
func (l *lanes) enter(it *item) bool {
	if l.order == Pipelined {
		return true
	}
	last, busy := l.last[it.event.AggregateID]
	if busy {
		last.behind = it
	}
	l.last[it.event.AggregateID] = it
	return !busy
}

// drop gives an item's lane up and returns what waited in it.
func (l *lanes) drop(it *item) (waited []*item) {
	for next := it.behind; next != nil; next = next.behind {
		waited = append(waited, next)
	}
	delete(l.last, it.event.AggregateID)
	return waited
}

// leave takes a confirmed item out and returns the next of its aggregate,
// which may be sent now; nil where there is none.
func (l *lanes) leave(it *item) *item {
	if l.order == Pipelined {
		return nil
	}
	if it.behind == nil {
		delete(l.last, it.event.AggregateID)
	}
	return it.behind
}
