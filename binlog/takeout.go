package binlog

import (
	"fmt"
	"strings"

	"github.com/outboxrelay/relay/schema"
)

// TakeOut is the statement that takes a row out of a backfill: one that stamps
// it as published, or deletes it where the table has no status.
func TakeOut(table *schema.Table, bad *schema.BadEventError) string {
	from := quote(table.Database) + "." + quote(table.Name)
	status, ok := table.Column(schema.RoleStatus)
	switch {
	case !ok:
		return "DELETE FROM " + from + " WHERE " + identified(table, bad)
	case status.Kind == schema.Integer:
		return "UPDATE " + from + " SET " + quote(status.Name) + " = 1 WHERE " + identified(table, bad)
	}
	return "UPDATE " + from + " SET " + quote(status.Name) + " = 'published' WHERE " + identified(table, bad)
}

// identified is the condition that the row has, by its id.
func identified(table *schema.Table, bad *schema.BadEventError) string {
	id, _ := table.Column(schema.RoleID)
	name := quote(id.Name)
	value, err := schema.ParseID(id, bad.ID)
	stored, whole := bad.Row[id.Name]
	switch {
	case bad.Row != nil && !whole:
		return name + " IS NULL"
	case bad.ID == "" && whole || err != nil: // its bytes are no text
		return fmt.Sprintf("CAST(%s AS BINARY) = x'%x'", name, stored)
	}
	if raw, ok := value.([]byte); ok {
		return fmt.Sprintf("%s = x'%x'", name, raw)
	}
	if strings.IndexFunc(bad.ID, func(r rune) bool { return r < ' ' || r > '~' || r == '\'' || r == '\\' }) < 0 {
		return name + " = '" + bad.ID + "'"
	}
	return fmt.Sprintf("%s = _utf8mb4 x'%x'", name, bad.ID)
}
