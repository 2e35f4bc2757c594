package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/rs/zerolog"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

// HistoryOrder says which log files to replay, and what of them where to.
type HistoryOrder struct {
	Again
	Files []string
	Only  *binlog.GTIDSet // the transactions to replay. Defaults to all (nil).
}

// replayer replays log files.
type replayer struct {
	cfg     Config
	order   HistoryOrder
	log     zerolog.Logger
	archive *binlog.Archive
	only    *binlog.GTIDSet
	mapped  bool        // a session saw changes of the table
	unseen  bool        // and text that may have been one
	within  binlog.GTID // the transaction that the last session stopped in
	counts  bool        // how much there is, before it is sent
}

// ReplayHistory replays the outbox inserts that stand in log files: for
// history that the server no longer has. It touches no checkpoint. Lines of
// JSON go to out, one for each event, bad ones with the reason; to the broker
// goes what Run would send, by the same rules, but without sequence, and with
// the header replayed. It returns nil when all of it is confirmed. Every error
// after the first event is sent says which transactions are left. Config's
// source is asked for the table's definition where the files do not tell it;
// it may be empty.
func ReplayHistory(ctx context.Context, cfg Config, order HistoryOrder, out io.Writer) error {
	cfg.setDefaults()
	cfg.Broker = order.broker(cfg.Broker)
	r, err := openHistory(ctx, cfg, order)
	switch {
	case err != nil:
		return err
	case order.DryRun:
		return r.count(ctx, len(order.Files), out)
	case order.To == ToLines:
		return r.print(ctx, out)
	}
	if !order.Yes {
		events := 0
		r.counts = true
		if err := r.each(ctx, func(tx *binlog.Tx) error { events += len(tx.Events); return nil }); err != nil {
			return err
		}
		r.counts = false
		if err := order.allow(events, cfg.Broker); err != nil {
			return err
		}
	}
	return r.publish(ctx)
}

func openHistory(ctx context.Context, cfg Config, order HistoryOrder) (*replayer, error) {
	files := binlog.ArchiveConfig{Files: order.Files, Options: cfg.Source.Options}
	if cfg.Source.DSN == "" {
		var ok bool
		if files.Database, files.Table, ok = strings.Cut(cfg.Source.Table, "."); !ok || strings.Contains(files.Table, ".") {
			return nil, fmt.Errorf("%w: the table %q names no database, and there is no --mysql-dsn that does; type: --table shop.outbox", ErrUsage, cfg.Source.Table)
		}
	} else {
		var err error
		if _, files.Database, files.Table, err = cfg.Source.Parse(); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUsage, err)
		}
		files.Define = func(ctx context.Context) (*schema.Table, *binlog.GTIDSet, error) {
			server, err := binlog.Open(ctx, cfg.Source)
			if err != nil {
				return nil, nil, err
			}
			defer server.Close()
			return server.Defined(ctx)
		}
		files.Since = func(ctx context.Context, table *schema.Table, end, executed *binlog.GTIDSet) error {
			server, err := binlog.Open(ctx, cfg.Source)
			if err != nil {
				return err
			}
			defer server.Close()
			return server.SinceFiles(ctx, table, end, executed)
		}
	}
	archive, err := binlog.OpenArchive(ctx, files)
	switch {
	case ctx.Err() != nil:
		return nil, stopped(nil)
	case err != nil:
		return nil, err
	}
	r := &replayer{
		cfg: cfg, order: order, log: cfg.Logger, archive: archive, only: archive.Set,
	}
	if order.Only != nil {
		r.only = order.Only
		switch lacks := order.Only.Minus(archive.Set); {
		case lacks.IsEmpty():
		case order.Only.Minus(lacks).IsEmpty():
			return nil, fmt.Errorf("%w: none of the transactions of --gtid is in the files, which have '%s'; give the files that have them: %s", ErrUnfit, archive.Set, lacks)
		default:
			return nil, fmt.Errorf("%w: %d transactions of --gtid are not in the files: %s; give the files that have them, or ask for those that these have: --gtid '%s'",
				ErrUnfit, lacks.Count(), lacks, order.Only.Minus(lacks))
		}
	}
	return r, nil
}

// each hands every transaction that is asked for to f.
func (r *replayer) each(ctx context.Context, f func(*binlog.Tx) error) error {
	p := r.archive.Play(ctx, r.only.Has)
	defer p.Close()
	source := selecting{p, r.order.Selection}
	for {
		tx, err := source.Next(ctx)
		switch {
		case err == io.EOF:
			r.end(p)
			return nil
		case ctx.Err() != nil:
			return stopped(nil)
		case errors.Is(err, binlog.ErrUnreadable):
			return r.without(err, r.only, p.Within().String())
		case err != nil:
			return unavailable(err)
		}
		if err := f(tx); err != nil {
			return err
		}
	}
}

// end tells what a reader of the files must know.
func (r *replayer) end(p *binlog.Playback) {
	if r.counts {
		return
	}
	if files := r.order.Files; !r.archive.Ended && r.order.Only == nil {
		r.log.Warn().Str("file", files[len(files)-1]).Msg("the last file has no end, as one has that its server is writing, or that is cut off: what came behind its last whole transaction is not replayed")
	}
	for _, gtid := range p.Undecided() {
		r.log.Warn().Stringer("gtid", gtid).Msg("an XA transaction is prepared in the files, and not decided there: it is not replayed")
	}
	if r.unseen || p.Unseen() {
		r.log.Warn().Msg("statements of other tables are in the files as text: if a trigger, view or routine writes from them into the outbox, its rows are not replayed; look for them in the table")
	}
	if !r.mapped && !p.Mapped() {
		r.log.Warn().Str("table", r.cfg.Source.Table).Msg("the files have no change of the table in the transactions that are asked for; is --table right?")
	}
}

// print writes lines.
func (r *replayer) print(ctx context.Context, out io.Writer) error {
	buffer := bufio.NewWriterSize(out, 64<<10)
	var bad badEvents
	err := r.each(ctx, func(tx *binlog.Tx) error {
		for i := range tx.Events {
			bad.note(&tx.Events[i])
			line := newLine(&tx.Events[i])
			line.CommittedAt = tx.CommittedAt
			if err := line.writeTo(buffer); err != nil {
				return fmt.Errorf("relay: replay: %w", err)
			}
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

// count tells what would be replayed.
func (r *replayer) count(ctx context.Context, files int, out io.Writer) error {
	var events, transactions int
	var bad badEvents
	aggregates := map[string]struct{}{}
	err := r.each(ctx, func(tx *binlog.Tx) error {
		if len(tx.Events) > 0 && tx.Last {
			transactions++
		}
		for i := range tx.Events {
			events++
			bad.note(&tx.Events[i])
			aggregates[tx.Events[i].AggregateID] = struct{}{}
		}
		return nil
	})
	if err != nil {
		return err
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-13s%s\n", name, fmt.Sprintf(format, args...))
	}
	line("files", "%d, with %d transactions: %s", files, r.archive.Set.Count(), r.archive.Set)
	if !r.archive.First.IsZero() {
		line("committed", "%s to %s", r.archive.First.Format(time.RFC3339), r.archive.Last.Format(time.RFC3339))
	}
	line("replayed", "%d events of %d aggregates, in %d of %d transactions that are asked for", events, len(aggregates), transactions, r.only.Count())
	line("bad", "%d events that cannot be sent as they stand", bad.count)
	return bad.err()
}

// badEvents counts events that cannot be sent.
type badEvents struct {
	count int
	first *schema.BadEventError
}

func (b *badEvents) note(e *schema.Event) {
	bad := unsendable(e)
	if bad == nil {
		return
	}
	if b.count++; b.first == nil {
		b.first = bad
	}
}

// unsendable is why no message can carry an event; nil: one can.
func unsendable(e *schema.Event) *schema.BadEventError {
	bad := e.Bad
	if bad == nil {
		errors.As(exchange.Check(e), &bad)
	}
	return bad
}

func (b *badEvents) err() error {
	if b.count == 0 {
		return nil
	}
	return fmt.Errorf("%d events cannot be sent as they stand, the first: %w", b.count, b.first)
}

// publish sends the events. A session that ends with an error which may pass
// is followed by another one, which goes on behind what is confirmed.
func (r *replayer) publish(ctx context.Context) error {
	var state checkpoint.State // of this process alone
	var p *binlog.Playback
	sending := resending{
		cfg: r.cfg,
		open: func(ctx context.Context, state checkpoint.State) (Source, error) {
			settled, err := binlog.ParseGTIDSet(state.GTIDSet)
			if err != nil {
				return nil, err
			}
			p = r.archive.Play(ctx, func(g binlog.GTID) bool { return r.only.Has(g) && !settled.Has(g) })
			return &selecting{p, r.order.Selection}, nil
		},
		closed: func(ended bool) {
			if r.within = p.Within(); ended {
				r.end(p)
			}
			r.mapped, r.unseen = r.mapped || p.Mapped(), r.unseen || p.Unseen()
		},
	}
	if err := sending.run(ctx, &state); err != nil {
		return r.left(state, err)
	}
	return nil
}

// selecting hands out of a source's events those that are selected.
type selecting struct {
	Source
	selection schema.Selection
}

func (s *selecting) Next(ctx context.Context) (*binlog.Tx, error) {
	tx, err := s.Source.Next(ctx)
	if err == nil && !s.selection.All() {
		tx.Events = slices.DeleteFunc(tx.Events, func(e schema.Event) bool { return !s.selection.Takes(&e) })
	}
	return tx, err
}

// left adds to an error how to go on with what is not confirmed.
func (r *replayer) left(state checkpoint.State, err error) error {
	settled, parseErr := binlog.ParseGTIDSet(state.GTIDSet)
	if parseErr != nil {
		return errors.Join(err, parseErr)
	}
	rest := r.only.Minus(settled)
	var bad *schema.BadEventError
	switch {
	case errors.As(err, &bad) && bad.GTID != "":
		return r.without(err, rest, bad.GTID)
	case errors.Is(err, binlog.ErrUnreadable):
		return r.without(err, rest, r.within.String())
	}
	return fmt.Errorf("%w; not all is replayed; to go on with the rest: type the same again with --gtid '%s'", err, rest)
}

// without adds to an error how to replay the rest without the transaction that
// it is about.
func (r *replayer) without(err error, rest *binlog.GTIDSet, gtid string) error {
	own, parseErr := binlog.ParseTransactions(gtid)
	if parseErr != nil {
		return errors.Join(err, parseErr)
	}
	if rest = rest.Minus(own); rest.IsEmpty() {
		return fmt.Errorf("%w; nothing else is left", err)
	}
	return fmt.Errorf("%w; to go on without its transaction: type the same again with --gtid '%s'", err, rest)
}
