package binlog

import (
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
)

// MySQL's binary JSON, as it stands in a row event, is described in the
// comment at the head of sql-common/json_binary.h:
//
//	document  ::= type value
//	object    ::= count size key-entry* value-entry* key* value*
//	array     ::= count size value-entry* value*
//	key-entry ::= key-offset key-length(uint16)
//	value-entry ::= type offset-or-inlined-value
//	string    ::= variable-length bytes
//	opaque    ::= column-type variable-length bytes
//
// All numbers are little-endian. Counts, sizes and offsets have two bytes in
// the small form of a container and four in the large one; offsets count from
// the container's count. The text form is that of Json_wrapper::to_string in
// sql-common/json_dom.cc.
const (
	jsonSmallObject = 0x00
	jsonLargeObject = 0x01
	jsonSmallArray  = 0x02
	jsonLargeArray  = 0x03
	jsonLiteral     = 0x04
	jsonInt16       = 0x05
	jsonUint16      = 0x06
	jsonInt32       = 0x07
	jsonUint32      = 0x08
	jsonInt64       = 0x09
	jsonUint64      = 0x0a
	jsonDouble      = 0x0b
	jsonString      = 0x0c
	jsonOpaque      = 0x0f
)

// jsonMaxDepth is MySQL's JSON_DOCUMENT_MAX_DEPTH: so many containers inside
// each other, and no more, are written by any server.
const jsonMaxDepth = 100

// base64Line is the number of bytes in a line of 76 base64 characters.
const base64Line = 76 / 4 * 3

// errJSON is what every error of appendJSON wraps.
var errJSON = errors.New("binlog: damaged json document")

// appendJSON appends the text of a binary JSON document to dst, byte for byte
// as SELECT prints it. An empty document is the JSON null: INSERT IGNORE and
// lax SQL modes store one for a NULL in a NOT NULL column.
//
// A damaged document gives an error that wraps errJSON, and dst as it was.
// Whatever the document, the text is at most a small multiple of its length.
func appendJSON(dst, doc []byte) ([]byte, error) {
	if len(doc) == 0 {
		return append(dst, "null"...), nil
	}
	r := jsonRenderer{dst: dst, doc: doc, unread: len(doc) - 1}
	if err := r.value(doc[0], 1, len(doc), 0); err != nil {
		return dst, err
	}
	return r.dst, nil
}

// jsonRenderer is one walk over a document. Positions are offsets in doc.
type jsonRenderer struct {
	dst []byte
	doc []byte

	// unread is the number of bytes that no value has claimed yet. In a
	// whole document no byte belongs to two values, so a walk that claims
	// more than there is goes in circles, or over the same values again and
	// again.
	unread int
}

// damaged returns an error for what is wrong at pos.
func (r *jsonRenderer) damaged(pos int, what string) error {
	return fmt.Errorf("%w: %s at offset %d of %d", errJSON, what, pos, len(r.doc))
}

// claim returns the n bytes at pos, which must lie before end.
func (r *jsonRenderer) claim(pos, end, n int) ([]byte, error) {
	if n < 0 || n > end-pos {
		return nil, r.damaged(pos, "value cut short")
	}
	if r.unread -= n; r.unread < 0 {
		return nil, r.damaged(pos, "values overlap")
	}
	return r.doc[pos : pos+n], nil
}

// value renders the value at pos, which must end at end or before, inside
// depth containers.
func (r *jsonRenderer) value(typ byte, pos, end, depth int) error {
	switch typ {
	case jsonSmallObject:
		return r.container(true, 2, pos, end, depth+1)
	case jsonLargeObject:
		return r.container(true, 4, pos, end, depth+1)
	case jsonSmallArray:
		return r.container(false, 2, pos, end, depth+1)
	case jsonLargeArray:
		return r.container(false, 4, pos, end, depth+1)
	case jsonString:
		s, err := r.variable(pos, end)
		if err != nil {
			return err
		}
		r.dst = appendJSONString(r.dst, s)
		return nil
	case jsonOpaque:
		return r.opaque(pos, end)
	}

	size := jsonScalarSize(typ)
	if size == 0 {
		return r.damaged(pos, "unknown type "+strconv.Itoa(int(typ)))
	}
	b, err := r.claim(pos, end, size)
	if err != nil {
		return err
	}
	var ok bool
	if r.dst, ok = appendJSONScalar(r.dst, typ, b); !ok {
		return r.damaged(pos, "impossible value of type "+strconv.Itoa(int(typ)))
	}
	return nil
}

// container renders the object or array at pos, whose offsets are width bytes
// wide and which is the depth-th from outside.
func (r *jsonRenderer) container(object bool, width, pos, end, depth int) error {
	if depth > jsonMaxDepth {
		return r.damaged(pos, "containers nested too deep")
	}
	head, err := r.claim(pos, end, 2*width)
	if err != nil {
		return err
	}
	count, size := jsonOffset(head, width), jsonOffset(head[width:], width)
	if size < 2*width || size > end-pos {
		return r.damaged(pos, "container larger than its place")
	}
	end = pos + size

	keyEntry, valueEntry := width+2, width+1
	if !object {
		keyEntry = 0
	}
	if count < 0 || count > (size-2*width)/(keyEntry+valueEntry) {
		return r.damaged(pos, "more elements than the container has room for")
	}
	keys := pos + 2*width
	values := keys + count*keyEntry
	body := values + count*valueEntry
	if _, err := r.claim(keys, end, body-keys); err != nil {
		return err
	}

	open, shut := byte('['), byte(']')
	if object {
		open, shut = '{', '}'
	}
	r.dst = append(r.dst, open)
	for i := range count {
		if i > 0 {
			r.dst = append(r.dst, ", "...)
		}
		if object {
			entry := r.doc[keys+i*keyEntry:]
			at, err := r.inside(jsonOffset(entry, width), pos, body, end)
			if err != nil {
				return err
			}
			key, err := r.claim(at, end, jsonOffset(entry[width:], 2))
			if err != nil {
				return err
			}
			r.dst = append(appendJSONString(r.dst, key), ": "...)
		}
		if err := r.element(values+i*valueEntry, width, pos, body, end, depth); err != nil {
			return err
		}
	}
	r.dst = append(r.dst, shut)
	return nil
}

// element renders the value of the value entry at entry: in the entry itself
// where it fits there, else elsewhere in the container.
func (r *jsonRenderer) element(entry, width, pos, body, end, depth int) error {
	typ := r.doc[entry]
	if size := jsonScalarSize(typ); size > 0 && size <= width && typ != jsonDouble {
		var ok bool
		if r.dst, ok = appendJSONScalar(r.dst, typ, r.doc[entry+1:entry+1+size]); !ok {
			return r.damaged(entry, "impossible inlined value of type "+strconv.Itoa(int(typ)))
		}
		return nil
	}
	at, err := r.inside(jsonOffset(r.doc[entry+1:], width), pos, body, end)
	if err != nil {
		return err
	}
	return r.value(typ, at, end, depth)
}

// inside turns an offset in the container at pos into a position, which must
// be in its body.
func (r *jsonRenderer) inside(offset, pos, body, end int) (int, error) {
	if offset < body-pos || offset > end-pos {
		return 0, r.damaged(pos, "offset "+strconv.Itoa(offset)+" outside its container")
	}
	return pos + offset, nil
}

// variable returns the bytes at pos that a variable length precedes: seven
// bits a byte, lowest first, the top bit set on all but the last, at most
// five bytes and 32 bits.
func (r *jsonRenderer) variable(pos, end int) ([]byte, error) {
	var n uint64
	for i := range 5 {
		b, err := r.claim(pos+i, end, 1)
		if err != nil {
			return nil, err
		}
		n |= uint64(b[0]&0x7f) << (7 * i)
		if b[0]&0x80 == 0 {
			if n > uint64(len(r.doc)) {
				return nil, r.damaged(pos, "value cut short")
			}
			return r.claim(pos+i+1, end, int(n))
		}
	}
	return nil, r.damaged(pos, "length of more than five bytes")
}

// opaque renders the value of a column type that JSON has no type for.
func (r *jsonRenderer) opaque(pos, end int) error {
	typ, err := r.claim(pos, end, 1)
	if err != nil {
		return err
	}
	data, err := r.variable(pos+1, end)
	if err != nil {
		return err
	}
	switch typ[0] {
	case typeNewDecimal:
		// One byte of precision, one of scale, then as in a column.
		if len(data) < 2 {
			return r.damaged(pos, "decimal cut short")
		}
		dst, err := appendDecimal(r.dst, data[2:], int(data[0]), int(data[1]))
		if err != nil {
			return r.damaged(pos, "impossible decimal")
		}
		r.dst = dst
	case typeDate, typeTime, typeDatetime, typeTimestamp:
		var ok bool
		if r.dst, ok = appendJSONTemporal(r.dst, typ[0], data); !ok {
			return r.damaged(pos, "impossible date or time")
		}
	default:
		r.dst = append(r.dst, `"base64:type`...)
		r.dst = strconv.AppendUint(r.dst, uint64(typ[0]), 10)
		r.dst = append(r.dst, ':')
		// MySQL's base64_encode breaks lines, and the break is escaped.
		for len(data) > base64Line {
			r.dst = base64.StdEncoding.AppendEncode(r.dst, data[:base64Line])
			r.dst = append(r.dst, `\n`...)
			data = data[base64Line:]
		}
		r.dst = base64.StdEncoding.AppendEncode(r.dst, data)
		r.dst = append(r.dst, '"')
	}
	return nil
}

// jsonOffset reads a number of two or four bytes. On a 32-bit machine the
// result can be negative.
func jsonOffset(b []byte, width int) int {
	if width == 2 {
		return int(binary.LittleEndian.Uint16(b))
	}
	return int(binary.LittleEndian.Uint32(b))
}

// appendJSONString appends s in quotes. MySQL escapes what it must and leaves
// everything else as it is (double_quote in json_dom.cc).
func appendJSONString(dst, s []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	plain := 0 // start of what has not been appended yet
	for i, c := range s {
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[plain:i]...)
		plain = i + 1
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, `\b`...)
		case '\f':
			dst = append(dst, `\f`...)
		case '\n':
			dst = append(dst, `\n`...)
		case '\r':
			dst = append(dst, `\r`...)
		case '\t':
			dst = append(dst, `\t`...)
		default:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	dst = append(dst, s[plain:]...)
	return append(dst, '"')
}
