package binlog

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxrelay/relay/schema"
)

// decoder turns the outbox's row events into events. It holds the table's
// definition and, since every statement repeats the table map, what it made
// of the last one.
type decoder struct {
	table *schema.Table
	// redefine makes the definition for a table map where there is no server
	// whose definition holds. Defaults to that: table.
	redefine func(*tableMap) (*schema.Table, error)
	image    *image
	cells    []cell
}

// image is how the table's columns stand in row events after one table map.
type image struct {
	table   *schema.Table
	body    []byte // of the table map
	columns []column
	roles   [schema.Roles]int           // index into columns; -1: none
	logged  [schema.Roles]schema.Column // as it was when the row was written
}

// use takes a new definition of the table.
func (d *decoder) use(table *schema.Table) { d.table, d.image = table, nil }

// mapTable finds the event's parts among the columns of a table map: by name
// where the log has names, else by the table's definition, which is believed
// only when every column's type agrees.
func (d *decoder) mapTable(body []byte) (*image, error) {
	if d.image != nil && bytes.Equal(d.image.body, body) {
		return d.image, nil
	}
	tm, err := parseTableMap(body)
	if err != nil {
		return nil, err
	}
	if d.redefine != nil {
		if d.table, err = d.redefine(tm); err != nil {
			return nil, err
		}
	}
	img := &image{table: d.table, body: bytes.Clone(body), columns: tm.columns}
	if tm.names == nil && len(tm.columns) != len(d.table.Columns) {
		return nil, d.changed("it had %d columns in the log and has %d now", len(tm.columns), len(d.table.Columns))
	}
	for i, defined := range d.table.Columns {
		if tm.names == nil && !stores(defined, tm.columns[i]) {
			return nil, d.changed("column %d, now %s %s, was stored as type %d", i+1, defined.Name, defined.Type, tm.columns[i].typ)
		}
	}
	for r := range img.roles {
		img.roles[r] = -1
		defined, ok := d.table.Column(schema.Role(r))
		if !ok {
			continue
		}
		at := slices.IndexFunc(d.table.Columns, func(c schema.Column) bool { return c.Name == defined.Name })
		if tm.names != nil {
			at = slices.IndexFunc(tm.names, func(name string) bool { return strings.EqualFold(name, defined.Name) })
			if at < 0 {
				return nil, d.changed("it had no column %s", defined.Name)
			}
			if !stores(defined, tm.columns[at]) {
				return nil, d.changed("column %s, now %s, was stored as type %d", defined.Name, defined.Type, tm.columns[at].typ)
			}
		}
		img.roles[r] = at
		if img.logged[r], err = tm.metadata[at].logged(defined); err != nil {
			return nil, d.changed("%v", err)
		}
	}
	d.image = img
	return img, nil
}

func (d *decoder) changed(format string, args ...any) error {
	return fmt.Errorf("%w: %s was altered after the transaction that is being read: %s; look at it with SHOW CREATE TABLE %s, and see 'When the table changes' in the README",
		ErrChanged, d.table, fmt.Sprintf(format, args...), d.table)
}

// stores tells whether a column of the defined type is stored as c.
func stores(defined schema.Column, c column) bool {
	switch defined.Kind {
	case schema.Integer:
		switch c.typ {
		case typeTiny, typeShort, typeInt24, typeLong, typeLongLong:
			return true
		}
		return false
	case schema.Text, schema.Binary:
		switch c.typ {
		case typeString:
			u := unpack(c) // a BINARY is padded to its length
			return defined.Length > 0 && u.typ == typeString && (defined.Kind == schema.Text || int(u.meta) == defined.Length)
		case typeVarchar, typeVarString, typeBlob:
			return defined.Length == 0
		}
		return false
	case schema.JSON:
		return c.typ == typeJSON
	case schema.UUID:
		u := unpack(c)
		return c.typ == typeString && u.typ == typeString && u.meta == 16
	case schema.Time:
		if defined.Zoned {
			return c.typ == typeTimestamp2 || c.typ == typeTimestamp
		}
		return c.typ == typeDatetime2 || c.typ == typeDatetime
	case schema.Enum:
		return c.typ == typeString && unpack(c).typ == typeEnum
	}
	return true
}

// rows reads the rows of a WRITE_ROWS event's body behind its table id and
// flags, and hands each event to yield.
func (d *decoder) rows(img *image, version int, body []byte, from schema.Origin, yield func(schema.Event)) error {
	s := scanner{rest: body}
	if version == 2 {
		s.bytes(s.uint16() - 2) // extra data, whose length counts itself
	}
	if n := s.packed(); n != len(img.columns) {
		return fmt.Errorf("%w: rows of %d columns behind a table map of %d", ErrDamaged, n, len(img.columns))
	}
	bitmap := s.bytes((len(img.columns) + 7) / 8)
	if s.bad {
		return fmt.Errorf("%w: rows", ErrDamaged)
	}
	if !anyOf(bitmap, len(img.columns)) { // binlog_row_image=MINIMAL, and only defaults
		return fmt.Errorf("%w: %s: rows of %s without any column: SET GLOBAL binlog_row_image = FULL", ErrUnreadable, from.GTID, d.table)
	}
	if len(d.cells) != len(img.columns) {
		d.cells = make([]cell, len(img.columns))
	}
	for rest := s.rest; len(rest) > 0; {
		var err error
		if rest, err = readRow(d.cells, img.columns, bitmap, rest); err != nil {
			return err
		}
		yield(d.event(img, from))
	}
	return nil
}

// anyOf tells whether one of the first n bits is set. A row of no column has no
// bytes, so how many there are could not be told.
func anyOf(bitmap []byte, n int) bool {
	for i := range n {
		if bit(bitmap, i) {
			return true
		}
	}
	return false
}

func (d *decoder) event(img *image, from schema.Origin) schema.Event {
	var row schema.Values
	for r, at := range img.roles {
		if at < 0 {
			continue
		}
		c := d.cells[at]
		row[r] = schema.Value{Present: c.present, Null: c.null}
		if c.present && !c.null {
			if row[r].Err = d.value(&row[r], img.logged[r], c); row[r].Err != nil {
				row[r].Bytes = bytes.Clone(c.data)
			}
		}
	}
	return img.table.Event(&row, from)
}

// value brings a stored value into the form that SELECT gives it. What it
// keeps is a copy: the event's buffer is used again.
func (d *decoder) value(v *schema.Value, column schema.Column, c cell) (err error) {
	switch column.Kind {
	case schema.Integer:
		v.Bytes, err = appendInteger(nil, c, column.Unsigned)
	case schema.JSON:
		v.Bytes, err = appendJSON(nil, c.data)
	case schema.Time:
		v.Null = zeroDate(c)
		v.Time, err = decodeTime(c, d.table.Zone())
		v.Time = v.Time.UTC()
	case schema.Enum:
		var index int
		if index, err = enumIndex(c); err != nil {
			return err
		}
		var label string
		label, err = column.Label(index)
		v.Bytes = []byte(label)
	case schema.Text:
		v.Bytes, err = schema.UTF8(column.Charset, c.data)
	case schema.UUID:
		v.Bytes, err = appendUUID(nil, c.data)
	case schema.Binary:
		if column.Length > 0 {
			v.Bytes = bytes.Clone(padBinary(c.data, column.Length))
			return nil
		}
		v.Bytes = append([]byte{}, c.data...)
	default:
		v.Bytes = append([]byte{}, c.data...)
	}
	return err
}
