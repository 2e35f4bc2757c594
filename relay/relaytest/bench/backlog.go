package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// backlog is events that wait behind a checkpoint.
type backlog struct {
	*outfit
	series uint64
	events int
	back   func() error // puts the checkpoint before them
}

// backlog makes a checkpoint and has events written behind it by write.
func (o *outfit) backlog(ctx context.Context, events int, write func(series uint64) error) (*backlog, error) {
	if err := errors.Join(execute(ctx, o.db, "TRUNCATE outbox"), o.begin(ctx)); err != nil {
		return nil, err
	}
	l := &backlog{outfit: o, series: rand.Uint64() >> 1, events: events}
	var err error
	if l.back, err = o.keep(); err != nil {
		return nil, err
	}
	return l, write(l.series)
}

// small writes events of 300 bytes in transactions of a hundred.
func (o *outfit) small(ctx context.Context, events int) func(series uint64) error {
	return func(series uint64) error {
		for first := 0; first < events; first += 100 {
			if err := o.insert(ctx, series, first, min(100, events-first)); err != nil {
				return err
			}
		}
		return nil
	}
}

// drained is what a drain of a backlog took.
type drained struct {
	took time.Duration // from exec to the last delivery
	peak float64       // resident memory, MiB
}

// drain has the relay send the backlog, and consumers take it.
func (l *backlog) drain(ctx context.Context, options ...string) (d drained, err error) {
	if err := l.back(); err != nil {
		return d, err
	}
	came := newArrivals(l.series, l.events)
	s, err := newSink(l.broker, l.names(), came.take)
	if err != nil {
		return d, err
	}
	defer s.close()
	began := time.Now()
	p, err := l.start(options...)
	if err != nil {
		return d, err
	}
	if err := came.await(ctx, p, 10*patience); err != nil {
		return d, errors.Join(err, p.Kill())
	}
	d.took = time.Since(began)
	err = await(ctx, p, "all is settled", patience, func() bool { return l.settled(int64(l.events)) })
	if err == nil {
		d.peak, err = peakMemory(p.PID())
	}
	if err != nil {
		return d, errors.Join(err, p.Kill())
	}
	if err := stop(p); err != nil {
		return d, fmt.Errorf("behind %d events: %w", l.events, err)
	}
	return d, nil
}
