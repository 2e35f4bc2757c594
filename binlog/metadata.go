package binlog

import (
	"fmt"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/outboxrelay/relay/schema"
)

// metadata is what a table map's optional fields tell of a column beyond how
// it is stored (MySQL's Table_map_event::Optional_metadata_fields). The server
// always writes signs and collations of text; labels, and collations of ENUM
// and SET, by binlog_row_metadata=FULL.
type metadata struct {
	mariadb   bool // it is MariaDB's, which has collations of its own
	numeric   bool // signed or unsigned is known
	unsigned  bool
	collation int      // of a text, ENUM or SET column; 0: not told
	labels    [][]byte // of an ENUM or SET column, in its collation's character set; nil: not told
}

// optional reads one of the fields into the columns' metadata.
func (tm *tableMap) optional(field byte, s *scanner) {
	switch field {
	case replication.TABLE_MAP_OPT_META_SIGNEDNESS: // a bit for each, the highest first
		bits, n := s.bytes(len(s.rest)), 0
		tm.each(isNumeric, func(m *metadata) bool {
			if n/8 >= len(bits) {
				s.bad = true
				return false
			}
			m.numeric, m.unsigned = true, bits[n/8]>>(7-n%8)&1 != 0
			n++
			return true
		})
	case replication.TABLE_MAP_OPT_META_DEFAULT_CHARSET:
		tm.defaultCollation(isText, s)
	case replication.TABLE_MAP_OPT_META_ENUM_AND_SET_DEFAULT_CHARSET:
		tm.defaultCollation(isLabelled, s)
	case replication.TABLE_MAP_OPT_META_COLUMN_CHARSET:
		tm.collations(isText, s)
	case replication.TABLE_MAP_OPT_META_ENUM_AND_SET_COLUMN_CHARSET:
		tm.collations(isLabelled, s)
	case replication.TABLE_MAP_OPT_META_ENUM_STR_VALUE:
		tm.labels(typeEnum, s)
	case replication.TABLE_MAP_OPT_META_SET_STR_VALUE:
		tm.labels(typeSet, s)
	}
}

// each calls f for the metadata of the columns of a kind, until it returns
// false.
func (tm *tableMap) each(kind func(typ byte) bool, f func(*metadata) bool) {
	for i, c := range tm.columns {
		typ := unpack(c).typ
		if typ == typeGeometry && tm.metadata[i].mariadb { // which tells its collation
			typ = typeBlob
		}
		if kind(typ) && !f(&tm.metadata[i]) {
			return
		}
	}
}

// defaultCollation reads the collation of all columns of a kind, and then pairs of
// index among them and collation for those that differ.
func (tm *tableMap) defaultCollation(kind func(byte) bool, s *scanner) {
	collation := s.packed()
	var columns []*metadata
	tm.each(kind, func(m *metadata) bool {
		m.collation = collation
		columns = append(columns, m)
		return true
	})
	for len(s.rest) > 0 {
		i, collation := s.packed(), s.packed()
		if s.bad || i >= len(columns) {
			s.bad = true
			return
		}
		columns[i].collation = collation
	}
}

// collations reads one for each column of a kind.
func (tm *tableMap) collations(kind func(byte) bool, s *scanner) {
	tm.each(kind, func(m *metadata) bool {
		m.collation = s.packed()
		return !s.bad
	})
	s.bad = s.bad || len(s.rest) > 0
}

// labels reads those of each column of a type: their number, and each with
// its length.
func (tm *tableMap) labels(typ byte, s *scanner) {
	tm.each(func(t byte) bool { return t == typ }, func(m *metadata) bool {
		n := s.packed()
		if n > len(s.rest) { // each takes a byte at least
			s.bad = true
		}
		for range n {
			if s.bad {
				return false
			}
			m.labels = append(m.labels, s.bytes(s.packed()))
		}
		return !s.bad
	})
}

func isNumeric(typ byte) bool {
	switch typ {
	case typeTiny, typeShort, typeInt24, typeLong, typeLongLong, typeFloat, typeDouble, typeNewDecimal, typeYear:
		return true
	}
	return false
}

func isText(typ byte) bool {
	switch typ {
	case typeString, typeVarchar, typeVarString, typeBlob, typeVarComp, typeBlobComp:
		return true
	}
	return false
}

func isLabelled(typ byte) bool { return typ == typeEnum || typ == typeSet }

// charset is the collation's; empty where that is unknown.
func (m metadata) charset() string { return schema.CollationCharset(m.collation, m.mariadb) }

// logged is the column as it was when the row was written: its sign, character
// set and labels, where the log tells them, whatever the table has now.
func (m metadata) logged(c schema.Column) (schema.Column, error) {
	if m.numeric {
		c.Unsigned = m.unsigned
	}
	if m.collation > 0 && c.Kind != schema.JSON { // MariaDB's JSON is text
		charset := m.charset()
		switch {
		case charset == "":
			return c, fmt.Errorf("column %s had a collation that the relay does not know, number %d: SHOW COLLATION WHERE Id = %d", c.Name, m.collation, m.collation)
		case (charset == "binary") != (c.Kind == schema.Binary || c.Kind == schema.UUID):
			return c, fmt.Errorf("column %s, now %s, had the character set %s", c.Name, c.Type, charset)
		}
		c.Charset = charset
	}
	if m.labels == nil || c.Kind != schema.Enum {
		return c, nil
	}
	c.Values, c.Exact = make([]string, len(m.labels)), true
	for i, label := range m.labels {
		text, err := schema.UTF8(c.Charset, label)
		if err != nil {
			return c, fmt.Errorf("column %s had the label %q: %w", c.Name, label, err)
		}
		c.Values[i] = string(text)
	}
	return c, nil
}
