package binlog

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/google/uuid"
)

// GTID names one transaction. Of MySQL: the server where it was committed
// first, an optional tag (8.3 and later) and a number. Of MariaDB: a domain, the
// server's id, which is never 0, and a number. The zero GTID names none.
type GTID struct {
	Server uuid.UUID
	Tag    string

	Domain, ServerID uint32

	Number int64
}

// IsZero tells whether g names no transaction.
func (g GTID) IsZero() bool { return g.Number == 0 }

// sequential tells whether a set that has g has all that its server committed
// before g in the same domain.
func (g GTID) sequential() bool { return g.ServerID != 0 }

// String is the form that the server prints: server:number or
// server:tag:number, and domain-server-number.
func (g GTID) String() string {
	var buffer [96]byte // for all but the tags that no server takes
	text := buffer[:0]
	switch {
	case g.IsZero():
		return ""
	case g.sequential():
		text = strconv.AppendUint(text, uint64(g.Domain), 10)
		text = strconv.AppendUint(append(text, '-'), uint64(g.ServerID), 10)
		return string(strconv.AppendInt(append(text, '-'), g.Number, 10))
	}
	text = appendServer(text, g.Server)
	if g.Tag != "" {
		text = append(append(text, ':'), g.Tag...)
	}
	return string(strconv.AppendInt(append(text, ':'), g.Number, 10))
}

func appendServer(dst []byte, id uuid.UUID) []byte {
	dst = append(hex.AppendEncode(dst, id[:4]), '-')
	dst = append(hex.AppendEncode(dst, id[4:6]), '-')
	dst = append(hex.AppendEncode(dst, id[6:8]), '-')
	dst = append(hex.AppendEncode(dst, id[8:10]), '-')
	return hex.AppendEncode(dst, id[10:])
}

// GTIDSet is a set of transactions: of MySQL; of MariaDB as a position or, out of
// log files and of ParseTransactions, as a series. The other parts are empty. It
// is not safe for concurrent use.
type GTIDSet struct {
	set     *mysql.MysqlGTIDSet
	domains domains
	series  series
	recent  recent
}

// ParseGTIDSet reads the form that the server prints; the empty text is the
// empty set.
func ParseGTIDSet(text string) (*GTIDSet, error) {
	tight := strings.Join(strings.Fields(text), "")
	if tight != "" && !strings.Contains(tight, ":") {
		d, err := parseDomains(tight)
		if err != nil {
			return nil, fmt.Errorf("binlog: %q is not a GTID set such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-57 of MySQL or 0-1-57 of MariaDB: %w", text, err)
		}
		none := mysql.NewMysqlGTIDSet()
		return &GTIDSet{set: &none, domains: d}, nil
	}
	set, err := mysql.ParseMysqlGTIDSet(tight)
	if err != nil {
		return nil, fmt.Errorf("binlog: %q is not a GTID set such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-57 of MySQL or 0-1-57 of MariaDB: %w", text, err)
	}
	return &GTIDSet{set: set.(*mysql.MysqlGTIDSet), domains: domains{}}, nil
}

// Flavor is that of the servers whose transactions the set holds; empty for the
// empty set.
func (s *GTIDSet) Flavor() Flavor {
	switch {
	case len(s.domains) > 0, len(s.series) > 0:
		return MariaDB
	case !s.set.IsEmpty():
		return MySQL
	}
	return ""
}

func emptySet() *GTIDSet {
	set := mysql.NewMysqlGTIDSet()
	return &GTIDSet{set: &set, domains: domains{}}
}

// Add puts one transaction into the set; of MariaDB also those before it.
func (s *GTIDSet) Add(g GTID) { s.AddRange(GTIDRange{g.Number, g}) }

// AddRange puts all transactions of a range into the set; of MariaDB also those
// before it.
func (s *GTIDSet) AddRange(r GTIDRange) {
	g := r.Last
	if g.sequential() {
		s.domains.add(g)
		return
	}
	if s.recent.add(r) {
		return
	}
	tags := (*s.set)[g.Server]
	if tags == nil {
		tags = map[mysql.Tag]mysql.IntervalSlice{}
		(*s.set)[g.Server] = tags
	}
	tag := mysql.NewTag(g.Tag)
	tags[tag] = addNumbers(tags[tag], r.First, g.Number)
	s.recent = recent{g.Server, g.Tag, tags[tag]}
}

// recent is the intervals of the source that was last added to: as a rule the
// next transaction is of the same, and continues the last of them.
type recent struct {
	server    uuid.UUID
	tag       string
	intervals mysql.IntervalSlice // those in the set
}

// add puts a range in that continues the last interval; false: it does not.
func (c *recent) add(r GTIDRange) bool {
	n := len(c.intervals)
	if n == 0 || c.intervals[n-1].Stop != r.First || c.server != r.Last.Server || c.tag != r.Last.Tag {
		return false
	}
	c.intervals[n-1].Stop = r.Last.Number + 1
	return true
}

// find is the index of the first interval that ends behind n. Sets of servers
// that were merged have thousands of intervals.
func find(intervals mysql.IntervalSlice, n int64) int {
	return sort.Search(len(intervals), func(i int) bool { return intervals[i].Stop > n })
}

// addNumbers puts those from first to last into intervals, which are in order
// and apart.
func addNumbers(intervals mysql.IntervalSlice, first, last int64) mysql.IntervalSlice {
	i := find(intervals, first-1) // the first that the new one touches
	k := i
	one := mysql.Interval{Start: first, Stop: last + 1}
	for ; k < len(intervals) && intervals[k].Start <= one.Stop; k++ {
		one.Start, one.Stop = min(one.Start, intervals[k].Start), max(one.Stop, intervals[k].Stop)
	}
	if k == i {
		return slices.Insert(intervals, i, one)
	}
	intervals[i] = one
	return slices.Delete(intervals, i+1, k)
}

// include puts one transaction, and no other, into a set of them.
func (s *GTIDSet) include(g GTID) {
	if !g.sequential() {
		s.Add(g)
		return
	}
	if s.series == nil {
		s.series = series{}
	}
	s.series.add(originOf(g), g.Number, g.Number)
}

// reach puts a transaction into a set of what came before a place in the log; of
// MariaDB with those before it of its server, which such a set does not name.
func (s *GTIDSet) reach(g GTID) {
	if !g.sequential() {
		s.Add(g)
		return
	}
	if s.series == nil {
		s.series = series{}
	}
	s.series.reach(g)
}

// Cover puts a transaction that was read to its end into the set, an XA
// transaction's first half as well, and what stands before it.
func (s *GTIDSet) Cover(tx *Tx) {
	for _, r := range tx.Before {
		s.AddRange(r)
	}
	for _, gtid := range tx.covers() {
		if !gtid.IsZero() {
			s.Add(gtid)
		}
	}
}

// covers are the GTIDs that a transaction which was read to its end has, with
// that of an XA transaction's first half; zero: none.
func (tx *Tx) covers() (both [2]GTID) {
	if tx.Last {
		both = [...]GTID{tx.GTID, tx.Prepared}
	}
	return both
}

// Union is the set of all transactions of both, of which none is a series.
func (s *GTIDSet) Union(other *GTIDSet) *GTIDSet {
	both, err := mysql.ParseMysqlGTIDSet(strings.Trim(s.set.String()+","+other.set.String(), ","))
	if err != nil { // of the text of two sets it cannot be
		panic(err)
	}
	return &GTIDSet{set: both.(*mysql.MysqlGTIDSet), domains: s.domains.union(other.domains)}
}

// Contains tells whether every transaction of other is in s.
func (s *GTIDSet) Contains(other *GTIDSet) bool {
	return s.set.Contain(other.set) && s.domains.contains(other.domains) && s.series.contains(other.series)
}

// Has tells whether g is in s.
func (s *GTIDSet) Has(g GTID) bool {
	if g.sequential() {
		return s.series.has(g) || g.Number <= s.domains[g.Domain].last && g.Number > s.domains[g.Domain].after
	}
	intervals := (*s.set)[g.Server][mysql.NewTag(g.Tag)]
	i := find(intervals, g.Number)
	return i < len(intervals) && intervals[i].Start <= g.Number
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
	return &GTIDSet{set: &left, domains: s.domains.minus(other.domains), series: s.series.minus(other.series, other.domains)}
}

// Common is the set of the transactions that are in both, which are positions.
func (s *GTIDSet) Common(other *GTIDSet) *GTIDSet {
	both := s.Minus(s.Minus(other))
	both.domains = s.domains.common(other.domains)
	return both
}

// lasts are the transactions with the highest numbers in a set or position: one of
// each server and tag, or of each domain.
func (s *GTIDSet) lasts() (list []GTID) {
	for server, tags := range *s.set {
		for tag, intervals := range tags {
			if n := len(intervals); n > 0 {
				list = append(list, GTID{Server: server, Tag: tag.String(), Number: intervals[n-1].Stop - 1})
			}
		}
	}
	for domain, r := range s.domains {
		list = append(list, GTID{Domain: domain, ServerID: r.server, Number: r.last})
	}
	return list
}

// Passed is the set of the transactions of executed that s lacks although it has
// later ones of the same server and tag: XA transactions that were prepared, and
// whose outcome is not known. Positions of MariaDB have no such holes.
func (s *GTIDSet) Passed(executed *GTIDSet) *GTIDSet {
	until := emptySet()
	for server, tags := range *s.set {
		for tag, intervals := range tags {
			if len(intervals) == 0 {
				continue
			}
			if (*until.set)[server] == nil {
				(*until.set)[server] = map[mysql.Tag]mysql.IntervalSlice{}
			}
			(*until.set)[server][tag] = mysql.IntervalSlice{{Start: 1, Stop: intervals[len(intervals)-1].Stop}}
		}
	}
	return until.Common(executed).Minus(s)
}

// cutIntervals are from without away; both are in order and disjoint.
func cutIntervals(from, away mysql.IntervalSlice) (rest mysql.IntervalSlice) {
	for _, i := range from {
		for k := find(away, i.Start); k < len(away) && away[k].Start < i.Stop; k++ {
			a := away[k]
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
func (s *GTIDSet) Clone() *GTIDSet {
	return &GTIDSet{set: s.set.Clone().(*mysql.MysqlGTIDSet), domains: maps.Clone(s.domains), series: s.series.clone()}
}

// IsEmpty tells whether the set holds no transaction.
func (s *GTIDSet) IsEmpty() bool {
	return s.set.IsEmpty() && len(s.domains) == 0 && len(s.series) == 0
}

// String is the form that the server prints and that ParseGTIDSet reads; of
// MariaDB, for a position. A series has that of ParseTransactions.
func (s *GTIDSet) String() string {
	switch {
	case len(s.domains) > 0:
		return s.domains.String()
	case len(s.series) > 0:
		return s.series.String()
	}
	var text []byte
	servers := make([]uuid.UUID, 0, len(*s.set))
	for server := range *s.set {
		servers = append(servers, server)
	}
	slices.SortFunc(servers, func(a, b uuid.UUID) int { return bytes.Compare(a[:], b[:]) })
	for _, server := range servers {
		if len(text) > 0 {
			text = append(text, ',')
		}
		text = appendServer(text, server)
		tags := (*s.set)[server]
		names := make([]mysql.Tag, 0, len(tags))
		for tag := range tags {
			names = append(names, tag)
		}
		slices.SortFunc(names, func(a, b mysql.Tag) int { return strings.Compare(a.String(), b.String()) })
		for _, tag := range names {
			if tag != (mysql.Tag{}) {
				text = append(append(text, ':'), tag.String()...)
			}
			text = appendIntervals(text, tags[tag])
		}
	}
	return string(text)
}

func appendIntervals(dst []byte, intervals mysql.IntervalSlice) []byte {
	dst = slices.Grow(dst, 16*len(intervals))
	for _, i := range intervals {
		dst = strconv.AppendInt(append(dst, ':'), i.Start, 10)
		if i.Stop > i.Start+1 {
			dst = strconv.AppendInt(append(dst, '-'), i.Stop-1, 10)
		}
	}
	return dst
}

// Count is the number of transactions in the set.
func (s *GTIDSet) Count() int64 { return s.count() + s.domains.count() + s.series.count() }

// count is the number of MySQL's transactions in the set.
func (s *GTIDSet) count() (n int64) {
	for _, tags := range *s.set {
		for _, intervals := range tags {
			for _, i := range intervals {
				n += i.Stop - i.Start
			}
		}
	}
	return n
}
