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
// every row that was created at from or later and before to, in no order. The id
// of a row that has none is empty; a time that is no moment, as one with a day 0,
// is zero, and the row handed out. Rows without a time are left out: Undated has
// them. It reads an index alone where there is one on the creation time, or on
// status and creation time. The error wraps schema.ErrTable where the table has no
// column for the time.
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
		if known && (at.Before(from) || !at.Before(to)) {
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
	status, values := ofAnyStatus(table)
	return where + status, append(args, values...), nil
}

// ofAnyStatus is the condition that a row has any of the values of its status;
// empty where there is none, or not all are known.
func ofAnyStatus(table *schema.Table) (condition string, args []any) {
	status, ok := table.Column(schema.RoleStatus)
	if !ok || status.Kind != schema.Enum || !told(status) {
		return "", nil
	}
	name := quote(status.Name)
	for _, value := range status.Values {
		args = append(args, value)
	}
	return " AND (" + name + " IN ('' " + strings.Repeat(", ?", len(status.Values)) + ") OR " + name + " IS NULL)", args
}

// Undated counts the rows that have no creation time, NULL or the zero date, and
// tells the statement that gives them one. It reads the index that Created does.
func (s *Server) Undated(ctx context.Context, table *schema.Table) (rows int64, mend string, err error) {
	conn, err := s.session(ctx)
	if err != nil {
		return 0, "", err
	}
	defer drop(conn)
	where := undated(table)
	status, args := ofAnyStatus(table)
	if err := conn.QueryRowContext(ctx, s.countFrom()+where+status, args...).Scan(&rows); err != nil {
		return 0, "", s.explain(err)
	}
	created, _ := table.Column(schema.RoleCreatedAt)
	now := "CURRENT_TIMESTAMP(6)" // of a TIMESTAMP, in whatever zone it is typed
	if !created.Zoned {
		now = "'" + table.Moment(created, time.Now()) + "'"
	}
	return rows, "UPDATE " + s.quoted() + " SET " + quote(created.Name) + " = " + now + " WHERE " + where, nil
}

func (s *Server) countFrom() string { return "SELECT COUNT(*) FROM " + s.quoted() + " WHERE " }

// undated is the condition for rows without a creation time. Where the column is
// NOT NULL the server takes IS NULL for the zero date.
func undated(table *schema.Table) string {
	created, _ := table.Column(schema.RoleCreatedAt)
	name := quote(created.Name)
	if created.Kind != schema.Time {
		return name + " IS NULL"
	}
	return "(" + name + " IS NULL OR " + name + " < '0001-01-01')"
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

// Rows are the events of the rows with these ids, which are as Created tells
// them, without those that are gone: one for each id, also for the empty one,
// which many rows can have. They have neither GTID nor sequence.
func (s *Server) Rows(ctx context.Context, table *schema.Table, ids []string) (map[string]schema.Event, error) {
	found := map[string]schema.Event{}
	r := rowReader{server: s, table: table}
	id, _ := table.Column(schema.RoleID)
	err := r.withIDs(ctx, r.selection(), ids, true, func(rows *sql.Rows) error {
		row, err := r.values(rows)
		if err != nil {
			return err
		}
		// Not the event's id: that is empty where the column has no text.
		text := schema.IDText(id, row[schema.RoleID].Bytes)
		if _, ok := found[text]; !ok {
			found[text] = table.Event(&row, schema.Origin{})
		}
		return nil
	})
	return found, err
}

// Has tells which of the ids rows have.
func (s *Server) Has(ctx context.Context, table *schema.Table, ids []string) (map[string]bool, error) {
	found := map[string]bool{}
	r := rowReader{server: s, table: table}
	id, _ := table.Column(schema.RoleID)
	err := r.withIDs(ctx, "SELECT "+r.selected(schema.RoleID)+" FROM "+r.from(), ids, false, func(rows *sql.Rows) error {
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
// column no row has. Odd ones are those that Created has of rows without an id, or
// with one that is no text; they are looked for only where that is asked, as the
// latter take a scan of the table.
func (r *rowReader) withIDs(ctx context.Context, query string, ids []string, odd bool, each func(*sql.Rows) error) error {
	id, _ := r.table.Column(schema.RoleID)
	place := "?"
	if id.Kind == schema.Text && id.Charset != "utf8mb4" { // what it has no character for is a question mark then, and no error
		place = "CONVERT(? USING " + id.Charset + ")"
	}
	var places, stored []string
	var args, bytes []any
	none := false
	for _, text := range ids {
		none = none || odd && text == ""
		if value, ok := idValue(id, text); ok {
			places, args = append(places, place), append(args, value)
		} else if odd && id.Converted() {
			stored, bytes = append(stored, "?"), append(bytes, []byte(text))
		}
	}
	var conditions []string
	if len(places) > 0 {
		conditions = append(conditions, quote(id.Name)+" IN ("+strings.Join(places, ", ")+")")
	}
	if len(stored) > 0 {
		conditions = append(conditions, "CAST("+quote(id.Name)+" AS BINARY) IN ("+strings.Join(stored, ", ")+")")
	}
	if none {
		conditions = append(conditions, quote(id.Name)+" IS NULL")
	}
	if len(conditions) == 0 {
		return nil
	}
	conn, err := r.server.session(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	rows, err := conn.QueryContext(ctx, query+" WHERE "+strings.Join(conditions, " OR "), append(args, bytes...)...)
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
		return value, err == nil
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
