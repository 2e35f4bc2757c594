package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

// ReplayOrder says which parked events to deal with, and how.
type ReplayOrder struct {
	Again
	Drop    []string // ids to let go without sending them
	DropAll bool     // let all go, and the file with them, whatever it holds
}

// Replay sends what is parked, in the order of each aggregate, and takes out
// of the parked file what the broker has confirmed. An event that still cannot
// be sent stays, and so do those behind it; then the error wraps
// ErrDifferences. One that is not selected stays, too, with those behind it. The
// source is not asked: where Config names it, or its table with the database, the
// checkpoint must be of that. No relay may run meanwhile: the checkpoint is locked.
// That does not hold for DryRun, nor for another destination than the exchange:
// what goes there is a copy, and all stays parked.
func Replay(ctx context.Context, cfg Config, order ReplayOrder, out io.Writer) error {
	cfg.setDefaults()
	cfg.Broker = order.broker(cfg.Broker)
	outbox := "" // of the checkpoint, whichever that is
	if cfg.Source.DSN != "" {
		_, database, table, err := cfg.Source.Parse()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrUsage, err)
		}
		outbox = database + "." + table
	} else if strings.Contains(cfg.Source.Table, ".") {
		outbox = cfg.Source.Table
	}
	switch {
	case order.DryRun:
		return listParked(cfg.Checkpoint, outbox, order, out)
	case !order.DropAll && (order.To == ToLines || order.To.queue() != ""):
		return copyParked(ctx, cfg, outbox, order, out)
	}
	open := checkpoint.Open
	if order.DropAll {
		open = checkpoint.Override // one that is damaged tells of nothing
	}
	file, err := open(cfg.Checkpoint)
	if err != nil {
		return unfit(err)
	}
	defer file.Close()
	if order.DropAll {
		return dropAll(file, outbox, out)
	}
	state, exists := file.State()
	p, err := parkedOf(file.Path(), outbox, state, exists, order)
	if err != nil || !exists || !p.exists {
		return err
	}
	u := &unparking{cfg: cfg, order: order, out: out, left: p.events, stuck: map[string]bool{}}
	if u.end, err = p.open(); err != nil {
		return err
	}
	defer u.end.close()
	err = u.run(ctx)
	return u.leave(&p, file, err)
}

// parkedOf reads the parked file beside a checkpoint and refuses what does not
// fit: another outbox, a file that is damaged, an id that is not there.
func parkedOf(path, outbox string, state checkpoint.State, exists bool, order ReplayOrder) (parked, error) {
	if exists {
		if err := ofOutbox(path, state, outbox); err != nil {
			return parked{}, err
		}
	}
	p, err := parkedBeside(path, state, exists)
	if err != nil {
		return p, err
	}
	for _, id := range order.Drop {
		if !p.dropped[id] && !slices.ContainsFunc(p.events, func(e Line) bool { return e.ID == id }) {
			return p, fmt.Errorf("%w: --drop %s: no such event is parked in %s; list them with: relay replay --parked --dry-run", ErrUsage, shown(id), p.path)
		}
	}
	return p, nil
}

// ofOutbox is sameOutbox without asking the server, which may name the table
// with capital letters or without. An empty outbox is any.
func ofOutbox(path string, state checkpoint.State, outbox string) error {
	if outbox == "" || strings.EqualFold(state.Table, outbox) {
		outbox = state.Table
	}
	return sameOutbox(path, state, binlog.Flavor(state.Flavor), outbox)
}

// shown is an id as it can be typed and seen.
func shown(id string) string {
	if strings.ContainsFunc(id, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(id)
	}
	return cmp.Or(id, "''")
}

// readBeside reads what is parked beside a checkpoint. It takes no lock, so a
// relay may run.
func readBeside(path, outbox string, order ReplayOrder) (parked, error) {
	path, err := checkpoint.Path(path)
	if err != nil {
		return parked{}, unfit(err)
	}
	state, err := checkpoint.Read(path)
	exists := !errors.Is(err, fs.ErrNotExist)
	if exists && err != nil {
		return parked{}, unfit(err)
	}
	return parkedOf(path, outbox, state, exists, order)
}

// listParked prints what is parked, of what is selected.
func listParked(path, outbox string, order ReplayOrder, out io.Writer) error {
	p, err := readBeside(path, outbox, order)
	if err != nil {
		return err
	}
	stuck := map[string]string{} // by aggregate: the id of the event that holds it
	for _, e := range p.events {
		if !order.takes(&e) {
			if e.holds() {
				stuck[e.AggregateID] = cmp.Or(stuck[e.AggregateID], e.ID)
			}
			continue
		}
		if err := e.foresee(order, stuck); err != nil {
			return err
		}
		if err := e.writeTo(out); err != nil {
			return err
		}
	}
	return nil
}

// foresee tells what a replay would do with the event, as far as that can be
// told without the broker, and why it would keep it.
func (l *Line) foresee(order ReplayOrder, stuck map[string]string) error {
	if order.DropAll || slices.Contains(order.Drop, l.ID) {
		l.Would = "drop"
		return nil
	}
	if holder, held := stuck[l.AggregateID]; held {
		l.Would, l.Behind = "keep", holder
		return nil
	}
	_, err := l.sendable()
	var bad *schema.BadEventError
	switch {
	case err == nil:
		l.Would = "send"
		return nil
	case !errors.As(err, &bad):
		return err
	}
	l.Would, l.Reason = "keep", bad.Reason
	if l.holds() {
		stuck[l.AggregateID] = l.ID
	}
	return nil
}

// dropAll lets everything go that is parked: the checkpoint forgets the file,
// which is kept under another name.
func dropAll(file *checkpoint.File, outbox string, out io.Writer) error {
	state, exists := file.State()
	path := file.Path() + parkedSuffix
	if exists {
		if err := ofOutbox(file.Path(), state, outbox); err != nil {
			return err
		}
		if state.Parked != nil {
			fmt.Fprintf(out, "dropped   %d events of which the checkpoint tells\n", state.Parked.Events)
			state.Parked = nil
			if err := file.Save(state); err != nil {
				return err
			}
		}
	}
	kept := path + "." + time.Now().UTC().Format("20060102T150405.000000Z")
	err := os.Rename(path, kept)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err = cmp.Or(err, syncDirectory(path)); err != nil {
		return fmt.Errorf("%w: parked events: %w", ErrUnfit, err)
	}
	fmt.Fprintf(out, "kept      %s\n", kept)
	return nil
}

// unparking is one replay of a parked file.
type unparking struct {
	cfg   Config
	order ReplayOrder
	out   io.Writer

	broker *exchange.Publisher // nil: not connected
	end    *parkedEnd          // of the file: what is gone is noted there
	synced time.Time           // when the notes last were
	gone   int                 // events sent or dropped
	kept   []Line              // events that stay
	left   []Line              // events that are still to be looked at
	stuck  map[string]bool     // aggregates with an event that stays
}

// run goes through what is left, until the first error.
func (u *unparking) run(ctx context.Context) error {
	defer u.disconnect()
	for len(u.left) > 0 {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("%w: stopped", ErrUnavailable)
		}
		if err := u.next(ctx, &u.left[0]); err != nil {
			return unavailable(err)
		}
		u.left = u.left[1:]
	}
	return nil
}

func (u *unparking) disconnect() {
	if u.broker != nil {
		u.broker.Close()
		u.broker = nil
	}
}

// next deals with one event.
func (u *unparking) next(ctx context.Context, e *Line) error {
	if slices.Contains(u.order.Drop, e.ID) {
		return u.note(goneDropped, e)
	}
	if u.stuck[e.AggregateID] || !u.order.takes(e) {
		u.kept = append(u.kept, *e)
		u.stuck[e.AggregateID] = u.stuck[e.AggregateID] || e.holds()
		return nil
	}
	err := u.send(ctx, e)
	var bad *schema.BadEventError
	switch {
	case err == nil:
		return u.note(goneSent, e)
	case errors.As(err, &bad):
		fmt.Fprintf(u.out, "kept      %s: %s\n", shown(e.ID), bad.Reason)
		u.kept = append(u.kept, *e)
		if e.holds() {
			u.stuck[e.AggregateID] = true
		}
		return nil
	}
	return err
}

// note writes down, before anything else is sent, that the event waits no more.
func (u *unparking) note(gone string, e *Line) error {
	u.gone++
	err := cmp.Or(u.end.note(parkedNote{Gone: gone, ID: e.ID, Sequence: e.Sequence}), u.end.buffer.Flush())
	if now := time.Now(); err == nil && now.Sub(u.synced) > saveInterval {
		u.synced, err = now, u.end.sync()
	}
	word := map[string]string{goneSent: "confirmed", goneDropped: "dropped  "}[gone]
	fmt.Fprintf(u.out, "%s %s (sequence %d)\n", word, shown(e.ID), e.Sequence)
	if err != nil {
		return fmt.Errorf("%w; that event %s is %s could not be noted", err, shown(e.ID), gone)
	}
	return nil
}

// send sends one event and waits for its receipt, after a stop for the drain
// timeout at most. One that cannot be sent is a *schema.BadEventError.
func (u *unparking) send(ctx context.Context, e *Line) error {
	event, err := e.sendable()
	if err != nil {
		return err
	}
	if u.broker == nil {
		if u.broker, err = exchange.Dial(ctx, u.cfg.Broker); err != nil {
			return err
		}
	}
	u.broker.Publish(event)
	stopped := ctx.Done()
	var deadline <-chan time.Time
	for {
		select {
		case receipts, ok := <-u.broker.Receipts():
			if ok { // there is one event in flight
				return receipts[0].Err
			}
			err := u.broker.Err()
			u.disconnect() // the broker may have closed the channel on that event
			return err
		case <-stopped:
			stopped, deadline = nil, time.After(u.cfg.DrainTimeout)
		case <-deadline:
			return fmt.Errorf("stopped, and the broker took longer than the drain timeout of %s; event %s is sent again", u.cfg.DrainTimeout, shown(e.ID))
		}
	}
}

// leave writes the file anew without what is gone, tells the checkpoint, and
// returns how the replay ended.
func (u *unparking) leave(p *parked, file *checkpoint.File, cause error) error {
	state, _ := file.State()
	left := append(u.kept, u.left...)
	if u.gone > 0 || len(left) == 0 {
		mark, err := p.rewrite(left, state.Parked, u.order.Drop)
		if err == nil {
			state.Parked = mark
			err = file.Save(state)
		}
		if err == nil && mark == nil {
			err = cmp.Or(os.Remove(p.path), syncDirectory(p.path))
		}
		cause = errors.Join(cause, err)
	}
	switch {
	case cause != nil:
		return fmt.Errorf("%w; %d events are still parked in %s; to go on: relay replay --parked%s", cause, len(left), p.path, u.drops())
	case len(left) > 0:
		return fmt.Errorf("%w: %d events are still parked in %s; let one go with: relay replay --parked --drop ID", ErrDifferences, len(left), p.path)
	}
	return nil
}

// drops are the flags for what is still to be let go.
func (u *unparking) drops() (flags string) {
	for _, id := range u.order.Drop {
		if slices.ContainsFunc(u.left, func(e Line) bool { return e.ID == id }) {
			flags += " --drop " + typed(id)
		}
	}
	return flags
}

// typed is a text as a shell takes it for one word.
func typed(text string) string {
	if text != "" && strings.IndexFunc(text, func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && !strings.ContainsRune("-_.:/@+=", r)
	}) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}
