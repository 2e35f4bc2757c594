package relaytest

import (
	"maps"
	"slices"
)

// History is what happened, as each side saw it: the writer what it committed,
// the consumers what they received, the consumers' database what it holds.
type History struct {
	// Committed holds, for each aggregate, its event ids in commit order.
	Committed map[string][]string
	// RolledBack holds the ids that were written and taken back, by ROLLBACK or
	// to a savepoint.
	RolledBack []string
	// Deliveries holds, for each queue, what came out of it, in that order.
	Deliveries map[string][]Delivery
	// Effects counts, for each event id, how often its business effect is in
	// the database at the end. Nil: effects were not looked at.
	Effects map[string]int
}

// Delivery is one message as a consumer received it.
type Delivery struct {
	ID          string // message id
	Aggregate   string // routing key or header aggregate_id
	Sequence    int64  // header sequence
	Redelivered bool   // the broker's flag: the broker sent it again, not the relay
}

// Verdict is what Judge found. Each list holds event ids, in the order in which
// they were found; an empty list is what the relay promises.
type Verdict struct {
	Committed  int // events
	RolledBack int // events
	Delivered  int // committed events that arrived, each counted once
	Deliveries int // messages, all of them
	Duplicates int // messages after the first of their event
	// Redelivered counts those Duplicates that the broker sent again.
	Redelivered int

	Lost         []string // committed, never delivered to their aggregate
	Phantom      []string // delivered, but not committed, or not in that aggregate
	OutOfOrder   []string // first delivered after a later event of their aggregate
	AppliedTwice []string // more than one effect
	Unapplied    []string // delivered, but no effect
	// SequenceFaults holds ids with two sequence numbers, with another id's
	// number, or with one that is not above that of the aggregate's event before.
	SequenceFaults []string
}

// OK reports whether every promise was kept. Duplicates break none.
func (v Verdict) OK() bool {
	return len(v.Lost)+len(v.Phantom)+len(v.OutOfOrder)+len(v.AppliedTwice)+
		len(v.Unapplied)+len(v.SequenceFaults) == 0
}

// Judge compares what was committed with what arrived. It is pure: the same
// history gives the same verdict.
//
// Order is judged by first deliveries, so a duplicate that arrives late (e1 e2
// e1) is none of its faults. An event that never arrived is lost, and leaves
// the events around it in order. Two queues have no order between them: what an
// aggregate has outside the queue of its first delivery is out of order.
func Judge(h History) Verdict {
	j := newJudge(h)
	for _, queue := range slices.Sorted(maps.Keys(h.Deliveries)) {
		for _, d := range h.Deliveries[queue] {
			j.deliver(queue, d)
		}
	}
	j.findLost(h.Committed)
	j.findEffects(h.Effects)
	return j.verdict
}

// place is where an event belongs: its aggregate, and its rank in commit order.
type place struct {
	aggregate string
	rank      int
}

// progress is how far an aggregate's first deliveries have come.
type progress struct {
	queue    string
	rank     int
	sequence int64
}

type judge struct {
	verdict   Verdict
	places    map[string]place    // by committed id
	sequences map[string]int64    // by delivered id: its first sequence number
	owners    map[int64]string    // by sequence number: the id that had it first
	progress  map[string]progress // by aggregate
	faulty    map[string]bool     // ids in SequenceFaults
	delivered map[string]bool     // committed ids that arrived
}

func newJudge(h History) *judge {
	j := &judge{
		places:    make(map[string]place),
		sequences: make(map[string]int64),
		owners:    make(map[int64]string),
		progress:  make(map[string]progress),
		faulty:    make(map[string]bool),
		delivered: make(map[string]bool),
	}
	for aggregate, ids := range h.Committed {
		for rank, id := range ids {
			j.places[id] = place{aggregate, rank}
		}
	}
	j.verdict.Committed = len(j.places)
	j.verdict.RolledBack = len(h.RolledBack)
	return j
}

// deliver takes the next message of a queue.
func (j *judge) deliver(queue string, d Delivery) {
	j.verdict.Deliveries++
	first, again := j.sequences[d.ID]
	if again {
		j.verdict.Duplicates++
		if d.Redelivered {
			j.verdict.Redelivered++
		}
		if d.Sequence != first {
			j.sequenceFault(d.ID)
		}
	} else {
		j.sequences[d.ID] = d.Sequence
	}
	where, committed := j.places[d.ID]
	switch {
	case !committed || where.aggregate != d.Aggregate:
		if !slices.Contains(j.verdict.Phantom, d.ID) {
			j.verdict.Phantom = append(j.verdict.Phantom, d.ID)
		}
	case !j.delivered[d.ID]:
		j.delivered[d.ID] = true
		j.verdict.Delivered++
		j.firstDelivery(queue, where, d)
	}
}

// firstDelivery holds d against the aggregate's first deliveries before it.
func (j *judge) firstDelivery(queue string, where place, d Delivery) {
	if owner, taken := j.owners[d.Sequence]; taken && owner != d.ID {
		j.sequenceFault(d.ID)
	} else {
		j.owners[d.Sequence] = d.ID
	}
	last, begun := j.progress[where.aggregate]
	if !begun {
		j.progress[where.aggregate] = progress{queue, where.rank, d.Sequence}
		return
	}
	if where.rank < last.rank || queue != last.queue {
		j.verdict.OutOfOrder = append(j.verdict.OutOfOrder, d.ID)
	}
	if d.Sequence <= last.sequence {
		j.sequenceFault(d.ID)
	}
	last.rank = max(last.rank, where.rank)
	last.sequence = max(last.sequence, d.Sequence)
	j.progress[where.aggregate] = last
}

func (j *judge) sequenceFault(id string) {
	if !j.faulty[id] {
		j.faulty[id] = true
		j.verdict.SequenceFaults = append(j.verdict.SequenceFaults, id)
	}
}

func (j *judge) findLost(committed map[string][]string) {
	for _, aggregate := range slices.Sorted(maps.Keys(committed)) {
		for _, id := range committed[aggregate] {
			if !j.delivered[id] {
				j.verdict.Lost = append(j.verdict.Lost, id)
			}
		}
	}
}

func (j *judge) findEffects(effects map[string]int) {
	if effects == nil {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(effects)) {
		if effects[id] > 1 {
			j.verdict.AppliedTwice = append(j.verdict.AppliedTwice, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(j.delivered)) {
		if effects[id] == 0 {
			j.verdict.Unapplied = append(j.verdict.Unapplied, id)
		}
	}
}
