package binlog

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// series is a set of MariaDB's transactions that names each of them: of every
// domain and server, intervals of its numbers. A position names only the last.
type series map[origin]mysql.IntervalSlice

// origin is what MariaDB's transactions have in common that one server
// committed in one domain.
type origin struct{ domain, server uint32 }

func originOf(g GTID) origin { return origin{g.Domain, g.ServerID} }

// ParseTransactions reads a set that names each transaction, in the form in
// which Archive.Set is printed: that of a set of MySQL; of MariaDB 0-1-42 for
// one, and 0-1-23..57 for those with these numbers.
func ParseTransactions(text string) (*GTIDSet, error) {
	tight := strings.Join(strings.Fields(text), "")
	if tight == "" || strings.Contains(tight, ":") {
		return ParseGTIDSet(tight)
	}
	set := emptySet()
	set.series = series{}
	for one := range strings.SplitSeq(tight, ",") {
		name, last, isRange := strings.Cut(one, "..")
		d, err := parseDomains(name)
		if err != nil {
			return nil, fmt.Errorf("binlog: %q is no set of transactions such as 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-57 of MySQL or 0-1-23..57 of MariaDB: %w", text, err)
		}
		for domain, r := range d {
			end := r.last
			if isRange {
				end, err = strconv.ParseInt(last, 10, 64)
			}
			if err != nil || end < r.last || end == math.MaxInt64 {
				return nil, fmt.Errorf("binlog: %q is no set of transactions such as 0-1-23..57 of MariaDB: %q does not end with a number from %d on", text, one, r.last)
			}
			set.series.add(origin{domain, r.server}, r.last, end)
		}
	}
	return set, nil
}

// add puts the numbers from first to last into the set.
func (s series) add(o origin, first, last int64) {
	intervals, n := s[o], len(s[o])
	switch one := (mysql.Interval{Start: first, Stop: last + 1}); {
	case n > 0 && intervals[n-1].Stop == first: // as a log has them
		intervals[n-1].Stop = one.Stop
	case n == 0 || intervals[n-1].Stop < first:
		s[o] = append(intervals, one)
	default:
		s[o] = append(intervals, one).Normalize()
	}
}

// reach puts a transaction, and all of its server in its domain before it, into
// the set: what a log file says of those before it.
func (s series) reach(g GTID) {
	if !s.has(g) {
		s[originOf(g)] = mysql.IntervalSlice{{Start: 1, Stop: g.Number + 1}}
	}
}

func (s series) has(g GTID) bool {
	return s[originOf(g)].Contain(mysql.IntervalSlice{{Start: g.Number, Stop: g.Number + 1}})
}

func (s series) contains(other series) bool {
	for o, intervals := range other {
		if !s[o].Contain(intervals) {
			return false
		}
	}
	return true
}

// minus is s without what is in other, and without what a position has.
func (s series) minus(other series, position domains) series {
	rest := series{}
	for o, intervals := range s {
		r := position[o.domain]
		left := cutIntervals(cutIntervals(intervals, other[o]), mysql.IntervalSlice{{Start: r.after + 1, Stop: r.last + 1}})
		if len(left) > 0 {
			rest[o] = left
		}
	}
	return rest
}

func (s series) clone() series {
	copied := series{}
	for o, intervals := range s {
		copied[o] = slices.Clone(intervals)
	}
	return copied
}

func (s series) count() (n int64) {
	for _, intervals := range s {
		for _, i := range intervals {
			n += i.Stop - i.Start
		}
	}
	return n
}

// String is 0-1-23..57,0-2-58: by domain, then by number.
func (s series) String() string {
	type part struct {
		origin
		mysql.Interval
	}
	var parts []part
	for _, o := range slices.SortedFunc(maps.Keys(s), func(x, y origin) int { return cmp.Compare(x.server, y.server) }) {
		for _, i := range s[o] {
			parts = append(parts, part{o, i})
		}
	}
	slices.SortStableFunc(parts, func(x, y part) int {
		return cmp.Or(cmp.Compare(x.domain, y.domain), cmp.Compare(x.Start, y.Start))
	})
	var list []string
	for _, p := range parts {
		text := GTID{Domain: p.domain, ServerID: p.server, Number: p.Start}.String()
		if p.Stop > p.Start+1 {
			text += ".." + strconv.FormatInt(p.Stop-1, 10)
		}
		list = append(list, text)
	}
	return strings.Join(list, ",")
}
