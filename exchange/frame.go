package exchange

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
)

// The frames of AMQP 0-9-1 (https://www.rabbitmq.com/amqp-0-9-1-reference): a
// type, a channel, the payload's length, the payload, and an end.
const (
	frameMethod = 1
	frameHeader = 2
	frameBody   = 3
	frameBeat   = 8

	frameHead = 7 // bytes before the payload
	frameEnd  = 0xCE
)

// The methods of the channels that the publisher opens itself.
const (
	channelOpen    = 20<<16 | 10
	channelOpenOk  = 20<<16 | 11
	channelClose   = 20<<16 | 40
	channelCloseOk = 20<<16 | 41
	basicPublish   = 60<<16 | 40
	basicReturn    = 60<<16 | 50
	basicAck       = 60<<16 | 80
	basicNack      = 60<<16 | 120
	confirmSelect  = 85<<16 | 10
	confirmOk      = 85<<16 | 11
)

const basicClass = 60

// The flags of a content header: which properties it has, in this order.
const (
	hasContentType  = 0x8000
	hasEncoding     = 0x4000
	hasHeaders      = 0x2000
	hasDeliveryMode = 0x1000
	hasPriority     = 0x0800
	hasCorrelation  = 0x0400
	hasReplyTo      = 0x0200
	hasExpiration   = 0x0100
	hasMessageID    = 0x0080
	hasTimestamp    = 0x0040
	hasType         = 0x0020
	hasAppID        = 0x0008
)

var be = binary.BigEndian

// beginFrame puts a frame's head behind dst; endFrame knows it by where it is.
func beginFrame(dst []byte, typ byte, channel uint16) (_ []byte, at int) {
	at = len(dst)
	dst = append(dst, typ)
	dst = be.AppendUint16(dst, channel)
	return append(dst, 0, 0, 0, 0), at
}

// endFrame writes the length of the payload behind the head at at, and the end.
func endFrame(dst []byte, at int) []byte {
	be.PutUint32(dst[at+3:], uint32(len(dst)-at-frameHead))
	return append(dst, frameEnd)
}

// appendMethod puts a method without content behind dst, its arguments as they
// are.
func appendMethod(dst []byte, channel uint16, method uint32, args ...byte) []byte {
	dst, at := beginFrame(dst, frameMethod, channel)
	dst = be.AppendUint32(dst, method)
	return endFrame(append(dst, args...), at)
}

// appendShort appends a short string, of 255 bytes at most.
func appendShort(dst []byte, s string) []byte {
	return append(append(dst, byte(len(s))), s...)
}

// appendText appends a table's field that holds a text.
func appendText(dst []byte, name, value string) []byte {
	dst = append(appendShort(dst, name), 'S')
	return append(be.AppendUint32(dst, uint32(len(value))), value...)
}

// appendField appends a table's field; false: no field can hold the value. It
// loses nothing: integers go as 64 bits, and the larger unsigned ones not at all.
// The types are those that RabbitMQ takes: https://www.rabbitmq.com/docs/amqp-0-9-1-errata.
func appendField(dst []byte, name string, value any) (_ []byte, ok bool) {
	dst = appendShort(dst, name)
	switch v := value.(type) {
	case nil:
		return append(dst, 'V'), true
	case bool:
		if v {
			return append(dst, 't', 1), true
		}
		return append(dst, 't', 0), true
	case int8:
		return append(dst, 'b', byte(v)), true
	case uint8:
		return append(dst, 'B', v), true
	case int16:
		return be.AppendUint16(append(dst, 's'), uint16(v)), true
	case uint16:
		return be.AppendUint16(append(dst, 'u'), v), true
	case int32:
		return be.AppendUint32(append(dst, 'I'), uint32(v)), true
	case uint32:
		return be.AppendUint32(append(dst, 'i'), v), true
	case int64:
		return be.AppendUint64(append(dst, 'l'), uint64(v)), true
	case int:
		return be.AppendUint64(append(dst, 'l'), uint64(v)), true
	case uint:
		return be.AppendUint64(append(dst, 'l'), uint64(v)), uint64(v) <= math.MaxInt64
	case uint64:
		return be.AppendUint64(append(dst, 'l'), v), v <= math.MaxInt64
	case float32:
		return be.AppendUint32(append(dst, 'f'), math.Float32bits(v)), true
	case float64:
		return be.AppendUint64(append(dst, 'd'), math.Float64bits(v)), true
	case string:
		return append(be.AppendUint32(append(dst, 'S'), uint32(len(v))), v...), true
	case json.RawMessage:
		return append(be.AppendUint32(append(dst, 'S'), uint32(len(v))), v...), true
	case []byte:
		return append(be.AppendUint32(append(dst, 'x'), uint32(len(v))), v...), true
	}
	return dst, false
}

// frameReader steps through a frame's payload; the first read past its end makes
// it bad, and everything after that reads as zero.
type frameReader struct {
	rest []byte
	bad  bool
}

func (r *frameReader) bytes(n int) []byte {
	if n < 0 || n > len(r.rest) {
		r.bad, r.rest = true, nil
		return nil
	}
	b := r.rest[:n]
	r.rest = r.rest[n:]
	return b
}

func (r *frameReader) uint8() byte {
	if b := r.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

func (r *frameReader) uint16() uint16 {
	if b := r.bytes(2); b != nil {
		return be.Uint16(b)
	}
	return 0
}

func (r *frameReader) uint32() uint32 {
	if b := r.bytes(4); b != nil {
		return be.Uint32(b)
	}
	return 0
}

func (r *frameReader) uint64() uint64 {
	if b := r.bytes(8); b != nil {
		return be.Uint64(b)
	}
	return 0
}

func (r *frameReader) short() string { return string(r.bytes(int(r.uint8()))) }

func (r *frameReader) long() []byte { return r.bytes(int(r.uint32())) }

// fields steps through a table, and hands the fields over that are a text or an
// integer of 64 bits; the others are nil.
func (r *frameReader) fields(yield func(name string, value any)) {
	table := frameReader{rest: r.long()}
	for len(table.rest) > 0 {
		name := table.short()
		yield(name, table.field())
	}
	r.bad = r.bad || table.bad
}

func (r *frameReader) field() any {
	switch r.uint8() {
	case 'S':
		return string(r.long())
	case 'l':
		return int64(r.uint64())
	case 'V':
	case 't', 'b', 'B':
		r.bytes(1)
	case 's', 'u':
		r.bytes(2)
	case 'I', 'i', 'f':
		r.bytes(4)
	case 'd', 'T':
		r.bytes(8)
	case 'D':
		r.bytes(5)
	case 'x', 'A', 'F':
		r.long()
	default:
		r.bad, r.rest = true, nil
	}
	return nil
}

// errFrame: what the broker sends is not AMQP as it is known here.
func errFrame(format string, args ...any) error {
	return fmt.Errorf("exchange: the broker sent "+format, args...)
}
