package binlog

import (
	"encoding/binary"
	"math"
	"strconv"
)

// jsonScalarSize returns the size in bytes of a scalar of fixed size, and 0
// for every other type.
func jsonScalarSize(typ byte) int {
	switch typ {
	case jsonLiteral:
		return 1
	case jsonInt16, jsonUint16:
		return 2
	case jsonInt32, jsonUint32:
		return 4
	case jsonInt64, jsonUint64, jsonDouble:
		return 8
	}
	return 0
}

// appendJSONScalar appends the scalar in b, whose length is
// jsonScalarSize(typ), and reports whether there is such a value.
func appendJSONScalar(dst []byte, typ byte, b []byte) ([]byte, bool) {
	switch typ {
	case jsonLiteral:
		switch b[0] {
		case 0:
			return append(dst, "null"...), true
		case 1:
			return append(dst, "true"...), true
		case 2:
			return append(dst, "false"...), true
		}
		return dst, false
	case jsonInt16:
		return strconv.AppendInt(dst, int64(int16(binary.LittleEndian.Uint16(b))), 10), true
	case jsonUint16:
		return strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint16(b)), 10), true
	case jsonInt32:
		return strconv.AppendInt(dst, int64(int32(binary.LittleEndian.Uint32(b))), 10), true
	case jsonUint32:
		return strconv.AppendUint(dst, uint64(binary.LittleEndian.Uint32(b)), 10), true
	case jsonInt64:
		return strconv.AppendInt(dst, int64(binary.LittleEndian.Uint64(b)), 10), true
	case jsonUint64:
		return strconv.AppendUint(dst, binary.LittleEndian.Uint64(b), 10), true
	default: // jsonDouble
		f := math.Float64frombits(binary.LittleEndian.Uint64(b))
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return dst, false
		}
		return appendJSONDouble(dst, f), true
	}
}

// appendJSONDouble appends f, which is finite, as MySQL's my_gcvt prints it
// (strings/dtoa.cc): the shortest digits that read back as f, in fixed form
// between 1e-15 and 1e15 and for every number with digits after the point,
// else with an exponent without plus sign or leading zeros. A number that
// would look like an integer gets a ".0".
func appendJSONDouble(dst []byte, f float64) []byte {
	var buf [32]byte
	text := strconv.AppendFloat(buf[:0], f, 'e', -1, 64) // -d.ddde±dd
	if text[0] == '-' {
		dst = append(dst, '-')
		text = text[1:]
	}
	if f == 0 {
		return append(dst, "0.0"...)
	}

	// Take it apart: f is 0.digits times ten to the power of point.
	mark := len(text) - 1
	for text[mark] != 'e' {
		mark--
	}
	point := 0
	for _, c := range text[mark+2:] {
		point = point*10 + int(c-'0')
	}
	if text[mark+1] == '-' {
		point = -point
	}
	point++
	digits := text[:1]
	if mark > 1 {
		digits = append(digits, text[2:mark]...) // closes the gap of the point
	}

	const maxFixed = 15 // MAX_DECPT_FOR_F_FORMAT, that is DBL_DIG
	switch {
	case point <= -maxFixed || point > maxFixed && point >= len(digits):
		dst = append(dst, digits[0])
		if len(digits) > 1 {
			dst = append(dst, '.')
			dst = append(dst, digits[1:]...)
		}
		dst = append(dst, 'e')
		return strconv.AppendInt(dst, int64(point-1), 10)
	case point <= 0:
		dst = append(dst, "0."...)
		dst = appendZeros(dst, -point)
		return append(dst, digits...)
	case point < len(digits):
		dst = append(dst, digits[:point]...)
		dst = append(dst, '.')
		return append(dst, digits[point:]...)
	default:
		dst = append(dst, digits...)
		dst = appendZeros(dst, point-len(digits))
		return append(dst, ".0"...)
	}
}

// appendZeros appends n zeros.
func appendZeros(dst []byte, n int) []byte {
	for range n {
		dst = append(dst, '0')
	}
	return dst
}

// appendJSONTemporal appends a DATE, TIME, DATETIME or TIMESTAMP in quotes and
// reports whether it is one. JSON keeps all four in MySQL's packed form of
// eight bytes (TIME_to_longlong_packed in sql-common/my_time.cc): the low 24
// bits are microseconds; above them 6 bits of second, 6 of minute, and either
// 10 of hour (TIME) or 5 of hour, 5 of day and year*13+month. A negative TIME
// is the negative of its packed form.
func appendJSONTemporal(dst []byte, typ byte, data []byte) ([]byte, bool) {
	if len(data) != 8 {
		return dst, false
	}
	packed := int64(binary.LittleEndian.Uint64(data))
	negative := packed < 0
	if negative {
		packed = -packed
	}
	micro := int(packed & (1<<24 - 1))
	packed >>= 24
	second, minute := int(packed&63), int(packed>>6&63)
	packed >>= 12
	if packed < 0 || second > 59 || minute > 59 || micro > 999999 {
		return dst, false
	}

	dst = append(dst, '"')
	if typ == typeTime {
		if packed > 838 { // the largest hour of a TIME
			return dst, false
		}
		if negative {
			dst = append(dst, '-')
		}
		dst = appendClock(dst, int(packed), minute, second, micro)
		return append(dst, '"'), true
	}

	hour, day := int(packed&31), int(packed>>5&31)
	packed >>= 10
	year, month := packed/13, int(packed%13)
	if negative || hour > 23 || year > 9999 {
		return dst, false
	}
	dst = appendDigits(dst, uint32(year), 4)
	dst = append(dst, '-')
	dst = appendDigits(dst, uint32(month), 2)
	dst = append(dst, '-')
	dst = appendDigits(dst, uint32(day), 2)
	if typ != typeDate {
		dst = append(dst, ' ')
		dst = appendClock(dst, hour, minute, second, micro)
	}
	return append(dst, '"'), true
}

// appendClock appends a time of day, or of several days, with microseconds.
func appendClock(dst []byte, hour, minute, second, micro int) []byte {
	if hour > 99 {
		dst = appendDigits(dst, uint32(hour), 3)
	} else {
		dst = appendDigits(dst, uint32(hour), 2)
	}
	dst = append(dst, ':')
	dst = appendDigits(dst, uint32(minute), 2)
	dst = append(dst, ':')
	dst = appendDigits(dst, uint32(second), 2)
	dst = append(dst, '.')
	return appendDigits(dst, uint32(micro), 6)
}

// appendDigits appends v, which has at most width digits and width at most 9,
// with leading zeros.
func appendDigits(dst []byte, v uint32, width int) []byte {
	var buf [9]byte
	for i := width - 1; i >= 0; i-- {
		buf[i] = byte('0' + v%10)
		v /= 10
	}
	return append(dst, buf[:width]...)
}
