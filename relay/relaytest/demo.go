package relaytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// stallLimit is how long the deliveries may stand still, with events to come,
// before the demo gives up on them.
const stallLimit = 60 * time.Second

// DemoConfig says what a demo plays.
type DemoConfig struct {
	// Relay is the path of the relay's binary. Required.
	Relay string
	// Seed of what is written and of the moments of the kills. Defaults to 0.
	Seed uint64
	// Duration of the load, from the first delivery on. Defaults to 25s.
	Duration time.Duration
	// Kills of the relay within Duration. Defaults to 0.
	Kills int
	// Graceful ends the relay by SIGTERM instead of SIGKILL, and wants exit
	// code 0 each time. Defaults to false.
	Graceful bool
	// Backlog is the number of events in the table before the relay is
	// started, for its backfill. Defaults to 1.
	Backlog int
	// MySQL is the root DSN of the server. Defaults to the test server.
	MySQL string
	// Broker is the URL of the broker. Defaults to the test broker.
	Broker string
	// Dir is for checkpoint and log, and exists. Defaults to a fresh one.
	Dir string
	// XA makes some of the transactions distributed ones once the relay
	// follows the log: on a private server only, see Writer.AllowXA.
	XA bool
	// Rate is events written per second. Defaults to no limit.
	Rate float64
	// Partitions is the number of queues. Defaults to 4.
	Partitions int
}

// Report is what a demo found.
type Report struct {
	Verdict
	Seed  uint64
	Kills int
}

// demo is a play under way.
type demo struct {
	*stage
	screen *screen
	begun  time.Time
	kills  atomic.Int32
	act    func(context.Context) error // what is done to the relay under load
	news   func() string               // for the line of progress
}

// Demo plays the main job on the real servers: a writer and consumers at work
// while the relay is killed and started again, Kills times at seeded moments.
// At the end the writer stops, everything committed is awaited, the relay is
// stopped by SIGTERM and the history is judged. Progress goes to out.
//
// The error says what kept the play from its end. Without one, Report.OK tells
// whether the promises were kept. What the demo made on the servers is removed;
// the relay's log is kept, and named in the error, when something failed.
func Demo(ctx context.Context, config DemoConfig, out io.Writer) (Report, error) {
	if config.Duration == 0 {
		config.Duration = 25 * time.Second
	}
	config.Backlog = max(config.Backlog, 1)
	if config.Partitions == 0 {
		config.Partitions = 4
	}
	play, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	stage, err := newStage(play, config, fail)
	d := &demo{stage: stage, screen: newScreen(out), begun: time.Now()}
	d.act = d.perform
	d.news = func() string { return fmt.Sprintf("kills %d", d.kills.Load()) }
	report := Report{Seed: config.Seed}
	if err == nil {
		report.Verdict, err = d.play(play)
	}
	report.Kills = int(d.kills.Load())
	if cause := context.Cause(play); cause != nil {
		err = cause // not what followed from it
	}
	err = errors.Join(err, stage.close())
	failed := ctx.Err() == nil && (err != nil || !report.OK())
	if log, missing := os.Stat(stage.logPath()); failed && missing == nil && log.Size() > 0 {
		return report, errors.Join(err, fmt.Errorf("the relay's log is kept: %s", stage.logPath()))
	}
	return report, errors.Join(err, os.RemoveAll(stage.dir))
}

// play is the whole job, from the first row to the verdict.
func (d *demo) play(ctx context.Context) (Verdict, error) {
	var background sync.WaitGroup
	defer background.Wait()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	background.Go(func() { d.showProgress(ctx) })

	// The writer is first: what it commits now is for the relay's backfill.
	writing, stopWriting := context.WithCancel(ctx)
	defer stopWriting()
	written := make(chan struct{})
	background.Go(func() {
		defer close(written)
		if err := d.writer.Run(writing); err != nil {
			d.fail(err)
		}
	})
	if err := d.open(ctx); err != nil {
		return Verdict{}, err
	}
	consumed := make(chan struct{})
	background.Go(func() {
		defer close(consumed)
		if err := d.consumers.Run(ctx); err != nil {
			d.fail(err)
		}
	})
	background.Go(func() {
		if poll(ctx, d.backfilled) == nil {
			d.writer.AllowTidying()
			if d.config.XA {
				d.writer.AllowXA()
			}
		}
	})
	if err := d.act(ctx); err != nil {
		return Verdict{}, err
	}
	stopWriting()
	<-written
	// Whatever happens from here, what was delivered can be judged.
	failed := errors.Join(d.drain(ctx), d.end(ctx))
	stop()
	<-consumed
	verdict, err := d.judge(context.WithoutCancel(ctx))
	return verdict, errors.Join(failed, err)
}

// open starts the relay on a table that has rows already, and waits for its
// queues.
func (d *demo) open(ctx context.Context) error {
	if err := poll(ctx, func() bool { return d.writer.Committed() >= d.config.Backlog }); err != nil {
		return err
	}
	if err := d.startRelay(); err != nil {
		return err
	}
	return d.await(ctx, startLimit, "the relay declares its queues", d.declared)
}

// perform lets the load run and ends the relay now and then.
func (d *demo) perform(ctx context.Context) error {
	if err := d.await(ctx, startLimit, "the first event is delivered", func() bool {
		return d.consumers.Delivered() > 0
	}); err != nil {
		return err
	}
	start, random := time.Now(), rand.New(rand.NewPCG(d.config.Seed, 1<<32))
	for _, moment := range killTimes(random, d.config.Kills, d.config.Duration) {
		if err := pause(ctx, time.Until(start.Add(moment))); err != nil {
			return err
		}
		if err := d.strike(); err != nil {
			return err
		}
		if err := pause(ctx, time.Duration(random.Int64N(int64(300*time.Millisecond)))); err != nil {
			return err
		}
		if err := d.startRelay(); err != nil {
			return err
		}
	}
	return pause(ctx, time.Until(start.Add(d.config.Duration)))
}

// killTimes spreads n moments over the duration: one at random in each n-th.
func killTimes(random *rand.Rand, n int, duration time.Duration) []time.Duration {
	moments := make([]time.Duration, n)
	for i := range moments {
		slot := duration / time.Duration(n)
		moments[i] = time.Duration(i)*slot + time.Duration(random.Int64N(int64(slot)))
	}
	slices.Sort(moments)
	return moments
}

// strike ends the relay, in the way of this demo.
func (d *demo) strike() error {
	d.kills.Add(1)
	if d.config.Graceful {
		return d.stopRelay()
	}
	return d.killRelay()
}

// drain waits until all that was committed has been delivered. It gives up,
// with an error, when nothing moves for a while.
func (d *demo) drain(ctx context.Context) error {
	moved, delivered := time.Now(), 0
	err := poll(ctx, func() bool {
		if now := d.consumers.Delivered(); now != delivered {
			moved, delivered = time.Now(), now
		}
		return delivered >= d.writer.Committed() || time.Since(moved) > stallLimit
	})
	if missing := d.writer.Committed() - d.consumers.Delivered(); err == nil && missing > 0 {
		return fmt.Errorf("%d events are missing, and nothing was delivered for %v", missing, stallLimit)
	}
	return err
}

// end stops the relay and waits until the consumers have seen all that it sent.
func (d *demo) end(ctx context.Context) error {
	if err := d.stopRelay(); err != nil {
		return err
	}
	if err := markEnds(ctx, d.broker, d.queues); err != nil {
		return err
	}
	return d.await(ctx, stallLimit, "the consumers have emptied their queues", d.consumers.Ended)
}

// judge puts the three sides of the history together.
func (d *demo) judge(ctx context.Context) (Verdict, error) {
	history := d.writer.Log()
	history.Deliveries = d.consumers.Deliveries()
	var err error
	if history.Effects, err = d.consumers.Effects(ctx); err != nil {
		return Verdict{}, err
	}
	return Judge(history), nil
}

// await polls condition, until limit at most.
func (d *demo) await(ctx context.Context, limit time.Duration, what string, condition func() bool) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := poll(limited, condition)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("waited %v in vain until %s; the relay says:\n%s", limit, what, d.tail())
	}
	return err
}
