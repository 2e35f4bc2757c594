package relaytest

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// queue writes a queue's history shortly: each delivery has aggregate "A" and
// the sequence number of its id ("e3": 3) unless the case says otherwise.
func queue(deliveries ...Delivery) map[string][]Delivery {
	return map[string][]Delivery{"q.0": deliveries}
}

func got(id string) Delivery {
	return Delivery{ID: id, Aggregate: "A", Sequence: int64(id[len(id)-1] - '0')}
}

func numbered(id string, sequence int64) Delivery {
	return Delivery{ID: id, Aggregate: "A", Sequence: sequence}
}

func redelivered(id string) Delivery {
	d := got(id)
	d.Redelivered = true
	return d
}

func inAggregate(id, aggregate string) Delivery {
	d := got(id)
	d.Aggregate = aggregate
	return d
}

func TestJudge(t *testing.T) {
	three := map[string][]string{"A": {"e1", "e2", "e3"}}
	cases := []struct {
		name    string
		history History
		want    Verdict
		broken  bool
	}{
		{
			name: "nothing happened",
		},
		{
			name:    "all in order",
			history: History{Committed: three, Deliveries: queue(got("e1"), got("e2"), got("e3"))},
			want:    Verdict{Committed: 3, Delivered: 3, Deliveries: 3},
		},
		{
			name:    "nothing arrived",
			history: History{Committed: three},
			want:    Verdict{Committed: 3, Lost: []string{"e1", "e2", "e3"}},
			broken:  true,
		},
		{
			name:    "one lost in the middle leaves the others in order",
			history: History{Committed: three, Deliveries: queue(got("e1"), got("e3"))},
			want:    Verdict{Committed: 3, Delivered: 2, Deliveries: 2, Lost: []string{"e2"}},
			broken:  true,
		},
		{
			name:    "one lost at the end",
			history: History{Committed: three, Deliveries: queue(got("e1"), got("e2"))},
			want:    Verdict{Committed: 3, Delivered: 2, Deliveries: 2, Lost: []string{"e3"}},
			broken:  true,
		},
		{
			name: "phantom: rolled back",
			history: History{Committed: three, RolledBack: []string{"r4"},
				Deliveries: queue(got("e1"), got("e2"), got("r4"), got("e3"))},
			want:   Verdict{Committed: 3, RolledBack: 1, Delivered: 3, Deliveries: 4, Phantom: []string{"r4"}},
			broken: true,
		},
		{
			name: "rolled back and not delivered is fine",
			history: History{Committed: three, RolledBack: []string{"r4"},
				Deliveries: queue(got("e1"), got("e2"), got("e3"))},
			want: Verdict{Committed: 3, RolledBack: 1, Delivered: 3, Deliveries: 3},
		},
		{
			name:    "phantom: never written, twice counted once",
			history: History{Deliveries: queue(got("x1"), got("x1"))},
			want:    Verdict{Deliveries: 2, Duplicates: 1, Phantom: []string{"x1"}},
			broken:  true,
		},
		{
			name: "phantom: wrong aggregate, and lost where it belongs",
			history: History{Committed: map[string][]string{"A": {"e1"}, "B": {"e2"}},
				Deliveries: queue(got("e1"), got("e2"))},
			want: Verdict{Committed: 2, Delivered: 1, Deliveries: 2,
				Phantom: []string{"e2"}, Lost: []string{"e2"}},
			broken: true,
		},
		{
			name:    "two swapped",
			history: History{Committed: three, Deliveries: queue(numbered("e1", 1), numbered("e3", 2), numbered("e2", 3))},
			want:    Verdict{Committed: 3, Delivered: 3, Deliveries: 3, OutOfOrder: []string{"e2"}},
			broken:  true,
		},
		{
			name:    "two swapped, and their sequence with them",
			history: History{Committed: three, Deliveries: queue(got("e1"), got("e3"), got("e2"))},
			want: Verdict{Committed: 3, Delivered: 3, Deliveries: 3,
				OutOfOrder: []string{"e2"}, SequenceFaults: []string{"e2"}},
			broken: true,
		},
		{
			name:    "swapped, then sent again in order: the first deliveries count",
			history: History{Committed: three, Deliveries: queue(got("e2"), got("e1"), got("e2"), got("e3"))},
			want: Verdict{Committed: 3, Delivered: 3, Deliveries: 4, Duplicates: 1,
				OutOfOrder: []string{"e1"}, SequenceFaults: []string{"e1"}},
			broken: true,
		},
		{
			name:    "a late event after two later ones is one fault",
			history: History{Committed: three, Deliveries: queue(numbered("e2", 1), numbered("e3", 2), numbered("e1", 3))},
			want:    Verdict{Committed: 3, Delivered: 3, Deliveries: 3, OutOfOrder: []string{"e1"}},
			broken:  true,
		},
		{
			name: "aggregates that interleave are in order",
			history: History{Committed: map[string][]string{"A": {"e1", "e4"}, "B": {"e2", "e3"}},
				Deliveries: queue(inAggregate("e2", "B"), got("e1"), got("e4"), inAggregate("e3", "B"))},
			want: Verdict{Committed: 4, Delivered: 4, Deliveries: 4},
		},
		{
			name: "one aggregate in two queues has no order",
			history: History{Committed: three, Deliveries: map[string][]Delivery{
				"q.0": {got("e1"), got("e2")}, "q.1": {got("e3")}}},
			want:   Verdict{Committed: 3, Delivered: 3, Deliveries: 3, OutOfOrder: []string{"e3"}},
			broken: true,
		},
		{
			name:    "a duplicate is fine",
			history: History{Committed: three, Deliveries: queue(got("e1"), got("e2"), got("e2"), got("e3"))},
			want:    Verdict{Committed: 3, Delivered: 3, Deliveries: 4, Duplicates: 1},
		},
		{
			name:    "a duplicate that arrives late is fine",
			history: History{Committed: three, Deliveries: queue(got("e1"), got("e2"), got("e1"), got("e3"))},
			want:    Verdict{Committed: 3, Delivered: 3, Deliveries: 4, Duplicates: 1},
		},
		{
			name: "a duplicate by the broker is told apart",
			history: History{Committed: three,
				Deliveries: queue(got("e1"), redelivered("e1"), got("e2"), redelivered("e3"))},
			want: Verdict{Committed: 3, Delivered: 3, Deliveries: 4, Duplicates: 1, Redelivered: 1},
		},
		{
			name: "each effect once",
			history: History{Committed: three, Deliveries: queue(got("e1"), got("e2"), got("e3")),
				Effects: map[string]int{"e1": 1, "e2": 1, "e3": 1}},
			want: Verdict{Committed: 3, Delivered: 3, Deliveries: 3},
		},
		{
			name: "an effect applied twice",
			history: History{Committed: three, Deliveries: queue(got("e1"), got("e1"), got("e2"), got("e3")),
				Effects: map[string]int{"e1": 2, "e2": 1, "e3": 1}},
			want: Verdict{Committed: 3, Delivered: 3, Deliveries: 4, Duplicates: 1,
				AppliedTwice: []string{"e1"}},
			broken: true,
		},
		{
			name: "an effect that is missing",
			history: History{Committed: three, Deliveries: queue(got("e1"), got("e2"), got("e3")),
				Effects: map[string]int{"e1": 1, "e3": 1}},
			want:   Verdict{Committed: 3, Delivered: 3, Deliveries: 3, Unapplied: []string{"e2"}},
			broken: true,
		},
		{
			name: "one id with two sequence numbers",
			history: History{Committed: three,
				Deliveries: queue(got("e1"), numbered("e1", 9), numbered("e1", 8), got("e2"), got("e3"))},
			want: Verdict{Committed: 3, Delivered: 3, Deliveries: 5, Duplicates: 2,
				SequenceFaults: []string{"e1"}},
			broken: true,
		},
		{
			name: "a sequence that does not grow in the aggregate",
			history: History{Committed: three,
				Deliveries: queue(numbered("e1", 5), numbered("e2", 4), numbered("e3", 6))},
			want:   Verdict{Committed: 3, Delivered: 3, Deliveries: 3, SequenceFaults: []string{"e2"}},
			broken: true,
		},
		{
			name: "one sequence number for two events of two aggregates",
			history: History{Committed: map[string][]string{"A": {"e1"}, "B": {"e2"}},
				Deliveries: queue(got("e1"), Delivery{ID: "e2", Aggregate: "B", Sequence: 1})},
			want:   Verdict{Committed: 2, Delivered: 2, Deliveries: 2, SequenceFaults: []string{"e2"}},
			broken: true,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			verdict := Judge(c.history)
			if diff := cmp.Diff(c.want, verdict); diff != "" {
				t.Errorf("verdict (-want +got):\n%s", diff)
			}
			if verdict.OK() == c.broken {
				t.Errorf("OK() = %v, want %v", verdict.OK(), !c.broken)
			}
		})
	}
}
