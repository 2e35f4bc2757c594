package binlog

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// domains is a set of MariaDB's transactions. Within a domain the sequence
// numbers grow from one transaction to the next, which gtid_strict_mode sees to
// and the assembler looks at: so the last of them stands for all before it.
type domains map[uint32]run

// run is the transactions of one domain with the numbers after < n <= last.
type run struct {
	after, last int64  // after: 0 in a position
	server      uint32 // that committed the last one
}

// parseDomains reads what MariaDB prints of a position: 0-1-100,1-2-7.
func parseDomains(text string) (domains, error) {
	d := domains{}
	for one := range strings.SplitSeq(text, ",") {
		parts := strings.Split(one, "-")
		if len(parts) != 3 {
			return nil, fmt.Errorf("%q has not the form domain-server-number", one)
		}
		domain, err := strconv.ParseUint(parts[0], 10, 32)
		if err != nil {
			return nil, err
		}
		server, err := strconv.ParseUint(parts[1], 10, 32)
		if err != nil {
			return nil, err
		}
		number, err := strconv.ParseInt(parts[2], 10, 64)
		if err != nil {
			return nil, err
		}
		if server == 0 || number < 1 {
			return nil, fmt.Errorf("%q names no transaction", one)
		}
		d.add(GTID{Domain: uint32(domain), ServerID: uint32(server), Number: number})
	}
	return d, nil
}

// add puts a transaction, and all before it in its domain, into the set.
func (d domains) add(g GTID) {
	if g.Number > d[g.Domain].last {
		d[g.Domain] = run{last: g.Number, server: g.ServerID}
	}
}

func (d domains) union(other domains) domains {
	both := maps.Clone(d)
	for domain, o := range other {
		r, ok := both[domain]
		if !ok {
			both[domain] = o
			continue
		}
		if o.last > r.last {
			r.last, r.server = o.last, o.server
		}
		r.after = min(r.after, o.after)
		both[domain] = r
	}
	return both
}

// minus is d without the transactions of other, which is a position.
func (d domains) minus(other domains) domains {
	rest := domains{}
	for domain, r := range d {
		if r.after = max(r.after, other[domain].last); r.after < r.last {
			rest[domain] = r
		}
	}
	return rest
}

// common is what both positions have: of each domain the one that ends first.
func (d domains) common(other domains) domains {
	both := domains{}
	for domain, r := range d {
		if o, ok := other[domain]; ok {
			if o.last < r.last {
				r = o
			}
			both[domain] = r
		}
	}
	return both
}

func (d domains) contains(other domains) bool {
	for domain, o := range other {
		r, ok := d[domain]
		if !ok || r.last < o.last || r.after > o.after {
			return false
		}
	}
	return true
}

func (d domains) count() (n int64) {
	for _, r := range d {
		n += r.last - r.after
	}
	return n
}

// String is what MariaDB prints of a position; a run that does not begin with
// the first transaction is written 0-1-101..105.
func (d domains) String() string {
	var list []string
	for _, domain := range slices.Sorted(maps.Keys(d)) {
		r := d[domain]
		text := fmt.Sprintf("%d-%d-", domain, r.server)
		if r.after > 0 && r.after+1 < r.last {
			text += fmt.Sprintf("%d..", r.after+1)
		}
		list = append(list, text+strconv.FormatInt(r.last, 10))
	}
	return strings.Join(list, ",")
}
