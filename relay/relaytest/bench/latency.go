package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

const (
	warmUp = 3 * time.Second
	// pollingRate is the highest at which the polling relay is measured: it takes
	// 100 rows at a time.
	pollingRate = 1000
)

// latency measures the time from the return of a commit to the delivery at a
// consumer: of the relay, of a publisher that sends when its commit has
// returned, and of a relay that polls the table.
func latency(ctx context.Context, b *bench) (err error) {
	o, err := b.outfit(ctx, b.mysql)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	if err := o.begin(ctx); err != nil { // the queues
		return err
	}
	rates := []float64{200, 1000}
	half, from, err := o.halfOfDrain(ctx, b)
	if err != nil {
		return err
	}
	for _, rate := range append(rates, half) {
		what := fmt.Sprintf("%s events/s", figure(rate))
		if rate == half {
			what += from
		}
		if err := o.latencyAt(ctx, b, rate, what); err != nil {
			return err
		}
	}
	return nil
}

// halfOfDrain is half of the rate at which the relay drains a backlog, and in
// words where that comes from.
func (o *outfit) halfOfDrain(ctx context.Context, b *bench) (rate float64, from string, err error) {
	if b.drainRate > 0 {
		return math.Round(b.drainRate / 2), ", half of the drain's rate", nil
	}
	events := b.scale(100_000)
	l, err := o.backlog(ctx, events, o.small(ctx, events))
	if err != nil {
		return 0, "", err
	}
	d, err := l.drain(ctx)
	rate = math.Round(float64(events) / d.took.Seconds() / 2)
	return rate, fmt.Sprintf(", half of the rate of a drain of %s", figure(float64(events))), err
}

// latencyAt measures at one rate.
func (o *outfit) latencyAt(ctx context.Context, b *bench, rate float64, what string) error {
	span := 10 * time.Second
	if b.quick {
		span = 3 * time.Second
	}
	var relays, publishers, pollers samples
	relay := func(ctx context.Context) error { return o.runLoad(ctx, &relays, rate, span, o.relaying) }
	reference := func(ctx context.Context) error {
		if err := o.runLoad(ctx, &publishers, rate, span, o.publishing); err != nil || rate > pollingRate {
			return err
		}
		return o.runLoad(ctx, &pollers, rate, span/2, o.polling)
	}
	if err := b.pairs(ctx, relay, reference); err != nil {
		return err
	}
	note := fmt.Sprintf("Sent by schedule; counted from the return of a commit of one row to the delivery at a consumer without acks. %s connections; commits reached %s/s beside the relay, %s/s beside the publisher; a commit took %s ms and %s ms (p50), %s and %s (p99).",
		figure(float64(writersFor(rate))), figure(median(relays.reached)), figure(median(publishers.reached)),
		figure(median(relays.commits[0])), figure(median(publishers.commits[0])), figure(median(relays.commits[1])), figure(median(publishers.commits[1])))
	if reached := min(median(relays.reached), median(publishers.reached)); reached < 0.95*rate {
		what = fmt.Sprintf("asked for %s, reached %s", what, figure(reached))
	}
	bounds := []goal{atMost(ofDifference, 1), atMost(ofDifference, 10), {}}
	for i, q := range quantiles {
		r := result{
			Section: "latency", Case: what + ", " + q.name, Unit: "ms", Relay: relays.latency[i],
			Against: "publisher after commit", Reference: publishers.latency[i], Goal: bounds[i],
		}
		if i == 0 {
			r.Note = note
		}
		b.add(r)
	}
	for i, q := range quantiles[:2] {
		if len(pollers.latency[i]) > 0 {
			b.add(result{Section: "latency", Case: what + ", " + q.name, Unit: "ms", Relay: relays.latency[i], Against: "polling every 200 ms", Reference: pollers.latency[i]})
		}
	}
	return nil
}

// quantiles are those that the table has.
var quantiles = []struct {
	name string
	of   float64
}{{"p50", 0.5}, {"p99", 0.99}, {"p99.9", 0.999}}

// samples are what several runs gave: one value for each.
type samples struct {
	latency [3][]float64 // ms, by quantile
	commits [3][]float64 // ms that a commit took, by quantile
	reached []float64    // commits per second
}

// take adds those of a run.
func (s *samples) take(r loadResult) {
	for i, q := range quantiles {
		s.latency[i] = append(s.latency[i], quantile(r.latency, q.of))
		s.commits[i] = append(s.commits[i], quantile(r.commits, q.of))
	}
	s.reached = append(s.reached, r.rate)
}

// quantile is the nearest rank of sorted durations, in ms.
func quantile(sorted []time.Duration, of float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	n := int(of * float64(len(sorted)))
	return sorted[min(n, len(sorted)-1)].Seconds() * 1000
}

// measured are the values of a run behind the warm-up, sorted.
func measured(values []time.Duration, skip int) []time.Duration {
	kept := slices.Clone(values[min(skip, len(values)):])
	slices.Sort(kept)
	return kept
}
