package cli_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// TestLinkSilent: the link to the broker says nothing for longer than the
// heartbeats allow, in both directions or in one. The relay takes it for lost,
// says so, and goes on when it is there again. The three wait at the same time.
// Seen to fail with heartbeats off in exchange's connect, stalled and half-open
// up: the relay waits for ever.
func TestLinkSilent(t *testing.T) {
	t.Parallel()
	type silence struct {
		name       string
		directions []relaytest.Direction
		trial      *trial
		proxy      proxy
	}
	silences := []*silence{
		{name: "stalled", directions: []relaytest.Direction{relaytest.Up, relaytest.Down}},
		{name: "half-open down", directions: []relaytest.Direction{relaytest.Down}},
		{name: "half-open up", directions: []relaytest.Direction{relaytest.Up}},
	}
	for _, s := range silences {
		r := newRig(t)
		s.proxy = r.toBroker()
		s.trial = r.try(2)
		stop := s.trial.load()
		s.trial.flows()
		for _, d := range s.directions {
			s.proxy.Stall(d)
		}
		s.trial.overfills(stop)
	}
	for _, s := range silences {
		t.Run(s.name, func(t *testing.T) {
			f := s.trial
			parent := f.t
			f.t = t
			defer func() { f.t = parent }()
			f.until("it gives the link up", func() bool { return f.reconnects() >= 1 && f.metric("relay_broker_connected") == 0 })
			f.unready("amqp://" + s.proxy.Addr())
			for _, d := range s.directions {
				s.proxy.Flow(d)
			}
			f.judge(toll{cuts: 1, warnings: 5})
		})
	}
}

// TestLinkCut cuts the link to the broker after a seeded number of bytes, in
// the handshake, in the declarations and while events are published. No cut is
// taken for a refusal: the relay goes on after each. Seen to fail with
// handshakeError believing amqp.ErrCredentials: a cut in the handshake ends the
// relay with 78.
func TestLinkCut(t *testing.T) {
	t.Parallel()
	for name, d := range map[string]relaytest.Direction{"up": relaytest.Up, "down": relaytest.Down} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seed := rand.Uint64()
			random := rand.New(rand.NewPCG(seed, 0))
			r := newRig(t)
			p := r.toBroker()
			f := r.try(2)
			toReady := p.Passed(d)
			var offsets []int64
			for range 4 {
				offsets = append(offsets, 1+random.Int64N(toReady))
			}
			for range 2 {
				offsets = append(offsets, toReady+random.Int64N(4000))
			}
			random.Shuffle(len(offsets), func(i, j int) { offsets[i], offsets[j] = offsets[j], offsets[i] })
			t.Logf("seed %d: ready after %d bytes, cut after %v", seed, toReady, offsets)
			stop := f.load()
			f.flows()
			p.Cut()
			for i, offset := range offsets {
				f.until("the cut is noticed", func() bool { return f.reconnects() > float64(i) })
				p.CutAfter(d, offset) // of the next connection, which comes after a wait
			}
			f.until("the last cut is noticed", func() bool { return f.reconnects() > float64(len(offsets)) })
			stop()
			f.judge(toll{cuts: len(offsets) + 1, warnings: len(offsets) + 1})
			if slices.Max(offsets) <= toReady {
				t.Errorf("no cut while events are published: %v", offsets)
			}
		})
	}
}
