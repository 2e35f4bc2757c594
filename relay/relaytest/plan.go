package relaytest

import (
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// order is one row of orders with its outbox row: an event, when it commits.
type order struct {
	id        [16]byte // of the outbox row
	aggregate int64
	payload   []byte
}

// eventID is the id as the relay prints it in message_id: a lower-case UUID.
func (o order) eventID() string {
	h := hex.EncodeToString(o.id[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

// plan is one transaction of the writer, before it runs: the orders that come
// first, those that are undone by ROLLBACK TO SAVEPOINT, those after them.
type plan struct {
	before, undone, after []order
	batch                 bool // many rows in one INSERT, else one by one
	note                  bool // also a row in a table that is not the outbox
	rollback              bool // the whole transaction is taken back
	xa                    bool // it is prepared before that, where XA is allowed
}

// kept returns the orders that a commit leaves in the table, in their order.
func (p plan) kept() []order { return slices.Concat(p.before, p.after) }

// events returns the number of outbox rows that the plan writes.
func (p plan) events() int { return len(p.before) + len(p.undone) + len(p.after) }

// planner makes the plans of one goroutine of the writer. The same seed makes
// the same plans, apart from the time within some ids.
type planner struct {
	random     *rand.Rand
	aggregates []int64 // owned by this goroutine alone
	count      int     // orders made
	zero       bool    // one id is sixteen zero bytes, once
}

// newPlanner is for goroutine number of goroutines, which share out aggregates.
func newPlanner(seed uint64, number, goroutines, aggregates int) *planner {
	p := &planner{random: rand.New(rand.NewPCG(seed, uint64(number))), zero: number == 0}
	for i := number; i < aggregates; i += goroutines {
		p.aggregates = append(p.aggregates, aggregateID(i))
	}
	return p
}

// aggregateID gives aggregate ids that are plain, but for the ends of BIGINT.
func aggregateID(i int) int64 {
	switch i {
	case 1:
		return math.MaxInt64
	case 2:
		return math.MinInt64
	default:
		return 1000 + int64(i)
	}
}

// next makes a plan at time now: of a hundred, 6 take everything back, 8 take
// a part back, 6 write nothing into the outbox, and the others commit.
func (p *planner) next(now time.Time) plan {
	plan := plan{batch: p.random.IntN(2) == 0, note: p.random.IntN(8) == 0}
	switch kind := p.random.IntN(100); {
	case kind < 6:
		plan.before, plan.rollback = p.orders(now), true
	case kind < 14:
		plan.before, plan.undone = p.orders(now), p.orders(now)
		if p.random.IntN(2) == 0 {
			plan.after = p.orders(now)
		}
	case kind < 20:
		plan.note = true
	default:
		plan.before = p.orders(now)
	}
	plan.xa = p.random.IntN(20) == 0 && len(plan.undone) == 0
	return plan
}

// orders makes 1 to 4 orders, half of the time all of one aggregate.
func (p *planner) orders(now time.Time) []order {
	orders := make([]order, 1+p.random.IntN(4))
	aggregate, one := p.aggregate(), p.random.IntN(2) == 0
	for i := range orders {
		if !one {
			aggregate = p.aggregate()
		}
		orders[i] = p.order(now, aggregate)
	}
	return orders
}

func (p *planner) aggregate() int64 { return p.aggregates[p.random.IntN(len(p.aggregates))] }

// payloadMark is in every payload, and must be in no log.
const payloadMark = "Grüße"

func (p *planner) order(now time.Time, aggregate int64) order {
	p.count++
	payload, err := json.Marshal(map[string]any{
		"customer": strconv.FormatInt(aggregate, 10),
		"number":   p.count,
		"amount":   fmt.Sprintf("%d.%02d", p.random.IntN(1000), p.random.IntN(100)),
		"note":     payloadMark + ", 世界 <&>",
	})
	if err != nil {
		panic(err) // strings and an int
	}
	return order{id: p.newID(now), aggregate: aggregate, payload: payload}
}

// newID makes a random id or, half of the time, one that begins with the time,
// as UUIDv7 does. One in eight ends in zero bytes, which row events cut off;
// one in all is nothing but zeros.
func (p *planner) newID(now time.Time) (id [16]byte) {
	for i := range id {
		id[i] = byte(p.random.Uint32())
	}
	if p.random.IntN(2) == 0 {
		millis := now.UnixMilli()
		for i := range 6 {
			id[i] = byte(millis >> (40 - 8*i))
		}
		id[6] = 0x70 | id[6]&0x0f
		id[8] = 0x80 | id[8]&0x3f
	}
	if p.random.IntN(8) == 0 {
		clear(id[16-1-p.random.IntN(4):])
	}
	if p.zero && p.count == 5 {
		p.zero = false
		return [16]byte{}
	}
	return id
}
