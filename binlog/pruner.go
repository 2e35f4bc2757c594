package binlog

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxrelay/relay/schema"
)

// Old says which rows are old enough.
type Old struct {
	Before time.Time // they were created before, and, if Published, stamped before
	// Published takes only rows that are stamped published.
	Published bool
	// Topics are those of the rows that the checkpoint tells about; others are
	// taken only where they are stamped published. The zero Topics: all.
	Topics schema.Topics
}

// chunk is how many rows are looked at between two questions whether what is
// there was confirmed.
const chunk = 20_000

// Pruner walks once along the rows of a table that are old, in short reads that
// remember their place, and deletes of them what it is told to. Its reads lock
// nothing, and its deletions pass over rows that somebody has locked. It is used
// by one goroutine.
type Pruner struct {
	// Looked is the number of rows that were read.
	Looked int64

	table   *Prunable
	old     Old
	status  *schema.Status // nil: there is none, or it is not asked
	index   string         // along which it walks
	grouped bool           // by status, which is the index's first column
	timed   bool           // the index has the time in front of the key
	conn    *sql.Conn
	groups  []sql.NullString // what is left of them, by status; the first is walked along
	after   []string         // the last row's order in that; nil: the walk begins
	part    string           // of a partitioned table; empty: all of it
}

// OldRow is a row that a Pruner has found.
type OldRow struct {
	key []string // as it was selected
	at  string
	id  string
}

// Found are rows that were visible at one moment.
type Found struct {
	Rows []OldRow
	// Visible holds the transactions that the rows are of. Nil where the table
	// itself tells which rows may go.
	Visible *GTIDSet
	End     bool // there are no more
}

// Deletion is what became of rows.
type Deletion struct {
	Deleted int64
	Locked  int64 // by somebody else
	Changed int64 // gone meanwhile, or no longer old
}

// Pruner begins a walk. The caller closes it. The error wraps schema.ErrTable
// where rows can't be told published, and the rows are to be.
func (s *Server) Pruner(ctx context.Context, table *Prunable, old Old) (*Pruner, error) {
	p := &Pruner{table: table, old: old}
	if table.Outbox != nil && (old.Published || !old.Topics.All()) {
		status, err := table.Outbox.Status()
		if err != nil && old.Published {
			return nil, err
		}
		if err == nil {
			p.status = &status
		}
	}
	p.choose()
	var err error
	if p.conn, err = s.scans.Conn(ctx); err != nil {
		return nil, s.explain(err)
	}
	for _, statement := range []string{
		"SET SESSION time_zone = '+00:00'",
		"SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED", // no locks between rows
		"SET SESSION innodb_lock_wait_timeout = 1, lock_wait_timeout = 1",
	} {
		if _, err := p.conn.ExecContext(ctx, statement); err != nil {
			p.Close()
			return nil, s.explain(err)
		}
	}
	return p, nil
}

// Close ends the walk.
func (p *Pruner) Close() {
	// The session's settings must not reach the pool: drop the connection.
	p.conn.Raw(func(any) error { return driver.ErrBadConn }) //nolint:errcheck // that is its error
	p.conn.Close()
}

// choose finds what to walk along: an index on the time, or on the status and
// the time, else the primary key.
func (p *Pruner) choose() {
	t := p.table
	p.index = "PRIMARY"
	var status string
	if t.Outbox != nil {
		if c, ok := t.Outbox.Column(schema.RoleStatus); ok {
			status = c.Name
		}
	}
	for _, x := range t.indexes {
		switch {
		case x.begins(t.at.Name):
			if !p.timed || p.grouped && !p.old.Published {
				p.index, p.timed, p.grouped = x.name, true, false
			}
		case status != "" && x.begins(status, t.at.Name):
			if !p.timed || p.old.Published {
				p.index, p.timed, p.grouped = x.name, true, true
			}
		}
	}
}

// Rows finds the next rows that are old: some thousands, or fewer at the end.
func (p *Pruner) Rows(ctx context.Context) (f Found, err error) {
	if p.groups == nil {
		if err := p.group(ctx); err != nil {
			return f, err
		}
	}
	for len(f.Rows) < chunk && len(p.groups) > 0 {
		more, err := p.read(ctx, chunk, &f)
		if err != nil {
			return f, err
		}
		if !more {
			p.groups, p.after = p.groups[1:], nil
		}
	}
	f.End = len(p.groups) == 0
	if p.table.Outbox == nil || p.old.Published {
		return f, nil
	}
	f.Visible, err = p.table.server.dialect.visible(ctx)
	return f, err
}

// group finds the groups to walk along.
func (p *Pruner) group(ctx context.Context) (err error) {
	p.groups = []sql.NullString{{}}
	switch {
	case p.grouped && p.old.Published:
		p.groups[0] = sql.NullString{String: fmt.Sprint(p.status.Published), Valid: true}
	case p.grouped:
		p.groups, err = p.statuses(ctx)
	}
	return err
}

// statuses are the values of the status that there are, which an index that
// begins with it tells at once; where there is no status, one that stands for
// all.
func (p *Pruner) statuses(ctx context.Context) ([]sql.NullString, error) {
	if !p.grouped && !p.old.Published {
		return []sql.NullString{{}}, nil
	}
	status, _ := p.table.Outbox.Column(schema.RoleStatus)
	rows, err := p.conn.QueryContext(ctx, "SELECT DISTINCT "+chosen(status)+" FROM "+p.from())
	if err != nil {
		return nil, p.explain(err)
	}
	defer rows.Close()
	list := []sql.NullString{}
	for rows.Next() {
		var value sql.NullString
		if err := rows.Scan(&value); err != nil {
			return nil, p.explain(err)
		}
		list = append(list, value)
	}
	return list, rows.Err()
}

// read adds to what was found the old ones of the next rows, at most limit; more
// is false when there were fewer.
func (p *Pruner) read(ctx context.Context, limit int, f *Found) (more bool, err error) {
	q := p.query(limit)
	rows, err := p.conn.QueryContext(ctx, q.text, q.args...)
	if err != nil {
		return false, p.explain(err)
	}
	defer rows.Close()
	width := len(p.table.key)
	cells := make([]sql.RawBytes, len(p.selected()))
	n := 0
	for rows.Next() {
		if err := rows.Scan(pointers(cells)...); err != nil {
			return false, p.explain(err)
		}
		n++
		texts := make([]string, width+2)
		for i := range texts {
			texts[i] = string(cells[i])
		}
		row := OldRow{key: texts[:width], at: texts[width], id: texts[width+1]}
		p.after = p.order(row)
		if due, err := p.due(cells); err != nil {
			return false, err
		} else if due {
			f.Rows = append(f.Rows, row)
		}
	}
	p.Looked += int64(n)
	if err := rows.Err(); err != nil {
		return false, p.explain(err)
	}
	return n == limit, nil
}

// due tells whether the row that was read is to go.
func (p *Pruner) due(cells []sql.RawBytes) (bool, error) {
	at := len(p.table.key) + 2
	old, published := string(cells[at]) == "1", string(cells[at+1]) == "1"
	if !old || published || p.old.Topics.All() || p.table.Outbox == nil {
		return old, nil
	}
	var event schema.Event
	for i, into := range []*string{&event.Topic, &event.EventType} {
		text := cells[at+2+i]
		if c, ok := p.table.Outbox.Column(typeRoles[i]); ok && c.Converted() {
			var err error
			if text, err = schema.UTF8(c.Charset, text); err != nil {
				return false, nil // it makes no event
			}
		}
		*into = string(text)
	}
	return p.old.Topics.Want(event.Type()), nil
}

// typeRoles are those that an event's type is of, the preferred one first.
var typeRoles = []schema.Role{schema.RoleTopic, schema.RoleEventType}

// Delete deletes the rows in one transaction, but for those that somebody has
// locked, and those that are not as they were found. It needs the privilege
// DELETE on the table.
func (p *Pruner) Delete(ctx context.Context, rows []OldRow) (d Deletion, err error) {
	tx, err := p.conn.BeginTx(ctx, nil)
	if err != nil {
		return d, p.explain(err)
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing
	mine, others, err := p.lock(ctx, tx, rows)
	if err == nil && len(others) > 0 {
		q := p.keyed(others)
		err = tx.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+p.from()+" WHERE "+q.text, q.args...).Scan(&d.Locked)
	}
	d.Changed = int64(len(rows)-len(mine)) - d.Locked
	if err == nil && len(mine) > 0 {
		var result sql.Result
		q := p.keyed(mine)
		if result, err = tx.ExecContext(ctx, "DELETE FROM "+p.from()+" WHERE "+q.text, q.args...); err == nil {
			d.Deleted, err = result.RowsAffected()
		}
	}
	if err == nil {
		err = tx.Commit()
	}
	if waited(err) { // of a lock that is not on the row itself
		return Deletion{Locked: int64(len(rows))}, nil
	}
	if err != nil {
		return Deletion{}, p.explain(err)
	}
	return d, nil
}

// lock locks those rows that can be had at once. Mine are those of them that are
// as they were found; others are locked by somebody else, or gone.
func (p *Pruner) lock(ctx context.Context, tx *sql.Tx, rows []OldRow) (mine, others []OldRow, err error) {
	q := clause{text: "SELECT "}
	for i, c := range p.selected() {
		if i > 0 {
			q.add(", ")
		}
		q.join(c)
	}
	q.add(" FROM " + p.from() + " WHERE ")
	q.join(p.keyed(rows))
	q.add(" FOR UPDATE SKIP LOCKED")
	found, err := tx.QueryContext(ctx, q.text, q.args...)
	if err != nil {
		return nil, nil, err
	}
	defer found.Close()
	cells := make([]sql.RawBytes, len(p.selected()))
	width := len(p.table.key)
	had := map[string]string{}
	for found.Next() {
		if err := found.Scan(pointers(cells)...); err != nil {
			return nil, nil, err
		}
		key := make([]string, width)
		for i := range key {
			key[i] = string(cells[i])
		}
		due, err := p.due(cells)
		if err != nil {
			return nil, nil, err
		}
		had[joined(key)] = ""
		if due {
			had[joined(key)] = string(cells[width])
		}
	}
	for _, row := range rows {
		switch at, ok := had[joined(row.key)]; {
		case !ok:
			others = append(others, row)
		case at == row.at:
			mine = append(mine, row)
		}
	}
	return mine, others, found.Err()
}

// joined is a key as one text, which no other key has.
func joined(key []string) string {
	if len(key) == 1 {
		return key[0]
	}
	return fmt.Sprintf("%q", key)
}

// waited tells whether a lock was waited for in vain, or in a circle.
func waited(err error) bool {
	var refusal *mysql.MySQLError
	return errors.As(err, &refusal) && (refusal.Number == 1205 || refusal.Number == 1213)
}

// Without are the rows whose ids are not among these, as an event has them.
func (p *Pruner) Without(rows []OldRow, ids []string) []OldRow {
	if len(ids) == 0 {
		return rows
	}
	kept := map[string]bool{}
	odd := false // one of them has an id that no text has
	for _, id := range ids {
		switch value, err := schema.ParseID(p.table.id, id); value := value.(type) {
		case []byte:
			kept[string(value)] = true
		case string:
			kept[value] = true
		default:
			odd = odd || err != nil
		}
		odd = odd || id == ""
	}
	return slices.DeleteFunc(slices.Clone(rows), func(row OldRow) bool {
		id := []byte(row.id)
		whole := len(id) > 0
		switch c := p.table.id; {
		case c.Converted():
			text, err := schema.UTF8(c.Charset, id)
			id, whole = text, whole && err == nil
		case c.Kind == schema.Text:
			whole = whole && utf8.Valid(id)
		}
		return kept[string(id)] || odd && !whole
	})
}

func (p *Pruner) from() string {
	if p.part != "" {
		return p.table.server.quoted() + " PARTITION (" + quote(p.part) + ")"
	}
	return p.table.server.quoted()
}

func (p *Pruner) explain(err error) error {
	return p.table.server.explainFor(err, "SELECT, DELETE")
}
