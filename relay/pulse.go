package relay

import (
	"fmt"
	"sync/atomic"
	"time"
)

const (
	// loopLimit is how long the session's loop, which comes round four times a
	// second, may stand still.
	loopLimit = 30 * time.Second
	// readLimit is how long the reader may be at what it has got, without waiting
	// for more or for the session.
	readLimit = time.Minute
	// connectLimit is how long a relay that connects may get no answer at all:
	// each question to a server has a shorter limit of its own.
	connectLimit = 5 * time.Minute
)

// pulse tells whether the relay gets on. The two loops of a session, that which
// reads and that which publishes and settles, leave in it when they last did
// something. Its methods may be called by many goroutines; a nil pulse is of
// nobody's interest.
type pulse struct {
	loop    atomic.Int64 // unix time in nanoseconds when the session's loop last came round
	read    atomic.Int64 // when the reader last got something, or could hand it over
	handing atomic.Bool  // the reader waits for the session to take what it has
	waiting atomic.Int32 // connections on which the server is waited for: they have limits of their own
	running atomic.Bool  // a session is; else the relay connects, or waits to
}

// newPulse is one of a relay that begins now.
func newPulse() *pulse {
	p := new(pulse)
	p.run(false)
	return p
}

// turn: the session's loop came round.
func (p *pulse) turn() {
	if p != nil {
		p.loop.Store(time.Now().UnixNano())
	}
}

// hand: the reader has something for the session, or no longer.
func (p *pulse) hand(over bool) {
	if p != nil {
		p.read.Store(time.Now().UnixNano())
		p.handing.Store(over)
	}
}

// server: the server is waited for, or no longer.
func (p *pulse) server(waiting bool) {
	change := int32(-1)
	if waiting {
		change = 1
	}
	p.read.Store(time.Now().UnixNano())
	p.waiting.Add(change)
}

// run: a session begins to run, or ends; either is a step.
func (p *pulse) run(running bool) {
	if p != nil {
		p.turn()
		p.hand(false)
		p.running.Store(running)
	}
}

// stalled tells what has not moved for too long; empty: nothing.
func (p *pulse) stalled(now time.Time) string {
	loop, read := now.Sub(time.Unix(0, p.loop.Load())), now.Sub(time.Unix(0, p.read.Load()))
	switch {
	case !p.running.Load():
		if idle := min(loop, read); idle > connectLimit && p.waiting.Load() == 0 {
			return fmt.Sprintf("connecting has not moved for %s", idle.Round(time.Second))
		}
	case loop > loopLimit:
		return fmt.Sprintf("the loop that publishes and settles has not moved for %s", loop.Round(time.Second))
	case read > readLimit && !p.handing.Load() && p.waiting.Load() == 0:
		return fmt.Sprintf("the loop that reads the log has not moved for %s", read.Round(time.Second))
	}
	return ""
}
