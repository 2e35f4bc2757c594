package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
)

// gapMargin is how much earlier or later than its transaction's commit a row
// may say that it was created: long transactions, clocks that differ.
const gapMargin = time.Hour

// gap is history that the server has purged before it was relayed, and the
// rows of the table that stand in for it.
type gap struct {
	missing  *binlog.GTIDSet
	from, to time.Time            // of the rows; a zero from: of the beginning
	rest     *checkpoint.Backfill // of an earlier backfill, which comes on top; nil: none
	rows     int64                // that are not stamped published, at most
	before   int64                // of those, created before the last relayed commit; below 0: unknown
	timed    bool                 // the table tells when a row was created
}

// fill moves behind the gap, with a backfill of the rows of its time. It loses
// no row that is still in the table and not stamped published: what purged
// transactions inserted, and only that, is neither in the position before nor
// in the log, and lies in the range up to the margin. The backfill leaves out
// what the log still brings.
func (m *move) fill(ctx context.Context) error {
	if !m.known {
		return fmt.Errorf("%w: without a readable checkpoint at %s it cannot be told where the gap begins; to put back an earlier checkpoint: relay resume --undo; to send all rows of the table: move that file away, if there is one, then relay run --start backfill", ErrUnfit, m.file.Path())
	}
	position, err := binlog.ParseGTIDSet(m.old.GTIDSet)
	if err != nil {
		return err
	}
	purged, err := m.server.Purged(ctx)
	if err != nil {
		return err
	}
	g := &gap{before: -1}
	if g.missing, err = m.server.Subtract(ctx, purged, position); err != nil {
		return err
	}
	if g.missing.IsEmpty() {
		return fmt.Errorf("%w: the server has purged nothing that was not relayed, so there is no gap to fill; to go on from the checkpoint: relay run", ErrUnfit)
	}
	set := position.Union(purged)
	err = m.server.CheckPosition(ctx, set)
	if errors.Is(err, binlog.ErrDiverged) { // a failover lost some: behind the gap, without them
		executed, execErr := m.server.Executed(ctx)
		if execErr != nil {
			return execErr
		}
		set = set.Common(executed)
		err = m.server.CheckPosition(ctx, set)
	}
	if err != nil {
		return err
	}
	if err := m.compare(ctx, set); err != nil {
		return err
	}
	oldest, err := m.server.Oldest(ctx, m.table)
	if err != nil {
		return err
	}
	m.next = m.old
	m.next.GTIDSet, m.next.ServerUUID, m.next.Partial, m.next.Columns = set.String(), m.server.UUID, m.partial(), nil
	if m.next.Backfill, err = m.backfill(ctx, g, oldest); err != nil {
		return err
	}
	if oldest.After(m.next.CommittedAt) { // all that is purged was committed before, and the next gap begins here
		m.next.CommittedAt, m.next.LastGTID = oldest, ""
	}
	m.gap = g
	return nil
}

// backfill is that of the gap, joined with what was left of an earlier one.
// oldest is the commit time of the first transaction in the log.
func (m *move) backfill(ctx context.Context, g *gap, oldest time.Time) (*checkpoint.Backfill, error) {
	began, unfinished := m.old.CommittedAt, m.old.Backfill
	if g.rest = unfinished; unfinished != nil {
		began = unfinished.SnapshotAt
	}
	if !began.IsZero() {
		g.from = began.Add(-gapMargin)
	}
	g.to = oldest.Add(gapMargin)
	r, found, err := m.server.Between(ctx, m.table, g.from, g.to)
	g.timed = r.Timed
	if err != nil {
		return nil, err
	}
	b := &checkpoint.Backfill{After: r.After, Until: r.Until, SnapshotAt: oldest}
	switch {
	case unfinished != nil && !found:
		b.After, b.Until = unfinished.After, unfinished.Until
	case unfinished != nil:
		if err := m.join(ctx, b, unfinished); err != nil {
			return nil, err
		}
	case !found:
		return nil, nil
	}
	if g.rows, err = m.server.CountPending(ctx, m.table, b.After, b.Until); err != nil {
		return nil, err
	}
	if unfinished != nil || began.IsZero() || !g.timed {
		return b, nil
	}
	sent, found, err := m.server.Between(ctx, m.table, g.from, began)
	if err != nil {
		return nil, err
	}
	if g.before = 0; found {
		g.before, err = m.server.CountPending(ctx, m.table, b.After, sent.Until)
	}
	return b, err
}

// join widens b so that it holds what was left of another. Which of two cursors
// is first is told by the rows behind it.
func (m *move) join(ctx context.Context, b, other *checkpoint.Backfill) error {
	behind := func(after string) (int64, error) { return m.server.CountPending(ctx, m.table, after, "") }
	wider := func(a, b string, first bool) (string, error) {
		x, err := behind(a)
		if err != nil {
			return "", err
		}
		y, err := behind(b)
		if err != nil || x == y || x > y == first {
			return a, err
		}
		return b, nil
	}
	var err error
	if b.After, err = wider(b.After, other.After, true); err != nil {
		return err
	}
	b.Until, err = wider(b.Until, other.Until, false)
	return err
}

func (g *gap) print(line func(name, format string, args ...any)) {
	line("gap", "%d transactions are purged and were not relayed%s", g.missing.Count(), listed(g.missing))
	from, to := "the beginning of the table", g.to.Format(time.RFC3339)
	if !g.from.IsZero() {
		from = g.from.Format(time.RFC3339)
	}
	switch {
	case g.timed && g.rest != nil:
		line("backfill", "%d rows at most: the rest of the backfill that was under way, from %s on, and those created from %s to %s, with what is between; those that are still in the table and not stamped published", g.rows, cmp.Or(g.rest.After, "the beginning of the table"), from, to)
	case g.timed:
		line("backfill", "%d rows at most, created from %s to %s: those that are still in the table and not stamped published", g.rows, from, to)
	default:
		line("backfill", "%d rows at most: all that are still in the table and not stamped published, since it does not tell when a row was created", g.rows)
	}
	if g.before >= 0 {
		line("sent again", "%d of these rows, about: created before the last commit that was relayed, and so sent before, unless it was committed later", g.before)
	} else {
		line("sent again", "what of these rows was sent before")
	}
}
