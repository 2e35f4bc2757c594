package relay

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
)

// seed is that of RELAY_TEST_SEED, else a new one; the test's log names it.
func seed(t *testing.T) uint64 {
	t.Helper()
	seed := rand.Uint64N(1e9)
	if text := os.Getenv("RELAY_TEST_SEED"); text != "" {
		given, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("RELAY_TEST_SEED=%q is not a number", text)
		}
		seed = given
	}
	t.Logf("to repeat: RELAY_TEST_SEED=%d go test -run '^%s$' ./relay", seed, t.Name())
	return seed
}

// history makes random transactions: foreign ones, small ones, large ones in
// parts, distributed ones.
func history(random *rand.Rand, n int) []*binlog.Tx {
	var list []*binlog.Tx
	number, id := int64(0), 0
	ids := func(n int) []string {
		made := make([]string, n)
		for i := range made {
			id++
			made[i] = fmt.Sprintf("%d-%d", random.IntN(4), id)
		}
		return made
	}
	for range n {
		number++
		switch random.IntN(4) {
		case 0:
			list = append(list, whole(number))
		case 1:
			for range 1 + random.IntN(3) {
				list = append(list, part(number, false, ids(1+random.IntN(4))...))
			}
			list = append(list, whole(number, ids(random.IntN(3))...))
		case 2:
			number++
			tx := whole(number, ids(1+random.IntN(2))...)
			tx.Prepared = gtid(number - 1)
			list = append(list, tx)
		default:
			list = append(list, whole(number, ids(1+random.IntN(3))...))
		}
	}
	return list
}

// model runs a ledger against what it must keep.
type model struct {
	t        *testing.T
	random   *rand.Rand
	log      []*binlog.Tx
	settled  map[string]bool
	sequence map[string]int64 // by event, as first given
	sent     map[string]int
	order    []string // events, as first admitted
	again    int      // sent again, in all
	allowed  int      // admitted and not saved at the crashes
}

// life is one life of a relay, from the saved state to a crash at a random
// step; or, with no crash, to the end of the log.
func (m *model) life(saved checkpoint.State, steps int) checkpoint.State {
	l := mustLedger(m.t, saved)
	var flying []*item
	rest := remaining(m.t, m.log, l.position)
	next := 0
	unsaved := map[string]bool{} // sent in this life, and not covered by what is saved
	for step := 0; steps < 0 || step < steps; step++ {
		switch action := m.random.IntN(5); {
		case action < 2 && len(rest) > 0 && len(flying) < 12:
			if tx := rest[0]; next < len(tx.Events) {
				if it := l.admit(tx, next); it != nil {
					m.admitted(it)
					flying = append(flying, it)
					unsaved[it.event.ID] = true
				}
				next++
			} else {
				l.finish(tx)
				rest, next = rest[1:], 0
			}
		case action < 4 && len(flying) > 0:
			i := m.random.IntN(len(flying))
			m.settled[flying[i].event.ID] = true
			l.settle(flying[i])
			flying = slices.Delete(flying, i, i+1)
		case action == 4:
			saved = l.snapshot()
			m.check(saved)
			for id := range unsaved {
				if m.sequence[id] <= saved.Sequence {
					delete(unsaved, id)
				}
			}
		}
		if len(rest) == 0 && len(flying) == 0 {
			return l.snapshot()
		}
	}
	m.allowed += len(unsaved)
	return saved
}

func (m *model) admitted(it *item) {
	id := it.event.ID
	m.sent[id]++
	if m.sent[id] > 1 {
		m.again++
	} else {
		m.order = append(m.order, id)
	}
	if before, known := m.sequence[id]; known && before != it.event.Sequence {
		m.t.Errorf("event %s had sequence %d, and now has %d", id, before, it.event.Sequence)
	}
	m.sequence[id] = it.event.Sequence
}

// check holds a state that could stand on disk against what is settled.
func (m *model) check(state checkpoint.State) {
	m.t.Helper()
	position, err := binlog.ParseGTIDSet(state.GTIDSet)
	if err != nil {
		m.t.Fatal(err)
	}
	before := map[binlog.GTID]int64{}
	for _, tx := range m.log {
		for _, e := range tx.Events {
			before[tx.GTID]++
			covered := contains(m.t, position, tx.GTID) ||
				state.Partial != nil && state.Partial.GTID == tx.GTID.String() && before[tx.GTID] <= state.Partial.Events
			if covered && !m.settled[e.ID] {
				m.t.Errorf("the state %+v covers event %s of %s, which is not settled", state, e.ID, tx.GTID)
			}
		}
	}
}

func contains(t *testing.T, position *binlog.GTIDSet, g binlog.GTID) bool {
	t.Helper()
	one, err := binlog.ParseGTIDSet(g.String())
	if err != nil {
		t.Fatal(err)
	}
	return position.Contains(one)
}

// remaining is what a server sends to who has the position.
func remaining(t *testing.T, log []*binlog.Tx, position *binlog.GTIDSet) []*binlog.Tx {
	var rest []*binlog.Tx
	for _, tx := range log {
		if !contains(t, position, tx.GTID) {
			rest = append(rest, tx)
		}
	}
	return rest
}

// TestLedgerModel crashes relays at random: nothing is lost, what is sent again
// was admitted and not saved, and each event keeps its number.
func TestLedgerModel(t *testing.T) {
	random := rand.New(rand.NewPCG(seed(t), 0))
	again := 0
	for round := range 300 {
		m := &model{t: t, random: random, log: history(random, 1+random.IntN(12)), settled: map[string]bool{}, sequence: map[string]int64{}, sent: map[string]int{}}
		saved := checkpoint.State{Flavor: "mysql", Table: "shop.outbox"}
		for range 4 {
			saved = m.life(saved, random.IntN(60))
			m.check(saved)
		}
		saved = m.life(saved, -1)
		m.check(saved)
		var want []string
		for _, tx := range m.log {
			for _, e := range tx.Events {
				want = append(want, e.ID)
				if !m.settled[e.ID] {
					t.Errorf("event %s is lost", e.ID)
				}
				if got := m.sequence[e.ID]; got != int64(len(want)) {
					t.Errorf("event %d in commit order has sequence %d", len(want), got)
				}
			}
			if position, _ := binlog.ParseGTIDSet(saved.GTIDSet); !contains(t, position, tx.GTID) {
				t.Errorf("transaction %s is not covered at the end: %s", tx.GTID, saved.GTIDSet)
			}
		}
		if !slices.Equal(m.order, want) {
			t.Errorf("events were first sent in the order %v, committed in %v", m.order, want)
		}
		if m.again > m.allowed {
			t.Errorf("%d events were sent again, %d were admitted and not saved at the crashes", m.again, m.allowed)
		}
		if saved.Partial != nil {
			t.Errorf("at the end a transaction is settled in part: %+v", saved.Partial)
		}
		again += m.again
		if t.Failed() {
			t.Fatalf("in round %d", round)
		}
	}
	if again < 100 {
		t.Errorf("only %d events were sent again: the crashes prove nothing", again)
	}
}
