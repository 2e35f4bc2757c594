package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// writersFor is the number of connections that commit at a rate: so many that
// a commit may take 30 ms, 8 at least.
func writersFor(rate float64) int { return min(max(8, int(rate*0.03)), 64) }

// loadResult is what a run of the load gave, behind the warm-up.
type loadResult struct {
	latency []time.Duration // sorted, as commits
	commits []time.Duration // from the statement's start to its return
	rate    float64         // commits per second
}

// carrier takes events from the outbox, or from who committed them, to the
// exchange. committed, if not nil, is called by a writer when its commit has
// returned. end waits until all is sent.
type carrier struct {
	committed func(writer, n int) error
	end       func() error
}

// runLoad commits rows of one event each by a schedule, has a carrier carry
// them, waits until all have come to a consumer, and adds to samples.
func (o *outfit) runLoad(ctx context.Context, into *samples, rate float64, span time.Duration, carry func(ctx context.Context, series uint64, writers int) (*carrier, error)) error {
	if err := errors.Join(execute(ctx, o.db, "TRUNCATE outbox"), o.purge()); err != nil {
		return err
	}
	skip := int(warmUp.Seconds() * rate)
	t := &timetable{outfit: o, series: rand.Uint64(), rate: rate, count: skip + int(span.Seconds()*rate)}
	t.returned, t.took, t.arrived = make([]time.Duration, t.count), make([]time.Duration, t.count), make([]atomic.Int64, t.count)
	came := newArrivals(t.series, t.count)
	t.began = time.Now()
	s, err := newSink(o.broker, o.names(), func(d *amqp.Delivery) {
		if n, ok := eventNumber(t.series, d.MessageId); ok && n < t.count {
			t.arrived[n].CompareAndSwap(0, int64(time.Since(t.began)))
			came.take(d)
		}
	})
	if err != nil {
		return err
	}
	defer s.close()
	writers := writersFor(rate)
	c, err := carry(ctx, t.series, writers)
	if err != nil {
		return err
	}
	err = t.write(ctx, writers, c.committed)
	if err == nil {
		select {
		case <-came.came:
		case <-ctx.Done():
			err = ctx.Err()
		case <-time.After(patience):
			err = fmt.Errorf("%d of %d events came within %v of the last commit", came.taken(), t.count, patience)
		}
	}
	if err := errors.Join(err, c.end()); err != nil {
		return err
	}
	latency := make([]time.Duration, t.count)
	for n := range latency {
		at := time.Duration(t.arrived[n].Load())
		if at == 0 {
			return fmt.Errorf("event %d of %d did not come, and another came twice", n, t.count)
		}
		latency[n] = at - t.returned[n]
	}
	into.take(loadResult{
		latency: measured(latency, skip), commits: measured(t.took, skip),
		rate: float64(t.count-skip) / (t.last() - t.returned[skip]).Seconds(),
	})
	return nil
}

// timetable is a run: what is written and what comes, by number.
type timetable struct {
	*outfit
	series   uint64
	rate     float64
	count    int
	began    time.Time
	returned []time.Duration // since began
	took     []time.Duration
	arrived  []atomic.Int64 // since began
}

// write commits the events, each when its time has come, whatever became of
// those before it; as long as a connection is free.
func (t *timetable) write(ctx context.Context, writers int, committed func(writer, n int) error) error {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	var next atomic.Int64
	start := time.Now()
	var group sync.WaitGroup
	for w := range writers {
		group.Go(func() {
			if err := t.writer(ctx, w, start, &next, committed); err != nil {
				fail(err)
			}
		})
	}
	group.Wait()
	return context.Cause(ctx)
}

func (t *timetable) writer(ctx context.Context, w int, start time.Time, next *atomic.Int64, committed func(writer, n int) error) error {
	insert, err := t.db.PrepareContext(ctx, "INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (?, ?, 'order.placed', ?, UTC_TIMESTAMP(6))")
	if err != nil {
		return err
	}
	defer insert.Close()
	for {
		n := int(next.Add(1) - 1)
		if n >= t.count {
			return nil
		}
		due := start.Add(time.Duration(float64(n) / t.rate * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			time.Sleep(wait)
		}
		before := time.Now()
		if _, err := insert.ExecContext(ctx, eventID(t.series, n), n%aggregates, plainPayload); err != nil {
			return err
		}
		now := time.Now()
		t.returned[n], t.took[n] = now.Sub(t.began), now.Sub(before)
		if committed != nil {
			if err := committed(w, n); err != nil {
				return err
			}
		}
	}
}

// last is when the last commit returned.
func (t *timetable) last() (last time.Duration) {
	for _, at := range t.returned {
		last = max(last, at)
	}
	return last
}
