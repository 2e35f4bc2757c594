package relaytest

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// deal deals rounds, and returns the names of their faults.
func deal(seed uint64, rounds int, spared group) [][]string {
	d := deck{random: rand.New(rand.NewPCG(seed, 0))}
	var names [][]string
	for range rounds {
		var round []string
		for _, f := range d.deal(spared) {
			round = append(round, f.name)
		}
		names = append(names, round)
	}
	return names
}

func TestDeckRepeatsBySeed(t *testing.T) {
	if diff := cmp.Diff(deal(1, 50, ""), deal(1, 50, "")); diff != "" {
		t.Errorf("the same seed deals other faults:\n%s", diff)
	}
	if cmp.Equal(deal(1, 50, ""), deal(2, 50, "")) {
		t.Error("another seed deals the same faults")
	}
}

// TestDeckDealsEveryFault fails when a kind is drawn at random, or a second
// card's group is not looked at.
func TestDeckDealsEveryFault(t *testing.T) {
	groups, turn := map[string]group{}, 0
	for _, f := range faults {
		if groups[f.name] != "" {
			t.Errorf("two faults are named %q", f.name)
		}
		groups[f.name] = f.group
		turn += f.weight
	}
	counts, pairs := map[string]int{}, 0
	for _, round := range deal(3, 10*turn, "") {
		for _, name := range round {
			counts[name]++
		}
		if len(round) == 2 {
			pairs++
			if groups[round[0]] == groups[round[1]] {
				t.Errorf("%q come together", round)
			}
		}
	}
	for _, f := range faults {
		// Ten turns of rounds, and half as many second faults.
		if got, want := counts[f.name], 10*f.weight*3/2; got < want-2*f.weight || got > want+2*f.weight {
			t.Errorf("%q came %d times, want about %d", f.name, got, want)
		}
	}
	if pairs < 4*turn || pairs > 6*turn {
		t.Errorf("%d of %d rounds have two faults, want half", pairs, 10*turn)
	}
}

func TestDeckSpares(t *testing.T) {
	for _, round := range deal(4, 200, ofRelay) {
		if slices.Contains(round, "relay SIGKILL") || slices.Contains(round, "relay SIGTERM") {
			t.Fatalf("the relay was not spared: %q", round)
		}
	}
}
