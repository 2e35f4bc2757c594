package binlog

import (
	"bytes"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// capturedColumns are the columns of a table on MySQL 9.7 and what its six
// rows hold; capturedRows are the images of those rows in its row events, the
// last one with binlog_row_image=MINIMAL.
var capturedColumns = []struct {
	name string
	typ  byte
	meta uint16
	show func(cell) (string, error)
	want [6]string
}{
	{"TINYINT", 1, 0, showSigned, [6]string{"1", "-128", "127", "NULL", "0", "absent"}},
	{"TINYINT UNSIGNED", 1, 0, showUnsigned, [6]string{"1", "0", "255", "NULL", "0", "absent"}},
	{"SMALLINT", 2, 0, showSigned, [6]string{"1", "-32768", "32767", "NULL", "0", "absent"}},
	{"SMALLINT UNSIGNED", 2, 0, showUnsigned, [6]string{"1", "0", "65535", "NULL", "0", "absent"}},
	{"MEDIUMINT", 9, 0, showSigned, [6]string{"1", "-8388608", "8388607", "NULL", "0", "absent"}},
	{"MEDIUMINT UNSIGNED", 9, 0, showUnsigned, [6]string{"1", "0", "16777215", "NULL", "0", "absent"}},
	{"INT", 3, 0, showSigned, [6]string{"1", "-2147483648", "2147483647", "NULL", "0", "absent"}},
	{"INT UNSIGNED", 3, 0, showUnsigned, [6]string{"1", "0", "4294967295", "NULL", "0", "absent"}},
	{"BIGINT", 8, 0, showSigned, [6]string{"1", "-9223372036854775808", "9223372036854775807", "NULL", "0", "absent"}},
	{"BIGINT UNSIGNED", 8, 0, showUnsigned, [6]string{"1", "0", "18446744073709551615", "NULL", "0", "7"}},
	{"FLOAT", 4, 4, showStored, [6]string{"0000c03f", "9ec97fff", "9ec97f7f", "NULL", "00000000", "absent"}},
	{"DOUBLE", 5, 8, showStored, [6]string{"000000000000f83f", "763b7730d142eeff", "763b7730d142ee7f", "NULL", "0000000000000000", "absent"}},
	{"DECIMAL(10,3)", 246, 0xa03, showDecimal, [6]string{"-1.500", "-9999999.999", "9999999.999", "NULL", "0.000", "absent"}},
	{"DECIMAL(65,30)", 246, 0x411e, showDecimal, [6]string{"1234567890.123456789012000000000000000000", "-99999999999999999999999999999999999.999999999999999999999999999999", "99999999999999999999999999999999999.999999999999999999999999999999", "NULL", "-0.000000000000000000000000000001", "absent"}},
	{"DECIMAL(9,0)", 246, 0x900, showDecimal, [6]string{"10", "-999999999", "999999999", "NULL", "0", "absent"}},
	{"DECIMAL(4,4)", 246, 0x404, showDecimal, [6]string{"0.0500", "-0.9999", "0.9999", "NULL", "0.0000", "absent"}},
	{"BIT(1)", 16, 1, showBits, [6]string{"1", "0", "1", "NULL", "0", "absent"}},
	{"BIT(9)", 16, 0x101, showBits, [6]string{"300", "0", "511", "NULL", "0", "absent"}},
	{"BIT(64)", 16, 0x800, showBits, [6]string{"5", "0", "18446744073709551615", "NULL", "0", "absent"}},
	{"YEAR", 13, 0, showSigned, [6]string{"2024", "1901", "2155", "NULL", "0000", "absent"}},
	{"DATE", 10, 0, showClock, [6]string{"2024-02-29", "1000-01-01", "9999-12-31", "NULL", "0000-00-00", "absent"}},
	{"TIME", 19, 0, showStored, [6]string{"80c8b8", "4b9105", "b46efb", "NULL", "800000", "absent"}},
	{"TIME(3)", 19, 3, showStored, [6]string{"80c8b81ed2", "4b9105d8fa", "b46efa2706", "NULL", "8000000000", "absent"}},
	{"TIME(6)", 19, 6, showStored, [6]string{"80c8b80c0a14", "7fffffffffff", "b46efa0f423f", "NULL", "800000000000", "absent"}},
	{"DATETIME", 18, 0, showClock, [6]string{"2024-01-02 03:04:05", "1000-01-01", "9999-12-31 23:59:59", "NULL", "0000-00-00", "absent"}},
	{"DATETIME(1)", 18, 1, showClock, [6]string{"2024-01-02 03:04:05.600000", "1000-01-01", "9999-12-31 23:59:59.900000", "NULL", "0000-00-00", "absent"}},
	{"DATETIME(2)", 18, 2, showClock, [6]string{"2024-01-02 03:04:05.060000", "1000-01-01", "9999-12-31 23:59:59.990000", "NULL", "0000-00-00", "absent"}},
	{"DATETIME(3)", 18, 3, showClock, [6]string{"2024-01-02 03:04:05.678000", "1000-01-01", "9999-12-31 23:59:59.999000", "NULL", "0000-00-00", "absent"}},
	{"DATETIME(5)", 18, 5, showClock, [6]string{"2024-01-02 03:04:05.678910", "1000-01-01", "9999-12-31 23:59:59.999990", "NULL", "0000-00-00", "absent"}},
	{"DATETIME(6)", 18, 6, showClock, [6]string{"2024-01-02 03:04:05.678901", "1000-01-01", "9999-12-31 23:59:59.999999", "NULL", "0000-00-00", "absent"}},
	{"TIMESTAMP NULL", 17, 0, showClock, [6]string{"2024-01-02 03:04:05", "1970-01-01 00:00:01", "2038-01-19 03:14:07", "NULL", "0000-00-00", "absent"}},
	{"TIMESTAMP(2) NULL", 17, 2, showClock, [6]string{"2024-01-02 03:04:05.060000", "1970-01-01 00:00:01", "2038-01-19 03:14:07.990000", "NULL", "0000-00-00", "absent"}},
	{"TIMESTAMP(4) NULL", 17, 4, showClock, [6]string{"2024-01-02 03:04:05.060700", "1970-01-01 00:00:01", "2038-01-19 03:14:07.999900", "NULL", "0000-00-00", "absent"}},
	{"TIMESTAMP(6) NULL", 17, 6, showClock, [6]string{"2024-01-02 03:04:05.060708", "1970-01-01 00:00:01.000001", "2038-01-19 03:14:07.999999", "NULL", "0000-00-00", "absent"}},
	{"ENUM('pending','published')", 254, 0xf701, showIndex, [6]string{"1", "0", "2", "NULL", "0", "absent"}},
	{"ENUM(300 values)", 254, 0xf702, showIndex, [6]string{"1", "0", "300", "NULL", "256", "absent"}},
	{"SET('a','b','c')", 254, 0xf801, showMembers, [6]string{"5", "0", "7", "NULL", "0", "absent"}},
	{"SET(64 members)", 254, 0xf808, showMembers, [6]string{"1", "0", "9223372036854775808", "NULL", "256", "absent"}},
	{"CHAR(3)", 254, 0xfe0c, showStored, [6]string{"616263", "", "f09f9880c3a9", "NULL", "", "absent"}},
	{"CHAR(64)", 254, 0xee00, showStored, [6]string{"616263", "", "c3a9c3a9c3a9", "NULL", "", "absent"}},
	{"CHAR(255)", 254, 0xcefc, showStored, [6]string{"616263", "", strings.Repeat("c3a9", 130), "NULL", "", "absent"}},
	{"CHAR(255) CHARACTER SET latin1", 254, 0xfeff, showStored, [6]string{"616263", "", "e9e9e9", "NULL", "", "absent"}},
	{"BINARY(16)", 254, 0xfe10, showStored, [6]string{"00112233445566778899aabbccddeeff", "", "ffffffffffffffffffffffffffff", "NULL", "01", "absent"}},
	{"VARBINARY(10)", 15, 0xa, showStored, [6]string{"0100", "", "ffffffffffffffffff00", "NULL", "30", "absent"}},
	{"VARCHAR(63)", 15, 0xfc, showStored, [6]string{"616263", "", "c3a9c3a9c3a9", "NULL", "20", "absent"}},
	{"VARCHAR(64)", 15, 0x100, showStored, [6]string{"61626320", "", "c3a9c3a9c3a9", "NULL", "20", "78"}},
	{"TINYTEXT", 252, 1, showStored, [6]string{"616263", "", "7a7a7a", "NULL", "20", "absent"}},
	{"BLOB", 252, 2, showStored, [6]string{"00ff", "", strings.Repeat("7a", 256), "NULL", "20", "absent"}},
	{"MEDIUMBLOB", 252, 3, showStored, [6]string{"00ff", "", "7a7a7a", "NULL", "20", "absent"}},
	{"LONGTEXT", 252, 4, showStored, [6]string{"f09f9880", "", "7a7a7a", "NULL", "20", "absent"}},
	{"JSON", 245, 4, showDocument, [6]string{`{"a": 1}`, "null", `"\\u0001"`, "NULL", "[]", "7"}},
	{"GEOMETRY", 255, 4, showStored, [6]string{"000000000101000000000000000000f03f0000000000000040", "00000000010100000000000000000000000000000000000000", "e6100000010100000000000000000010400000000000000840", "NULL", "NULL", "absent"}},
	{"VECTOR(2)", 242, 4, showStored, [6]string{"0000803f00000040", "0000803f", "0000c03f000000c0", "NULL", "NULL", "absent"}},
}

var capturedRows = [6]struct{ bitmap, data string }{
	{"ffffffffffffff", "000000000000000101010001000100000100000100000001000000010000000000000001000000000000000000c03f000000000000f83f" +
		"7ffffffefe0b8000000000000000000000010dfb38d2075bcd1500b71b000000000000008000000a81f401012c00000000000000057c5d" +
		"d00f80c8b880c8b81ed280c8b80c0a1499b244310599b24431053c99b24431050699b24431051a7c99b24431050a5bfe99b24431050a5b" +
		"f565937d2565937d250665937d25025f65937d2500ed240101000501000000000000000361626303006162630300616263036162631000" +
		"112233445566778899aabbccddeeff0201000361626304006162632003616263020000ff02000000ff04000000f09f98800d0000000001" +
		"000c000b0001000501006119000000000000000101000000000000000000f03f0000000000000040080000000000803f00000040"},
	{"ffffffffffffff", "000000000000008000008000000000800000000000008000000000000000000000008000000000000000009ec97fff763b7730d142eeff" +
		"7f676980fc187a0a1f00c4653600c4653600c4653600c4653600c4653600c4653600fc184465360058f000000000000000000000000121" +
		"d0074b91054b9105d8fa7fffffffffff8cb24200008cb2420000008cb2420000008cb242000000008cb24200000000008cb24200000000" +
		"00000000010000000100000000010000000000010000010000000000000000000000000000000000000000000000000000000000000000" +
		"000200000004001900000000000000010100000000000000000000000000000000000000040000000000803f"},
	{"ffffffffffffff", "000000000000007fffff7fffffffff7fffffffffffff7fffffffffffffffffffffff7fffffffffffffffff9ec97f7f763b7730d142ee7f" +
		"8098967f03e785f5e0ff3b9ac9ff3b9ac9ff3b9ac9ff3b9ac9ff3b9ac9ff3b9ac9ff03e7bb9ac9ffa70f0101ffffffffffffffffffff9f" +
		"1f4eb46efbb46efa2706b46efa0f423ffef3ff7efbfef3ff7efb5afef3ff7efb63fef3ff7efb2706fef3ff7efb0f4236fef3ff7efb0f42" +
		"3f7fffffff7fffffff637fffffff270f7fffffff0f423f022c0107000000000000008006f09f9880c3a90600c3a9c3a9c3a90401c3a9c3" +
		"a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9" +
		"c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3" +
		"a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9" +
		"c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3" +
		"a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a9c3a903e9e9e90effffffffffffffffffffffffff" +
		"ff0affffffffffffffffff0006c3a9c3a9c3a90600c3a9c3a9c3a9037a7a7a00017a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a" +
		"7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a" +
		"7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a" +
		"7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a" +
		"7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a7a" +
		"7a7a7a7a7a7a7a7a7a7a7a7a7a7a0300007a7a7a030000007a7a7a080000000c065c753030303119000000e61000000101000000000000" +
		"00000010400000000000000840080000000000c03f000000c0"},
	{"ffffffffffffff", "ffffffffffff1f"},
	{"ffffffffffffff", "00000000000018000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000" +
		"8000000000007ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffe80000000800000000000000000000000000000" +
		"00008000008000000000800000000000800000000080000000000080000000000080000000000000800000000000000080000000000000" +
		"00000000000000000000000000000000000000000000000000010000010000000000000000000000000101013001200100200120010020" +
		"010000200100000020050000000200000400"},
	{"00020000002004", "00070000000000000001007803000000050700"},
}

// How the cells of capturedColumns are shown.

func showSigned(c cell) (string, error) {
	b, err := appendInteger(nil, c, false)
	return string(b), err
}

func showUnsigned(c cell) (string, error) {
	b, err := appendInteger(nil, c, true)
	return string(b), err
}

func showDecimal(c cell) (string, error) {
	b, err := appendDecimal(nil, c.data, int(c.meta>>8), int(c.meta&0xff))
	return string(b), err
}

func showClock(c cell) (string, error) {
	v, err := decodeTime(c, time.UTC)
	layout := "2006-01-02 15:04:05.000000"
	switch {
	case v.IsZero():
		layout = "0000-00-00"
	case v.Nanosecond() > 0:
	case v.Equal(v.Truncate(24 * time.Hour)):
		layout = "2006-01-02"
	default:
		layout = "2006-01-02 15:04:05"
	}
	return v.Format(layout), err
}

func showIndex(c cell) (string, error) {
	i, err := enumIndex(c)
	return strconv.Itoa(i), err
}

func showDocument(c cell) (string, error) {
	b, err := appendJSON(nil, c.data)
	return string(b), err
}

func showBits(c cell) (string, error)    { return strconv.FormatUint(uintBE(c.data), 10), nil }
func showMembers(c cell) (string, error) { return strconv.FormatUint(uintLE(c.data), 10), nil }
func showStored(c cell) (string, error)  { return hex.EncodeToString(c.data), nil }

// capturedRow returns the i-th captured row.
func capturedRow(tb testing.TB, i int) (columns []column, bitmap, data []byte) {
	tb.Helper()
	for _, c := range capturedColumns {
		columns = append(columns, column{c.typ, c.meta})
	}
	bitmap, err := hex.DecodeString(capturedRows[i].bitmap)
	if err != nil {
		tb.Fatal(err)
	}
	data, err = hex.DecodeString(capturedRows[i].data)
	if err != nil {
		tb.Fatal(err)
	}
	return columns, bitmap, data
}

func TestReadRow(t *testing.T) {
	for i := range capturedRows {
		columns, bitmap, data := capturedRow(t, i)
		cells := make([]cell, len(columns))
		rest, err := readRow(cells, columns, bitmap, append(data, "next"...))
		if err != nil {
			t.Fatalf("row %d: %v", i, err)
		}
		if string(rest) != "next" {
			t.Errorf("row %d: got rest %q, want next", i, rest)
		}
		for k, c := range capturedColumns {
			var got string
			switch {
			case !cells[k].present:
				got = "absent"
			case cells[k].null:
				got = "NULL"
			default:
				if got, err = c.show(cells[k]); err != nil {
					t.Errorf("row %d: %s: %v", i, c.name, err)
				}
			}
			if got != c.want[i] {
				t.Errorf("row %d: %s: got %s, want %s", i, c.name, got, c.want[i])
			}
		}
	}
}

// TestReadRowOld reads types that today's servers do not write any more.
func TestReadRowOld(t *testing.T) {
	columns := []column{{typeTimestamp, 0}, {typeTimestamp, 0}, {typeDatetime, 0}, {typeDatetime, 0}, {typeTime, 0}, {typeNewDate, 0}, {typeNull, 0}, {typeString, 20}, {typeVarString, 300}}
	data := "\x00\x00" + // null bitmap
		"\x25\x7d\x93\x65" + "\x00\x00\x00\x00" +
		"\x45\x7c\x17\x84\x68\x12\x00\x00" + strings.Repeat("\x00", 8) +
		"\x40\xe2\x01" + "\x5d\xd0\x0f" + "" + "\x01a" + "\x02\x00bc"
	cells := make([]cell, len(columns))
	rest, err := readRow(cells, columns, []byte{0xff, 0xff}, []byte(data))
	if err != nil || len(rest) > 0 {
		t.Fatalf("got rest %x, error %v", rest, err)
	}
	want := []string{"2024-01-02 03:04:05", "0000-00-00", "2024-01-02 03:04:05", "0000-00-00", "", "2024-02-29", "", "", ""}
	for i, w := range want {
		if w == "" {
			continue
		}
		if got, err := showClock(cells[i]); got != w || err != nil {
			t.Errorf("column %d: got %s, %v, want %s", i, got, err, w)
		}
	}
	if got := string(cells[4].data) + string(cells[6].data) + string(cells[7].data) + string(cells[8].data); got != "\x40\xe2\x01abc" {
		t.Errorf("got %q", got)
	}
}

func TestReadRowDamaged(t *testing.T) {
	tests := []struct {
		name    string
		columns []column
		bitmap  string
		data    string
		want    string // in the error
	}{
		{"unknown type", []column{{typeTiny, 0}, {142, 0}}, "\x03", "\x00\x01\x01", "column 1: unknown type 142"},
		{"old decimal", []column{{0, 0}}, "\x01", "\x00\x01", "unknown type 0"},
		{"decimal", []column{{typeNewDecimal, 0x4200}}, "\x01", "\x00", "type 246 with metadata 0x4200"},
		{"fraction", []column{{typeDatetime2, 7}}, "\x01", "\x00", "type 18 with metadata 0x7"},
		{"blob", []column{{typeBlob, 5}}, "\x01", "\x00", "type 252 with metadata 0x5"},
		{"enum", []column{{typeString, 0xf703}}, "\x01", "\x00", "type 254 with metadata 0xf703"},
		{"set", []column{{typeString, 0xf809}}, "\x01", "\x00", "type 254 with metadata 0xf809"},
		{"bitmap", make([]column, 9), "\xff", "\x00\x00", "bitmap of 1 bytes for 9 columns"},
		{"null bitmap", []column{{typeTiny, 0}}, "\x01", "", "null bitmap cut short"},
		{"length", []column{{typeBlob, 4}}, "\x01", "\x00\x01\x00\x00", "length cut short"},
		{"value", []column{{typeLong, 0}}, "\x01", "\x00\x01\x00\x00", "type 3 cut short"},
		{"long value", []column{{typeBlob, 4}}, "\x01", "\x00\xff\xff\xff\xff", "type 252 cut short"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := readRow(make([]cell, len(tt.columns)), tt.columns, []byte(tt.bitmap), []byte(tt.data))
			if !errors.Is(err, errRow) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want errRow with %q", err, tt.want)
			}
		})
	}
	if _, err := readRow(nil, make([]column, 1), []byte{1}, []byte{0}); !errors.Is(err, errRow) {
		t.Errorf("too few cells: got error %v, want %v", err, errRow)
	}
}

// TestReadRowCutShort cuts every captured row at every place.
func TestReadRowCutShort(t *testing.T) {
	for i := range capturedRows {
		columns, bitmap, data := capturedRow(t, i)
		cells := make([]cell, len(columns))
		for n := range data {
			if _, err := readRow(cells, columns, bitmap, data[:n]); !errors.Is(err, errRow) {
				t.Fatalf("row %d, %d bytes: got error %v, want %v", i, n, err, errRow)
			}
		}
	}
}

func TestReadRowAllocations(t *testing.T) {
	columns, bitmap, data := capturedRow(t, 2)
	cells := make([]cell, len(columns))
	dst := make([]byte, 0, 100)
	got := testing.AllocsPerRun(10, func() {
		if _, err := readRow(cells, columns, bitmap, data); err != nil {
			t.Error(err)
		}
		_, _ = appendInteger(dst, cells[8], false)
		_, _ = appendDecimal(dst, cells[13].data, 65, 30)
		_, _ = decodeTime(cells[29], time.UTC)
		_, _ = enumIndex(cells[34])
	})
	if got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

func TestDecodeTimeZone(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	data := []byte("\x99\xb2\x44\x31\x05\x0a\x5b\xf5") // 2024-01-02 03:04:05.678901
	got, err := decodeTime(cell{present: true, typ: typeDatetime2, meta: 6, data: data}, berlin)
	if want := time.Date(2024, 1, 2, 2, 4, 5, 678901000, time.UTC); !got.Equal(want) || err != nil {
		t.Errorf("datetime: got %v, %v, want %v", got, err, want)
	}
	got, err = decodeTime(cell{present: true, typ: typeTimestamp2, data: []byte("\x65\x93\x7d\x25")}, berlin)
	if want := time.Date(2024, 1, 2, 3, 4, 5, 0, time.UTC); got != want || err != nil {
		t.Errorf("timestamp: got %v, %v, want %v", got, err, want)
	}
}

func TestConvertersRefuse(t *testing.T) {
	integer := func(c cell) error { _, err := appendInteger(nil, c, false); return err }
	enum := func(c cell) error { _, err := enumIndex(c); return err }
	date := func(c cell) error { _, err := decodeTime(c, time.UTC); return err }
	tests := []struct {
		name string
		read func(cell) error
		cell cell
	}{
		{"absent", integer, cell{typ: typeTiny, data: []byte{1}}},
		{"null", integer, cell{present: true, null: true, typ: typeTiny}},
		{"integer from a string", integer, cell{present: true, typ: typeVarchar, data: []byte("1")}},
		{"integer of another size", integer, cell{present: true, typ: typeLong, data: []byte("1")}},
		{"enum from an integer", enum, cell{present: true, typ: typeTiny, data: []byte{1}}},
		{"time from a time of day", date, cell{present: true, typ: typeTime2, data: []byte{0x80, 0, 0}}},
		{"date 2024-00-10", date, cell{present: true, typ: typeDate, data: []byte("\x0a\xd0\x0f")}},
		{"date 2023-02-30", date, cell{present: true, typ: typeDate, data: []byte("\x5e\xce\x0f")}},
		{"datetime 2024-01-00", date, cell{present: true, typ: typeDatetime2, meta: 6, data: []byte("\x99\xb2\x40\x10\x83\x00\x00\x00")}},
		{"datetime 2024-00-10", date, cell{present: true, typ: typeDatetime2, meta: 6, data: []byte("\x99\xb2\x14\x00\x00\x00\x00\x00")}},
		{"datetime below zero", date, cell{present: true, typ: typeDatetime2, data: []byte("\x19\xb2\x44\x31\x05")}},
		{"datetime at 31 o'clock", date, cell{present: true, typ: typeDatetime2, data: []byte("\x99\xb2\x45\xf1\x05")}},
		{"old datetime too large", date, cell{present: true, typ: typeDatetime, data: []byte("\xff\xff\xff\xff\xff\xff\xff\xff")}},
		{"timestamp with a large fraction", date, cell{present: true, typ: typeTimestamp2, meta: 6, data: []byte("\x65\x93\x7d\x25\xff\xff\xff")}},
	}
	for _, tt := range tests {
		if err := tt.read(tt.cell); !errors.Is(err, errValue) {
			t.Errorf("%s: got error %v, want %v", tt.name, err, errValue)
		}
	}
}

func TestPadBinary(t *testing.T) {
	tests := []struct {
		data string
		n    int
		want string
	}{
		{"", 3, "\x00\x00\x00"},
		{"a", 3, "a\x00\x00"},
		{"abc", 3, "abc"},
		{"abcd", 3, "abcd"},
		{"", 0, ""},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, string(padBinary([]byte(tt.data), tt.n))); diff != "" {
			t.Errorf("%q to %d (-want +got):\n%s", tt.data, tt.n, diff)
		}
	}
	data := []byte("ab")[:1]
	padBinary(data, 2)
	if string(data[:2]) != "ab" {
		t.Error("padBinary wrote past its argument")
	}
}

func FuzzReadRow(f *testing.F) {
	for i := range capturedRows {
		columns, bitmap, data := capturedRow(f, i)
		var table []byte
		for _, c := range columns {
			table = append(table, c.typ, byte(c.meta>>8), byte(c.meta))
		}
		f.Add(table, bitmap, data)
	}
	f.Fuzz(func(t *testing.T, table, bitmap, data []byte) {
		columns := make([]column, len(table)/3)
		for i := range columns {
			columns[i] = column{table[3*i], uint16(table[3*i+1])<<8 | uint16(table[3*i+2])}
		}
		cells := make([]cell, len(columns))
		rest, err := readRow(cells, columns, bitmap, data)
		if err != nil {
			if !errors.Is(err, errRow) {
				t.Errorf("got error %v, want %v", err, errRow)
			}
			return
		}
		size := len(rest)
		for _, c := range cells {
			size += len(c.data)
		}
		if size > len(data) || !bytes.HasSuffix(data, rest) {
			t.Errorf("got %d bytes from %d", size, len(data))
		}
		for _, c := range cells {
			for _, show := range []func(cell) (string, error){showSigned, showUnsigned, showDecimal, showIndex} {
				if text, err := show(c); err == nil && text == "" {
					t.Errorf("%+v: got no text", c)
				}
			}
			if v, err := decodeTime(c, time.UTC); err == nil && v.Year() > 9999 {
				t.Errorf("%+v: got %v", c, v)
			}
		}
	})
}
