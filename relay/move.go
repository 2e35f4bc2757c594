package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
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
	lost           *binlog.GTIDSet // that were relayed, and that the server does not have
	executed       *binlog.GTIDSet // that it has

	place string // in the log, of a time
	kept  string // path of the copy that is put back
	then  error  // why the server cannot be followed from a copy
	gap   *gap   // of Gap
}

// newMove finds the order's place.
func newMove(ctx context.Context, server *binlog.Server, table *schema.Table, file *checkpoint.File, order Override, find func(context.Context, *move) error) (*move, error) {
	m := &move{server: server, table: table, file: file, order: order}
	if m.old, m.known = file.State(); m.known {
		if err := sameOutbox(file.Path(), m.old, server.Flavor, table.String()); err != nil {
			return nil, err
		}
	}
	return m, find(ctx, m)
}

// try begins a session at the new checkpoint and ends it at once, for what it
// refuses. A broker that is away for now is not waited for.
func (m *move) try(ctx context.Context, cfg Config) error {
	if m.then == nil {
		if _, err := mayWant(m.file.Path(), m.next, cfg.Topics); err != nil {
			return err
		}
		if err := fits(ctx, m.file.Path(), m.next, m.server, m.table); err != nil {
			return err
		}
		state := m.next
		if b := state.Backfill; b != nil { // without its rows
			state.Backfill = &checkpoint.Backfill{After: b.Until, Until: b.Until, SnapshotAt: b.SnapshotAt}
		}
		source, err := openOutbox(ctx, m.server, m.table, definition(state, cfg.Source, m.table), state, nil)
		if err != nil {
			return err
		}
		source.Close()
	}
	broker, err := exchange.Dial(ctx, cfg.Broker)
	if err == nil {
		broker.Close()
	}
	if lasting(err) == 0 {
		return ctx.Err()
	}
	return err
}

// witness looks up the newest transaction at a place that is new, where there is
// no other to tell this server's history by.
func (m *move) witness(ctx context.Context) (err error) {
	if m.next.LastGTID == "" && m.then == nil {
		m.next, err = witnessed(ctx, m.server, m.table, m.set, m.next)
	}
	return err
}

// to moves to a set, from which the server must be able to go on.
func (m *move) to(ctx context.Context, set *binlog.GTIDSet) error {
	err := m.server.CheckPosition(ctx, set)
	switch {
	case errors.Is(err, binlog.ErrPurged):
		return m.tooEarly(ctx, set)
	case errors.Is(err, binlog.ErrDiverged):
		return m.foreign(ctx, set, err)
	case err != nil:
		return err
	}
	if err := m.compare(ctx, set); err != nil {
		return err
	}
	m.next = checkpoint.State{
		Flavor: string(m.server.Flavor), GTIDSet: set.String(), ServerUUID: m.server.UUID, Table: m.table.String(),
		Sequence: m.old.Sequence, Topics: m.old.Topics, Partial: m.partial(),
	}
	if m.again.IsEmpty() && m.lost.IsEmpty() { // else it is later than the place
		m.next.CommittedAt = m.old.CommittedAt
	}
	return nil
}

// tooEarly is why a set is refused from which the server's log does not go on.
func (m *move) tooEarly(ctx context.Context, set *binlog.GTIDSet) error {
	purged, err := m.server.Purged(ctx)
	if err != nil {
		return err
	}
	executed, err := m.server.Executed(ctx)
	if err != nil {
		return err
	}
	position, err := binlog.ParseGTIDSet(m.old.GTIDSet)
	if err != nil {
		return err
	}
	earliest := set.Common(executed).Union(purged)
	missing, rows := purged.Minus(set), fmt.Sprintf("to send all rows that the table still has and that are not stamped published: move %s away, then type: relay run --start backfill", m.file.Path())
	if gap := purged.Minus(position); m.known && !gap.IsEmpty() {
		rows = fmt.Sprintf("to send what the table still has of the %d that were not relayed: relay resume --gap backfill", gap.Count())
	}
	return fmt.Errorf("%w: behind '%s' the server's log lacks %d transactions: %s; to send all that it has: relay resume --from-gtid '%s'; %s",
		binlog.ErrPurged, set, missing.Count(), missing, earliest, rows)
}

// foreign is why a set is refused that the server has not executed, which the
// server's check found for some reason.
func (m *move) foreign(ctx context.Context, set *binlog.GTIDSet, reason error) error {
	executed, err := m.server.Executed(ctx)
	if err != nil {
		return err
	}
	ahead := set.Minus(executed)
	if flavor := set.Flavor(); flavor != m.server.Flavor || ahead.IsEmpty() {
		return reason
	}
	return fmt.Errorf("%w: %d transactions of '%s' were never executed by the server at %s: %s; without them: relay resume --from-gtid '%s'",
		binlog.ErrDiverged, ahead.Count(), set, m.server.Address(), ahead, set.Common(executed))
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
	if m.executed, err = m.server.Executed(ctx); err != nil {
		return err
	}
	m.again, m.skipped = position.Minus(set), set.Minus(position)
	m.lost = m.again.Minus(m.executed)
	m.again = m.again.Minus(m.lost)
	return nil
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
	if !m.lost.IsEmpty() {
		line("lost", "%d transactions that were relayed and that this server has not executed%s; their events stand", m.lost.Count(), listed(m.lost))
	}
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
	return m.old.Backfill != nil && m.gap == nil && !reflect.DeepEqual(m.next.Backfill, m.old.Backfill)
}

// refusal is why the operator must confirm the move; nil when nothing is lost
// by it.
func (m *move) refusal() error {
	const way = "; if that is meant, type it again with --yes; to see only what it does: --dry-run"
	name := m.order.String()
	switch {
	case m.gap != nil && !m.lost.IsEmpty():
		return fmt.Errorf("%w: %d transactions were relayed that this server (%s) has not executed%s; it is another server, or a failover lost them%s", ErrUnfit, m.lost.Count(), m.server.UUID, listed(m.lost), way)
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
	if err != nil || m.set.Contains(within) || !m.executed.Contains(within) {
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
