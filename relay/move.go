package relay

import (
	"context"
	"fmt"
	"io"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/schema"
)

// move is what lies between the checkpoint and the one that is to replace it.
type move struct {
	server *binlog.Server
	table  *schema.Table
	file   *checkpoint.File
	order  Override

	old   checkpoint.State // zero where there is none to read
	known bool             // old was read
	next  checkpoint.State

	set            *binlog.GTIDSet // next's
	again, skipped *binlog.GTIDSet // transactions to be sent again, and not to be sent

	place string // in the log, of a time
	kept  string // path of the copy that is put back
	then  error  // why the server cannot be followed from a copy
	gap   *gap   // of Gap
}

func newMove(server *binlog.Server, table *schema.Table, file *checkpoint.File, order Override) (*move, error) {
	m := &move{server: server, table: table, file: file, order: order}
	if m.old, m.known = file.State(); m.known {
		return m, sameOutbox(file.Path(), m.old, server.Flavor, table.String())
	}
	return m, nil
}

// to moves to a set, from which the server must be able to go on.
func (m *move) to(ctx context.Context, set *binlog.GTIDSet) error {
	if err := m.server.CheckPosition(ctx, set); err != nil {
		return err
	}
	if err := m.compare(ctx, set); err != nil {
		return err
	}
	m.next = checkpoint.State{
		Flavor: string(m.server.Flavor), GTIDSet: set.String(), ServerUUID: m.server.UUID, Table: m.table.String(),
		Sequence: m.old.Sequence, Partial: m.partial(),
	}
	if m.again.IsEmpty() { // else it is later than the place
		m.next.CommittedAt = m.old.CommittedAt
	}
	return nil
}

// back moves to the newest copy of a checkpoint that a resume has kept. The
// server may be unable to go on from there: then that is told, and the way out
// of it may be another resume.
func (m *move) back(ctx context.Context) error {
	m.kept, m.next = m.file.Kept()
	if m.kept == "" {
		return fmt.Errorf("%w: beside %s there is no copy of an earlier checkpoint that can be read, so there is nothing to undo; to see where it stands: relay status", ErrUnfit, m.file.Path())
	}
	if err := sameOutbox(m.kept, m.next, m.server.Flavor, m.table.String()); err != nil {
		return err
	}
	set, err := binlog.ParseGTIDSet(m.next.GTIDSet)
	if err != nil {
		return err
	}
	if m.then = m.server.CheckPosition(ctx, set); m.then != nil && lasting(m.then) == 0 {
		return m.then
	}
	return m.compare(ctx, set)
}

func (m *move) compare(ctx context.Context, set *binlog.GTIDSet) error {
	m.set = set
	position, err := binlog.ParseGTIDSet(m.old.GTIDSet)
	if err != nil {
		return err
	}
	if m.again, err = m.server.Subtract(ctx, position, set); err != nil {
		return err
	}
	m.skipped, err = m.server.Subtract(ctx, set, position)
	return err
}

func (m *move) print(out io.Writer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	damage := m.file.Damage()
	switch {
	case damage != nil:
		line("checkpoint", "%s cannot be read: %v", m.file.Path(), damage)
		if m.kept == "" {
			line("sequence", "begins again at 1, since only that file told how far it had come")
		}
	case !m.known:
		line("checkpoint", "%s does not exist yet", m.file.Path())
	default:
		line("checkpoint", "%s at %s", m.file.Path(), m.old.GTIDSet)
	}
	if m.kept != "" {
		line("put back", "%s, with the sequence %d", m.kept, m.next.Sequence)
	}
	if m.place != "" {
		line("place", "%s, before the first transaction that was committed at %s or later", m.place, m.order.Value)
	}
	line("resume from", "%s", m.set)
	switch {
	case m.gap != nil:
		m.gap.print(line)
		return
	case !m.known:
		line("sent again", "unknown: there is no checkpoint to compare with")
		line("skipped", "unknown: what the set covers and was never sent, rows of the table included")
	default:
		line("sent again", "%d transactions%s", m.again.Count(), listed(m.again))
		line("skipped", "%d transactions%s", m.skipped.Count(), listed(m.skipped))
	}
	if m.givesUp() {
		line("backfill", "was under way and is given up: rows of the table that were not sent yet are skipped")
	}
	if m.next.Backfill != nil {
		line("backfill", "goes on where that checkpoint had come to")
	}
	if m.then != nil {
		line("but", "from there the relay cannot go on: %v", m.then)
	}
}

// givesUp tells whether a backfill that is under way is not gone on with.
func (m *move) givesUp() bool {
	return m.old.Backfill != nil && m.gap == nil && (m.next.Backfill == nil || *m.next.Backfill != *m.old.Backfill)
}

// refusal is why the operator must confirm the move; nil when nothing is lost
// by it.
func (m *move) refusal() error {
	const way = "; if that is meant, type it again with --yes; to see only what it does: --dry-run"
	name := m.order.String()
	switch {
	case m.gap != nil:
		return nil
	case !m.known:
		return fmt.Errorf("%w: without a readable checkpoint it cannot be told what %s skips%s", ErrUnfit, name, way)
	case m.givesUp():
		return fmt.Errorf("%w: %s skips %d transactions that were not relayed%s, and the rest of a backfill that was under way%s", ErrUnfit, name, m.skipped.Count(), listed(m.skipped), way)
	case !m.skipped.IsEmpty():
		return fmt.Errorf("%w: %s skips %d transactions that were not relayed%s%s", ErrUnfit, name, m.skipped.Count(), listed(m.skipped), way)
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
