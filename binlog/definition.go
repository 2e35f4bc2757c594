package binlog

import (
	"errors"
	"fmt"
	"strings"

	"github.com/outboxrelay/relay/schema"
)

// define makes the table's definition out of a table map with names, as
// binlog_row_metadata=FULL has them (the optional metadata fields of MySQL's
// Table_map_event, libs/mysql/binlog/event/rows_event.h). It is what
// information_schema said of the table when the event was written. present is
// what it says now; nil where no server is asked.
func (tm *tableMap) define(opts schema.Options, present *schema.Table) (*schema.Table, error) {
	if tm.versioned() {
		return nil, versioned(string(tm.database), string(tm.table))
	}
	columns := make([]schema.Column, len(tm.columns))
	for i, c := range tm.columns {
		m := tm.metadata[i]
		if isNumeric(unpack(c).typ) && !m.numeric {
			return nil, fmt.Errorf("%w: table map of %s.%s has no signs", ErrDamaged, tm.database, tm.table)
		}
		column := describe(tm.names[i], unpack(c), m)
		var err error
		if columns[i], err = m.logged(column); err != nil { // which is of no use, and may be of none
			columns[i].Charset = fmt.Sprintf("of collation %d", m.collation)
		}
		if present == nil {
			continue
		}
		for _, now := range present.Columns {
			if strings.EqualFold(now.Name, column.Name) && stores(now, c) {
				columns[i] = refine(columns[i], now)
			}
		}
	}
	return schema.NewTable(string(tm.database), string(tm.table), columns, opts)
}

// versioned tells of a MariaDB table that has the columns which WITH SYSTEM
// VERSIONING gives it.
func (tm *tableMap) versioned() bool {
	n := len(tm.names)
	return n > 1 && tm.names[n-2] == "row_start" && tm.names[n-1] == "row_end" && tm.columns[n-1] == column{typeTimestamp2, 6}
}

// versioned refuses a table for which an UPDATE is in the log as an UPDATE and
// an insert of the row as it was.
func versioned(database, table string) error {
	return fmt.Errorf("%w: %s.%s is %w; type: ALTER TABLE %s.%s DROP SYSTEM VERSIONING",
		schema.ErrTable, database, table, errVersioned, quote(database), quote(table))
}

var errVersioned = errors.New("system-versioned, so that each UPDATE of a row is an insert in the log")

// refine is a column as the log has it, with what only the server tells of one
// that has the same name now and is stored alike: of MariaDB's, that bytes are a
// UUID, and that a text is kept valid JSON.
func refine(logged, now schema.Column) schema.Column {
	if now.Kind == schema.UUID {
		return now
	}
	logged.Checked = now.Checked && logged.Kind == schema.Text
	return logged
}

// integers are the names of the integer types.
var integers = map[byte]string{
	typeTiny: "tinyint", typeShort: "smallint", typeInt24: "mediumint", typeLong: "int", typeLongLong: "bigint",
}

// describe is what information_schema says of a column that is stored like
// this. Types that no part of an event can be read from have no name here.
func describe(name string, c cell, m metadata) schema.Column {
	charset := m.charset()
	binary := charset == "binary"
	if binary {
		charset = ""
	}
	pick := func(text, bytes string) string {
		if binary {
			return bytes
		}
		return text
	}
	switch c.typ {
	case typeTiny, typeShort, typeInt24, typeLong, typeLongLong:
		typ := integers[c.typ]
		if m.unsigned {
			return schema.NewColumn(name, typ, typ+" unsigned", 0, "")
		}
		return schema.NewColumn(name, typ, typ, 0, "")
	case typeString:
		typ := pick("char", "binary")
		return schema.NewColumn(name, typ, fmt.Sprintf("%s(%d bytes)", typ, c.meta), int(c.meta), charset)
	case typeVarchar, typeVarString, typeVarComp:
		typ := pick("varchar", "varbinary")
		return schema.NewColumn(name, typ, fmt.Sprintf("%s(%d bytes)", typ, c.meta), int(c.meta), charset)
	case typeBlob, typeBlobComp:
		typ := pick("text", "blob")
		return schema.NewColumn(name, typ, typ, 0, charset)
	case typeJSON:
		return schema.NewColumn(name, "json", "json", 0, "")
	case typeDatetime, typeDatetime2:
		return schema.NewColumn(name, "datetime", "datetime", 0, "")
	case typeTimestamp, typeTimestamp2:
		return schema.NewColumn(name, "timestamp", "timestamp", 0, "")
	case typeEnum:
		return schema.NewColumn(name, "enum", "enum", 0, "")
	}
	return schema.NewColumn(name, "", fmt.Sprintf("type %d", c.typ), 0, charset)
}
