package binlog

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/outboxrelay/relay/schema"
)

// Backfill reads the rows that were in the table before the relay began to
// follow: those, exactly, that transactions of the position inserted, that are
// still there and whose status is not published. It reads one snapshot, in the
// order of an integer id, else of created_at and id: the table does not tell
// the order in which transactions were committed. It is used by one goroutine.
type Backfill struct {
	// Until is the cursor of the last row; empty: there are no rows.
	Until string
	// SnapshotAt is the server's time just after the snapshot was taken.
	SnapshotAt time.Time

	rowReader
	behind *schema.Table // as it was at the position; nil: not known
	conn   *sql.Conn
	rows   *sql.Rows
	keys   []schema.Role   // by which the rows are ordered
	late   map[string]bool // ids of rows that were inserted after the position
	// wanted are the rows to read, published or not; nil: those of a backfill.
	wanted *schema.Selection
}

// cursor is a row's place in the order, as text, in the order of keys.
type cursor []string

// Backfill opens a snapshot and reads the rows behind the cursor after, up to
// the cursor until; empty cursors mean the first row and the last. The position
// is what Executed told before: rows of later transactions, which the stream
// from there brings, are left out, also when a later snapshot has more of them.
func (s *Server) Backfill(ctx context.Context, table *schema.Table, position *GTIDSet, after, until string) (*Backfill, error) {
	return s.BackfillFrom(ctx, table, nil, position, after, until)
}

// BackfillFrom is Backfill where it is known which definition the table had at
// the position; nil: it is not.
func (s *Server) BackfillFrom(ctx context.Context, table, behind *schema.Table, position *GTIDSet, after, until string) (*Backfill, error) {
	conn, err := s.scans.Conn(ctx)
	if err != nil {
		return nil, s.explain(err)
	}
	b := &Backfill{rowReader: rowReader{server: s, table: table}, behind: behind, conn: conn, keys: keys(table)}
	if err := b.open(ctx, position, after, until); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// keys orders by the id alone where it grows with each insert.
func keys(table *schema.Table) []schema.Role {
	id, _ := table.Column(schema.RoleID)
	_, timed := table.Column(schema.RoleCreatedAt)
	if id.Kind == schema.Integer || !timed {
		return []schema.Role{schema.RoleID}
	}
	return []schema.Role{schema.RoleCreatedAt, schema.RoleID}
}

// begin takes the snapshot.
func (b *Backfill) begin(ctx context.Context) error {
	for _, statement := range []string{
		"SET SESSION net_write_timeout = 86400", // a broker that is away must not cost the snapshot
		"SET SESSION time_zone = '+00:00'",
		"SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ",
	} {
		if _, err := b.conn.ExecContext(ctx, statement); err != nil {
			return b.server.explain(err)
		}
	}
	if err := b.server.dialect.snapshot(ctx, b.conn); err != nil {
		return b.server.explain(err)
	}
	var micros int64
	if err := b.conn.QueryRowContext(ctx, "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)").Scan(&micros); err != nil {
		return b.server.explain(err)
	}
	b.SnapshotAt = time.UnixMicro(micros).UTC()
	return nil
}

func (b *Backfill) open(ctx context.Context, position *GTIDSet, after, until string) error {
	if err := b.begin(ctx); err != nil {
		return err
	}
	if err := b.ordered(ctx); err != nil {
		return err
	}
	// That query has locked the table's definition until the snapshot ends.
	if err := b.server.Unaltered(ctx, b.table); err != nil {
		return err
	}
	if b.Until = until; until == "" {
		var err error
		if b.Until, err = b.last(ctx); err != nil || b.Until == "" {
			return err
		}
	}
	var err error
	if b.late, err = b.latecomers(ctx, position); err != nil {
		return err
	}
	return b.query(ctx, after)
}

// ordered refuses rows that have no place in the order.
func (b *Backfill) ordered(ctx context.Context) error {
	name := b.name(b.keys[0])
	var n int
	err := b.conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+b.from()+" WHERE "+name+" IS NULL").Scan(&n)
	if err != nil {
		return b.server.explain(err)
	}
	if n > 0 {
		return &schema.BadEventError{Several: true, Reason: fmt.Sprintf("%d rows of %s have NULL in %s, by which a backfill orders them; type: %s", n, b.table, name, b.placing())}
	}
	return nil
}

// placing is the statement that gives rows without a place in the order one.
func (b *Backfill) placing() string {
	column, _ := b.table.Column(b.keys[0])
	value := "UTC_TIMESTAMP(6)"
	switch {
	case b.keys[0] == schema.RoleID: // no event can be without one
		return "DELETE FROM " + b.from() + " WHERE " + quote(column.Name) + " IS NULL"
	case column.Kind == schema.Integer:
		value = "UNIX_TIMESTAMP() * 1000"
	case column.Zoned:
		value = "NOW(6)"
	}
	return "UPDATE " + b.from() + " SET " + quote(column.Name) + " = " + value + " WHERE " + quote(column.Name) + " IS NULL"
}

// last finds the cursor of the last row.
func (b *Backfill) last(ctx context.Context) (string, error) {
	var names, order []string
	for _, r := range b.keys {
		names = append(names, b.selected(r))
		order = append(order, b.name(r)+" DESC")
	}
	values := make([]sql.RawBytes, len(names))
	rows, err := b.conn.QueryContext(ctx, "SELECT "+strings.Join(names, ", ")+" FROM "+b.from()+
		" ORDER BY "+strings.Join(order, ", ")+" LIMIT 1")
	if err != nil {
		return "", b.server.explain(err)
	}
	defer rows.Close()
	if !rows.Next() {
		return "", rows.Err()
	}
	if err := rows.Scan(pointers(values)...); err != nil {
		return "", b.server.explain(err)
	}
	return b.cursor(values), nil
}

func (b *Backfill) query(ctx context.Context, after string) error {
	selected := b.selection()
	var order []string
	for _, r := range b.keys {
		order = append(order, b.name(r))
	}
	where, args, err := b.where(after)
	if err != nil {
		return err
	}
	rows, err := b.conn.QueryContext(ctx, selected+
		where+" ORDER BY "+strings.Join(order, ", "), args...)
	if err != nil {
		return b.server.explain(err)
	}
	b.rows = rows
	return nil
}

// where is the WHERE clause for the rows behind a cursor, up to Until, that are
// not published, or selected; empty where there are no conditions.
func (b *Backfill) where(after string) (clause string, args []any, err error) {
	var conditions []string
	if b.wanted != nil {
		if conditions, args, err = b.chosen(*b.wanted); err != nil {
			return "", nil, err
		}
	} else if status, ok := b.table.Column(schema.RoleStatus); ok { // <=>: NULL is not published
		published := "'published'"
		if status.Kind == schema.Integer { // Eventuate: 0 or 1
			published = "1"
		}
		conditions = append(conditions, "NOT ("+b.name(schema.RoleStatus)+" <=> "+published+")")
	}
	for _, bound := range []struct{ text, strict, loose string }{{after, ">", ">"}, {b.Until, "<", "<="}} {
		if bound.text == "" {
			continue
		}
		condition, values, err := b.bound(bound.text, bound.strict, bound.loose)
		if err != nil {
			return "", nil, err
		}
		conditions, args = append(conditions, condition), append(args, values...)
	}
	if len(conditions) == 0 {
		return "", nil, nil
	}
	return " WHERE " + strings.Join(conditions, " AND "), args, nil
}

// bound is the condition for rows on one side of a cursor.
func (b *Backfill) bound(text, strict, loose string) (condition string, args []any, err error) {
	var at cursor
	if err := json.Unmarshal([]byte(text), &at); err != nil || len(at) != len(b.keys) {
		return "", nil, fmt.Errorf("binlog: the backfill cursor %q does not fit %s; start over with: relay resume --from-gtid SET", text, b.table)
	}
	names, places, values := make([]string, len(at)), make([]string, len(at)), make([][]any, len(at))
	for i, r := range b.keys {
		names[i], places[i], values[i] = b.name(r), "?", []any{at[i]}
		column, _ := b.table.Column(r)
		if !inHex(column) {
			continue
		}
		raw, err := hex.DecodeString(at[i])
		if err != nil {
			return "", nil, fmt.Errorf("binlog: the backfill cursor %q holds no hex; start over with: relay resume --from-gtid SET", text)
		}
		if values[i] = []any{raw}; column.Converted() {
			places[i], values[i] = fmt.Sprintf("_%s x'%x'", column.Charset, raw), nil
		}
	}
	if len(at) == 1 {
		return names[0] + " " + loose + " " + places[0], values[0], nil
	}
	return fmt.Sprintf("(%s %s %s OR (%s = %s AND %s %s %s))", names[0], strict, places[0], names[0], places[0], names[1], loose, places[1]),
		slices.Concat(values[0], values[0], values[1]), nil
}

// inHex tells whether a cursor has the column's raw bytes.
func inHex(c schema.Column) bool { return c.Kind == schema.Binary || c.Converted() }

// Next returns one row as a transaction of its own; io.EOF after the last.
func (b *Backfill) Next(ctx context.Context) (*Tx, error) {
	for b.rows != nil {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if !b.rows.Next() {
			err := b.rows.Err()
			b.rows.Close()
			b.rows = nil
			if err != nil {
				return nil, b.server.explain(err)
			}
			break
		}
		tx, err := b.row()
		if err == nil && (b.late[tx.Events[0].ID] || b.wanted != nil && !b.wanted.Takes(&tx.Events[0])) {
			continue
		}
		return tx, err
	}
	return nil, io.EOF
}

// row reads the current row.
func (b *Backfill) row() (*Tx, error) {
	row, err := b.values(b.rows)
	if err != nil {
		return nil, err
	}
	var at []sql.RawBytes
	for _, key := range b.keys {
		at = append(at, b.cells[slices.Index(b.roles, key)])
	}
	event := b.table.Event(&row, schema.Origin{CommittedAt: b.SnapshotAt})
	return &Tx{Events: []schema.Event{event}, CommittedAt: event.CreatedAt, Last: true, Cursor: b.cursor(at)}, nil
}

// Close ends the snapshot.
func (b *Backfill) Close() {
	if b.rows != nil {
		b.rows.Close()
	}
	// The session's settings must not reach the pool: drop the connection.
	b.conn.Raw(func(any) error { return driver.ErrBadConn })
	b.conn.Close()
}

// cursor writes a row's keys as JSON text: those whose raw bytes it has in hex.
func (b *Backfill) cursor(values []sql.RawBytes) string {
	at := make(cursor, len(values))
	for i, r := range b.keys {
		at[i] = string(values[i])
		if column, _ := b.table.Column(r); inHex(column) {
			at[i] = hex.EncodeToString(values[i])
		}
	}
	text, _ := json.Marshal(at) // of strings: it cannot fail
	return string(text)
}
