package relaytest

import (
	"context"
	"math/rand/v2"
	"syscall"
	"time"
)

// group is what a fault lays hands on: two faults of one round are of two
// groups, so that neither undoes the other.
type group string

// The groups.
const (
	ofRelay      group = "relay"
	ofSource     group = "mysql"
	ofSourceLink group = "mysql link"
	ofBroker     group = "broker"
	ofBrokerLink group = "broker link"
)

// fault is one kind of what a soak does to the relay and around it.
type fault struct {
	name  string
	group group
	// weight is how often it comes in a full turn of all faults.
	weight int
	// breaks tells that a session of the relay can end by it, so that events
	// are sent again.
	breaks bool
	// strike does it, and undoes it: when it returns, all that is needed to
	// relay is there again, or on its way.
	strike func(s *soak, ctx context.Context, random *rand.Rand) error
}

// faults are all kinds.
var faults = []*fault{
	{"relay SIGKILL", ofRelay, 4, true, (*soak).killed},
	{"relay SIGTERM", ofRelay, 2, true, (*soak).terminated},
	{"relay SIGTERM, SIGKILL", ofRelay, 2, true, (*soak).hurried},
	{"large transaction, SIGKILL", ofRelay, 1, true, (*soak).large},
	{"mysql restart", ofSource, 1, true, ends((*soak).mysqlServer, syscall.SIGTERM)},
	{"mysql crash", ofSource, 1, true, ends((*soak).mysqlServer, syscall.SIGKILL)},
	{"mysql dump thread killed", ofSource, 2, true, (*soak).killDump},
	{"mysql FLUSH BINARY LOGS", ofSource, 2, false, (*soak).flushLogs},
	{"mysql link cut", ofSourceLink, 2, true, cut((*soak).mysqlLink)},
	{"mysql link cut after bytes up", ofSourceLink, 1, true, cutAfter((*soak).mysqlLink, Up, 2000)},
	{"mysql link cut after bytes down", ofSourceLink, 2, true, cutAfter((*soak).mysqlLink, Down, 200_000)},
	{"mysql link stalled", ofSourceLink, 2, true, stall((*soak).mysqlLink, Up, Down)},
	{"mysql link half-open up", ofSourceLink, 1, true, stall((*soak).mysqlLink, Up)},
	{"mysql link half-open down", ofSourceLink, 1, true, stall((*soak).mysqlLink, Down)},
	{"mysql link refused", ofSourceLink, 1, true, refuse((*soak).mysqlLink)},
	{"broker restart", ofBroker, 1, true, ends((*soak).brokerServer, syscall.SIGTERM)},
	{"broker crash", ofBroker, 1, true, ends((*soak).brokerServer, syscall.SIGKILL)},
	{"broker closes connections", ofBroker, 2, true, (*soak).closeConnections},
	{"broker memory alarm", ofBroker, 2, true, (*soak).alarm},
	{"broker queue rejects", ofBroker, 2, true, (*soak).reject},
	{"broker link cut", ofBrokerLink, 2, true, cut((*soak).brokerLink)},
	{"broker link cut after bytes up", ofBrokerLink, 2, true, cutAfter((*soak).brokerLink, Up, 200_000)},
	{"broker link cut after bytes down", ofBrokerLink, 2, true, cutAfter((*soak).brokerLink, Down, 10_000)},
	{"broker link stalled", ofBrokerLink, 2, true, stall((*soak).brokerLink, Up, Down)},
	{"broker link half-open up", ofBrokerLink, 1, true, stall((*soak).brokerLink, Up)},
	{"broker link half-open down", ofBrokerLink, 1, true, stall((*soak).brokerLink, Down)},
	{"broker link refused", ofBrokerLink, 1, true, refuse((*soak).brokerLink)},
}

// deck deals faults: every kind comes, by its weight, before any comes again.
type deck struct {
	random *rand.Rand
	cards  []*fault
}

// deal takes the next round's faults: one, or in half of the rounds two. A
// spared group is left out, for later.
func (d *deck) deal(spared group) []*fault {
	hand := []*fault{d.take(spared, "")}
	if d.random.IntN(2) == 0 {
		hand = append(hand, d.take(spared, hand[0].group))
	}
	return hand
}

// take removes the first card that is of neither group.
func (d *deck) take(not ...group) *fault {
	for {
		for i, card := range d.cards {
			if card.group != not[0] && card.group != not[1] {
				d.cards = append(d.cards[:i:i], d.cards[i+1:]...)
				return card
			}
		}
		turn := len(d.cards)
		for _, f := range faults {
			for range f.weight {
				d.cards = append(d.cards, f)
			}
		}
		fresh := d.cards[turn:]
		d.random.Shuffle(len(fresh), func(i, j int) { fresh[i], fresh[j] = fresh[j], fresh[i] })
	}
}

// between draws a time from low to high, high left out.
func between(random *rand.Rand, low, high time.Duration) time.Duration {
	return low + time.Duration(random.Int64N(int64(high-low)))
}

type strike = func(*soak, context.Context, *rand.Rand) error

// cut resets the link once or a few times.
func cut(of func(*soak) *Proxy) strike {
	return func(s *soak, ctx context.Context, random *rand.Rand) error {
		for range 1 + random.IntN(3) {
			of(s).Cut()
			if err := pause(ctx, between(random, 0, 500*time.Millisecond)); err != nil {
				return err
			}
		}
		return nil
	}
}

// cutAfter resets the link after 1 to most bytes in a direction, small numbers
// as likely as large ones; where so much does not pass in time, at once.
func cutAfter(of func(*soak) *Proxy, d Direction, most int) strike {
	return func(s *soak, ctx context.Context, random *rand.Rand) error {
		n := int64(1 + random.IntN(1+random.IntN(most)))
		link := of(s)
		goal := link.Passed(d) + n
		link.CutAfter(d, n)
		limited, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		if poll(limited, func() bool { return link.Passed(d) >= goal }) != nil {
			link.Cut()
		}
		return ctx.Err()
	}
}

// stall holds directions of a link up for 1 to 4 seconds, one time in eight
// for longer than a silence that either client believes in.
func stall(of func(*soak) *Proxy, directions ...Direction) strike {
	return func(s *soak, ctx context.Context, random *rand.Rand) error {
		link, length := of(s), between(random, time.Second, 4*time.Second)
		if random.IntN(8) == 0 {
			length = between(random, 16*time.Second, 20*time.Second)
		}
		for _, d := range directions {
			link.Stall(d)
			defer link.Flow(d)
		}
		return pause(ctx, min(length, s.config.Longest))
	}
}

// refuse cuts a link and refuses new ones for a while.
func refuse(of func(*soak) *Proxy) strike {
	return func(s *soak, ctx context.Context, random *rand.Rand) error {
		of(s).Refuse()
		defer of(s).Accept()
		of(s).Cut()
		return pause(ctx, between(random, 500*time.Millisecond, 2*time.Second))
	}
}

// ends ends a server by a signal and starts it again.
func ends(of func(*soak) *server, signal syscall.Signal) strike {
	return func(s *soak, ctx context.Context, _ *rand.Rand) error { return of(s).again(ctx, signal, func() {}) }
}
