package relay

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/schema"
)

// ReplayRows sends the selected rows that the outbox has, stamped published or
// not, in the order of a backfill: as Run sends a backfill's, but without
// sequence, and with the header replayed. It reads one snapshot, changes nothing,
// and touches no checkpoint; a relay may run meanwhile. An id that the table does
// not have is ErrUsage, and nothing is sent then.
func ReplayRows(ctx context.Context, cfg Config, order Again, out io.Writer) error {
	cfg.setDefaults()
	cfg.Broker = order.broker(cfg.Broker)
	r := &rowReplay{cfg: cfg, order: order}
	var err error
	if r.server, err = binlog.Open(ctx, cfg.Source); err != nil {
		return unavailable(err)
	}
	defer r.server.Close()
	if r.table, err = r.server.Table(ctx); err != nil {
		return unavailable(err)
	}
	if order.DryRun || len(order.IDs) > 0 || order.To != ToLines && !order.Yes {
		found, err := r.survey(ctx)
		if err != nil {
			return err
		}
		if found.events == 0 {
			cfg.Logger.Warn().Str("table", r.table.String()).Msg("no row fits what was chosen")
		}
		if order.DryRun {
			return found.print(r.table, out)
		}
		if err := order.allow(found.events, cfg.Broker); err != nil {
			return err
		}
	}
	if order.To == ToLines {
		return r.print(ctx, out)
	}
	state := checkpoint.State{Backfill: &checkpoint.Backfill{}}
	left := &sendable{out: out, seen: map[string]bool{}}
	sending := resending{cfg: cfg, open: func(ctx context.Context, state checkpoint.State) (Source, error) {
		var err error
		left.Source, err = r.server.Select(ctx, r.table, order.Selection, state.Backfill.After)
		return left, err
	}}
	if err := sending.run(ctx, &state); err != nil {
		return fmt.Errorf("%w; %d events are confirmed, in the order of the table's rows; to send the rest: type the same again, which sends those again too", err, state.Sequence)
	}
	if left.failed != nil {
		return left.failed
	}
	return left.bad.err()
}

// sendable hands out of a source's rows those that a message can carry, and tells
// of the others.
type sendable struct {
	Source
	out    io.Writer
	seen   map[string]bool // ids of those that were told
	bad    badEvents
	failed error // to tell
}

func (s *sendable) Next(ctx context.Context) (*binlog.Tx, error) {
	for {
		tx, err := s.Source.Next(ctx)
		if err != nil {
			return nil, err
		}
		event := &tx.Events[0]
		bad := unsendable(event)
		if bad == nil {
			return tx, nil
		}
		if !s.seen[event.ID] {
			s.seen[event.ID] = true
			s.bad.note(event)
			if _, err := fmt.Fprintf(s.out, "left      %s: %s\n", shown(event.ID), bad.Reason); s.failed == nil {
				s.failed = err
			}
		}
	}
}

// rowReplay replays rows of the table.
type rowReplay struct {
	cfg    Config
	order  Again
	server *binlog.Server
	table  *schema.Table
}

// each hands every selected event to f.
func (r *rowReplay) each(ctx context.Context, f func(*schema.Event) error) error {
	rows, err := r.server.Select(ctx, r.table, r.order.Selection, "")
	if err != nil {
		return unavailable(err)
	}
	defer rows.Close()
	for {
		tx, err := rows.Next(ctx)
		switch {
		case err == io.EOF:
			return nil
		case ctx.Err() != nil:
			return stopped(nil)
		case err != nil:
			return unavailable(err)
		}
		if err := f(&tx.Events[0]); err != nil {
			return err
		}
	}
}

// print writes lines.
func (r *rowReplay) print(ctx context.Context, out io.Writer) error {
	buffer := bufio.NewWriterSize(out, 64<<10)
	var bad badEvents
	err := r.each(ctx, func(e *schema.Event) error {
		bad.note(e)
		if err := newLine(e).writeTo(buffer); err != nil {
			return fmt.Errorf("relay: replay: %w", err)
		}
		return nil
	})
	if flushed := buffer.Flush(); err == nil && flushed != nil {
		err = fmt.Errorf("relay: replay: %w", flushed)
	}
	if err == nil {
		err = bad.err()
	}
	return err
}

// survey looks at all that is selected, before anything is sent. It refuses ids
// that the table does not have.
func (r *rowReplay) survey(ctx context.Context) (*survey, error) {
	found := &survey{aggregates: map[string]struct{}{}}
	missing := slices.Clone(r.order.IDs)
	err := r.each(ctx, func(e *schema.Event) error {
		found.note(e)
		missing = slices.DeleteFunc(missing, func(id string) bool { return schema.SameID(id, e.ID) })
		return nil
	})
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("%w: --id %s: %s has no such row, or not one that fits the rest; one that was pruned may be in the log: relay replay --from-binlog FILE --id %s --to -",
			ErrUsage, shown(missing[0]), r.table, typed(missing[0]))
	}
	return found, err
}

// survey is what a replay would send.
type survey struct {
	events      int
	aggregates  map[string]struct{}
	bad         badEvents
	first, last time.Time // created
}

func (s *survey) note(e *schema.Event) {
	s.events++
	s.aggregates[e.AggregateID] = struct{}{}
	s.bad.note(e)
	if at := e.CreatedAt; s.first.IsZero() || at.Before(s.first) {
		s.first = at
	}
	if at := e.CreatedAt; at.After(s.last) {
		s.last = at
	}
}

func (s *survey) print(table *schema.Table, out io.Writer) error {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-13s%s\n", name, fmt.Sprintf(format, args...))
	}
	line("table", "%s", table)
	if s.events > 0 {
		line("created", "%s to %s", s.first.Format(time.RFC3339), s.last.Format(time.RFC3339))
	}
	line("replayed", "%d events of %d aggregates", s.events, len(s.aggregates))
	line("bad", "%d events that cannot be sent as they stand", s.bad.count)
	return s.bad.err()
}
