package binlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// Column types as a TABLE_MAP_EVENT names them: enum_field_types in MySQL's
// include/field_types.h.
const (
	typeTiny       = 1
	typeShort      = 2
	typeLong       = 3
	typeFloat      = 4
	typeDouble     = 5
	typeNull       = 6
	typeTimestamp  = 7
	typeLongLong   = 8
	typeInt24      = 9
	typeDate       = 10
	typeTime       = 11
	typeDatetime   = 12
	typeYear       = 13
	typeNewDate    = 14
	typeVarchar    = 15
	typeBit        = 16
	typeTimestamp2 = 17
	typeDatetime2  = 18
	typeTime2      = 19
	typeBlobComp   = 140 // of MariaDB: COMPRESSED, as is the next
	typeVarComp    = 141
	typeVector     = 242
	typeJSON       = 245
	typeNewDecimal = 246
	typeEnum       = 247
	typeSet        = 248
	typeBlob       = 252
	typeVarString  = 253
	typeString     = 254
	typeGeometry   = 255
)

var (
	// errRow is what every error of readRow wraps.
	errRow = fmt.Errorf("%w: row image", ErrDamaged)
	// errValue is what every error of a value converter wraps.
	errValue = errors.New("binlog: impossible column value")
)

// column is what a table map says of one column's storage.
type column struct {
	typ  byte   // column type
	meta uint16 // metadata: STRING and NEWDECIMAL big-endian, others little-endian
}

// cell is one column's value in a row image, still in its storage form. Its
// data aliases the event's buffer.
type cell struct {
	present bool   // false: not in the image (binlog_row_image=MINIMAL), which is not NULL
	null    bool   // SQL NULL
	typ     byte   // column type, with STRING unpacked into ENUM, SET or STRING
	meta    uint16 // the column's metadata; for ENUM, SET and STRING the size in bytes
	data    []byte // the value's bytes, without the length before them
}

// readRow fills cells, one for each column, from the row image at the start
// of data and returns what follows it. The bitmap is the event's bitmap of
// present columns. A row image is a bitmap of the NULLs among the present
// columns and then the values that are not NULL, in the same form in
// WRITE_ROWS_EVENT v1 and v2: see Rows_event in MySQL's
// libs/mysql/binlog/event/rows_event.h, and for the sizes calc_field_size in
// libs/mysql/binlog/event/binary_log_funcs.cpp.
//
// It allocates nothing. An error wraps errRow and leaves cells half filled.
func readRow(cells []cell, columns []column, bitmap, data []byte) (rest []byte, err error) {
	if len(cells) != len(columns) {
		return nil, fmt.Errorf("%w: %d cells for %d columns", errRow, len(cells), len(columns))
	}
	if len(bitmap) < (len(columns)+7)/8 {
		return nil, fmt.Errorf("%w: bitmap of %d bytes for %d columns", errRow, len(bitmap), len(columns))
	}
	present := 0
	for i := range columns {
		if bit(bitmap, i) {
			present++
		}
	}
	size := (present + 7) / 8
	if len(data) < size {
		return nil, fmt.Errorf("%w: null bitmap cut short", errRow)
	}
	nulls, rest := data[:size], data[size:]

	at := 0 // index among the present columns
	for i, col := range columns {
		c := unpack(col)
		if c.present = bit(bitmap, i); c.present {
			c.null = bit(nulls, at)
			at++
		}
		if c.present && !c.null {
			prefix, size := storage(c.typ, c.meta)
			if size < 0 {
				return nil, fmt.Errorf("%w: column %d: unknown type %d with metadata %#x", errRow, i, col.typ, col.meta)
			}
			if prefix > 0 {
				if len(rest) < prefix {
					return nil, fmt.Errorf("%w: column %d: length cut short", errRow, i)
				}
				n := uintLE(rest[:prefix])
				rest = rest[prefix:]
				size = int(min(n, uint64(len(rest))+1)) // fits an int of 32 bits
			}
			if len(rest) < size {
				return nil, fmt.Errorf("%w: column %d: type %d cut short", errRow, i, c.typ)
			}
			c.data, rest = rest[:size:size], rest[size:]
		}
		cells[i] = c
	}
	return rest, nil
}

// unpack returns an empty cell of the column's real type. The metadata of
// STRING holds the real type in its first byte and the size in its second; a
// size over 255 puts its bits 8 and 9, inverted, in place of bits 4 and 5 of
// the type, which are set in every type that can stand there.
func unpack(col column) cell {
	c := cell{typ: col.typ, meta: col.meta}
	if col.typ == typeString && col.meta > 0xff {
		high, low := byte(col.meta>>8), col.meta&0xff
		c.typ = high | 0x30
		c.meta = uint16(^high&0x30)<<4 | low
	}
	return c
}

// storage returns how a value of a column is laid out: either as a length of
// prefix bytes with the value after it, or as a value of size bytes. A size
// below zero stands for an unknown type or impossible metadata.
func storage(typ byte, meta uint16) (prefix, size int) {
	const unknown = -1
	switch typ {
	case typeNull:
		return 0, 0
	case typeTiny, typeYear:
		return 0, 1
	case typeShort:
		return 0, 2
	case typeInt24, typeDate, typeNewDate, typeTime:
		return 0, 3
	case typeLong, typeFloat, typeTimestamp:
		return 0, 4
	case typeLongLong, typeDouble, typeDatetime:
		return 0, 8
	case typeTime2, typeTimestamp2, typeDatetime2: // meta: digits of the fraction
		if meta > 6 {
			return 0, unknown
		}
		whole := 3
		switch typ {
		case typeTimestamp2:
			whole = 4
		case typeDatetime2:
			whole = 5
		}
		return 0, whole + int(meta+1)/2
	case typeNewDecimal: // meta: precision, scale
		if meta>>8 > 65 {
			return 0, unknown
		}
		return 0, decimalSize(int(meta>>8), int(meta&0xff))
	case typeBit: // meta: whole bytes, bits over
		return 0, int(meta>>8) + int(meta&0xff+7)/8
	case typeEnum: // meta: bytes
		if meta == 1 || meta == 2 {
			return 0, int(meta)
		}
	case typeSet: // meta: bytes
		if 1 <= meta && meta <= 8 {
			return 0, int(meta)
		}
	case typeVarchar, typeVarString, typeString, typeVarComp: // meta: the longest value in bytes
		if meta > 0xff {
			return 2, 0
		}
		return 1, 0
	case typeBlob, typeJSON, typeGeometry, typeVector, typeBlobComp: // meta: bytes of length
		if 1 <= meta && meta <= 4 {
			return int(meta), 0
		}
	}
	return 0, unknown
}

// appendInteger appends the decimal text of an integer or YEAR column, as
// SELECT prints it without ZEROFILL.
func appendInteger(dst []byte, c cell, unsigned bool) ([]byte, error) {
	if err := c.check(typeTiny, typeShort, typeInt24, typeLong, typeLongLong, typeYear); err != nil {
		return dst, err
	}
	v := uintLE(c.data)
	switch {
	case c.typ == typeYear && v == 0:
		return append(dst, "0000"...), nil
	case c.typ == typeYear:
		return strconv.AppendUint(dst, 1900+v, 10), nil
	case unsigned:
		return strconv.AppendUint(dst, v, 10), nil
	}
	shift := 64 - 8*len(c.data)
	return strconv.AppendInt(dst, int64(v<<shift)>>shift, 10), nil
}

// enumIndex returns the index of an ENUM value: 1 and up, and 0 for the empty
// string that stands for an invalid value.
func enumIndex(c cell) (int, error) {
	if err := c.check(typeEnum); err != nil {
		return 0, err
	}
	return int(uintLE(c.data)), nil
}

// decodeTime returns the time in a date or timestamp column, to the
// microsecond: a TIMESTAMP in UTC, a DATETIME or DATE as read off a clock in
// zone, which must not be nil. A zero date (zeroDate) gives the zero time, as
// 0001-01-01 in UTC does. Other dates that no calendar has (2024-00-10, 2023-02-30)
// are an error.
//
// The forms with a fraction are those of my_datetime_packed_to_binary and
// my_timestamp_to_binary in MySQL's sql-common/my_time.cc: big-endian, the
// fraction in as many bytes as its digits need. The older ones are
// little-endian.
func decodeTime(c cell, zone *time.Location) (time.Time, error) {
	if err := c.check(typeDate, typeNewDate, typeDatetime, typeDatetime2, typeTimestamp, typeTimestamp2); err != nil {
		return time.Time{}, err
	}
	var year, month, day, clock, micro int // clock: seconds since midnight
	switch c.typ {
	case typeTimestamp:
		return unixTime(uintLE(c.data), 0)
	case typeTimestamp2:
		return unixTime(uintBE(c.data[:4]), fraction(c.data[4:]))
	case typeDate, typeNewDate:
		// 15 bits of year, 4 of month, 5 of day.
		v := int(uintLE(c.data))
		year, month, day = v>>9, v>>5&15, v&31
	case typeDatetime:
		// The decimal number YYYYMMDDhhmmss.
		v := uintLE(c.data)
		date, hms := v/1e6, int(v%1e6)
		if date > 99991231 {
			return time.Time{}, fmt.Errorf("%w: datetime %d", errValue, v)
		}
		year, month, day = int(date/1e4), int(date/100%100), int(date%100)
		clock = seconds(hms/1e4, hms/100%100, hms%100)
	case typeDatetime2:
		// A sign bit, always set; 17 bits of year*13+month, 5 of day, 5 of
		// hour, 6 of minute, 6 of second.
		v := uintBE(c.data[:5])
		if v>>39 == 0 {
			return time.Time{}, fmt.Errorf("%w: negative datetime", errValue)
		}
		ym := int(v >> 22 & (1<<17 - 1))
		year, month, day = ym/13, ym%13, int(v>>17&31)
		clock = seconds(int(v>>12&31), int(v>>6&63), int(v&63))
		micro = fraction(c.data[5:])
	}
	if year|month|day|clock|micro == 0 {
		return time.Time{}, nil
	}
	if year > 9999 || month < 1 || month > 12 || day < 1 || day > daysOf(year, month) || clock < 0 || micro > 999999 {
		return time.Time{}, fmt.Errorf("%w: no such date: %04d-%02d-%02d", errValue, year, month, day)
	}
	return time.Date(year, time.Month(month), day, 0, 0, clock, micro*1000, zone), nil
}

// daysOf is how many days a month has.
func daysOf(year, month int) int {
	switch month {
	case 4, 6, 9, 11:
		return 30
	case 2:
		if year%4 == 0 && (year%100 != 0 || year%400 == 0) {
			return 29
		}
		return 28
	}
	return 31
}

// zeroDate tells whether a date or timestamp column has 0000-00-00. Of the form
// typeDatetime2 the sign bit is set all the same.
func zeroDate(c cell) bool {
	for i, b := range c.data {
		if b != 0 && !(c.typ == typeDatetime2 && i == 0 && b == 0x80) {
			return false
		}
	}
	return true
}

// unixTime returns the time of a TIMESTAMP column, whose zero is the zero
// date.
func unixTime(sec uint64, micro int) (time.Time, error) {
	if sec == 0 && micro == 0 {
		return time.Time{}, nil
	}
	if micro > 999999 {
		return time.Time{}, fmt.Errorf("%w: timestamp with %d microseconds", errValue, micro)
	}
	return time.Unix(int64(sec), int64(micro)*1000).UTC(), nil
}

// seconds returns a time of day in seconds, or -1 where there is no such time.
func seconds(hour, minute, second int) int {
	if hour > 23 || minute > 59 || second > 59 {
		return -1
	}
	return hour*3600 + minute*60 + second
}

// fraction returns the microseconds of a fraction of 0 to 3 bytes: none,
// hundredths, ten-thousandths or millionths.
func fraction(b []byte) int {
	v := int(uintBE(b))
	switch len(b) {
	case 1:
		return v * 10000
	case 2:
		return v * 100
	}
	return v
}

// check returns an error unless the cell holds a value of one of the types, in
// the size that its type has.
func (c cell) check(types ...byte) error {
	if !c.present || c.null {
		return fmt.Errorf("%w: no value", errValue)
	}
	for _, typ := range types {
		if c.typ != typ {
			continue
		}
		if _, size := storage(c.typ, c.meta); size != len(c.data) {
			return fmt.Errorf("%w: type %d in %d bytes", errValue, c.typ, len(c.data))
		}
		return nil
	}
	return fmt.Errorf("%w: type %d is of another kind", errValue, c.typ)
}

// decimalBytes is the size of a group of 0 to 9 decimal digits, decimalLimit
// the number that it must stay below.
var (
	decimalBytes = [...]int{0, 1, 1, 2, 2, 3, 3, 4, 4, 4}
	decimalLimit = [...]uint64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9}
)

// decimalSize returns the size in bytes of a DECIMAL(precision, scale), or -1
// where MySQL has no such number. A column has 65 digits at most; JSON counts
// those before the point in whole groups of nine, of which a number has nine.
func decimalSize(precision, scale int) int {
	whole := precision - scale
	if precision < 1 || precision > 81 || scale < 0 || scale > 30 || whole < 0 {
		return -1
	}
	return whole/9*4 + decimalBytes[whole%9] + scale/9*4 + decimalBytes[scale%9]
}

// appendDecimal appends a DECIMAL(precision, scale) as MySQL prints it: with
// all digits of its scale, and at least one before the point.
//
// The form is that of decimal2bin in MySQL's strings/decimal.cc: groups of
// nine digits in four bytes, big-endian, counted from the point both ways, so
// that the first group before it and the last one after it may be smaller.
// The top bit is inverted, and in a negative number all the others are too.
func appendDecimal(dst, data []byte, precision, scale int) ([]byte, error) {
	if size := decimalSize(precision, scale); size < 0 || size != len(data) {
		return dst, fmt.Errorf("%w: decimal(%d,%d) in %d bytes", errValue, precision, scale, len(data))
	}
	var buf [40]byte // the longest has 37
	left := buf[:copy(buf[:], data)]
	out, negative := dst, data[0]&0x80 == 0
	left[0] ^= 0x80
	if negative {
		out = append(out, '-')
		for i := range left {
			left[i] = ^left[i]
		}
	}

	ok := true
	group := func(digits int) {
		size := decimalBytes[digits]
		v := uintBE(left[:size])
		left = left[size:]
		if v >= decimalLimit[digits] {
			ok = false
		}
		out = appendDigits(out, uint32(v), digits)
	}
	start, whole := len(out), precision-scale
	group(whole % 9)
	for range whole / 9 {
		group(9)
	}
	zeros := start
	for zeros < len(out)-1 && out[zeros] == '0' {
		zeros++
	}
	out = append(out[:start], out[zeros:]...)
	if whole == 0 {
		out = append(out, '0')
	}
	if scale > 0 {
		out = append(out, '.')
		for range scale / 9 {
			group(9)
		}
		group(scale % 9)
	}
	if !ok {
		return dst, fmt.Errorf("%w: decimal with a group of too many digits", errValue)
	}
	return out, nil
}

// padBinary returns the value of a BINARY(n) column: in a row event it has
// lost its zero bytes at the end.
func padBinary(data []byte, n int) []byte {
	if len(data) >= n {
		return data
	}
	padded := make([]byte, n)
	copy(padded, data)
	return padded
}

// bit reports whether bit i of a bitmap is set; the lowest bit comes first.
func bit(bitmap []byte, i int) bool { return bitmap[i/8]>>(i%8)&1 != 0 }

// uintLE returns the little-endian number in b, of which it reads eight bytes
// at most.
func uintLE(b []byte) uint64 {
	var buf [8]byte
	copy(buf[:], b)
	return binary.LittleEndian.Uint64(buf[:])
}

// uintBE returns the big-endian number in b, which has eight bytes at most.
func uintBE(b []byte) uint64 {
	var v uint64
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}
