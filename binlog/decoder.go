package binlog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/outboxrelay/relay/schema"
)

// decoder turns the outbox's row events into events. It holds the table's
// definition and, since every statement repeats the table map, what it made
// of the last one.
type decoder struct {
	table   *schema.Table  // in force where the log does not name the columns; without columns: not known
	options schema.Options // by which the log's own definitions are taken
	present *schema.Table  // what the server says of the table now; nil: it is not asked
	mariadb bool           // the log is MariaDB's
	image   *image
	mapped  bool // there was an image
	cells   []cell
	row     schema.Values // that is being read
	scratch []byte        // its values, but for those in the event's buffer
	maker   schema.Maker

	// Of log files of MariaDB. ask gets present when it is first needed; nil:
	// there is none to get. lone: no server says what the log does not.
	ask  func() (*schema.Table, error)
	lone bool
}

// image is how the table's columns stand in row events after one table map.
type image struct {
	table   *schema.Table
	named   bool   // the log names the columns
	body    []byte // of the table map
	columns []column
	roles   [schema.Roles]int           // index into columns; -1: none
	logged  [schema.Roles]schema.Column // as it was when the row was written
}

// use takes a new definition of the table.
func (d *decoder) use(table *schema.Table) { d.table, d.image = table, nil }

var (
	errUndefined = errors.New("the table's definition is not known")
	errUnlike    = errors.New("the rows are not of the definition that is in force")
	errMetadata  = errors.New("the rows cannot be read by what the log says of their columns")
)

// mapTable finds the event's parts among the columns of a table map: by the
// definition that it holds where the log has names, else by the one in force,
// to which every column's type must agree. Without that it is errUndefined.
func (d *decoder) mapTable(body []byte) (*image, error) {
	if d.image != nil && bytes.Equal(d.image.body, body) {
		return d.image, nil
	}
	tm, err := parseTableMap(body, d.mariadb)
	if err != nil {
		return nil, err
	}
	table := d.table
	switch {
	case tm.names != nil:
		table, err = d.define(tm)
	case len(table.Columns) == 0:
		err = errUndefined
	default:
		err = tm.fits(table)
	}
	if err != nil {
		return nil, err
	}
	img := &image{table: table, named: tm.names != nil, body: bytes.Clone(body), columns: tm.columns}
	for r := range img.roles {
		img.roles[r] = -1
		defined, ok := table.Column(schema.Role(r))
		if !ok {
			continue
		}
		at := slices.IndexFunc(table.Columns, func(c schema.Column) bool { return c.Name == defined.Name })
		img.roles[r] = at
		if img.logged[r], err = tm.metadata[at].logged(defined); err != nil {
			if img.named {
				return nil, fmt.Errorf("%w: %w", errMetadata, err)
			}
			return nil, fmt.Errorf("%w: %w", errUnlike, err)
		}
	}
	d.image, d.mapped = img, true
	return img, nil
}

// define makes the table's definition of a table map with names.
func (d *decoder) define(tm *tableMap) (table *schema.Table, err error) {
	if d.ask != nil && !d.lone && d.present == nil {
		if d.present, err = d.ask(); err != nil {
			return nil, err
		}
	}
	if table, err = tm.define(d.options, d.present); err == nil && d.lone {
		tm.supposeJSON(table)
	}
	return table, err
}

// fits tells whether rows are stored as a definition says. It is a net below
// what is known of the definition: columns of one type can change places unseen.
func (tm *tableMap) fits(table *schema.Table) error {
	if len(tm.columns)-tm.hidden(len(table.Columns)) != len(table.Columns) {
		return fmt.Errorf("%w: the log has %d columns and the definition %d", errUnlike, len(tm.columns), len(table.Columns))
	}
	for i, defined := range table.Columns {
		if c := tm.columns[i]; !stores(defined, c) {
			return fmt.Errorf("%w: column %d, %s %s, is stored as type %d", errUnlike, i+1, defined.Name, defined.Type, c.typ)
		}
	}
	return nil
}

// hidden is how many of the columns behind the first n can be MariaDB's own: for
// each unique key over texts that are too long for an index it keeps their hash
// in a BIGINT behind all columns, which information_schema does not tell of.
func (tm *tableMap) hidden(n int) (count int) {
	for i := len(tm.columns) - 1; i >= n && tm.metadata[i].mariadb && tm.columns[i].typ == typeLongLong; i-- {
		count++
	}
	return count
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
		case typeVarchar, typeVarString, typeBlob, typeVarComp, typeBlobComp:
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
// flags, and appends their events.
func (d *decoder) rows(events []schema.Event, img *image, version int, body []byte, from schema.Origin) ([]schema.Event, error) {
	s := scanner{rest: body}
	if version == 2 {
		s.bytes(s.uint16() - 2) // extra data, whose length counts itself
	}
	if n := s.packed(); n != len(img.columns) {
		return events, fmt.Errorf("%w: rows of %d columns behind a table map of %d", ErrDamaged, n, len(img.columns))
	}
	bitmap := s.bytes((len(img.columns) + 7) / 8)
	if s.bad {
		return events, fmt.Errorf("%w: rows", ErrDamaged)
	}
	if !anyOf(bitmap, len(img.columns)) { // binlog_row_image=MINIMAL, and only defaults
		return events, fmt.Errorf("%w: %s: rows of %s without any column: SET GLOBAL binlog_row_image = FULL", ErrUnreadable, from.GTID, d.table)
	}
	if len(d.cells) != len(img.columns) {
		d.cells = make([]cell, len(img.columns))
	}
	begin := len(events)
	var payloads slab
	for rest := s.rest; len(rest) > 0; {
		behind, err := readRow(d.cells, img.columns, bitmap, rest)
		if err != nil {
			return events, err
		}
		if len(behind) == len(rest) {
			return events, fmt.Errorf("%w: rows without a column", ErrDamaged)
		}
		size := len(rest) - len(behind)
		if rest = behind; len(events) == begin { // the others are about as long
			if need := begin + 1 + len(rest)/size; need > cap(events) {
				events = append(make([]schema.Event, 0, max(need, begin*3/2)), events...)
			}
		}
		if d.lone {
			if err := d.certain(img, from); err != nil {
				return events, err
			}
		}
		d.values(img)
		if p := &d.row[schema.RolePayload]; p.Present && !p.Null && p.Err == nil {
			p.Bytes = payloads.put(p.Bytes, len(p.Bytes)*len(rest)/size)
		}
		events = append(events, d.maker.Event(img.table, &d.row, from))
	}
	return events, nil
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

// values reads the row that is in the cells.
func (d *decoder) values(img *image) {
	d.row, d.scratch = schema.Values{}, d.scratch[:0]
	zone := img.table.Zone()
	for r, at := range img.roles {
		if at < 0 {
			continue
		}
		c, v := &d.cells[at], &d.row[r]
		v.Present, v.Null = c.present, c.null
		if c.present && !c.null {
			if v.Err = d.value(v, &img.logged[r], c, zone); v.Err != nil {
				v.Bytes = c.data
			}
		}
	}
}

// value brings a stored value into the form that SELECT gives it. It is valid
// until the next row is read.
func (d *decoder) value(v *schema.Value, column *schema.Column, c *cell, zone *time.Location) (err error) {
	data := c.data
	if c.typ == typeVarComp || c.typ == typeBlobComp {
		if data, err = inflateColumn(data); err != nil {
			return err
		}
	}
	begin := len(d.scratch)
	switch column.Kind {
	case schema.Integer:
		d.scratch, err = appendInteger(d.scratch, *c, column.Unsigned)
	case schema.JSON:
		d.scratch, err = appendJSON(d.scratch, data)
	case schema.Time:
		v.Null = zeroDate(*c)
		v.Time, err = decodeTime(*c, zone)
		v.Time = v.Time.UTC()
		return err
	case schema.Enum:
		index, err := enumIndex(*c)
		if err != nil {
			return err
		}
		label, err := column.Label(index)
		if err != nil {
			return err
		}
		d.scratch = append(d.scratch, label...)
	case schema.Text:
		v.Bytes, err = schema.UTF8(column.Charset, data)
		return err
	case schema.UUID:
		d.scratch, err = appendUUID(d.scratch, data)
	case schema.Binary:
		v.Bytes = padBinary(data, column.Length)
		return nil
	default:
		v.Bytes = data
		return nil
	}
	v.Bytes = d.scratch[begin:len(d.scratch):len(d.scratch)]
	return err
}
