package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

// explainMargin is how long before its row was created, by the row, the log is
// read for an event: clocks differ.
const explainMargin = time.Minute

// ExplainOrder says which event to look for.
type ExplainOrder struct {
	ID string // its message id
	// Inbox is what consumers have processed: without a DSN it is on the source's
	// server. Nil: none is asked.
	Inbox *exchange.InboxConfig
}

// explanation is what is known of one event.
type explanation struct {
	cfg    Config
	id     string // as it was typed
	inbox  *exchange.InboxConfig
	server *binlog.Server
	table  *schema.Table
	out    io.Writer
	failed error // the first thing that could not be looked at

	row       *schema.Event // nil: the table does not have it
	timeless  bool          // the row does not tell when it was created
	published time.Time     // as the row is stamped; zero: it is not
	tx        *binlog.Tx    // that inserted it; nil: it was not found
	line      *Line         // in the parked file; nil: it is not there
	processed bool          // the inbox has it
}

// Explain tells where an event is: its row, its transaction in the log, how that
// stands to the checkpoint, whether it is parked, and whether the inbox has it. It
// takes no lock and changes nothing. What cannot be looked at is told in its place;
// then the first such error is returned behind all else. An id that is nowhere is
// ErrUsage.
func Explain(ctx context.Context, cfg Config, order ExplainOrder, out io.Writer) error {
	cfg.setDefaults()
	e := &explanation{cfg: cfg, id: order.ID, inbox: order.Inbox, out: out}
	var err error
	if e.server, err = binlog.Open(ctx, cfg.Source); err != nil {
		return unavailable(err)
	}
	defer e.server.Close()
	if e.table, err = e.server.Table(ctx); err != nil {
		return unavailable(err)
	}
	e.say("event", "%s", shown(e.id))
	for _, part := range []struct {
		name string
		look func(context.Context) (string, error)
	}{
		{"row", e.inTable}, {"commit", e.inLog}, {"checkpoint", e.inCheckpoint}, {"parked", e.inParked}, {"confirmed", e.confirmed}, {"inbox", e.inInbox},
	} {
		text, err := part.look(ctx)
		switch {
		case ctx.Err() != nil:
			return fmt.Errorf("%w: stopped before all was looked at", ErrUnavailable)
		case errors.Is(err, ErrUsage), errors.Is(err, binlog.ErrSelection):
			return fmt.Errorf("%w; type the id as messages carry it, in their message_id", err)
		case err != nil:
			text = "not known: " + err.Error()
			if e.failed == nil {
				e.failed = unavailable(err)
			}
		}
		e.say(part.name, "%s", text)
	}
	if e.failed == nil && e.row == nil && e.tx == nil && e.line == nil && !e.processed {
		return fmt.Errorf("%w: no event %s: it is neither in %s, nor in the log that the server still has, nor parked; look at --table and the id, and in an archive of the log: relay replay --from-binlog FILE --id %s --to -",
			ErrUsage, shown(e.id), e.table, typed(e.id))
	}
	return e.failed
}

func (e *explanation) say(name, format string, args ...any) {
	fmt.Fprintf(e.out, "%-13s%s\n", name, fmt.Sprintf(format, args...))
}

// moment is a time as it is printed.
func moment(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05.000000Z") }

func (e *explanation) inTable(ctx context.Context) (string, error) {
	rows, err := e.server.Select(ctx, e.table, schema.Selection{IDs: []string{e.id}}, "")
	if err != nil {
		return "", err
	}
	tx, err := rows.Next(ctx)
	rows.Close()
	if err == io.EOF {
		return fmt.Sprintf("not in %s: pruned, rolled back, or never there", e.table), nil
	}
	if err != nil {
		return "", err
	}
	e.row = &tx.Events[0]
	created := "created " + moment(e.row.CreatedAt)
	if e.timeless = e.row.CreatedAt.Equal(rows.SnapshotAt); e.timeless { // which stands in
		created = "created at a time that it does not tell"
	}
	status, at, err := e.server.Stamped(ctx, e.table, e.row.ID)
	if err != nil {
		return "", err
	}
	text := fmt.Sprintf("in %s: aggregate %s, %s, %s, %d bytes", e.table, shown(e.row.AggregateID), shown(e.row.Type()), created, len(e.row.Payload))
	if status != "" {
		text += ", status " + status
	}
	if e.published = at; !at.IsZero() {
		text += ", published_at " + moment(at)
	}
	if e.row.Bad != nil {
		text += "; it cannot be sent as it stands: " + e.row.Bad.Reason
	}
	return text, nil
}

// inLog looks behind the time at which the row was created, and then in all of
// the log.
func (e *explanation) inLog(ctx context.Context) (string, error) {
	purged, err := e.server.Purged(ctx)
	if err != nil {
		return "", err
	}
	if e.row != nil && !e.timeless {
		from, _, err := e.server.LocateTime(ctx, e.row.CreatedAt.Add(-explainMargin), e.table)
		switch {
		case errors.Is(err, binlog.ErrPlace): // it lies about its time, or its log is purged
		case err != nil:
			return "", err
		default:
			if e.tx, err = e.server.Find(ctx, e.table, from, e.id); err != nil {
				return "", err
			}
		}
	}
	if e.tx == nil {
		e.tx, err = e.server.Find(ctx, e.table, purged, e.id)
		if errors.Is(err, binlog.ErrUnreadable) || errors.Is(err, binlog.ErrChanged) {
			return "not found as far as the log can be read: " + err.Error(), nil
		}
		if err != nil {
			return "", err
		}
	}
	if e.tx == nil {
		oldest, err := e.server.Oldest(ctx, e.table)
		if err != nil {
			return "", err
		}
		text := fmt.Sprintf("not in the log, which goes back to %s", moment(oldest))
		if e.row != nil && !e.timeless && !e.row.CreatedAt.Before(oldest) {
			text += ": the row was written with sql_log_bin=0, so no relay can follow it; to send it: relay replay --id " + typed(e.row.ID)
		}
		return text, nil
	}
	return fmt.Sprintf("%s at %s, ends at %s:%d", e.tx.GTID, moment(e.tx.CommittedAt), e.tx.Place.File, e.tx.Place.Offset), nil
}

// state reads the checkpoint; false: there is none.
func (e *explanation) state() (state checkpoint.State, path string, exists bool, err error) {
	if path, err = checkpoint.Path(e.cfg.Checkpoint); err != nil {
		return state, path, false, err
	}
	state, err = checkpoint.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return state, path, false, nil
	}
	if err == nil {
		err = sameOutbox(path, state, e.server.Flavor, e.table.String())
	}
	return state, path, err == nil, err
}

func (e *explanation) inCheckpoint(context.Context) (string, error) {
	state, path, exists, err := e.state()
	switch {
	case err != nil:
		return "", err
	case !exists:
		return fmt.Sprintf("there is none at %s; is --checkpoint right?", path), nil
	case e.tx == nil:
		return fmt.Sprintf("not known without the transaction; %s was saved %s", path, moment(state.SavedAt)), nil
	}
	covered, err := e.covered(state)
	carried, topicsErr := e.carried(state)
	switch {
	case err != nil || topicsErr != nil:
		return "", cmp.Or(err, topicsErr)
	case !carried:
		return fmt.Sprintf("the relay of %s does not carry %s (--only-topics, --except-topics)", path, shown(e.typ())), nil
	case !covered && state.Partial != nil && state.Partial.GTID == e.tx.GTID.String():
		return fmt.Sprintf("in the middle of this transaction: %d of its events are settled; saved %s", state.Partial.Events, moment(state.SavedAt)), nil
	case !covered:
		return fmt.Sprintf("not yet there: %s, saved %s, does not cover the transaction", path, moment(state.SavedAt)), nil
	case state.Backfill != nil:
		return fmt.Sprintf("behind it, but a backfill is under way, at %s of %s, which may still have to send the row; saved %s", shown(state.Backfill.After), state.Backfill.Until, moment(state.SavedAt)), nil
	}
	return fmt.Sprintf("behind it: %s, saved %s, covers the transaction", path, moment(state.SavedAt)), nil
}

// covered tells whether the state's position has the event's transaction.
func (e *explanation) covered(state checkpoint.State) (bool, error) {
	position, err := binlog.ParseGTIDSet(state.GTIDSet)
	return err == nil && e.tx != nil && position.Has(e.tx.GTID), err
}

// carried tells whether the relay of the checkpoint carries events of this type.
func (e *explanation) carried(state checkpoint.State) (bool, error) {
	topics, err := topicsOf(state.Topics)
	return topics.Want(e.typ()), err
}

// typ is the event's type, as far as it is known.
func (e *explanation) typ() string {
	switch {
	case e.row != nil:
		return e.row.Type()
	case e.tx != nil:
		return e.tx.Events[0].Type()
	}
	return ""
}

func (e *explanation) inParked(context.Context) (string, error) {
	state, path, exists, err := e.state()
	if err != nil || !exists {
		return "no checkpoint, and so no parked file beside it", err
	}
	p, err := parkedBeside(path, state, exists)
	if err != nil {
		return "", err
	}
	for _, l := range p.events {
		if !schema.SameID(e.id, l.ID) {
			continue
		}
		e.line = &l
		why := l.Reason
		if why == "" {
			why = "it waits for one before it of its aggregate"
		}
		return fmt.Sprintf("since %s: %s; to see what would become of it: relay replay --parked --dry-run", moment(l.ParkedAt), why), nil
	}
	return "no", nil
}

func (e *explanation) confirmed(context.Context) (string, error) {
	state, _, exists, err := e.state()
	if err != nil {
		return "", err
	}
	covered, err := e.covered(state)
	carried, topicsErr := e.carried(state)
	switch {
	case err != nil || topicsErr != nil:
		return "", cmp.Or(err, topicsErr)
	case e.line != nil:
		return "no: it is parked", nil
	case !e.published.IsZero():
		return fmt.Sprintf("yes: stamped as published at %s", moment(e.published)), nil
	case exists && !carried:
		return "not as far as a stamp tells, and the checkpoint is of other topics", nil
	case exists && covered && state.Backfill == nil:
		return fmt.Sprintf("yes, before %s, when the checkpoint was saved that covers it, or by a relay before it", moment(state.SavedAt)), nil
	case exists && covered:
		return "not known until the backfill has ended", nil
	case exists && e.tx != nil:
		return fmt.Sprintf("not by %s, when the checkpoint was saved, as far as that tells; to see what holds it up: relay status", moment(state.SavedAt)), nil
	}
	return "not known: only the checkpoint and a stamp tell", nil
}

// messageID is the event's id as messages have it.
func (e *explanation) messageID() string {
	switch {
	case e.row != nil:
		return e.row.ID
	case e.tx != nil:
		return e.tx.Events[0].ID
	case e.line != nil:
		return e.line.ID
	}
	return e.id
}

func (e *explanation) inInbox(ctx context.Context) (string, error) {
	if e.inbox == nil {
		return "not asked: --inbox-dsn 'relay:PASSWORD@tcp(127.0.0.1:3306)/billing'", nil
	}
	reader, err := exchange.OpenInbox(ctx, inboxBeside(e.cfg.Source, *e.inbox))
	if err != nil {
		return "", err
	}
	defer reader.Close()
	at, found, err := reader.ProcessedAt(ctx, e.messageID())
	switch {
	case err != nil:
		return "", err
	case !found:
		return fmt.Sprintf("not in %s: not processed, or pruned there", reader.Name()), nil
	}
	e.processed = true
	return fmt.Sprintf("processed at %s, as %s tells", moment(at), reader.Name()), nil
}
