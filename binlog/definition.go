package binlog

import (
	"fmt"
	"slices"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/outboxrelay/relay/schema"
)

// define makes the table's definition out of a table map with names, as
// binlog_row_metadata=FULL has them (the optional metadata fields of MySQL's
// Table_map_event, libs/mysql/binlog/event/rows_event.h). It is what
// information_schema said of the table when the event was written.
func (tm *tableMap) define(opts schema.Options) (*schema.Table, error) {
	columns := make([]schema.Column, len(tm.columns))
	unsigned, err := tm.signs()
	if err != nil {
		return nil, err
	}
	texts, err := tm.collations(isText, replication.TABLE_MAP_OPT_META_DEFAULT_CHARSET, replication.TABLE_MAP_OPT_META_COLUMN_CHARSET)
	if err != nil {
		return nil, err
	}
	enums, err := tm.collations(isEnumOrSet, replication.TABLE_MAP_OPT_META_ENUM_AND_SET_DEFAULT_CHARSET, replication.TABLE_MAP_OPT_META_ENUM_AND_SET_COLUMN_CHARSET)
	if err != nil {
		return nil, err
	}
	values, err := tm.enumValues()
	if err != nil {
		return nil, err
	}
	for i, c := range tm.columns {
		columns[i] = describe(tm.names[i], unpack(c), unsigned[i], charsetOf(texts[i]))
		if columns[i].Kind == schema.Enum {
			columns[i].Values, columns[i].Charset = values[i], charsetOf(enums[i])
		}
	}
	return schema.NewTable(string(tm.database), string(tm.table), columns, opts)
}

// integers are the names of the integer types.
var integers = map[byte]string{
	typeTiny: "tinyint", typeShort: "smallint", typeInt24: "mediumint", typeLong: "int", typeLongLong: "bigint",
}

// describe is what information_schema says of a column that is stored like
// this. Types that no part of an event can be read from have no name here.
func describe(name string, c cell, unsigned bool, charset string) schema.Column {
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
		if unsigned {
			return schema.NewColumn(name, typ, typ+" unsigned", 0, "")
		}
		return schema.NewColumn(name, typ, typ, 0, "")
	case typeString:
		typ := pick("char", "binary")
		return schema.NewColumn(name, typ, fmt.Sprintf("%s(%d bytes)", typ, c.meta), int(c.meta), charset)
	case typeVarchar, typeVarString:
		typ := pick("varchar", "varbinary")
		return schema.NewColumn(name, typ, fmt.Sprintf("%s(%d bytes)", typ, c.meta), int(c.meta), charset)
	case typeBlob:
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

// hasSign tells whether the log says of such a column whether it is signed.
func hasSign(c cell) bool {
	switch c.typ {
	case typeTiny, typeShort, typeInt24, typeLong, typeLongLong, typeFloat, typeDouble, typeNewDecimal, typeYear:
		return true
	}
	return false
}

func isText(c cell) bool {
	switch c.typ {
	case typeString, typeVarchar, typeVarString, typeBlob:
		return true
	}
	return false
}

func isEnumOrSet(c cell) bool { return c.typ == typeEnum || c.typ == typeSet }

// which lists the columns of a kind, by their index.
func (tm *tableMap) which(is func(cell) bool) (list []int) {
	for i, c := range tm.columns {
		if is(unpack(c)) {
			list = append(list, i)
		}
	}
	return list
}

// signs tells of each column whether it is unsigned: one bit for each column
// with a sign, the first in the highest bit.
func (tm *tableMap) signs() ([]bool, error) {
	unsigned := make([]bool, len(tm.columns))
	numbers, bits := tm.which(hasSign), tm.optional[replication.TABLE_MAP_OPT_META_SIGNEDNESS]
	if len(bits)*8 < len(numbers) {
		return nil, tm.damaged("signs")
	}
	for n, i := range numbers {
		unsigned[i] = bits[n/8]&(0x80>>(n%8)) != 0
	}
	return unsigned, nil
}

// collations tells the collation of each column of a kind: either one for
// each of them, or one for all and the exceptions, each as its index among
// them and its collation.
func (tm *tableMap) collations(is func(cell) bool, forAll, forEach byte) ([]int, error) {
	ids, list := make([]int, len(tm.columns)), tm.which(is)
	if len(list) == 0 {
		return ids, nil
	}
	if each, ok := tm.optional[forEach]; ok {
		s := scanner{rest: each}
		for _, i := range list {
			ids[i] = s.packed()
		}
		if s.bad || len(s.rest) > 0 {
			return nil, tm.damaged("collations")
		}
		return ids, nil
	}
	s := scanner{rest: tm.optional[forAll]}
	id := s.packed()
	for _, i := range list {
		ids[i] = id
	}
	for len(s.rest) > 0 && !s.bad {
		n, id := s.packed(), s.packed()
		if n >= len(list) {
			s.bad = true
			break
		}
		ids[list[n]] = id
	}
	if s.bad {
		return nil, tm.damaged("collations")
	}
	return ids, nil
}

// enumValues are the values of each ENUM column.
func (tm *tableMap) enumValues() ([][]string, error) {
	values := make([][]string, len(tm.columns))
	s := scanner{rest: tm.optional[replication.TABLE_MAP_OPT_META_ENUM_STR_VALUE]}
	for _, i := range tm.which(func(c cell) bool { return c.typ == typeEnum }) {
		for n := s.packed(); n > 0 && !s.bad; n-- {
			values[i] = append(values[i], string(s.bytes(s.packed())))
		}
	}
	if s.bad || len(s.rest) > 0 {
		return nil, tm.damaged("enum values")
	}
	return values, nil
}

func (tm *tableMap) damaged(what string) error {
	return fmt.Errorf("%w: table map of %s.%s: %s", ErrDamaged, tm.database, tm.table, what)
}

// charsetRange is a range of collations of one character set.
type charsetRange struct {
	first, last int
	name        string
}

// charsetRanges are the collations of the character sets that are UTF-8 as
// they stand, of binary, and of latin1: of MySQL's information_schema.collations.
var charsetRanges = []charsetRange{
	{5, 5, "latin1"}, {8, 8, "latin1"}, {11, 11, "ascii"}, {15, 15, "latin1"}, {31, 31, "latin1"}, {33, 33, "utf8mb3"},
	{45, 46, "utf8mb4"}, {47, 49, "latin1"}, {63, 63, "binary"}, {65, 65, "ascii"}, {76, 76, "utf8mb3"}, {83, 83, "utf8mb3"},
	{94, 94, "latin1"}, {192, 215, "utf8mb3"}, {223, 223, "utf8mb3"}, {224, 247, "utf8mb4"}, {255, 323, "utf8mb4"},
}

// charsetOf is a collation's character set; for one that is not known here, a
// name that none has.
func charsetOf(collation int) string {
	at := slices.IndexFunc(charsetRanges, func(r charsetRange) bool { return r.first <= collation && collation <= r.last })
	if at < 0 {
		return fmt.Sprintf("of collation %d", collation)
	}
	return charsetRanges[at].name
}
