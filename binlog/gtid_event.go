package binlog

import (
	"fmt"
	"math/bits"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/outboxrelay/relay/schema"
)

// parseGTID reads both of MySQL's kinds of GTID event, without an allocation:
// most of a log can be transactions of which nothing else is read. (The library
// would need some for each, and trusts the lengths that it finds.) The time is
// that of the commit on the server where it came first.
func parseGTID(h header, body []byte, tags *schema.Texts) (gtid GTID, committed time.Time, err error) {
	s := scanner{rest: body}
	var micros uint64
	if h.typ == replication.GTID_TAGGED_LOG_EVENT {
		gtid, micros = s.taggedGTID(tags)
	} else {
		gtid, micros = s.gtid()
	}
	if s.bad {
		return GTID{}, time.Time{}, fmt.Errorf("%w: GTID event %x", ErrDamaged, body[:min(len(body), 64)])
	}
	if gtid.Number <= 0 {
		return GTID{}, time.Time{}, fmt.Errorf("%w: GTID with the number %d", ErrDamaged, gtid.Number)
	}
	if micros == 0 {
		return gtid, time.Unix(int64(h.timestamp), 0).UTC(), nil
	}
	return gtid, time.UnixMicro(int64(micros)).UTC(), nil
}

// gtid reads the body of MySQL's Gtid_event: a byte of flags, the UUID, the
// number, and since MySQL 5.7 the byte 2 and two logical times. MySQL 8.0 adds
// the time of the commit, in seven bytes, of which the highest bit tells that
// the original one follows. 0: it is not told.
func (s *scanner) gtid() (g GTID, micros uint64) {
	const told = 1 << 55
	s.bytes(1)
	copy(g.Server[:], s.bytes(len(g.Server)))
	if b := s.bytes(8); b != nil {
		g.Number = int64(le.Uint64(b))
	}
	if len(s.rest) < 17+7 || s.rest[0] != replication.LogicalTimestampTypeCode {
		return g, 0
	}
	s.bytes(17)
	if micros = uintLE(s.bytes(7)); micros&told != 0 {
		micros = uintLE(s.bytes(7))
	}
	return g, micros
}

// The fields of MySQL's Gtid_event with a tag (8.3 and later), as far as they are
// of use.
const (
	gtidFlags = iota
	gtidUUID
	gtidNumber
	gtidTag
	gtidLastCommitted
	gtidSequence
	gtidImmediate // time of the commit
	gtidOriginal  // the same where it came first, if that is another
	gtidFields
)

// taggedGTID reads the body of such an event, in the form of MySQL's
// mysql::serialization: the version, the size and the last field that must be
// understood, then each field behind its number, without those that are left
// out.
func (s *scanner) taggedGTID(tags *schema.Texts) (g GTID, micros uint64) {
	s.bytes(3)
	named := 0 // of the two fields that must be there
	for field := range gtidFields {
		if len(s.rest) == 0 || int(s.rest[0]>>1) != field {
			continue
		}
		s.bytes(1)
		switch field {
		case gtidFlags:
			s.fixed()
		case gtidUUID:
			for i := range g.Server {
				g.Server[i] = s.fixed()
			}
			named++
		case gtidNumber:
			if n := s.varying(); n&1 == 0 { // the lowest bit is the sign
				g.Number = int64(n >> 1)
			}
			named++
		case gtidTag:
			if tag := s.bytes(s.uint8() >> 1); len(tag) > 0 {
				g.Tag = tags.Get(tag, normalTag)
			}
		case gtidLastCommitted, gtidSequence:
			s.varying()
		case gtidImmediate, gtidOriginal:
			micros = s.varying()
		}
	}
	s.bad = s.bad || named < 2
	return g, micros
}

// normalTag is a tag as a set has it.
func normalTag(tag string) string { return mysql.NewTag(tag).String() }

// fixed reads one byte of a field of fixed length: twice the byte, or for one
// from 0x80 on, two bytes, as varying has them.
func (s *scanner) fixed() byte {
	before := len(s.rest)
	n := s.varying()
	s.bad = s.bad || n > 0xff || before-len(s.rest) > 2
	return byte(n)
}

// varying reads an integer of one to nine bytes, little-endian: the lowest bits
// that are set are as many as bytes follow the first.
func (s *scanner) varying() uint64 {
	if len(s.rest) == 0 {
		s.bad = true
		return 0
	}
	size := bits.TrailingZeros8(^s.rest[0]) + 1
	b := s.bytes(size)
	if size == 9 {
		return uintLE(b[min(1, len(b)):])
	}
	return uintLE(b) >> size
}
