package binlog

import (
	"bytes"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/outboxrelay/relay/schema"
)

// rowReader reads rows of the outbox out of the table itself, as the log has
// them. Its queries want a session whose time zone is UTC.
type rowReader struct {
	server *Server
	table  *schema.Table
	roles  []schema.Role // of the selected columns
	cells  []sql.RawBytes
}

// selection is SELECT … FROM for the columns of all roles, which values reads.
func (r *rowReader) selection() string {
	var all []schema.Role
	for role := range schema.Role(schema.Roles) {
		all = append(all, role)
	}
	return r.selectionOf(all...)
}

// selectionOf is selection for some roles.
func (r *rowReader) selectionOf(roles ...schema.Role) string {
	r.roles = nil
	var names []string
	for _, role := range roles {
		if _, ok := r.table.Column(role); ok {
			r.roles = append(r.roles, role)
			names = append(names, r.selected(role))
		}
	}
	r.cells = make([]sql.RawBytes, len(names))
	return "SELECT " + strings.Join(names, ", ") + " FROM " + r.from()
}

// values reads the row that rows is at.
func (r *rowReader) values(rows *sql.Rows) (row schema.Values, err error) {
	if err := rows.Scan(pointers(r.cells)...); err != nil {
		return row, r.server.explain(err)
	}
	for i, role := range r.roles {
		v := schema.Value{Present: true, Null: r.cells[i] == nil}
		column, _ := r.table.Column(role)
		switch {
		case v.Null:
		case column.Kind == schema.Time && strings.HasPrefix(string(r.cells[i]), "0000-00-00"):
			v.Null = true
		case column.Kind == schema.Time:
			if v.Time, v.Err = r.time(column, string(r.cells[i])); v.Err != nil {
				v.Bytes = bytes.Clone(r.cells[i])
			}
		case column.Converted():
			if v.Bytes, v.Err = schema.UTF8(column.Charset, r.cells[i]); v.Err != nil {
				v.Bytes = bytes.Clone(r.cells[i])
			}
		default:
			v.Bytes = append([]byte{}, r.cells[i]...)
		}
		row[role] = v
	}
	return row, nil
}

// time reads what SELECT prints of a DATETIME, written in the table's zone,
// or of a TIMESTAMP, printed in UTC.
func (r *rowReader) time(column schema.Column, text string) (time.Time, error) {
	zone := r.table.Zone()
	if column.Zoned {
		zone = time.UTC
	}
	t, err := time.ParseInLocation("2006-01-02 15:04:05.999999", text, zone)
	if err != nil {
		return time.Time{}, fmt.Errorf("%q is not a time", text)
	}
	return t.UTC(), nil
}

func (r *rowReader) from() string { return r.server.quoted() }

func (r *rowReader) name(role schema.Role) string {
	column, _ := r.table.Column(role)
	return quote(column.Name)
}

// selected is chosen of a role's column.
func (r *rowReader) selected(role schema.Role) string {
	column, _ := r.table.Column(role)
	return chosen(column)
}

func pointers(cells []sql.RawBytes) []any {
	list := make([]any, len(cells))
	for i := range cells {
		list[i] = &cells[i]
	}
	return list
}
