package binlog

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/google/uuid"
)

// GTID names one transaction: the server where it was committed first, an
// optional tag (MySQL 8.3 and later) and a number. The zero GTID names none.
type GTID struct {
	Server uuid.UUID
	Tag    string
	Number int64
}

// IsZero tells whether g names no transaction.
func (g GTID) IsZero() bool { return g.Number == 0 }

// String is the form that MySQL prints: server:number or server:tag:number.
func (g GTID) String() string {
	if g.IsZero() {
		return ""
	}
	if g.Tag == "" {
		return g.Server.String() + ":" + strconv.FormatInt(g.Number, 10)
	}
	return g.Server.String() + ":" + g.Tag + ":" + strconv.FormatInt(g.Number, 10)
}

// GTIDSet is a set of transactions. It is not safe for concurrent use.
type GTIDSet struct {
	set *mysql.MysqlGTIDSet
}

// ParseGTIDSet reads the form that MySQL prints; the empty text is the empty
// set.
func ParseGTIDSet(text string) (*GTIDSet, error) {
	set, err := mysql.ParseMysqlGTIDSet(strings.Join(strings.Fields(text), ""))
	if err != nil {
		return nil, fmt.Errorf("binlog: %q is not a GTID set such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-57: %w", text, err)
	}
	return &GTIDSet{set.(*mysql.MysqlGTIDSet)}, nil
}

func emptySet() *GTIDSet {
	set := mysql.NewMysqlGTIDSet()
	return &GTIDSet{&set}
}

// Add puts one transaction into the set.
func (s *GTIDSet) Add(g GTID) {
	s.set.AddGTIDWithTag(g.Server, mysql.NewTag(g.Tag), g.Number)
}

// cover puts a transaction that was read to its end into the set, an XA
// transaction's first half as well.
func (s *GTIDSet) cover(tx *Tx) {
	for _, gtid := range []GTID{tx.GTID, tx.Prepared} {
		if tx.Last && !gtid.IsZero() {
			s.Add(gtid)
		}
	}
}

// with is the set's text with other's transactions added.
func (s *GTIDSet) with(other *GTIDSet) string {
	both, err := ParseGTIDSet(strings.Trim(s.String()+","+other.String(), ","))
	if err != nil { // of two sets it cannot be
		return s.String() + "," + other.String()
	}
	return both.String()
}

// Contains tells whether every transaction of other is in s.
func (s *GTIDSet) Contains(other *GTIDSet) bool { return s.set.Contain(other.set) }

// Has tells whether g is in s.
func (s *GTIDSet) Has(g GTID) bool {
	return (*s.set)[g.Server][mysql.NewTag(g.Tag)].Contain(mysql.IntervalSlice{{Start: g.Number, Stop: g.Number + 1}})
}

// Minus is the set of the transactions of s that are not in other.
func (s *GTIDSet) Minus(other *GTIDSet) *GTIDSet {
	left := mysql.NewMysqlGTIDSet()
	for server, tags := range *s.set {
		for tag, intervals := range tags {
			rest := cutIntervals(intervals, (*other.set)[server][tag])
			if len(rest) == 0 {
				continue
			}
			if left[server] == nil {
				left[server] = map[mysql.Tag]mysql.IntervalSlice{}
			}
			left[server][tag] = rest
		}
	}
	return &GTIDSet{&left}
}

// cutIntervals are from without away; both are in order and disjoint.
func cutIntervals(from, away mysql.IntervalSlice) (rest mysql.IntervalSlice) {
	for _, i := range from {
		for _, a := range away {
			if a.Stop <= i.Start || a.Start >= i.Stop {
				continue
			}
			if a.Start > i.Start {
				rest = append(rest, mysql.Interval{Start: i.Start, Stop: a.Start})
			}
			i.Start = a.Stop
		}
		if i.Start < i.Stop {
			rest = append(rest, i)
		}
	}
	return rest
}

// Clone is a copy that shares nothing with s.
func (s *GTIDSet) Clone() *GTIDSet { return &GTIDSet{s.set.Clone().(*mysql.MysqlGTIDSet)} }

// IsEmpty tells whether the set holds no transaction.
func (s *GTIDSet) IsEmpty() bool { return s.set.IsEmpty() }

// String is the form that MySQL prints and that ParseGTIDSet reads.
func (s *GTIDSet) String() string { return s.set.String() }

// Count is the number of transactions in the set.
func (s *GTIDSet) Count() int64 { return countGTIDs(s.String()) }

// countGTIDs counts the transactions in a set's text. Its parts are a
// server's UUID, tags and intervals: uuid:1-5:7:tag:1-2.
func countGTIDs(text string) int64 {
	var n int64
	for server := range strings.SplitSeq(text, ",") {
		for part := range strings.SplitSeq(strings.TrimSpace(server), ":") {
			first, last, isRange := strings.Cut(part, "-")
			from, err := strconv.ParseInt(first, 10, 64)
			if err != nil {
				continue // the UUID, or a tag
			}
			to := from
			if isRange {
				if to, err = strconv.ParseInt(last, 10, 64); err != nil {
					continue
				}
			}
			n += to - from + 1
		}
	}
	return n
}

// gtidOf reads the fields of a GTID event.
func gtidOf(sid []byte, tag string, number int64) (GTID, error) {
	server, err := uuid.FromBytes(sid)
	if err != nil {
		return GTID{}, fmt.Errorf("%w: GTID: %w", ErrDamaged, err)
	}
	if number <= 0 {
		return GTID{}, fmt.Errorf("%w: GTID with the number %d", ErrDamaged, number)
	}
	return GTID{Server: server, Tag: tag, Number: number}, nil
}
