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

// lanes keeps the events of one aggregate behind each other. It is used by
// one goroutine.
type lanes struct {
	order Order
	// waiting holds, for each aggregate with an event on its way, those
	// behind it.
	waiting map[string][]*item
}

func newLanes(order Order) *lanes {
	return &lanes{order: order, waiting: map[string][]*item{}}
}

// enter tells whether the item may be sent now; else it waits in its lane.
func (l *lanes) enter(it *item) bool {
	if l.order == Pipelined {
		return true
	}
	lane, busy := l.waiting[it.event.AggregateID]
	if busy {
		lane = append(lane, it)
	}
	l.waiting[it.event.AggregateID] = lane
	return !busy
}

// drop gives an item's lane up and returns what waited in it.
func (l *lanes) drop(it *item) []*item {
	lane := l.waiting[it.event.AggregateID]
	delete(l.waiting, it.event.AggregateID)
	return lane
}

// leave takes a confirmed item out and returns the next of its aggregate,
// which may be sent now; nil where there is none.
func (l *lanes) leave(it *item) *item {
	if l.order == Pipelined {
		return nil
	}
	lane := l.waiting[it.event.AggregateID]
	if len(lane) == 0 {
		delete(l.waiting, it.event.AggregateID)
		return nil
	}
	l.waiting[it.event.AggregateID] = lane[1:]
	return lane[0]
}
