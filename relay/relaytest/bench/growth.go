package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/outboxrelay/relay/checkpoint"
)

const (
	// growthUnit is the events of 1×: a fiftieth of a million.
	growthUnit = 20_000
	// growthNoise is up to which ratio the processor time of an event counts as
	// constant.
	growthNoise = 1.1
)

// growth measures whether an event costs more where there are more of them, and
// what a checkpoint costs where its set has many intervals.
func growth(ctx context.Context, b *bench) error {
	if err := b.growthOfLog(ctx); err != nil {
		return err
	}
	return b.growthOfSet(ctx)
}

// growthOfLog drains 1×, 10× and 100× of a log against a stub broker, in turn,
// and compares each with the 1× beside it. The start, which all have once, is
// not counted.
func (b *bench) growthOfLog(ctx context.Context) error {
	unit := growthUnit
	if b.quick {
		unit /= 10
	}
	loads, err := b.loads(ctx, 100, false, 90*unit, 9*unit, unit) // so that behind the places are 100, 10 and 1
	if err != nil {
		return err
	}
	sizes := []int{1, 10, 100}
	speed, cost := make([]result, len(sizes)), make([]result, len(sizes))
	for range b.runs {
		for i := range sizes {
			l := loads[len(loads)-1-i]
			var unused costs
			first, end, err := b.stubRun(ctx, l, &unused)
			if err != nil {
				return err
			}
			f := between(first, end)
			speed[i].Relay, cost[i].Relay = append(speed[i].Relay, f.rate), append(cost[i].Relay, f.cpu)
		}
	}
	for i, size := range sizes {
		for _, r := range []*result{&speed[i], &cost[i]} {
			r.Section = "growth"
			r.Case = fmt.Sprintf("%s events, %d×", figure(float64(size*unit)), size)
			if i > 0 {
				r.Against, r.Reference = "1×", nil
			}
		}
		speed[i].Unit = "events/s"
		cost[i].Unit, cost[i].Case = "µs/event", cost[i].Case+", CPU"
		if i > 0 {
			speed[i].Reference, cost[i].Reference = speed[0].Relay, cost[0].Relay
			cost[i].Goal = atMost(ofRatio, growthNoise)
		}
	}
	speed[0].Note = "against the stub broker, in transactions of 100; from the first confirm, so that the start does not count"
	for _, list := range [][]result{speed, cost} {
		for _, r := range list {
			b.add(r)
		}
	}
	return nil
}

// growthOfSet measures a save of the checkpoint, which is a file, synced, by the
// number of intervals in its GTID set.
func (b *bench) growthOfSet(ctx context.Context) error {
	file, err := checkpoint.Open(filepath.Join(b.dir, freshName()+".json"))
	if err != nil {
		return err
	}
	defer file.Close()
	sizes := []int{1, 100, 10_000, 100_000}
	results := make([]result, len(sizes))
	for range b.runs {
		for i, size := range sizes {
			took, err := saveTime(ctx, file, size, b.scale(60))
			if err != nil {
				return err
			}
			results[i].Relay = append(results[i].Relay, took)
		}
	}
	for i, size := range sizes {
		r := &results[i]
		r.Section, r.Unit = "growth", "ms"
		r.Case = "save of a checkpoint, GTID set of " + figure(float64(size)) + " intervals"
		if size == 1 {
			r.Case = strings.TrimSuffix(r.Case, "s")
			r.Note = "a save is synced to disk, and beside the events' way: one each 250 ms, off it"
		} else {
			r.Against, r.Reference = "1 interval", results[0].Relay
		}
		b.add(*r)
	}
	return nil
}

// saveTime is the median of some saves, in ms.
func saveTime(ctx context.Context, file *checkpoint.File, intervals, saves int) (float64, error) {
	state := checkpoint.State{Flavor: "mysql", Table: "shop.outbox", ServerUUID: "3e11fa47-71ca-11e1-9e33-c80aa9429562"}
	set := []byte(state.ServerUUID)
	for i := range intervals {
		set = fmt.Appendf(set, ":%d-%d", 1_000_000+10*i, 1_000_005+10*i)
	}
	state.GTIDSet = string(set)
	took := make([]float64, saves)
	for i := range took {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		state.Sequence++
		began := time.Now()
		if err := file.Save(state); err != nil {
			return 0, err
		}
		took[i] = time.Since(began).Seconds() * 1000
	}
	return median(took), nil
}
