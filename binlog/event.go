package binlog

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/go-mysql-org/go-mysql/replication"
)

var le = binary.LittleEndian

// header is the common header of every event in the log (MySQL's
// libs/mysql/binlog/event/binlog_event.h, Log_event_header).
type header struct {
	timestamp uint32
	typ       replication.EventType
	server    uint32 // id of the server that wrote it first
	size      uint32
	end       uint32 // offset in the log file just behind the event; 0: not told
	flags     uint16
}

const (
	headerSize   = replication.EventHeaderSize
	checksumSize = replication.BinlogChecksumLength
)

// rawEvent is an event as it comes, valid until the next one is read.
type rawEvent struct {
	bytes []byte // all of it, or the first of a large one
	large *large // nil: bytes is all of it
}

// large is what else there is of an event that is not held in memory.
type large struct {
	size int64              // bytes of the whole event
	sum  uint32             // CRC-32 of all but the last four bytes
	tail [checksumSize]byte // those
	file io.ReaderAt        // has the whole event; nil: it was let go
	end  int64              // where its body ends in the file; set by splitEvent
}

// keep is where an event that is larger than heldEvent is put.
type keep int

const (
	inMemory keep = iota
	onDisk
	nowhere // only its checksum is looked at
)

const (
	heldEvent   = 4 << 20 // bytes; what is larger is held only if it is to be taken apart whole
	headOfLarge = 256     // bytes by which it is told what a larger one is
	// maxEvent bounds the size of one event: the largest max_allowed_packet,
	// and what a row event adds to it.
	maxEvent = 1<<30 + 1<<20
)

// splitEvent takes an event apart, and checks its checksum where it has one.
// body is without it; of a large event it is the beginning.
func splitEvent(raw rawEvent, checksum bool) (h header, body []byte, err error) {
	b := raw.bytes
	if len(b) < headerSize {
		return h, nil, fmt.Errorf("%w: %d bytes are too few for a header", ErrDamaged, len(b))
	}
	h = header{
		timestamp: le.Uint32(b),
		typ:       replication.EventType(b[4]),
		server:    le.Uint32(b[5:]),
		size:      le.Uint32(b[9:]),
		end:       le.Uint32(b[13:]),
		flags:     le.Uint16(b[17:]),
	}
	size := int64(len(b))
	if raw.large != nil {
		size = raw.large.size
	}
	if int64(h.size) != size {
		return h, nil, fmt.Errorf("%w: %s says %d bytes and has %d", ErrDamaged, h.typ, h.size, size)
	}
	end := size
	if checksum {
		if end -= checksumSize; end < headerSize {
			return h, nil, fmt.Errorf("%w: %s is too short for its checksum", ErrDamaged, h.typ)
		}
		var sum, want uint32
		if l := raw.large; l != nil {
			sum, want = l.sum, le.Uint32(l.tail[:])
		} else {
			sum, want = crc32.ChecksumIEEE(b[:end]), le.Uint32(b[end:])
		}
		if sum != want {
			return h, nil, fmt.Errorf("%w: %s has a wrong checksum", ErrDamaged, h.typ)
		}
	}
	if raw.large != nil {
		raw.large.end = end
		return h, b[headerSize:], nil
	}
	return h, b[headerSize:end], nil
}

// hasChecksum reads from a format description event whether the events after
// it end in a checksum. The algorithm is the byte before that event's own
// checksum, which it always has.
func hasChecksum(raw []byte) (bool, error) {
	if len(raw) < headerSize+checksumSize+1 {
		return false, fmt.Errorf("%w: format description of %d bytes", ErrDamaged, len(raw))
	}
	return replication.BinlogChecksum(raw[len(raw)-checksumSize-1]) == replication.BINLOG_CHECKSUM_ALG_CRC32, nil
}

// scanner steps through an event's body; the first read past its end makes
// it bad, and everything after that reads as zero.
type scanner struct {
	rest []byte
	bad  bool
}

func (s *scanner) bytes(n int) []byte {
	if n < 0 || n > len(s.rest) {
		s.bad, s.rest = true, nil
		return nil
	}
	b := s.rest[:n]
	s.rest = s.rest[n:]
	return b
}

func (s *scanner) uint8() int {
	if b := s.bytes(1); b != nil {
		return int(b[0])
	}
	return 0
}

func (s *scanner) uint16() int {
	if b := s.bytes(2); b != nil {
		return int(le.Uint16(b))
	}
	return 0
}

func (s *scanner) uint48() uint64 {
	if b := s.bytes(6); b != nil {
		return uint64(le.Uint32(b)) | uint64(le.Uint16(b[4:]))<<32
	}
	return 0
}

// packed reads a length-encoded integer (MySQL's net_field_length).
func (s *scanner) packed() int {
	var n uint64
	switch first := s.uint8(); first {
	case 251, 255: // NULL and an error packet: not a length
		s.bad = true
	case 252:
		n = uint64(s.uint16())
	case 253:
		if b := s.bytes(3); b != nil {
			n = uint64(b[0]) | uint64(b[1])<<8 | uint64(b[2])<<16
		}
	case 254:
		if b := s.bytes(8); b != nil {
			n = le.Uint64(b)
		}
	default:
		n = uint64(first)
	}
	if n > 1<<40 {
		s.bad, n = true, 0
	}
	return int(n)
}
