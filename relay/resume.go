package relay

import (
	"context"
	"fmt"
	"io"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
)

// Override is an operator's order to go on from another place.
type Override struct {
	Set    string // GTID set: all that is to count as relayed
	DryRun bool   // tell what would happen and change nothing
	Yes    bool   // go on although transactions are skipped
}

// Resume moves the checkpoint to the operator's set and goes on as Run does.
// It refuses a set that the server cannot be followed from, and, without Yes,
// one that skips transactions which the checkpoint has not covered. What it
// found is printed to out. The checkpoint that stood there before, whole or
// damaged, is kept beside the new one.
func Resume(ctx context.Context, cfg Config, order Override, out io.Writer) error {
	cfg.setDefaults()
	set, err := binlog.ParseGTIDSet(order.Set)
	if err != nil {
		return fmt.Errorf("%w: --from-gtid: %w", ErrUsage, err)
	}
	if _, _, _, err := cfg.Source.Parse(); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	file, err := checkpoint.Override(cfg.Checkpoint)
	if err != nil {
		return err
	}
	defer file.Close()
	if err := override(ctx, cfg, file, set, order, out); err != nil || order.DryRun {
		return err
	}
	return run(ctx, cfg, file)
}

func override(ctx context.Context, cfg Config, file *checkpoint.File, set *binlog.GTIDSet, order Override, out io.Writer) error {
	server, err := binlog.Open(ctx, cfg.Source)
	if err != nil {
		return unavailable(err)
	}
	defer server.Close()
	if err := server.CheckPosition(ctx, set); err != nil {
		return err
	}
	table, err := server.Table(ctx)
	if err != nil {
		return unavailable(err)
	}
	old, exists := file.State()
	if exists {
		if err := sameTable(file.Path(), old, table.String()); err != nil {
			return err
		}
	}
	again, skipped, err := compare(ctx, server, old, exists, set)
	if err != nil {
		return err
	}
	switch damage := file.Damage(); {
	case damage != nil:
		fmt.Fprintf(out, "checkpoint   %s cannot be read: %v\n", file.Path(), damage)
		fmt.Fprintln(out, "sequence     begins again at 1, since only that file told how far it had come")
	case !exists:
		fmt.Fprintf(out, "checkpoint   %s does not exist yet\n", file.Path())
	default:
		fmt.Fprintf(out, "checkpoint   %s at %s\n", file.Path(), old.GTIDSet)
	}
	fmt.Fprintf(out, "resume from  %s\n", set)
	fmt.Fprintf(out, "sent again   %d transactions%s\n", again.Count(), listed(again))
	fmt.Fprintf(out, "skipped      %d transactions%s\n", skipped.Count(), listed(skipped))
	if exists && old.Backfill != nil {
		fmt.Fprintln(out, "backfill     was under way and is given up: rows of the table that were not sent yet are skipped")
	}
	gives := !skipped.IsEmpty() || (exists && old.Backfill != nil)
	if gives && !order.Yes && !order.DryRun {
		rows := ""
		if old.Backfill != nil {
			rows = ", and the rest of a backfill that was under way"
		}
		return fmt.Errorf("%w: --from-gtid %s skips %d transactions that were not relayed%s%s; if that is meant, type it again with --yes; to see only what it does: --dry-run",
			ErrUnfit, set, skipped.Count(), listed(skipped), rows)
	}
	if order.DryRun {
		return nil
	}
	if exists || file.Damage() != nil {
		kept, err := file.Keep()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "kept         %s\n", kept)
	}
	partial := old.Partial
	if partial != nil {
		within, err := binlog.ParseGTIDSet(partial.GTID)
		if err != nil || set.Contains(within) {
			partial = nil
		}
	}
	return file.Save(checkpoint.State{
		Flavor: "mysql", GTIDSet: set.String(), ServerUUID: server.UUID, Table: table.String(),
		Sequence: old.Sequence, CommittedAt: old.CommittedAt, Partial: partial,
	})
}

// compare tells what lies between the checkpoint and the set: what is sent
// again, and what is skipped. Without a checkpoint everything that the set
// leaves out is sent, and what it covers is skipped.
func compare(ctx context.Context, server *binlog.Server, old checkpoint.State, exists bool, set *binlog.GTIDSet) (again, skipped *binlog.GTIDSet, err error) {
	position, err := binlog.ParseGTIDSet(old.GTIDSet)
	if err != nil {
		return nil, nil, err
	}
	if !exists {
		position = set
	}
	if again, err = server.Subtract(ctx, position, set); err != nil {
		return nil, nil, err
	}
	skipped, err = server.Subtract(ctx, set, position)
	return again, skipped, err
}

func listed(set *binlog.GTIDSet) string {
	if set.IsEmpty() {
		return ""
	}
	return ": " + set.String()
}

// unavailable marks an error of a command that tries only once.
func unavailable(err error) error {
	if err == nil || lasting(err) != 0 {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
