package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// window is the relay's default.
const window = 4096

// figures are what one run came to.
type figures struct {
	rate float64 // events/s
	cpu  float64 // µs/event
}

func figuresOf(events int, took, cpu time.Duration) figures {
	return figures{float64(events) / took.Seconds(), float64(cpu.Microseconds()) / float64(events)}
}

// between is what a relay came to from one reading to a later one.
func between(first, last reading) figures {
	return figuresOf(int(last.confirmed-first.confirmed), last.after-first.after, last.cpu-first.cpu)
}

// A drainCase is measured in pairs: the relay, and a publisher with the relay's
// messages in its hands.
type drainCase struct {
	load     load
	messages string // path of what the relay published
	queues   queues
	channels int // of the raw publisher: its best
	events   int
	flags    []string
	name     string
	goals    bool
	note     string
}

// drain measures how fast committed rows come to the queues, and what that
// costs: it fills the sections drain and cpu.
func drain(ctx context.Context, b *bench) error {
	quorum, classic := b.queues(false), b.queues(true)
	loads := map[int]load{}
	recorded := map[int]string{}
	var err error
	for _, perTx := range []int{1, 10, 1000} {
		if loads[perTx], err = b.load(ctx, perTx, false); err != nil {
			return err
		}
		if recorded[perTx], err = b.record(ctx, loads[perTx], quorum); err != nil {
			return err
		}
	}
	hot, err := b.load(ctx, 10, true)
	if err != nil {
		return err
	}
	hotMessages, err := b.record(ctx, hot, quorum, "--order", "pipelined")
	if err != nil {
		return err
	}
	best, err := b.bestChannels(ctx, quorum, recorded[10])
	if err != nil {
		return err
	}
	bestClassic, err := b.bestChannels(ctx, classic, recorded[10])
	if err != nil {
		return err
	}
	bestHot, err := b.bestChannels(ctx, quorum, hotMessages)
	if err != nil {
		return err
	}
	var cases []drainCase
	for _, perTx := range []int{1, 10, 1000} {
		cases = append(cases, drainCase{load: loads[perTx], messages: recorded[perTx], queues: quorum, channels: best,
			events: b.events, name: loads[perTx].name, goals: true})
	}
	cases = append(cases,
		drainCase{load: loads[10], messages: recorded[10], queues: classic, channels: bestClassic, events: b.events,
			name: loads[10].name, goals: true},
		drainCase{load: hot, messages: hotMessages, queues: quorum, channels: bestHot, events: b.events,
			flags: []string{"--order", "pipelined"}, name: "one hot aggregate, --order pipelined",
			note: "half of the events are of one aggregate; transactions of 10"},
		drainCase{load: hot, messages: hotMessages, queues: quorum, channels: bestHot, events: b.events / 10,
			name: "one hot aggregate, strict",
			note: fmt.Sprintf("the first %s events of the same; by contract an event waits for the confirm of the one before it of its aggregate, so half of them go one by one, and the publisher beside it does not wait",
				figure(float64(b.events/10)))})
	var spent []result
	for _, c := range cases {
		speed, cost, err := b.drainPairs(ctx, c)
		if err != nil {
			return fmt.Errorf("%s, %s: %w", c.queues.kind(), c.name, err)
		}
		if c.name == loads[10].name && !c.queues.classic {
			b.drainRate = median(speed.Relay)
		}
		b.add(speed)
		spent = append(spent, cost)
	}
	for _, cost := range spent {
		b.add(cost)
	}
	return nil
}

// drainPairs measures a case.
func (b *bench) drainPairs(ctx context.Context, c drainCase) (speed, cost result, err error) {
	name := c.queues.kind() + ", " + c.name
	against := "raw publisher, " + counted(c.channels, "channel")
	speed = result{Section: "drain", Case: name, Unit: "events/s", Against: against, Note: c.note}
	cost = result{Section: "cpu", Case: name, Unit: "µs/event", Against: against}
	if c.goals {
		speed.Goal, cost.Goal = atLeast(ofRatio, 0.95), atMost(ofRatio, 1.3)
	}
	err = b.pairs(ctx, func(ctx context.Context) error {
		f, err := b.drainOnce(ctx, c.load, c.queues, c.events, c.flags...)
		speed.Relay, cost.Relay = append(speed.Relay, f.rate), append(cost.Relay, f.cpu)
		return err
	}, func(ctx context.Context) error {
		f, err := b.rawOnce(ctx, c.messages, c.queues, c.events, c.channels)
		speed.Reference, cost.Reference = append(speed.Reference, f.rate), append(cost.Reference, f.cpu)
		return err
	})
	if err == nil && b.profile != "" {
		err = b.profileDrain(ctx, c)
	}
	return speed, cost, err
}

// drainOnce drains the first n events of a load into queues that are made anew.
func (b *bench) drainOnce(ctx context.Context, l load, q queues, n int, flags ...string) (figures, error) {
	if err := q.renew(); err != nil {
		return figures{}, err
	}
	place, err := l.begin(b.dir)
	if err != nil {
		return figures{}, err
	}
	p, err := b.runRelay(l.dsn, q.broker, place, append(q.flags(), flags...)...)
	if err != nil {
		return figures{}, err
	}
	end, err := p.await(ctx, n)
	if stopped := p.stop(); err == nil {
		err = stopped
	}
	if err == nil {
		err = q.hold(ctx, n)
	}
	return figuresOf(n, end.after, end.cpu), err
}

// rawOnce publishes the first n messages into queues that are made anew.
func (b *bench) rawOnce(ctx context.Context, messages string, q queues, n, channels int) (figures, error) {
	if err := q.renew(); err != nil {
		return figures{}, err
	}
	done, err := b.raw(ctx, rawJob{Broker: q.broker, Exchange: q.exchange, Messages: messages, Count: n, Channels: channels, Window: window})
	if err == nil {
		err = q.hold(ctx, n)
	}
	return figuresOf(n, done.Took, done.CPU), err
}

// record drains a load once, and keeps the messages that came of it.
func (b *bench) record(ctx context.Context, l load, q queues, flags ...string) (path string, err error) {
	f, err := b.drainOnce(ctx, l, q, l.events, flags...)
	if err != nil {
		return "", err
	}
	path = filepath.Join(b.dir, freshName()+".messages")
	if err := q.record(ctx, l.events, path); err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err == nil {
		b.log.Printf("  %s drained once at %s events/s; its messages take %s MB", l.name, figure(f.rate), figure(float64(info.Size())/1e6))
	}
	return path, err
}

// bestChannels finds with how many channels the raw publisher is fastest, by two
// tries of each number with a quarter of the messages.
func (b *bench) bestChannels(ctx context.Context, q queues, messages string) (best int, err error) {
	fastest := 0.0
	for range 2 {
		for _, n := range []int{1, 2, 4, 8} {
			f, err := b.rawOnce(ctx, messages, q, b.events/4, n)
			if err != nil {
				return 0, err
			}
			b.log.Printf("  raw publisher, %s, %d channels: %s events/s, %s µs/event", q.kind(), n, figure(f.rate), figure(f.cpu))
			if f.rate > fastest {
				best, fastest = n, f.rate
			}
		}
	}
	return best, nil
}

// profileDrain drains once more, for a profile, which no figure is taken of.
func (b *bench) profileDrain(ctx context.Context, c drainCase) error {
	if err := c.queues.renew(); err != nil {
		return err
	}
	return b.profileRun(ctx, "drain "+c.queues.kind()+" "+c.name, c.load, c.queues.broker, 15, append(c.queues.flags(), c.flags...))
}
