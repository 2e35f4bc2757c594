package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outboxrelay/relay/binlog"
)

// lockPatience is how long writers may wait for the drop of a partition, apart
// from a second for the lock.
const lockPatience = 2 * time.Second

// drop drops the partitions whose rows are all old and confirmed. An empty one
// goes only with a later one that has rows: its time is over for certain then.
func (t *pruneTurn) drop(ctx context.Context, pruner *binlog.Pruner) error {
	names, err := t.server.Partitions(ctx, t.table)
	if err != nil {
		return err
	}
	var due []string
	found := map[string]binlog.Partition{}
	last := 0 // of due, up to the last one with rows
	for _, name := range names {
		look, err := pruner.Look(ctx, name)
		if err != nil {
			return err
		}
		if !look.Due {
			continue
		}
		found[name], due = look, append(due, name)
		if look.Rows > 0 {
			last = len(due)
		}
	}
	for _, name := range due[:last] {
		why, err := t.dropOne(ctx, pruner, name, found[name])
		if err != nil {
			return err
		}
		if why != "" {
			t.kept = append(t.kept, fmt.Sprintf("partition %s: %s", name, why))
			continue
		}
		t.dropped = append(t.dropped, name)
		t.tally.Deleted += found[name].Rows
		if t.deleted != nil {
			t.deleted(found[name].Rows)
		}
	}
	return nil
}

// dropOne drops a partition, or tells why not.
func (t *pruneTurn) dropOne(ctx context.Context, pruner *binlog.Pruner, name string, found binlog.Partition) (why string, err error) {
	if t.order.DryRun {
		if t.byCheckpoint() {
			_, t.lack, err = t.lacks(ctx, found.Visible)
		}
		return "", err
	}
	if err := t.relax(ctx); err != nil {
		return "", err
	}
	if t.byCheckpoint() {
		if err := t.cover(ctx, found.Visible, t.order.GiveUpAfter); err != nil {
			return "", err
		}
	}
	why, err = pruner.Drop(ctx, name, func(ctx context.Context, visible *binlog.GTIDSet) (string, []string, error) {
		if !t.byCheckpoint() {
			return "", nil, nil
		}
		err := t.cover(ctx, visible, lockPatience)
		if errors.Is(err, ErrUnavailable) {
			return "the checkpoint did not cover what was written last within " + lockPatience.String(), nil, nil
		}
		if err != nil {
			return "", nil, err
		}
		state, lack, err := t.lacks(ctx, visible)
		if err != nil || lack != "" {
			return strings.TrimSpace("the checkpoint " + lack), nil, err
		}
		parked, err := t.parkedIDs(state)
		return "", parked, err
	})
	return why, err
}
