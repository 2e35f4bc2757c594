package binlog

import (
	"bytes"
	"fmt"

	"github.com/go-mysql-org/go-mysql/replication"
)

// tableMap is a table map event's body (MySQL's Table_map_event): the table
// behind the id that row events carry, and how its columns are stored.
type tableMap struct {
	id              uint64
	database, table []byte
	columns         []column
	names           []string   // by binlog_row_metadata=FULL; else nil
	metadata        []metadata // of each column
}

// peekTableMap reads no more than the id and the names: all that is wanted of
// a foreign table.
func peekTableMap(body []byte) (id uint64, database, table []byte, err error) {
	s := scanner{rest: body}
	id = s.uint48()
	s.bytes(2)
	database = s.bytes(s.uint8())
	s.bytes(1)
	table = s.bytes(s.uint8())
	s.bytes(1)
	if s.bad {
		return 0, nil, nil, fmt.Errorf("%w: table map", ErrDamaged)
	}
	return id, database, table, nil
}

// parseTableMap reads what readRow needs of a table map, of MySQL's or MariaDB's.
func parseTableMap(body []byte, mariadb bool) (*tableMap, error) {
	id, database, table, err := peekTableMap(body)
	if err != nil {
		return nil, err
	}
	tm := &tableMap{id: id, database: bytes.Clone(database), table: bytes.Clone(table)}
	s := scanner{rest: body[8+1+len(database)+1+1+len(table)+1:]}
	types := s.bytes(s.packed())
	meta := scanner{rest: s.bytes(s.packed())}
	s.bytes((len(types) + 7) / 8) // which columns can be NULL
	tm.columns = make([]column, len(types))
	for i, typ := range types {
		tm.columns[i] = column{typ: typ, meta: readMeta(&meta, typ)}
	}
	tm.metadata = make([]metadata, len(types))
	for i := range tm.metadata {
		tm.metadata[i].mariadb = mariadb
	}
	for len(s.rest) > 0 && !s.bad {
		field := s.uint8()
		value := scanner{rest: s.bytes(s.packed())}
		if byte(field) != replication.TABLE_MAP_OPT_META_COLUMN_NAME {
			tm.optional(byte(field), &value)
			s.bad = s.bad || value.bad
			continue
		}
		for len(value.rest) > 0 && !value.bad {
			tm.names = append(tm.names, string(value.bytes(value.packed())))
		}
		s.bad = s.bad || value.bad
	}
	if s.bad || meta.bad || (tm.names != nil && len(tm.names) != len(types)) {
		return nil, fmt.Errorf("%w: table map of %s.%s", ErrDamaged, database, table)
	}
	return tm, nil
}

// readMeta reads a column's metadata: two bytes, big-endian, where the first
// is a real type or a precision; two, little-endian, for a length; one or none
// for the rest.
func readMeta(s *scanner, typ byte) uint16 {
	switch typ {
	case typeString, typeNewDecimal, typeEnum, typeSet:
		if b := s.bytes(2); b != nil {
			return uint16(b[0])<<8 | uint16(b[1])
		}
		return 0
	case typeVarchar, typeVarString, typeVarComp, typeBit:
		return uint16(s.uint16())
	case typeBlob, typeBlobComp,
		typeDouble, typeFloat, typeGeometry, typeVector,
		typeJSON, typeTime2, typeDatetime2, typeTimestamp2:
		return uint16(s.uint8())
	}
	return 0
}
