package relay

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

// AuditOrder says what to compare, over which time, and what to do then.
type AuditOrder struct {
	// Inbox is what consumers have processed; not used with Queues. An empty DSN
	// stands for the source's, with its password and TLS.
	Inbox exchange.InboxConfig

	// Queues are streams or queues that together get all that is published.
	// Defaults to none.
	Queues []string

	// Against are those that get what another publisher sends: then the two are
	// compared, and neither the source nor an inbox is asked. Defaults to none.
	Against []string
	// By names what tells which message of one side is which of the other:
	// message_id, or header:NAME. Defaults to message_id.
	By string

	// The window ends at Until, but Grace before now at the latest: what is newer
	// may be on its way. It begins at Since, which defaults to Window before its
	// end.
	Since, Until  time.Time
	Window, Grace time.Duration

	Republish bool   // send again what is missing
	Textfile  string // for Prometheus's node exporter; empty: none
}

// checkAtOnce is how many ids are looked up by one query.
const checkAtOnce = 500

// early is how long before the window what is published is looked at: the
// clocks of the source and the broker may differ.
const early = time.Hour

// Audit compares what the outbox table holds with what was processed, or with
// what was published, and prints each difference and a summary as lines of JSON.
// The error wraps ErrDifferences where there is one, and ErrUnavailable where a
// server cannot be reached. Memory is limited, whatever is compared: both sides
// are sorted by id, in files, and read side by side.
//
// The table is read first, so what is processed meanwhile counts as that.
func Audit(ctx context.Context, cfg Config, order AuditOrder, out io.Writer) error {
	cfg.setDefaults()
	if len(order.Against) > 0 {
		return compare(ctx, cfg, order, out)
	}
	if _, _, _, err := cfg.Source.Parse(); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if len(order.Queues) == 0 {
		order.Inbox = inboxBeside(cfg.Source, order.Inbox)
		if _, err := order.Inbox.Parse(); err != nil {
			return fmt.Errorf("%w: %w", ErrUsage, err)
		}
	}
	a := &audit{cfg: cfg, order: order, report: newReport(out)}
	defer a.close()
	err := a.run(ctx)
	if ctx.Err() != nil {
		return fmt.Errorf("%w: stopped before the end of the audit", ErrUnavailable)
	}
	return unavailable(err)
}

// audit compares an outbox with what became of it.
type audit struct {
	cfg   Config
	order AuditOrder

	server *binlog.Server
	table  *schema.Table
	other  processed
	period period

	rows, messages sorter
	missing        []string // ids, to be looked at again
	unnamed        int      // rows without an id, which stand under the empty one
	unknown        []sighting
	mend           string // the statement for rows without a creation time
	lost           sorter // what is missing, in the order in which it is to be sent; empty without Republish

	report *report
}

// inboxBeside is the inbox that is asked: without a DSN of its own it is on the
// source's server.
func inboxBeside(source binlog.Config, inbox exchange.InboxConfig) exchange.InboxConfig {
	if inbox.DSN == "" {
		inbox.DSN, inbox.Password, inbox.TLS = source.DSN, source.Password, source.TLS
	}
	return inbox
}

// period is the window: from since on, and before until.
type period struct{ since, until time.Time }

func (p period) has(at time.Time) bool { return !at.Before(p.since) && at.Before(p.until) }

// period finds the window.
func (o AuditOrder) period(now time.Time) (period, error) {
	p := period{o.Since, now.Add(-o.Grace)}
	if !o.Until.IsZero() && o.Until.Before(p.until) {
		p.until = o.Until
	}
	if p.since.IsZero() {
		p.since = p.until.Add(-o.Window)
	}
	if !p.until.After(p.since) {
		return p, fmt.Errorf("%w: the window ends at %s, before it begins at %s; it ends %s (--grace) before now at the latest; type: --since T --until T, with the earlier time first",
			ErrUsage, p.until.UTC().Format(time.RFC3339), p.since.UTC().Format(time.RFC3339), o.Grace)
	}
	return p, nil
}

// processed is what became of events: messages of an inbox, or of queues.
type processed interface {
	name() string
	// each hands out at least what was processed in the period, and of what was
	// created in it all, if not the inbox is asked by has.
	each(ctx context.Context, p period, f func(id string, s sighting) error) error
	// has tells which of some ids, that each did not hand out, are there after
	// all.
	has(ctx context.Context, ids []string) (map[string]bool, error)
	close()
}

// sighting is a message as far as it is kept.
type sighting struct {
	id       string
	at       time.Time // zero: not known
	replayed bool
	times    int
}

func (m sighting) encode() []byte {
	b := binary.BigEndian.AppendUint64(nil, uint64(micros(m.at)))
	if m.replayed {
		return append(b, 1)
	}
	return append(b, 0)
}

func decodeSighting(id string, s side) sighting {
	m := sighting{id: id, times: s.count, at: timeOf(int64(binary.BigEndian.Uint64(s.value)))}
	m.replayed = s.value[8] == 1
	return m
}

// micros is a time since 1970; 0 for none.
func micros(at time.Time) int64 {
	if at.IsZero() {
		return 0
	}
	return at.UnixMicro()
}

// timeOf is the reverse of micros.
func timeOf(micros int64) time.Time {
	if micros == 0 {
		return time.Time{}
	}
	return time.UnixMicro(micros).UTC()
}

func (a *audit) close() {
	a.rows.close()
	a.messages.close()
	a.lost.close()
	if a.other != nil {
		a.other.close()
	}
	if a.server != nil {
		a.server.Close()
	}
}

func (a *audit) run(ctx context.Context) error {
	if err := a.open(ctx); err != nil {
		return err
	}
	s := &a.report.summary
	s.Outbox, s.Against, s.Since, s.Until = a.table.String(), a.other.name(), a.period.since.UTC(), a.period.until.UTC()
	var value [8]byte
	err := a.server.Created(ctx, a.table, a.period.since, a.period.until, func(id string, at time.Time) error {
		s.Rows++
		binary.BigEndian.PutUint64(value[:], uint64(micros(at)))
		return a.rows.add(id, value[:])
	})
	if err == nil {
		err = a.rows.finish()
	}
	if err != nil {
		return err
	}
	if s.Undated, a.mend, err = a.server.Undated(ctx, a.table); err != nil {
		return err
	}
	var unnamed sighting // the messages without an id, none of which is any row's: they are unknown
	err = a.other.each(ctx, a.period, func(id string, m sighting) error {
		s.Messages++
		if id != "" {
			return a.messages.add(id, m.encode())
		}
		if m.at.IsZero() || a.period.has(m.at) {
			if unnamed.times++; unnamed.times == 1 {
				unnamed.at = m.at
			}
		}
		return nil
	})
	if err == nil && unnamed.times > 0 {
		err = a.report.unknown(unnamed)
	}
	if err != nil {
		return err
	}
	if err := merge(&a.rows, &a.messages, func(id string, row, sent side) error { return a.look(ctx, id, row, sent) }); err != nil {
		return err
	}
	if err := a.settle(ctx); err != nil {
		return err
	}
	a.rows.close() // the room on disk
	a.messages.close()
	if err := a.republish(ctx); err != nil {
		return errors.Join(err, a.report.end())
	}
	return a.end()
}

func (a *audit) open(ctx context.Context) (err error) {
	if a.server, err = binlog.Open(ctx, a.cfg.Source); err != nil {
		return err
	}
	if a.table, err = a.server.Table(ctx); err != nil {
		return err
	}
	now, err := a.server.Now(ctx)
	if err != nil {
		return err
	}
	if a.period, err = a.order.period(now); err != nil {
		return err
	}
	if len(a.order.Queues) > 0 {
		a.other, err = openQueues(ctx, a.cfg.Broker, a.order.Queues)
		return err
	}
	reader, err := exchange.OpenInbox(ctx, a.order.Inbox)
	if err == nil {
		a.other = inboxes{reader}
	}
	return err
}

// look takes in what both sides have of an id.
func (a *audit) look(ctx context.Context, id string, row, sent side) error {
	if sent.count == 0 {
		if id == "" {
			a.unnamed = row.count
		}
		if a.missing = append(a.missing, id); len(a.missing) == checkAtOnce {
			return a.settleMissing(ctx)
		}
		return nil
	}
	m := decodeSighting(id, sent)
	if sent.count > 1 && (row.count > 0 || a.period.has(m.at)) {
		if err := a.report.duplicate(m); err != nil {
			return err
		}
	}
	if row.count > 0 || !m.at.IsZero() && !a.period.has(m.at) {
		return nil
	}
	if a.unknown = append(a.unknown, m); len(a.unknown) == checkAtOnce {
		return a.settleUnknown(ctx)
	}
	return nil
}

func (a *audit) settle(ctx context.Context) error {
	if err := a.settleMissing(ctx); err != nil {
		return err
	}
	return a.settleUnknown(ctx)
}

// settleMissing tells of rows that are missing on the other side, if they are
// still there, and were not processed at another time.
func (a *audit) settleMissing(ctx context.Context) error {
	if len(a.missing) == 0 {
		return nil
	}
	there, err := a.other.has(ctx, a.missing)
	if err != nil {
		return err
	}
	ids := a.missing[:0]
	for _, id := range a.missing {
		if id == "" || !there[id] { // what has no id was not sent
			ids = append(ids, id)
		}
	}
	events, err := a.server.Rows(ctx, a.table, ids)
	if err != nil {
		return err
	}
	for _, id := range ids {
		e, ok := events[id]
		if !ok {
			continue
		}
		times := 1
		if id == "" {
			times = a.unnamed
		}
		if err := a.report.missing(id, &e, times); err != nil {
			return err
		}
		if a.order.Republish {
			if err := a.lost.add(a.place(&e), []byte(id)); err != nil {
				return err
			}
		}
	}
	a.missing = a.missing[:0]
	return nil
}

// settleUnknown tells of messages of the window that no row has.
func (a *audit) settleUnknown(ctx context.Context) error {
	if len(a.unknown) == 0 {
		return nil
	}
	ids := make([]string, len(a.unknown))
	for i, m := range a.unknown {
		ids[i] = m.id
	}
	there, err := a.server.Has(ctx, a.table, ids)
	if err != nil {
		return err
	}
	for _, m := range a.unknown {
		if !there[m.id] {
			if err := a.report.unknown(m); err != nil {
				return err
			}
		}
	}
	a.unknown = a.unknown[:0]
	return nil
}

// end tells the result.
func (a *audit) end() error {
	if err := a.report.end(); err != nil {
		return err
	}
	if a.order.Textfile != "" {
		if err := a.report.summary.textfile(a.order.Textfile); err != nil {
			return err
		}
	}
	s := a.report.summary
	if s.Missing == 0 && s.Unknown == 0 && s.Undated == 0 {
		return nil
	}
	next := ""
	switch {
	case s.Missing > 0 && a.order.Republish:
		next = fmt.Sprintf("; %d were sent again", s.Republished)
	case s.Missing > 0:
		next = "; send the missing again: type the same with --republish"
	case s.Unknown > 0:
		next = "; the rows of the unknown were deleted, or another publisher has sent them: type relay explain ID, with an id of the lines above"
	}
	if s.Undated > 0 {
		created, _ := a.table.Column(schema.RoleCreatedAt)
		next += fmt.Sprintf("; %d rows have no %s, so they are in no window and were not looked at; type: %s", s.Undated, created.Name, a.mend)
	}
	if s.Bad > 0 {
		return fmt.Errorf("%w%s: %d events cannot be sent as they stand, the first: %w", ErrDifferences, next, s.Bad, a.report.bad)
	}
	return fmt.Errorf("%w: of %d rows of %s that were created from %s to %s %d are missing in %s, which has %d unknown%s",
		ErrDifferences, s.Rows, s.Outbox, s.Since.Format(time.RFC3339), s.Until.Format(time.RFC3339), s.Missing, s.Against, s.Unknown, next)
}

// inboxes is the inbox as the other side.
type inboxes struct{ *exchange.InboxReader }

func (i inboxes) name() string { return "inbox " + i.Name() }
func (i inboxes) close()       { i.Close() }

func (i inboxes) each(ctx context.Context, p period, f func(string, sighting) error) error {
	return i.Processed(ctx, p.since, func(id string, at time.Time) error { return f(id, sighting{at: at}) })
}

func (i inboxes) has(ctx context.Context, ids []string) (map[string]bool, error) {
	return i.Has(ctx, ids)
}

// queues are streams and queues as the other side.
type queues []*exchange.Reader

func openQueues(ctx context.Context, cfg exchange.Config, names []string) (queues, error) {
	var list queues
	for _, name := range names {
		r, err := exchange.OpenReader(ctx, cfg, name)
		if err != nil {
			list.close()
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

func (q queues) close() {
	for _, r := range q {
		r.Close()
	}
}

func (q queues) name() string {
	var names []string
	for _, r := range q {
		names = append(names, r.Name())
	}
	return "queue " + strings.Join(names, ", ")
}

func (q queues) each(ctx context.Context, p period, f func(string, sighting) error) error {
	return q.read(ctx, p, func(m *exchange.Message) error { return f(m.ID, sighting{at: m.At, replayed: m.Replayed}) })
}

func (q queues) read(ctx context.Context, p period, f func(*exchange.Message) error) error {
	from := p.since.Add(-early)
	if first := time.Unix(0, 0); from.Before(first) { // AMQP has no earlier time
		from = first
	}
	for _, r := range q {
		if err := r.Read(ctx, from, f); err != nil {
			return err
		}
	}
	return nil
}

// has: what a queue did not hand out it does not have.
func (q queues) has(context.Context, []string) (map[string]bool, error) { return nil, nil }
