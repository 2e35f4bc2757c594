package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"slices"
	"time"

	"github.com/rs/zerolog"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/schema"
)

// PruneOrder says which rows to delete, and how gently.
type PruneOrder struct {
	OlderThan time.Duration // of a row, by the server's clock. Defaults to 48 h where it is negative.
	// Published deletes only rows that are stamped published, and asks no
	// checkpoint. Defaults to what the checkpoint tells of as confirmed.
	Published bool
	Batch     int           // rows in one transaction. Defaults to 1000.
	Pause     time.Duration // between two. Defaults to none.

	// MaxLag is how far one of Replicas, which are DSNs, may be behind, and with a
	// history list above a million transactions it waits as well; 0: both may be.
	MaxLag   time.Duration
	Replicas []string
	// GiveUpAfter is how long to wait for the checkpoint and for MaxLag. Defaults to
	// for ever (0).
	GiveUpAfter time.Duration

	DropPartitions bool          // drop whole ones instead of deleting their rows
	DryRun         bool          // tell what would go and change nothing
	Every          time.Duration // between the beginnings of two turns; 0: one turn
}

func (o *PruneOrder) setDefaults() {
	if o.OlderThan < 0 {
		o.OlderThan = 48 * time.Hour
	}
	if o.Batch <= 0 {
		o.Batch = 1000
	}
}

// Prune deletes old rows of an outbox, those that the broker has confirmed, or of
// an inbox, and prints what it did to out. It returns nil when ctx ends. An
// outbox's rows go only when the checkpoint file, which a relay keeps, covers all
// transactions that they can be of, tells of no backfill under way, and no event
// of them is parked. Several may prune one table at the same time. The error
// wraps ErrUnavailable where that was waited for in vain.
func Prune(ctx context.Context, cfg Config, order PruneOrder, out io.Writer) error {
	cfg.setDefaults()
	order.setDefaults()
	if _, _, _, err := cfg.Source.Parse(); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	path, err := checkpoint.Path(cfg.Checkpoint)
	if err != nil {
		return unfit(err)
	}
	t := &pruneTurn{access: newAccess(cfg), order: order, path: path, log: cfg.Logger}
	for {
		began := time.Now()
		err := t.run(ctx)
		t.print(out)
		if ctx.Err() != nil && lasting(err) == 0 {
			return nil
		}
		if order.Every == 0 || lasting(err) != 0 && !errors.Is(err, ErrUnavailable) {
			return unavailable(err)
		}
		if err != nil {
			cfg.Logger.Warn().Err(err).Str("next", order.Every.String()).Msg("pruning ended early, and is tried again")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(order.Every - time.Since(began)):
		}
	}
}

const (
	coverBeat = 100 * time.Millisecond // between two looks at the checkpoint
)

// pruneTurn is one walk over the table.
type pruneTurn struct {
	*access
	order PruneOrder
	path  string // of the checkpoint
	log   zerolog.Logger
	// deleted is told how many rows have just gone; nil: nobody wants to know.
	deleted func(int64)

	server *binlog.Server
	table  *binlog.Prunable
	// topics are those of the relay that the checkpoint is of: rows of others go only
	// where they are stamped published.
	topics   schema.Topics
	replicas []*binlog.Server
	strained time.Time // when that was looked at last

	before  time.Time // rows are old that were created before
	tally   binlog.Deletion
	looked  int64
	parked  int64
	pending int64         // that the checkpoint does not cover yet, in the end
	lack    string        // of the checkpoint, for what a dry run found
	dropped []string      // partitions
	kept    []string      // partitions that could not be dropped, and why
	waited  time.Duration // for the checkpoint
	held    time.Duration // for replicas and history
	blind   bool          // the history list may not be seen
	took    time.Duration
}

// access is how the source is reached, by what the files with the password and
// for TLS hold now.
type access struct {
	cfg    binlog.Config
	secret secret
	tls    certificates
}

func newAccess(cfg Config) *access {
	return &access{cfg: cfg.Source, secret: secret{path: cfg.SourcePasswordFile}, tls: certificates{files: cfg.SourceTLS}}
}

func (a *access) next() error {
	return errors.Join(a.secret.next(&a.cfg.Password), a.tls.next(&a.cfg.TLS))
}

// run does one turn.
func (t *pruneTurn) run(ctx context.Context) (err error) {
	*t = pruneTurn{access: t.access, order: t.order, path: t.path, log: t.log, deleted: t.deleted}
	began := time.Now()
	defer func() { t.took = time.Since(began) }()
	if err := t.access.next(); err != nil {
		return err
	}
	if t.server, err = binlog.Open(ctx, t.cfg); err != nil {
		return err
	}
	defer t.server.Close()
	if t.table, err = t.server.Prunable(ctx); err != nil {
		return err
	}
	if err := t.mode(ctx); err != nil {
		return err
	}
	defer func() {
		for _, replica := range t.replicas {
			replica.Close()
		}
	}()
	for _, dsn := range t.order.Replicas {
		replica, err := t.openReplica(ctx, dsn)
		if err != nil {
			return err
		}
		t.replicas = append(t.replicas, replica)
	}
	now, err := t.server.Now(ctx)
	if err != nil {
		return err
	}
	t.before = now.Add(-t.order.OlderThan)
	pruner, err := t.server.Pruner(ctx, t.table, binlog.Old{Before: t.before, Published: t.order.Published, Topics: t.topics})
	if err != nil {
		return err
	}
	defer pruner.Close()
	defer func() { t.looked = pruner.Looked }()
	if t.order.DropPartitions {
		return t.drop(ctx, pruner)
	}
	return t.walk(ctx, pruner)
}

// byCheckpoint tells whether it is the checkpoint that says which rows may go.
func (t *pruneTurn) byCheckpoint() bool { return t.table.Outbox != nil && !t.order.Published }

// mode refuses what would let rows go that were not sent.
func (t *pruneTurn) mode(ctx context.Context) error {
	switch {
	case t.table.Outbox == nil && t.order.Published:
		return fmt.Errorf("%w: %s is an inbox, which has no status; leave out --published", ErrUsage, t.table.Name)
	case t.table.Outbox == nil:
		return nil
	case t.order.Published:
		_, err := t.table.Outbox.Status()
		return err
	}
	if ShadowCheckpoint(t.path) == t.path {
		return fmt.Errorf("%w: checkpoint %s is a shadow's, whose events went to another exchange and tell nothing of what consumers got; give the --checkpoint of the relay that they have their events from", ErrUnfit, t.path)
	}
	state, err := checkpoint.Read(t.path)
	if errors.Is(err, fs.ErrNotExist) {
		way := "; or, where rows are stamped (relay poll, relay run --stamp), delete those: relay prune --published"
		if _, err := t.table.Outbox.Status(); err != nil {
			way = ""
		}
		return fmt.Errorf("%w: there is no checkpoint %s, and without one it is not known which rows of %s were sent; give the one of the relay that runs, as --checkpoint /var/lib/relay/checkpoint.json%s", ErrUnfit, t.path, t.table.Name, way)
	}
	if err != nil {
		return unfit(err)
	}
	if t.topics, err = topicsOf(state.Topics); err != nil {
		return err
	}
	if t.order.DropPartitions && !t.topics.All() {
		return fmt.Errorf("%w: --drop-partitions drops rows of all topics, and the relay of checkpoint %s carries some alone; leave it out, or add --published where all rows are stamped", ErrUsage, t.path)
	}
	return fits(ctx, t.path, state, t.server, t.table.Outbox)
}

func (t *pruneTurn) openReplica(ctx context.Context, dsn string) (*binlog.Server, error) {
	cfg := binlog.Config{DSN: dsn, Table: t.server.TableName(), TLS: t.cfg.TLS}
	if _, _, _, err := cfg.Parse(); err != nil {
		return nil, fmt.Errorf("%w: --replica-dsn: %w", ErrUsage, err)
	}
	return binlog.Open(ctx, cfg)
}

// walk deletes what is old and confirmed.
func (t *pruneTurn) walk(ctx context.Context, pruner *binlog.Pruner) error {
	for {
		found, err := pruner.Rows(ctx)
		if err != nil {
			return err
		}
		rows := found.Rows
		switch {
		case !t.byCheckpoint() || len(rows) == 0:
		case t.order.DryRun:
			if _, t.lack, err = t.lacks(ctx, found.Visible); err != nil {
				return err
			}
		default:
			if err := t.cover(ctx, found.Visible, t.order.GiveUpAfter); err != nil {
				t.pending = int64(len(rows))
				return err
			}
		}
		for some := range slices.Chunk(rows, t.order.Batch) {
			if err := t.batch(ctx, pruner, found.Visible, some); err != nil {
				return err
			}
		}
		if found.End {
			return nil
		}
	}
}

// batch deletes rows that were confirmed.
func (t *pruneTurn) batch(ctx context.Context, pruner *binlog.Pruner, visible *binlog.GTIDSet, rows []binlog.OldRow) error {
	if err := t.relax(ctx); err != nil {
		return err
	}
	if t.byCheckpoint() {
		// Asked anew for each batch: it may have been set back, and a backfill have
		// begun. What is parked is read behind it: the checkpoint covers an event
		// that is parked only when it is in that file.
		state, lacks, err := t.lacks(ctx, visible)
		if err != nil {
			return err
		}
		if lacks != "" && !t.order.DryRun {
			t.pending += int64(len(rows))
			return nil
		}
		ids, err := t.parkedIDs(state)
		if err != nil {
			return err
		}
		left := pruner.Without(rows, ids)
		t.parked += int64(len(rows) - len(left))
		rows = left
	}
	if t.order.DryRun || len(rows) == 0 {
		t.tally.Deleted += int64(len(rows))
		return nil
	}
	d, err := pruner.Delete(ctx, rows)
	t.tally.Deleted, t.tally.Locked, t.tally.Changed = t.tally.Deleted+d.Deleted, t.tally.Locked+d.Locked, t.tally.Changed+d.Changed
	if t.deleted != nil {
		t.deleted(d.Deleted)
	}
	if err != nil {
		return err
	}
	return pause(ctx, t.order.Pause)
}

// parkedIDs are those of the events that wait beside the checkpoint.
func (t *pruneTurn) parkedIDs(state checkpoint.State) (ids []string, err error) {
	p, err := parkedBeside(t.path, state, true)
	if err != nil {
		return nil, err
	}
	for _, event := range p.events {
		ids = append(ids, event.ID)
	}
	return ids, nil
}

// lacks reads the checkpoint and tells why it does not say that all of a set was
// confirmed; empty: it does.
func (t *pruneTurn) lacks(ctx context.Context, set *binlog.GTIDSet) (state checkpoint.State, why string, err error) {
	if state, err = checkpoint.Read(t.path); err != nil {
		return state, "", unfit(err)
	}
	if err := sameOutbox(t.path, state, t.server.Flavor, t.table.Outbox.String()); err != nil {
		return state, "", err
	}
	position, err := binlog.ParseGTIDSet(state.GTIDSet)
	if err != nil {
		return state, "", err
	}
	topics, err := topicsOf(state.Topics)
	if err != nil {
		return state, "", err
	}
	missing := set.Minus(position)
	switch {
	case !topics.Same(t.topics):
		why = "tells of other topics than when this turn began"
	case state.Backfill != nil:
		why = "tells of a backfill under way, of which rows are not sent yet"
	case !missing.IsEmpty() && position.Passed(set).Contains(missing):
		why = fmt.Sprintf("lacks %d transactions%s, which it has passed: XA transactions that are prepared and not decided: XA RECOVER", missing.Count(), listed(missing))
	case !missing.IsEmpty():
		why = fmt.Sprintf("lacks %d transactions%s", missing.Count(), listed(missing))
	}
	return state, why, nil
}

// cover waits until the checkpoint says that all of a set was confirmed.
func (t *pruneTurn) cover(ctx context.Context, set *binlog.GTIDSet, limit time.Duration) error {
	began := time.Now()
	defer func() { t.waited += time.Since(began) }()
	told := false
	for {
		state, lacks, err := t.lacks(ctx, set)
		if err == nil && lacks == "" {
			position, err := binlog.ParseGTIDSet(state.GTIDSet)
			if err == nil { // of a history that the server no longer has it says nothing
				err = t.server.CheckPosition(ctx, position)
			}
			return err
		}
		if err != nil {
			return err
		}
		if waited := time.Since(began); limit > 0 && waited >= limit {
			return fmt.Errorf("%w: nothing was deleted that is not known to be confirmed: for %s the checkpoint %s %s; see whether its relay runs, and what keeps it back: relay status", ErrUnavailable, limit, t.path, lacks)
		} else if !told && waited > 5*time.Second {
			told = true
			t.log.Info().Str("checkpoint", t.path).Str("reason", "it "+lacks).Msg("pruning waits for the checkpoint")
		}
		if err := pause(ctx, coverBeat); err != nil {
			return err
		}
	}
}

// pause waits for d, or returns the context's error.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
