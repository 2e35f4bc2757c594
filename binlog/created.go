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
	"unicode/utf8"

	"github.com/outboxrelay/relay/schema"
)

// Created calls each with the id, as the event has it, and the creation time of
// every row that was created at from or later and before to, in no order. Rows
// without such a time are left out. It reads an index alone where there is one
// on the creation time, or on status and creation time. The error wraps
// schema.ErrTable where the table has no column for the time.
func (s *Server) Created(ctx context.Context, table *schema.Table, from, to time.Time, each func(id string, at time.Time) error) error {
	where, args, err := s.created(table, from, to)
	if err != nil {
		return err
	}
	conn, err := s.session(ctx)
	if err != nil {
		return err
	}
	defer drop(conn)
	r := rowReader{server: s, table: table}
	id, _ := table.Column(schema.RoleID)
	created, _ := table.Column(schema.RoleCreatedAt)
	rows, err := conn.QueryContext(ctx, r.createdFrom()+where, args...)
	if err != nil {
		return s.explain(err)
	}
	defer rows.Close()
	var cells [2]sql.RawBytes
	into := pointers(cells[:])
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return s.explain(err)
		}
		at, known := r.moment(created, cells[1])
		if cells[0] == nil || !known || at.Before(from) || !at.Before(to) {
			continue
		}
		if err := each(textOf(id, cells[0]), at); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return s.explain(err)
	}
	return nil
}

func (r *rowReader) createdFrom() string {
	return "SELECT " + r.selected(schema.RoleID) + ", " + r.name(schema.RoleCreatedAt) + " FROM " + r.from() + " WHERE "
}

// created is the condition for rows of a time, as the index wants it: one on
// status and creation time serves only where the status is told, too, so all of
// an ENUM's values are. The hour in which the clocks of the table's zone are put
// back is on both sides.
func (s *Server) created(table *schema.Table, from, to time.Time) (where string, args []any, err error) {
	created, timed := table.Column(schema.RoleCreatedAt)
	if !timed {
		return "", nil, fmt.Errorf("%w: %s has no column that tells when a row was created, so no time has its rows; name one: --columns created_at=NAME, or type: ALTER TABLE %s ADD COLUMN created_at DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)",
			schema.ErrTable, table, table)
	}
	if created.Kind == schema.Time && !created.Zoned && table.Zone() != time.UTC {
		from, to = from.Add(-time.Hour), to.Add(time.Hour)
	}
	where = quote(created.Name) + " >= ? AND " + quote(created.Name) + " <= ?"
	args = []any{table.Moment(created, from), table.Moment(created, to)}
	if status, ok := table.Column(schema.RoleStatus); ok && status.Kind == schema.Enum && told(status) {
		name := quote(status.Name)
		where += " AND (" + name + " IN ('' " + strings.Repeat(", ?", len(status.Values)) + ") OR " + name + " IS NULL)"
		for _, value := range status.Values {
			args = append(args, value)
		}
	}
	return where, args, nil
}

// told tells whether all values of an ENUM are known: information_schema has a
// question mark for some characters.
func told(c schema.Column) bool {
	return !slices.ContainsFunc(c.Values, func(v string) bool { return strings.Contains(v, "?") })
}

// moment reads a cell of the creation time; false: there is none.
func (r *rowReader) moment(created schema.Column, cell []byte) (time.Time, bool) {
	switch {
	case cell == nil:
		return time.Time{}, false
	case created.Kind == schema.Time:
		at, err := r.time(created, string(cell))
		return at, err == nil
	}
	var ms int64
	_, err := fmt.Sscan(string(cell), &ms)
	return time.UnixMilli(ms).UTC(), err == nil
}

// textOf is the id that an event has, of what selected gives. One that is no
// text is as it is stored.
func textOf(id schema.Column, cell []byte) string {
	if id.Converted() {
		if text, err := schema.UTF8(id.Charset, cell); err == nil {
			return string(text)
		}
	}
	return schema.IDText(id, cell)
}

// Rows are the events of the rows with these ids, in their order, without those
// that are gone. They have neither GTID nor sequence.
func (s *Server) Rows(ctx context.Context, table *schema.Table, ids []string) ([]schema.Event, error) {
	found := map[string]schema.Event{}
	r := rowReader{server: s, table: table}
	err := r.withIDs(ctx, r.selection(), ids, func(rows *sql.Rows) error {
		row, err := r.values(rows)
		if err == nil {
			e := table.Event(&row, schema.Origin{})
			found[e.ID] = e
		}
		return err
	})
	var list []schema.Event
	for _, id := range ids {
		if e, ok := found[id]; ok {
			list = append(list, e)
		}
	}
	return list, err
}

// Has tells which of the ids rows have.
func (s *Server) Has(ctx context.Context, table *schema.Table, ids []string) (map[string]bool, error) {
	found := map[string]bool{}
	r := rowReader{server: s, table: table}
	id, _ := table.Column(schema.RoleID)
	err := r.withIDs(ctx, "SELECT "+r.selected(schema.RoleID)+" FROM "+r.from(), ids, func(rows *sql.Rows) error {
		var cell sql.RawBytes
		if err := rows.Scan(&cell); err != nil {
			return s.explain(err)
		}
		found[textOf(id, cell)] = true
		return nil
	})
	return found, err
}

// withIDs calls each for the rows that a query finds by these ids, and maybe for
// others, which the column's collation takes for the same. What is no id of the
// column no row has.
func (r *rowReader) withIDs(ctx context.Context, query string, ids []string, each func(*sql.Rows) error) error {
	id, _ := r.table.Column(schema.RoleID)
	place := "?"
	if id.Kind == schema.Text && id.Charset != "utf8mb4" { // what it has no character for is a question mark then, and no error
		place = "CONVERT(? USING " + id.Charset + ")"
	}
	var places []string
	var args []any
	for _, text := range ids {
		if value, ok := idValue(id, text); ok {
			places, args = append(places, place), append(args, value)
		}
	}
	if len(places) == 0 {
		return nil
	}
	conn, err := r.server.session(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	rows, err := conn.QueryContext(ctx, query+" WHERE "+quote(id.Name)+" IN ("+strings.Join(places, ", ")+")", args...)
	if err != nil {
		return r.server.explain(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(rows); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return r.server.explain(err)
	}
	return nil
}

// idValue is the value by which a query finds the row of an id; false: no row
// can have it. An integer is no text there: the server would compare both as
// floating-point numbers, and use no index.
func idValue(id schema.Column, text string) (value any, ok bool) {
	if id.Kind != schema.Integer {
		if id.Kind != schema.Binary && !utf8.ValidString(text) {
			return nil, false
		}
		value, err := schema.ParseID(id, text)
		return value, err == nil && text != ""
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, true
	}
	n, err := strconv.ParseUint(text, 10, 64)
	return n, err == nil
}

// session is a connection whose times are UTC, for queries that may take long.
// The caller closes or drops it.
func (s *Server) session(ctx context.Context) (*sql.Conn, error) {
	conn, err := s.scans.Conn(ctx)
	if err != nil {
		return nil, s.explain(err)
	}
	for _, statement := range []string{"SET SESSION time_zone = '+00:00'", "SET SESSION net_write_timeout = 3600"} {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			drop(conn)
			return nil, s.explain(err)
		}
	}
	return conn, nil
}

// drop ends a connection, whose query may not have.
func drop(conn *sql.Conn) {
	conn.Raw(func(any) error { return driver.ErrBadConn }) //nolint:errcheck // that is what drops it
	conn.Close()
}
