package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

const (
	// measureInterval is the time between two looks at the server's log files.
	measureInterval = 5 * time.Second
	// lastAttempt is the least time to connect that an attempt gets when
	// --give-up-after is nearly over.
	lastAttempt = time.Second
)

// errNoTime: --give-up-after was over while an attempt went on.
var errNoTime = errors.New("relay: no time is left to connect")

// Relay carries an outbox to the broker.
type Relay struct {
	*supervisor
	file *checkpoint.File
	// condemned are events that the broker closed the channel on: they are
	// parked when they come again.
	condemned map[identity]*schema.BadEventError

	early bool // events before what ended the session are not settled

	table *schema.Table // as the session found it

	blind  string // grants for what text can write to the outbox through and the user may not see; empty: it sees all
	warned bool   // of that
}

// Run relays until ctx ends, then settles what is in flight, saves the
// checkpoint and returns nil. It is the only retry in the program: a session
// that ends with an error which may pass is followed by another one, which
// begins again from the file. It returns an error that will not pass;
// ExitCode sorts it. No other relay may use the checkpoint at the same time.
func Run(ctx context.Context, cfg Config) error {
	cfg.setDefaults()
	if _, _, _, err := cfg.Source.Parse(); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	file, err := checkpoint.Open(cfg.Checkpoint)
	if err != nil {
		return unfit(err)
	}
	defer file.Close()
	state, exists := file.State()
	if err := mayRun(file.Path(), state, exists, cfg.OnBadEvent); err != nil {
		openLast(file.Path(), cfg.Logger).failed(err, ExitCode(err))
		return err
	}
	r, stop, err := newRelay(cfg, file)
	if err != nil {
		return err
	}
	defer stop()
	defer pruneBeside(ctx, cfg, file.Path(), r.board)()
	return r.retry(ctx, r)
}

// newRelay serves the metrics of a relay on an open checkpoint. The caller calls
// stop.
func newRelay(cfg Config, file *checkpoint.File) (r *Relay, stop func(), err error) {
	cfg.Source.Spool = filepath.Dir(file.Path())
	r = &Relay{
		supervisor: newSupervisor(cfg, openLast(file.Path(), cfg.Logger)), file: file, condemned: map[identity]*schema.BadEventError{},
	}
	state, _ := file.State()
	r.board.describe(cfg, state)
	stop, err = r.serve()
	return r, stop, err
}

// mayRun refuses a parked file that is not what the checkpoint says, and to let
// bad events stop the relay where some are parked.
func mayRun(path string, state checkpoint.State, exists bool, policy OnBadEvent) error {
	p, err := parkedBeside(path, state, exists)
	if err == nil {
		err = p.allow(policy)
	}
	return err
}

// allow refuses to let bad events stop the relay where some are parked: later
// ones of their aggregates would pass them.
func (p *parked) allow(policy OnBadEvent) (err error) {
	if len(p.events) > 0 && policy != ParkBad {
		err = fmt.Errorf("%w: %d events are parked in %s, and their aggregates wait for them; send them or let them go: relay replay --parked; or go on parking: --on-bad-event park",
			ErrUnfit, len(p.events), p.path)
	}
	return err
}

// progress is how far the checkpoint is.
func (r *Relay) progress() any {
	state, _ := r.file.State()
	return [2]any{state.GTIDSet, state.Sequence}
}

// restore begins again from the file.
func (r *Relay) restore() error { return r.file.Reload() }

// condemn notes an event that ended the session and can be parked when it
// comes again.
func (r *Relay) condemn(err error) bool {
	var bad *schema.BadEventError
	if r.cfg.OnBadEvent != ParkBad || !errors.As(err, &bad) || bad.Sequence == 0 {
		return false
	}
	who := identity{bad.ID, bad.Sequence}
	if r.condemned[who] != nil {
		return false
	}
	r.condemned[who] = bad
	return r.file.Reload() == nil
}

// wayOut adds to an error about a transaction that cannot be relayed how to go
// on behind it.
func (r *Relay) wayOut(err error) error {
	var bad *schema.BadEventError
	var stuck *binlog.TxError
	state, exists := r.file.State()
	switch {
	case errors.As(err, &bad) && bad.GTID == "":
		return fmt.Errorf("%w%s; then: relay run", err, r.takeOut(bad))
	case !errors.As(err, &stuck):
		return err
	case !exists: // it stands between the snapshot and the place where it was asked for
		return fmt.Errorf("%w; a start from now on begins behind it: relay run", err)
	case state.Backfill != nil:
		return fmt.Errorf("%w; it was written since the backfill began, and to begin that anew, behind it, so that the rows sent already come again: mv %s %[2]s.old; relay run", err, r.file.Path())
	}
	position, failure := binlog.ParseGTIDSet(state.GTIDSet)
	if failure != nil {
		return err
	}
	sequential := position.Flavor() == binlog.MariaDB // a position behind it has all before it, too
	switch {
	case sequential && r.early:
		return fmt.Errorf("%w; events before it are not confirmed yet: start again until they are: relay run", err)
	case sequential && position.Has(stuck.GTID): // its number is not above one before it
		return fmt.Errorf("%w; when the number that SELECT @@GLOBAL.gtid_binlog_pos tells is above that: relay resume --yes --from-gtid with what it tells, which skips all up to it", err)
	}
	behind, skipped := stuck.Skip(position)
	return fmt.Errorf("%w; to go on behind it, when the outbox rows of all that this skips, %s, are dealt with: relay resume --from-gtid '%s' --yes", err, skipped, behind)
}

// takeOut is how a backfill gets past a row. One that tells of many rows has
// said so itself.
func (r *Relay) takeOut(bad *schema.BadEventError) string {
	if bad.Several {
		return ""
	}
	return "; mend the row, or, when it is dealt with, take it out of the backfill: " + binlog.TakeOut(r.table, bad)
}

// session connects both sides and relays once.
func (r *Relay) session(ctx context.Context, connected func() bool) error {
	server, table, err := r.connect(ctx)
	if err != nil {
		r.board.lost("source", err)
		return err
	}
	defer server.Close()
	r.table = table
	r.sourceSecret.accepted()
	r.board.met(server, table)
	r.board.connected(true, false)
	broker, err := exchange.Dial(ctx, r.cfg.Broker)
	if err != nil {
		r.board.lost("broker", err)
		return err
	}
	defer broker.Close()
	r.brokerSecret.accepted()
	r.board.accepted(r.cfg.Broker)
	source, ledger, err := r.begin(ctx, server, table)
	if err != nil {
		r.board.lost("source", err)
		return err
	}
	defer source.Close()
	if !connected() {
		return errors.New("relay: it was just connected")
	}
	if r.blind != "" && !r.warned {
		r.warned = true
		r.log.Info().Str("next", r.blind).Msg("a statement of a session with binlog_format=STATEMENT can write to the outbox unseen, through triggers, views or routines that this user may not see")
	}
	r.followed = time.Now()
	state, _ := r.file.State()
	r.board.saved(state)
	r.board.connected(true, true)
	r.last.over()
	r.log.Info().Str("table", table.String()).Str("layout", string(table.Layout)).Str("server", server.UUID).
		Str("position", ledger.state.GTIDSet).Int64("sequence", ledger.sequence).Bool("backfill", ledger.state.Backfill != nil).
		Msg("following")

	measuring, stop := context.WithCancel(ctx)
	measured, alarm := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(measured)
		r.measure(measuring, server, alarm)
	}()
	defer func() {
		stop()
		<-measured
	}()
	var parking *lot // nil: nothing is parked
	var mark *checkpoint.Parked
	if r.cfg.OnBadEvent == ParkBad {
		if parking, err = openLot(r.file.Path(), ledger.state); err != nil {
			return err
		}
		defer parking.close()
		mark = parking.mark()
	}
	ledger.park(mark)
	want, err := wantsOf(r.cfg.Topics, ledger.state, table)
	if err != nil {
		return err
	}
	s := &session{
		wants: want, alarm: alarm, reload: r.reload, pulse: r.pulse, lot: parking, condemned: r.condemned,
		ledger: ledger, lanes: newLanes(r.cfg.Order), file: r.file, source: source, broker: broker,
		window: r.cfg.Window, declares: r.cfg.Broker.Partitions > 0, drain: r.cfg.DrainTimeout, board: r.board, log: r.log,
	}
	if r.cfg.Stamp {
		ledger.stamps = true
		s.mark = func(ctx context.Context, ids []string) error { return server.Stamp(ctx, table, ids) }
	}
	s.show(true)
	err = s.run(ctx)
	err, r.early = s.stuck(err)
	if err != nil && !errors.Is(err, errReload) {
		side := "source"
		if broker.Err() != nil {
			side = "broker"
		}
		r.board.lost(side, err)
	}
	return err
}

// connect opens the server and refuses one that cannot be followed.
func (r *Relay) connect(ctx context.Context) (*binlog.Server, *schema.Table, error) {
	server, err := binlog.Open(ctx, r.cfg.Source)
	if err != nil {
		return nil, nil, err
	}
	table, requirements, err := server.Check(ctx)
	if err == nil && table != nil && r.cfg.Stamp {
		var stamping []binlog.Requirement
		stamping, err = server.CheckStamping(ctx, table)
		requirements = append(requirements, stamping...)
	}
	for _, requirement := range requirements {
		if err == nil {
			err = requirement.Err()
		}
	}
	if err != nil {
		server.Close()
		return nil, nil, err
	}
	var blind []string
	for _, requirement := range requirements {
		if strings.HasPrefix(requirement.Name, binlog.Sight) && !requirement.OK {
			blind = append(blind, requirement.Fix)
		}
	}
	r.blind = strings.Join(blind, "; ")
	return server, table, nil
}

// begin opens the source at the checkpoint's place, or makes the first
// checkpoint.
func (r *Relay) begin(ctx context.Context, server *binlog.Server, table *schema.Table) (*outbox, *ledger, error) {
	state, exists := r.file.State()
	var snapshot *binlog.Backfill
	var err error
	if !exists {
		state, snapshot, err = r.first(ctx, server, table)
	} else {
		state, snapshot, err = r.goOn(ctx, server, table, state)
	}
	if err != nil {
		return nil, nil, err
	}
	source, err := openOutbox(ctx, server, table, definition(state, r.cfg.Source, table), state, snapshot)
	if err != nil {
		return nil, nil, err
	}
	ledger, err := newLedger(state)
	if err != nil {
		source.Close()
		return nil, nil, err
	}
	return source, ledger, nil
}

// goOn is the state of the checkpoint that is there, with what this relay has to
// do first, and the backfill that it begins; nil: none. Nothing is sent before the
// checkpoint is seen to be writable: what cannot be saved would be sent again and
// again.
func (r *Relay) goOn(ctx context.Context, server *binlog.Server, table *schema.Table, state checkpoint.State) (checkpoint.State, *binlog.Backfill, error) {
	if err := fits(ctx, r.file.Path(), state, server, table); err != nil {
		return state, nil, err
	}
	state, snapshot, err := r.widen(ctx, server, table, state)
	if err != nil {
		return state, nil, err
	}
	if state, err = r.restamp(ctx, server, table, state); err == nil {
		state.ServerUUID = server.UUID
		err = r.file.Save(state)
	}
	if err != nil && snapshot != nil {
		snapshot.Close()
	}
	return state, snapshot, err
}

// first makes the checkpoint of a relay that has none, and saves it before
// anything is sent: from here on its place is known.
func (r *Relay) first(ctx context.Context, server *binlog.Server, table *schema.Table) (checkpoint.State, *binlog.Backfill, error) {
	state := checkpoint.State{Flavor: string(server.Flavor), ServerUUID: server.UUID, Table: table.String(), Topics: keptTopics(r.cfg.Topics)}
	ask := server.Executed
	if r.cfg.Start == Earliest {
		ask = server.Purged
	}
	position, err := ask(ctx)
	if err != nil {
		return state, nil, err
	}
	state.GTIDSet = position.String()
	if state, err = witnessed(ctx, server, table, position, state); err != nil {
		return state, nil, err
	}
	if r.cfg.Start != Earliest { // whose place is long ago
		if err := server.Unaltered(ctx, table); err != nil {
			return state, nil, err
		}
		state.Columns = columnsOf(table.Columns)
	}
	var snapshot *binlog.Backfill
	if r.cfg.Start == Backfill {
		if snapshot, err = server.BackfillFrom(ctx, table, table, position, "", ""); err != nil {
			return state, nil, err
		}
		if snapshot.Until != "" {
			state.Backfill = &checkpoint.Backfill{Until: snapshot.Until, SnapshotAt: snapshot.SnapshotAt}
		}
	}
	if err := r.file.Save(state); err != nil {
		if snapshot != nil {
			snapshot.Close()
		}
		return state, nil, err
	}
	r.log.Info().Str("start", string(r.cfg.Start)).Str("position", state.GTIDSet).Str("checkpoint", r.file.Path()).Msg("first checkpoint made")
	return state, snapshot, nil
}

// witnessed is the state with the newest transaction that the log has of its
// position: by that fits tells that a server was reset before the first one was
// settled behind it. Of a position that is purged there is none.
func witnessed(ctx context.Context, server *binlog.Server, table *schema.Table, position *binlog.GTIDSet, state checkpoint.State) (checkpoint.State, error) {
	tx, err := server.Newest(ctx, position, table)
	if err == nil && tx != nil {
		state.LastGTID, state.CommittedAt = cmp.Or(tx.GTID, tx.Prepared).String(), tx.CommittedAt
	}
	return state, err
}

// fits refuses a checkpoint that is not of this outbox on this server, or that
// the server's log does not go on from.
func fits(ctx context.Context, path string, state checkpoint.State, server *binlog.Server, table *schema.Table) error {
	if err := sameOutbox(path, state, server.Flavor, table.String()); err != nil {
		return err
	}
	position, err := binlog.ParseGTIDSet(state.GTIDSet)
	if err != nil {
		return err
	}
	if err := server.CheckPosition(ctx, position); err != nil || state.LastGTID == "" {
		return err
	}
	return server.Remembers(ctx, state.LastGTID, state.CommittedAt, table)
}

// sameOutbox refuses a checkpoint of another table or another kind of server.
func sameOutbox(path string, state checkpoint.State, flavor binlog.Flavor, table string) error {
	if held := binlog.Flavor(state.Flavor); held != flavor {
		return fmt.Errorf("%w: %s holds a position of %s, and the server is %s, which numbers transactions in another way; look at --mysql-dsn, give another --checkpoint, or move that file away to begin anew", ErrForeign, path, held.Product(), flavor.Product())
	}
	if state.Table != table {
		return fmt.Errorf("%w: %s is of table %s, and this relay is for %s; give another --checkpoint, or move that file away", ErrForeign, path, state.Table, table)
	}
	return nil
}

// measure looks at the server's log files now and then. It raises the alarm
// when the server no longer has what was relayed: a stream does not notice a
// log that is reset under it. So it does when it is refused with a password or
// certificates that the files no longer have, since it could look no more.
func (r *Relay) measure(ctx context.Context, server *binlog.Server, alarm chan<- error) {
	ticker := time.NewTicker(measureInterval)
	defer ticker.Stop()
	for {
		retention, err := server.Retention(ctx)
		if err == nil {
			var behind int64
			if behind, err = server.Behind(ctx, r.board.place()); err == nil {
				r.board.measured(behind, retention)
			}
		}
		state, _ := r.file.State()
		if position, err := binlog.ParseGTIDSet(state.GTIDSet); err == nil {
			if err := server.CheckPosition(ctx, position); errors.Is(err, binlog.ErrDiverged) || errors.Is(err, binlog.ErrAuth) && r.sourceSecret.changed() || r.anotherCertificate(err) {
				alarm <- err
				return
			}
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
