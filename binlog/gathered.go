package binlog

import "time"

// GTIDRange is transactions of one source, which are a server and tag of MySQL
// or a server and domain of MariaDB, whose numbers follow each other.
type GTIDRange struct {
	First int64 // the first one's number
	Last  GTID
}

// Count is the number of transactions in the range.
func (r GTIDRange) Count() int64 { return r.Last.Number - r.First + 1 }

const (
	gatheredBytes  = 4 << 20 // of log: what is read in some tens of milliseconds
	gatheredRanges = 64
	gatheredTime   = 10 * time.Millisecond // between two that are handed out because nothing more is there
	recentRanges   = 8                     // of those that a transaction may continue
)

// gathered is the transactions without outbox rows that a stream has read and
// not handed out: most of a log can be such, and they are worth no Tx each.
type gathered struct {
	before []GTIDRange // all but the newest
	newest Tx          // no GTID: there are none
	since  int64       // the stream's size when the first came
	handed time.Time   // when some were last handed out
}

func (c *gathered) any() bool { return !c.newest.GTID.IsZero() }

// add takes one in, at the stream's size.
func (c *gathered) add(g *group, place Place, size int64) {
	if c.any() {
		c.before = continued(c.before, c.newest.GTID)
	} else {
		c.since = size
	}
	c.newest.GTID, c.newest.CommittedAt, c.newest.Place = g.tx.GTID, g.tx.CommittedAt, place
}

// continued adds a transaction to the range that it continues, or as one.
func continued(list []GTIDRange, g GTID) []GTIDRange {
	previous := g
	previous.Number--
	for i := len(list) - 1; i >= max(0, len(list)-recentRanges); i-- {
		if list[i].Last == previous {
			list[i].Last.Number = g.Number
			return list
		}
	}
	return append(list, GTIDRange{g.Number, g})
}

// full tells whether they are enough to be handed out.
func (c *gathered) full(size int64) bool {
	return size-c.since >= gatheredBytes || len(c.before) >= gatheredRanges
}

// due is when they are to be handed out if nothing more comes.
func (c *gathered) due() time.Time { return c.handed.Add(gatheredTime) }

// take hands them out as the newest of them.
func (c *gathered) take() *Tx {
	tx := c.newest
	tx.Before, tx.Last = c.before, true
	*c = gathered{handed: time.Now()}
	return &tx
}

// takeWith hands them out with the transaction behind them.
func (c *gathered) takeWith(tx *Tx) {
	tx.Before = continued(c.before, c.newest.GTID)
	*c = gathered{handed: time.Now()}
}
