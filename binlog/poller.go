package binlog

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxrelay/relay/schema"
)

const (
	// batchBytes is how many bytes of payloads a batch has before no more of its
	// rows are read.
	batchBytes = 32 << 20
	// orphanTimeout is how long a server keeps the rows of a poller from which it
	// hears nothing, not even that it is gone: its host is down. In seconds.
	orphanTimeout = 60
)

// Poller claims pending rows of the outbox, a batch at a time, for one who
// publishes and stamps them. Any number of pollers may work on a table: no row
// is in two batches at a time, and none waits for another. When a poller dies
// its rows are free again. It is used by one goroutine; after an error it is of
// no more use than to be closed.
type Poller struct {
	order  *Backfill // one that has not begun: its connection, its reader of rows, its order
	guard  rowReader
	limit  int
	hint   string // by which index rows are claimed
	status schema.Status
	wanted clause // condition; empty text: all rows are
	maker  schema.Maker
}

// clause is SQL with its values.
type clause struct {
	text string
	args []any
}

// Batch is pending rows that nobody else can claim until Settle.
type Batch struct {
	// Events are in the order of created_at and id. Of one that is Bad those
	// behind it may be sent no sooner than it is dealt with.
	Events []schema.Event
	// Held is how many rows were claimed and are left for later, because an
	// earlier one of their aggregate is pending that is not in the batch.
	Held int
	// Full: there may be more.
	Full bool
}

// Poller makes one that claims so many rows at most of those whose events are
// wanted. The table must be one that CheckPolling has not refused.
func (s *Server) Poller(ctx context.Context, table *schema.Table, topics schema.Topics, limit int) (*Poller, error) {
	status, err := table.Status()
	if err != nil {
		return nil, err
	}
	index, err := s.dispatch(ctx, table)
	if err != nil {
		return nil, err
	}
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return nil, s.explain(err)
	}
	rows := rowReader{server: s, table: table}
	p := &Poller{order: &Backfill{rowReader: rows, conn: conn, keys: pollKeys(table)}, guard: rows, limit: limit, status: status, wanted: rows.wanted(topics)}
	for _, setting := range []string{
		"SET SESSION time_zone = '+00:00'",
		"SET SESSION sql_mode = 'STRICT_ALL_TABLES'",             // rows with a zero date can be compared, too; no stamp is cut off
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", // no locks on gaps, for which writers would wait
		fmt.Sprintf("SET SESSION wait_timeout = %d", orphanTimeout),
	} {
		if _, err := conn.ExecContext(ctx, setting); err != nil {
			p.Close()
			return nil, s.explain(err)
		}
	}
	if index != "" { // by another one, or none, it would sort, and lock all that is pending
		p.hint = " FORCE INDEX (" + quote(index) + ")"
	}
	return p, nil
}

// pollKeys are the roles by which pollers order rows. Eventuate's ids are made
// to be ordered by, and its index for that is on them.
func pollKeys(table *schema.Table) []schema.Role {
	if _, timed := table.Column(schema.RoleCreatedAt); !timed || table.Layout == schema.Eventuate {
		return []schema.Role{schema.RoleID}
	}
	return []schema.Role{schema.RoleCreatedAt, schema.RoleID}
}

// pending completes SELECT … FROM: the pending rows that are wanted, in order.
func (p *Poller) pending(selection string, also ...clause) clause {
	q := clause{selection + " WHERE " + quote(p.status.Column.Name) + " = ?", []any{p.status.Pending}}
	for _, condition := range append(also, p.wanted) {
		if condition.text != "" {
			q.text, q.args = q.text+" AND "+condition.text, append(q.args, condition.args...)
		}
	}
	var order []string
	for _, r := range p.order.keys {
		order = append(order, p.order.name(r))
	}
	q.text += " ORDER BY " + strings.Join(order, ", ")
	return q
}

// claim is the statement that locks so many rows.
func (p *Poller) claim(without clause, limit int) clause {
	q := p.pending(p.order.selection()+p.hint, without)
	q.text += fmt.Sprintf(" LIMIT %d FOR UPDATE SKIP LOCKED", limit)
	return q
}

// without is the condition that a row is of none of these aggregates; none where
// no column holds the aggregate.
func (p *Poller) without(aggregates []string) (q clause, err error) {
	column, ok := p.order.table.Column(schema.RoleAggregateID)
	if !ok || len(aggregates) == 0 {
		return q, nil
	}
	for _, text := range aggregates {
		value, err := schema.ParseID(column, text)
		if err != nil {
			return q, err
		}
		q.args = append(q.args, value)
	}
	name := quote(column.Name)
	q.text = "(" + name + " IS NULL OR " + name + " NOT IN (" + strings.Repeat("?, ", len(q.args)-1) + "?))"
	return q, nil
}

// Claim begins a transaction and locks the next rows in it, without those of some
// aggregates, whose rows the broker refuses for now. It passes over rows that
// others have locked: then it leaves those behind them, of the same aggregate, for
// later. Settle ends the transaction, whatever was claimed.
func (p *Poller) Claim(ctx context.Context, without ...string) (Batch, error) {
	var b Batch
	others, err := p.without(without)
	if err != nil {
		return b, err
	}
	if _, err := p.order.conn.ExecContext(ctx, "START TRANSACTION"); err != nil {
		return b, p.order.server.explain(err)
	}
	last, err := p.read(ctx, &b, p.claim(others, p.limit))
	if err != nil || len(b.Events) == 0 {
		return b, err
	}
	return b, p.hold(ctx, &b, last, others)
}

// Try stamps a row and takes that back. After a failed Settle it tells whether
// the next can succeed, before anything is sent.
func (p *Poller) Try(ctx context.Context) error {
	if _, err := p.order.conn.ExecContext(ctx, "START TRANSACTION"); err != nil {
		return p.order.server.explain(err)
	}
	var one Batch
	if _, err := p.read(ctx, &one, p.claim(clause{}, 1)); err != nil {
		return err
	}
	if len(one.Events) > 0 {
		if err := p.order.server.stamp(ctx, p.order.conn, p.order.table, []string{one.Events[0].ID}); err != nil {
			return err
		}
	}
	if _, err := p.order.conn.ExecContext(ctx, "ROLLBACK"); err != nil {
		return p.order.server.explain(err)
	}
	return nil
}

// read reads the rows that it locks, and returns the keys of the last.
func (p *Poller) read(ctx context.Context, b *Batch, q clause) (last []sql.RawBytes, err error) {
	rows, err := p.order.conn.QueryContext(ctx, q.text, q.args...)
	if err != nil {
		return nil, p.order.server.explainFor(err, "SELECT, UPDATE")
	}
	defer rows.Close()
	now, size := time.Now().UTC().Truncate(time.Microsecond), 0
	for size < batchBytes && rows.Next() {
		row, err := p.order.values(rows)
		if err != nil {
			return nil, err
		}
		last = last[:0]
		for _, key := range p.order.keys {
			last = append(last, slices.Clone(p.order.cells[slices.Index(p.order.roles, key)]))
		}
		event := p.maker.Event(p.order.table, &row, schema.Origin{CommittedAt: now})
		b.Events = append(b.Events, event)
		size += len(event.Payload)
	}
	b.Full = len(b.Events) == p.limit || size >= batchBytes
	if err := rows.Err(); err != nil {
		return nil, p.order.server.explainFor(err, "SELECT, UPDATE")
	}
	return last, nil
}

// hold takes out of a batch the rows before which one of their aggregate is
// pending that is not in it: the claim passed over that one because it was
// locked, or it was committed since.
//
// This is asked behind the claim, of all that is committed by then, and so sees
// each row that was committed before one that was claimed. A row that another
// poller has confirmed and stamped in between is pending no more, and was sent
// first; one that it gave back still is. Rows that are not wanted hold nothing up:
// nobody here would ever send them.
func (p *Poller) hold(ctx context.Context, b *Batch, last []sql.RawBytes, without clause) error {
	claimed := map[string]bool{}
	for i := range b.Events {
		claimed[b.Events[i].ID] = true
	}
	upTo, err := p.upTo(last)
	if err != nil {
		return err
	}
	aggregate := schema.RoleAggregateID
	if _, ok := p.guard.table.Column(aggregate); !ok {
		aggregate = schema.RoleHeaders // of Eventuate
	}
	q := p.pending(p.guard.selectionOf(schema.RoleID, aggregate), upTo, without)
	rows, err := p.order.conn.QueryContext(ctx, q.text, q.args...)
	if err != nil {
		return p.order.server.explain(err)
	}
	defer rows.Close()
	free, behind := map[string]bool{}, map[string]bool{} // ids; aggregates
	for rows.Next() {
		row, err := p.guard.values(rows)
		if err != nil {
			return err
		}
		switch one := p.maker.Event(p.guard.table, &row, schema.Origin{}); { // of which only these two are there
		case !claimed[one.ID]:
			behind[one.AggregateID] = true
		case !behind[one.AggregateID]:
			free[one.ID] = true
		}
	}
	if err := rows.Err(); err != nil {
		return p.order.server.explain(err)
	}
	all := len(b.Events)
	b.Events = slices.DeleteFunc(b.Events, func(e schema.Event) bool { return !free[e.ID] })
	b.Held = all - len(b.Events)
	return nil
}

// upTo is the condition for the rows up to one with these keys. NULL, of which
// only a created_at can be, comes first.
func (p *Poller) upTo(last []sql.RawBytes) (clause, error) {
	keys := *p.order
	var prefix, suffix string
	if len(last) == 2 {
		if created := p.order.name(keys.keys[0]); last[0] == nil {
			prefix, keys.keys, last = created+" IS NULL AND ", keys.keys[1:], last[1:]
		} else {
			prefix, suffix = "("+created+" IS NULL OR ", ")"
		}
	}
	condition, args, err := keys.bound(keys.cursor(last), "<", "<=")
	return clause{prefix + condition + suffix, args}, err
}

// Settle stamps the rows of the batch that were confirmed, and gives the others
// back. After an error it is not known whether they are stamped. A deadlock, with
// a relay run that stamps other rows, takes the transaction back and the locks
// with it: then they are stamped in another one, or their events would come again.
func (p *Poller) Settle(ctx context.Context, ids []string) error {
	for rest := ids; len(rest) > 0; {
		some := rest[:min(len(rest), stampAtOnce)]
		rest = rest[len(some):]
		err := p.order.server.stamp(ctx, p.order.conn, p.order.table, some)
		if contended(err) {
			if _, err := p.order.conn.ExecContext(ctx, "ROLLBACK"); err != nil {
				return p.order.server.explain(err)
			}
			return p.order.server.Stamp(ctx, p.order.table, ids)
		}
		if err != nil {
			return err
		}
	}
	if _, err := p.order.conn.ExecContext(ctx, "COMMIT"); err != nil {
		return p.order.server.explain(err)
	}
	return nil
}

// Hold tells the server that the poller lives, which has a batch and says nothing
// else for long; the error is that the batch is lost.
func (p *Poller) Hold(ctx context.Context) error {
	if err := p.order.conn.PingContext(ctx); err != nil {
		return p.order.server.explain(err)
	}
	return nil
}

// Oldest tells whether any row is pending that is wanted, and when the first of
// them was created; zero where that is not known.
func (p *Poller) Oldest(ctx context.Context) (created time.Time, pending bool, err error) {
	role := schema.RoleCreatedAt
	column, timed := p.guard.table.Column(role)
	if !timed {
		role = schema.RoleID
	}
	q := p.pending(p.guard.selectionOf(role))
	rows, err := p.order.conn.QueryContext(ctx, q.text+" LIMIT 1", q.args...)
	if err != nil {
		return created, false, p.order.server.explain(err)
	}
	defer rows.Close()
	if rows.Next() {
		pending = true
		row, err := p.guard.values(rows)
		if err != nil {
			return created, true, err
		}
		switch v := row[role]; {
		case !timed, v.Null, v.Err != nil:
		case column.Kind == schema.Time:
			created = v.Time
		default: // Eventuate: milliseconds since 1970
			if ms, err := strconv.ParseInt(string(v.Bytes), 10, 64); err == nil {
				created = time.UnixMilli(ms).UTC()
			}
		}
	}
	if err := rows.Err(); err != nil {
		return created, pending, p.order.server.explain(err)
	}
	return created, pending, nil
}

// Unstamped returns a *schema.BadEventError where a wanted row has no status,
// which no poller would ever claim.
func (p *Poller) Unstamped(ctx context.Context) error {
	status := p.status.Column
	without := quote(status.Name) + " IS NULL"
	if status.Kind != schema.Integer {
		without = "(" + without + " OR " + quote(status.Name) + " = '')"
	}
	q := clause{p.guard.selectionOf(schema.RoleID) + " WHERE " + without, nil}
	if p.wanted.text != "" {
		q = clause{q.text + " AND " + p.wanted.text, p.wanted.args}
	}
	rows, err := p.order.conn.QueryContext(ctx, q.text+" LIMIT 1", q.args...)
	if err != nil {
		return p.order.server.explain(err)
	}
	defer rows.Close()
	if !rows.Next() {
		if err := rows.Err(); err != nil {
			return p.order.server.explain(err)
		}
		return nil
	}
	row, err := p.guard.values(rows)
	if err != nil {
		return err
	}
	id := p.maker.Event(p.guard.table, &row, schema.Origin{}).ID
	return &schema.BadEventError{ID: id, Reason: fmt.Sprintf("column %s is NULL or empty, which tells neither that it waits nor that it was sent; to have it sent, and all like it: UPDATE %s SET %s = '%v' WHERE %s",
		status.Name, p.order.from(), quote(status.Name), p.status.Pending, without)}
}

// Close gives back what is claimed and ends the connection.
func (p *Poller) Close() {
	// The session's settings must not reach the pool: drop the connection.
	p.order.conn.Raw(func(any) error { return driver.ErrBadConn })
	p.order.conn.Close()
}
