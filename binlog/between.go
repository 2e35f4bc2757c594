package binlog

import (
	"context"
	"database/sql"
	"encoding/json"
	"time"

	"github.com/outboxrelay/relay/schema"
)

// Range is a part of the table, for Backfill.
type Range struct {
	After, Until string // cursors; an empty After is the beginning of the table
	Timed        bool   // false: all of the table, which has no created_at
}

// Between finds the rows that were created from one time to another; a zero
// from is the beginning of the table. Of a table that is ordered by an integer
// id it is all between the first and the last of those rows. The second value
// is false when there are none.
//
// A DATETIME in another zone than UTC goes through the hour in which clocks are
// put back twice, so there the range is an hour wider on both sides.
func (s *Server) Between(ctx context.Context, table *schema.Table, from, to time.Time) (Range, bool, error) {
	b, err := s.look(ctx, table)
	if err != nil {
		return Range{}, false, err
	}
	defer b.Close()
	created, timed := table.Column(schema.RoleCreatedAt)
	r := Range{Timed: timed}
	if !timed {
		r.Until, err = b.last(ctx)
		return r, r.Until != "", err
	}
	begin := from.IsZero()
	if created.Kind == schema.Time && !created.Zoned && table.Zone() != time.UTC {
		from, to = from.Add(-time.Hour), to.Add(time.Hour)
	}
	first, last := table.Moment(created, from), table.Moment(created, to)
	if begin {
		first = ""
	}
	if len(b.keys) == 1 {
		return b.ids(ctx, r, created, first, last)
	}
	// Each stands before the first id of its moment.
	if r.Until = edge(last, ""); !begin {
		r.After = edge(first, "")
	}
	return r, true, nil
}

// CountPending is the number of rows between two cursors that are not stamped
// published; empty cursors mean the first row and the last.
func (s *Server) CountPending(ctx context.Context, table *schema.Table, after, until string) (int64, error) {
	b, err := s.look(ctx, table)
	if err != nil {
		return 0, err
	}
	defer b.Close()
	b.Until = until
	where, args, err := b.where(after)
	if err != nil {
		return 0, err
	}
	var n int64
	if err := b.conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+b.from()+where, args...).Scan(&n); err != nil {
		return 0, s.explain(err)
	}
	return n, nil
}

// look is a backfill that has not begun, to ask the table by.
func (s *Server) look(ctx context.Context, table *schema.Table) (*Backfill, error) {
	conn, err := s.scans.Conn(ctx)
	if err != nil {
		return nil, s.explain(err)
	}
	b := &Backfill{rowReader: rowReader{server: s, table: table}, conn: conn, keys: keys(table)}
	if _, err := conn.ExecContext(ctx, "SET SESSION time_zone = '+00:00'"); err != nil {
		b.Close()
		return nil, s.explain(err)
	}
	return b, nil
}

// ids completes a range of integer ids: from the last one below those of the
// time on. Rows without a time are taken for rows of any time.
func (b *Backfill) ids(ctx context.Context, r Range, created schema.Column, first, last string) (Range, bool, error) {
	id, at := b.name(schema.RoleID), quote(created.Name)
	query, args := "SELECT MIN("+id+"), MAX("+id+") FROM "+b.from()+" WHERE "+at+" IS NULL OR "+at+" <= ?", []any{last}
	if first != "" {
		query, args = query+" AND "+at+" >= ?", append(args, first)
	}
	var low, high, below sql.NullString
	if err := b.conn.QueryRowContext(ctx, query, args...).Scan(&low, &high); err != nil {
		return r, false, b.server.explain(err)
	}
	if !low.Valid {
		return r, false, nil
	}
	query = "SELECT MAX(" + id + ") FROM " + b.from() + " WHERE " + id + " < ?"
	if err := b.conn.QueryRowContext(ctx, query, low.String).Scan(&below); err != nil {
		return r, false, b.server.explain(err)
	}
	if r.Until = edge(high.String); below.Valid {
		r.After = edge(below.String)
	}
	return r, true, nil
}

// edge is the cursor of a row with these keys.
func edge(keys ...string) string {
	text, _ := json.Marshal(cursor(keys)) // of strings: it cannot fail
	return string(text)
}
