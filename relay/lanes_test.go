package relay

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

func items(ids ...string) []*item {
	var list []*item
	for _, id := range ids {
		list = append(list, carrying(event(id)))
	}
	return list
}

func TestLanesStrict(t *testing.T) {
	l := newLanes(Strict)
	it := items("a-1", "a-2", "b-1", "a-3")
	for i, want := range []bool{true, false, true, false} {
		if got := l.enter(it[i]); got != want {
			t.Errorf("enter(%s) = %v, want %v", it[i].event.ID, got, want)
		}
	}
	for _, step := range []struct{ leaves, next *item }{{it[2], nil}, {it[0], it[1]}, {it[1], it[3]}, {it[3], nil}} {
		if got := l.leave(step.leaves); got != step.next {
			t.Errorf("leave(%s) = %v, want %v", step.leaves.event.ID, got, step.next)
		}
	}
	if len(l.last) != 0 {
		t.Errorf("%d lanes are kept although nothing is on its way", len(l.last))
	}
	if !l.enter(it[0]) {
		t.Error("a lane that was emptied lets nothing in")
	}
}

func TestLanesPipelined(t *testing.T) {
	l := newLanes(Pipelined)
	for _, it := range items("a-1", "a-2", "b-1") {
		if !l.enter(it) {
			t.Errorf("enter(%s) = false in a pipelined relay", it.event.ID)
		}
	}
	for _, it := range items("a-1", "a-2", "b-1") {
		if next := l.leave(it); next != nil {
			t.Errorf("leave(%s) = %s: it was sent already", it.event.ID, next.event.ID)
		}
	}
}

// TestLanesModel enters and leaves at random: never are two of one aggregate on
// their way, and each aggregate's order is kept.
func TestLanesModel(t *testing.T) {
	random := rand.New(rand.NewPCG(seed(t), 1))
	l := newLanes(Strict)
	var flying []*item
	sent := map[string][]string{}
	entered := map[string][]string{}
	send := func(it *item) {
		for _, other := range flying {
			if other.event.AggregateID == it.event.AggregateID {
				t.Fatalf("%s and %s are on their way at the same time", other.event.ID, it.event.ID)
			}
		}
		flying = append(flying, it)
		sent[it.event.AggregateID] = append(sent[it.event.AggregateID], it.event.ID)
	}
	for n := 0; n < 5000 || len(flying) > 0; n++ {
		if n < 5000 && random.IntN(2) == 0 {
			it := items(fmt.Sprintf("%d-%d", random.IntN(5), n))[0]
			entered[it.event.AggregateID] = append(entered[it.event.AggregateID], it.event.ID)
			if l.enter(it) {
				send(it)
			}
		} else if len(flying) > 0 {
			i := random.IntN(len(flying))
			left := flying[i]
			flying = slices.Delete(flying, i, i+1)
			if next := l.leave(left); next != nil {
				send(next)
			}
		}
	}
	for aggregate, want := range entered {
		if !slices.Equal(sent[aggregate], want) {
			t.Errorf("aggregate %s: %d events came in, and %d went out, or in another order", aggregate, len(want), len(sent[aggregate]))
		}
	}
}
