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
		return unfit(err)
	}
	defer file.Close()
	if err := override(ctx, cfg, file, set, order, out); err != nil || order.DryRun {
		return err
	}
	return run(ctx, cfg, file)
}

// override makes the order's checkpoint, or only tells what it would do.
func override(ctx context.Context, cfg Config, file *checkpoint.File, set *binlog.GTIDSet, order Override, out io.Writer) error {
	server, err := binlog.Open(ctx, cfg.Source)
	if err != nil {
		return unavailable(err)
	}
	defer server.Close()
	if err := server.CheckPosition(ctx, set); err != nil {
		return unavailable(err)
	}
	table, err := server.Table(ctx)
	if err != nil {
		return unavailable(err)
	}
	m, err := newMove(ctx, server, file, set, table.String())
	if err != nil {
		return unavailable(err)
	}
	m.print(out)
	if order.DryRun {
		return nil
	}
	if err := m.refusal(); err != nil && !order.Yes {
		return err
	}
	kept, err := file.Keep()
	if err != nil {
		return err
	}
	if kept != "" {
		fmt.Fprintf(out, "kept         %s\n", kept)
	}
	return file.Save(checkpoint.State{
		Flavor: "mysql", GTIDSet: set.String(), ServerUUID: server.UUID, Table: table.String(),
		Sequence: m.old.Sequence, CommittedAt: m.old.CommittedAt, Partial: m.partial(),
	})
}

// move is what lies between the checkpoint and the set that is to replace it.
type move struct {
	path           string
	damage         error            // why the checkpoint cannot be read
	old            checkpoint.State // zero where there is none to read
	known          bool             // old was read
	set            *binlog.GTIDSet
	again, skipped *binlog.GTIDSet // transactions to be sent again, and not to be sent
}

func newMove(ctx context.Context, server *binlog.Server, file *checkpoint.File, set *binlog.GTIDSet, table string) (*move, error) {
	m := &move{path: file.Path(), damage: file.Damage(), set: set}
	m.old, m.known = file.State()
	if m.known {
		if err := sameTable(m.path, m.old, table); err != nil {
			return nil, err
		}
	}
	position, err := binlog.ParseGTIDSet(m.old.GTIDSet)
	if err != nil {
		return nil, err
	}
	if m.again, err = server.Subtract(ctx, position, set); err != nil {
		return nil, err
	}
	m.skipped, err = server.Subtract(ctx, set, position)
	return m, err
}

func (m *move) print(out io.Writer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	switch {
	case m.damage != nil:
		line("checkpoint", "%s cannot be read: %v", m.path, m.damage)
		line("sequence", "begins again at 1, since only that file told how far it had come")
	case !m.known:
		line("checkpoint", "%s does not exist yet", m.path)
	default:
		line("checkpoint", "%s at %s", m.path, m.old.GTIDSet)
	}
	line("resume from", "%s", m.set)
	if !m.known {
		line("sent again", "unknown: there is no checkpoint to compare with")
		line("skipped", "unknown: what the set covers and was never sent, rows of the table included")
		return
	}
	line("sent again", "%d transactions%s", m.again.Count(), listed(m.again))
	line("skipped", "%d transactions%s", m.skipped.Count(), listed(m.skipped))
	if m.old.Backfill != nil {
		line("backfill", "was under way and is given up: rows of the table that were not sent yet are skipped")
	}
}

// refusal is why the operator must confirm the move; nil when nothing is lost
// by it.
func (m *move) refusal() error {
	const way = "; if that is meant, type it again with --yes; to see only what it does: --dry-run"
	switch {
	case !m.known:
		return fmt.Errorf("%w: without a readable checkpoint it cannot be told what --from-gtid %s skips%s", ErrUnfit, m.set, way)
	case m.old.Backfill != nil:
		return fmt.Errorf("%w: --from-gtid %s skips %d transactions that were not relayed%s, and the rest of a backfill that was under way%s", ErrUnfit, m.set, m.skipped.Count(), listed(m.skipped), way)
	case !m.skipped.IsEmpty():
		return fmt.Errorf("%w: --from-gtid %s skips %d transactions that were not relayed%s%s", ErrUnfit, m.set, m.skipped.Count(), listed(m.skipped), way)
	}
	return nil
}

// partial is kept when its transaction is one that is sent again.
func (m *move) partial() *checkpoint.Partial {
	if m.old.Partial == nil {
		return nil
	}
	within, err := binlog.ParseGTIDSet(m.old.Partial.GTID)
	if err != nil || m.set.Contains(within) {
		return nil
	}
	return m.old.Partial
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
