package relay

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
)

// Way is how an operator names the place to go on from. It is the name of
// resume's flag.
type Way string

// The ways.
const (
	FromGTID Way = "from-gtid" // value: the GTID set of all that is to count as relayed
	FromTime Way = "from-time" // value: an RFC 3339 time; what was committed before it counts as relayed
	FromFile Way = "from-file" // value: FILE:POS; what stands in the log before it counts as relayed
	Undo     Way = "undo"      // no value: the checkpoint before the last resume
	Gap      Way = "gap"       // value: backfill; behind what is purged, whose rows are read from the table
)

// Override is an operator's order to go on from another place.
type Override struct {
	Way    Way
	Value  string
	DryRun bool // tell what would happen and change nothing
	Yes    bool // go on although transactions are skipped
}

func (o Override) String() string { return strings.TrimSpace("--" + string(o.Way) + " " + o.Value) }

// Resume moves the checkpoint to the operator's place and goes on as Run does.
// It refuses a place that the server cannot be followed from, and, without Yes,
// one that skips transactions which the checkpoint has not covered. What it
// found is printed to out. The checkpoint that stood there before, whole or
// damaged, is kept beside the new one.
func Resume(ctx context.Context, cfg Config, order Override, out io.Writer) error {
	cfg.setDefaults()
	find, err := order.finder()
	if err != nil {
		return err
	}
	if _, _, _, err := cfg.Source.Parse(); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if order.DryRun {
		return dryRun(ctx, cfg, find, order, out)
	}
	file, err := checkpoint.Override(cfg.Checkpoint)
	if err != nil {
		return unfit(err)
	}
	defer file.Close()
	r, stop, err := newRelay(cfg, file)
	if err != nil {
		return err
	}
	defer stop()
	if err := r.override(ctx, find, order, out); err != nil {
		return err
	}
	defer pruneBeside(ctx, cfg, file.Path(), r.board)()
	return r.retry(ctx, r)
}

// dryRun only tells what the order would do. A relay may run meanwhile.
func dryRun(ctx context.Context, cfg Config, find func(context.Context, *move) error, order Override, out io.Writer) error {
	file, err := checkpoint.Look(cfg.Checkpoint)
	if err != nil {
		return unfit(err)
	}
	cfg.Source.Spool = filepath.Dir(file.Path())
	server, err := binlog.Open(ctx, cfg.Source)
	if err != nil {
		return unavailable(err)
	}
	defer server.Close()
	table, err := server.Table(ctx)
	if err != nil {
		return unavailable(err)
	}
	m, err := newMove(ctx, server, table, file, order, find)
	if err != nil {
		return unavailable(err)
	}
	m.print(out)
	return nil
}

// finder reads the order and returns what finds its place.
func (o Override) finder() (func(context.Context, *move) error, error) {
	switch o.Way {
	case FromGTID:
		set, err := binlog.ParseGTIDSet(o.Value)
		if err != nil {
			return nil, fmt.Errorf("%w: --from-gtid: %w", ErrUsage, err)
		}
		return func(ctx context.Context, m *move) error { return m.to(ctx, set) }, nil
	case FromTime:
		at, err := time.Parse(time.RFC3339Nano, o.Value)
		if err != nil {
			return nil, fmt.Errorf("%w: --from-time %q is not a time such as 2026-01-02T15:04:05Z or 2026-01-02T16:04:05.5+01:00", ErrUsage, o.Value)
		}
		return func(ctx context.Context, m *move) error {
			set, place, err := m.server.LocateTime(ctx, at, m.table)
			if err != nil {
				return err
			}
			m.place = fmt.Sprintf("%s:%d", place.File, place.Offset)
			return m.to(ctx, set)
		}, nil
	case FromFile:
		colon := strings.LastIndexByte(o.Value, ':')
		offset, err := strconv.ParseInt(o.Value[colon+1:], 10, 64)
		if colon < 1 || err != nil || offset < 0 {
			return nil, fmt.Errorf("%w: --from-file %q is not of the form FILE:POS, such as binlog.000042:4", ErrUsage, o.Value)
		}
		if offset < 4 {
			return nil, fmt.Errorf("%w: --from-file %q: the first place in a log file is 4, behind its magic number; type: --from-file %s:4", ErrUsage, o.Value, o.Value[:colon])
		}
		return func(ctx context.Context, m *move) error {
			set, err := m.server.LocateFile(ctx, o.Value[:colon], offset, m.table)
			if err != nil {
				return err
			}
			return m.to(ctx, set)
		}, nil
	case Undo:
		return func(ctx context.Context, m *move) error { return m.back(ctx) }, nil
	case Gap:
		if o.Value != string(Backfill) {
			return nil, fmt.Errorf("%w: --gap %q is not known; type: --gap backfill", ErrUsage, o.Value)
		}
		return func(ctx context.Context, m *move) error { return m.fill(ctx) }, nil
	}
	return nil, fmt.Errorf("%w: there is no way --%s to resume", ErrUsage, o.Way)
}

// override makes the order's checkpoint. All that a session would refuse is
// refused before the file is changed.
func (r *Relay) override(ctx context.Context, find func(context.Context, *move) error, order Override, out io.Writer) error {
	server, table, err := r.connect(ctx)
	if err != nil {
		return unavailable(err)
	}
	defer server.Close()
	m, err := newMove(ctx, server, table, r.file, order, find)
	if err != nil {
		return unavailable(err)
	}
	m.print(out)
	if err := m.refusal(); err != nil && !order.Yes {
		return err
	}
	if m.next.Parked, err = resumedMark(r.file.Path(), m.old.Parked, order, r.cfg.OnBadEvent, out); err != nil {
		return err
	}
	if err := m.witness(ctx); err != nil {
		return unavailable(err)
	}
	if err := m.try(ctx, r.cfg); err != nil {
		return unavailable(err)
	}
	kept, err := r.file.Keep()
	if err != nil {
		return err
	}
	if kept != "" {
		fmt.Fprintf(out, "kept         %s\n", kept)
	}
	return r.file.Save(m.next)
}

// unavailable marks an error of a command that tries only once.
func unavailable(err error) error {
	if err == nil || lasting(err) != 0 {
		return err
	}
	return fmt.Errorf("%w: %w; when the server answers, type the same again", ErrUnavailable, err)
}
