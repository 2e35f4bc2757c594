package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/rs/zerolog"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

// HistoryOrder says which log files to replay, and where to.
type HistoryOrder struct {
	Files   []string
	Only    *binlog.GTIDSet // the transactions to replay. Defaults to all (nil).
	Publish bool            // to the broker; else lines of JSON
	DryRun  bool            // only count
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

	secret       secret       // of the broker
	certificates certificates // for it
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
	r, err := openHistory(ctx, cfg, order)
	switch {
	case err != nil:
		return err
	case order.DryRun:
		return r.count(ctx, len(order.Files), out)
	case order.Publish:
		return r.publish(ctx)
	}
	return r.print(ctx, out)
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
		secret: secret{path: cfg.BrokerPasswordFile}, certificates: certificates{files: cfg.BrokerTLS},
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
	for {
		tx, err := p.Next(ctx)
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
	if e.Bad == nil {
		return
	}
	if b.count++; b.first == nil {
		b.first = e.Bad
	}
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
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = 200*time.Millisecond, 10*time.Second // half as long again at most
	var state checkpoint.State                                                      // of this process alone
	var since time.Time                                                             // of the trouble; zero: none
	for {
		before := state
		done, err := r.session(ctx, &state)
		switch {
		case done:
			r.log.Info().Int64("events", state.Sequence).Msg("replayed")
			return nil
		case err == nil, ctx.Err() != nil && lasting(err) == 0:
			return r.left(state, stopped(err))
		case lasting(err) != 0 && !(errors.Is(err, exchange.ErrAuth) && r.secret.refused()) && !(errors.Is(err, exchange.ErrTLS) && r.certificates.changed()):
			return r.left(state, err)
		}
		if since.IsZero() || state.GTIDSet != before.GTIDSet || state.Sequence != before.Sequence {
			since = time.Now()
			waits.Reset()
		}
		if limit := r.cfg.GiveUpAfter; limit > 0 && time.Since(since) > limit {
			return r.left(state, fmt.Errorf("%w after %s: %w", ErrUnavailable, limit, err))
		}
		wait := waits.NextBackOff()
		r.log.Warn().Err(err).Str("wait", wait.Round(time.Millisecond).String()).Msg("session ended, another one begins after a wait")
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return r.left(state, stopped(err))
		}
	}
}

// stopped is the end of a replay that was told to stop, and with what.
func stopped(err error) error {
	if err == nil {
		return fmt.Errorf("%w: stopped before the end of the files", ErrUnavailable)
	}
	return fmt.Errorf("%w: stopped before the end of the files: %w", ErrUnavailable, err)
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

// session replays what state does not cover, and moves state over what is
// confirmed. done: that is all.
func (r *replayer) session(ctx context.Context, state *checkpoint.State) (done bool, err error) {
	ledger, err := newLedger(*state)
	if err != nil {
		return false, err
	}
	to := r.cfg.Broker
	to.Replayed = true
	if err := errors.Join(r.secret.next(&to.Password), r.certificates.next(&to.TLS)); err != nil {
		return false, err
	}
	broker, err := exchange.Dial(ctx, to)
	if err != nil {
		return false, err
	}
	defer broker.Close()
	r.secret.accepted()
	settled := ledger.position.Clone()
	p := r.archive.Play(ctx, func(g binlog.GTID) bool { return r.only.Has(g) && !settled.Has(g) })
	defer p.Close()
	s := &session{
		ledger: ledger, lanes: newLanes(r.cfg.Order), source: p, broker: broker, replays: true,
		window: r.cfg.Window, declares: r.cfg.Broker.Partitions > 0, drain: r.cfg.DrainTimeout,
		board: newBoard(), log: r.log,
	}
	err = s.run(ctx)
	*state = ledger.snapshot()
	r.within = p.Within()
	if err == nil && s.ended {
		r.end(p)
	}
	r.mapped, r.unseen = r.mapped || p.Mapped(), r.unseen || p.Unseen()
	return err == nil && s.ended, err
}
