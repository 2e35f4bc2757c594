package binlog

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"
)

// Flags of MariaDB's GTID event (sql/log_event.h, Gtid_log_event).
const (
	mariaStandalone  = 1 << 0 // the group is one statement, with no end of its own
	mariaGroupCommit = 1 << 1 // a commit id follows
	mariaPreparedXA  = 1 << 6 // the group ends with XA PREPARE
	mariaCompletedXA = 1 << 7 // the group is XA COMMIT or XA ROLLBACK
)

// openMariaDB opens the group of a MariaDB GTID event, which stands for BEGIN
// and for XA START as well. Its header has the server's id.
func (g *group) openMariaDB(h header, body []byte) error {
	s := scanner{rest: body}
	var number uint64
	if b := s.bytes(8); b != nil {
		number = le.Uint64(b)
	}
	domain := s.uint32()
	flags := s.uint8()
	if s.bad || number == 0 || number >= math.MaxInt64 || h.server == 0 {
		return fmt.Errorf("%w: GTID %d-%d-%d", ErrDamaged, domain, h.server, number)
	}
	g.open = flags&mariaStandalone == 0
	g.tx.GTID = GTID{Domain: domain, ServerID: h.server, Number: int64(number)}
	g.tx.CommittedAt = time.Unix(int64(h.timestamp), 0).UTC() // until timed knows better
	if flags&mariaGroupCommit != 0 {
		s.bytes(8)
	}
	if flags&mariaPreparedXA != 0 {
		g.xa = s.xid()
	}
	if s.bad {
		return fmt.Errorf("%w: GTID %s", ErrDamaged, g.tx.GTID)
	}
	return nil
}

// xid reads an XA transaction's id and returns it as the server writes it into
// statements: X'6162',X'63',1.
func (s *scanner) xid() string {
	format := s.uint32()
	global, branch := s.uint8(), s.uint8()
	data := s.bytes(global + branch)
	if s.bad {
		return ""
	}
	return fmt.Sprintf("X'%x',X'%x',%d", data[:global], data[global:], format)
}

func (s *scanner) uint32() uint32 {
	if b := s.bytes(4); b != nil {
		return le.Uint32(b)
	}
	return 0
}

// timed notes the time of a group's last event, in whole seconds: the GTID has
// that of the statement that committed, and another on a replica.
func (a *assembler) timed(h header) {
	if a.group != nil && a.group.tx.GTID.sequential() && h.timestamp != 0 && h.typ != replication.MARIADB_GTID_EVENT {
		a.group.tx.CommittedAt = time.Unix(int64(h.timestamp), 0).UTC()
	}
}

// inOrder looks at what a position stands on: that numbers grow in a domain.
func (a *assembler) inOrder(g GTID) error {
	if !g.sequential() {
		return nil
	}
	if last := a.reached[g.Domain].last; g.Number <= last {
		return a.unreadable("its number is not above %d, that of one before it in its domain: gtid_strict_mode was OFF when it was written", last)
	}
	a.reached.add(g)
	return nil
}

// parseGTIDList reads a GTID list event's body as a position: the newest of a
// domain comes last.
func parseGTIDList(body []byte) (*GTIDSet, error) {
	list, err := listGTIDs(body)
	if err != nil {
		return nil, err
	}
	set := emptySet()
	for _, g := range list {
		set.domains[g.Domain] = run{last: g.Number, server: g.ServerID}
	}
	return set, nil
}

// listGTIDs reads a GTID list event's body: a count, whose upper four bits are
// flags, and then the last transaction of each server in each domain.
func listGTIDs(body []byte) (list []GTID, err error) {
	s := scanner{rest: body}
	for n := s.uint32() & (1<<28 - 1); n > 0 && !s.bad; n-- {
		g := GTID{Domain: s.uint32(), ServerID: s.uint32()}
		if b := s.bytes(8); b != nil {
			g.Number = int64(le.Uint64(b))
		}
		if !s.bad && g.sequential() && g.Number > 0 && g.Number < math.MaxInt64 {
			list = append(list, g)
		}
	}
	if s.bad {
		return nil, fmt.Errorf("%w: GTID list", ErrDamaged)
	}
	return list, nil
}

// inflate undoes log_bin_compress: a byte of which the lowest three bits are
// the size of the length that follows, big-endian, and then a zlib stream, or
// one without its wrapping where the fourth bit is set (MariaDB's
// sql/log_event.cc, binlog_buf_compress, and sql/field_comp.cc).
func inflate(data []byte) ([]byte, error) {
	s := scanner{rest: data}
	head := s.uint8()
	length := uintBE(s.bytes(head & 7))
	if s.bad || head&0xf0 != 0x80 || length > maxEvent {
		return nil, fmt.Errorf("%w: compressed event", ErrDamaged)
	}
	var reader io.ReadCloser
	if head&8 != 0 {
		reader = flate.NewReader(bytes.NewReader(s.rest))
	} else {
		var err error
		if reader, err = zlib.NewReader(bytes.NewReader(s.rest)); err != nil {
			return nil, fmt.Errorf("%w: compressed event: %w", ErrDamaged, err)
		}
	}
	defer reader.Close()
	var out bytes.Buffer // grows as far as there are data, whatever the length says
	if n, err := io.Copy(&out, io.LimitReader(reader, int64(length)+1)); err != nil || n != int64(length) {
		return nil, fmt.Errorf("%w: compressed event of %d bytes ends after %d: %v", ErrDamaged, length, n, err)
	}
	return out.Bytes(), nil
}

// inflateColumn is the value of a column that is COMPRESSED: it is empty, or has
// a byte in front, which is zero where the rest is as it was.
func inflateColumn(data []byte) ([]byte, error) {
	if len(data) == 0 || data[0] == 0 {
		return data[min(1, len(data)):], nil
	}
	return inflate(data)
}

// inflateQuery is a compressed query event's body as that of a plain one.
func inflateQuery(body []byte) ([]byte, error) {
	q, err := parseQuery(body)
	if err != nil {
		return nil, err
	}
	plain, err := inflate([]byte(q.text))
	if err != nil {
		return nil, err
	}
	head := body[: len(body)-len(q.text) : len(body)-len(q.text)]
	return append(head, plain...), nil
}

// inflateRows undoes the compression of rows behind the table id and flags,
// which leaves the columns' bitmap as it is.
func inflateRows(version int, body []byte) ([]byte, error) {
	s := scanner{rest: body}
	if version == 2 {
		s.bytes(s.uint16() - 2)
	}
	s.bytes((s.packed() + 7) / 8)
	if s.bad {
		return nil, fmt.Errorf("%w: compressed rows", ErrDamaged)
	}
	plain, err := inflate(s.rest)
	if err != nil {
		return nil, err
	}
	head := len(body) - len(s.rest)
	return append(body[:head:head], plain...), nil
}

// compressedRows tells of an insert's event whether log_bin_compress made it.
func compressedRows(typ replication.EventType) bool {
	return typ == replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1 || typ == mariaWriteRowsCompressed
}

// The compressed row events of version 2, of which MariaDB has the numbers and
// has not written any yet.
const (
	mariaWriteRowsCompressed  replication.EventType = 169
	mariaUpdateRowsCompressed replication.EventType = 170
	mariaDeleteRowsCompressed replication.EventType = 171
)

// untold tells whether an event without an end stands in the log behind the one
// before it: MariaDB 11.4 and later writes groups so, their last event apart.
func (a *assembler) untold() bool { return a.group != nil && a.group.tx.GTID.sequential() }
