package binlog

import "github.com/outboxrelay/relay/schema"

// group is a transaction under way.
type group struct {
	tx      Tx
	name    string         // its GTID, once that is needed
	open    bool           // BEGIN was seen: statements do not end it
	xa      string         // the XA id, when it is an XA transaction's first half
	events  int            // seen in the whole group
	size    int            // bytes of the events in tx
	marks   map[string]int // events seen at each savepoint
	decides bool           // it is the second half of an XA transaction
	fault   error          // why an XA transaction's first half cannot be relayed; nil: it can
}

// origin is that of the group's rows.
func (g *group) origin() schema.Origin {
	if g.name == "" {
		g.name = g.tx.GTID.String()
	}
	return schema.Origin{GTID: g.name, CommittedAt: g.tx.CommittedAt}
}

func (g *group) add(e schema.Event) {
	g.tx.Events = append(g.tx.Events, e)
	g.count(&e)
}

// count takes note of an event that was added.
func (g *group) count(e *schema.Event) {
	g.events++
	g.size += memory(e)
}

// idle tells whether the group, at its end, has nothing to be handed out for but
// its GTID.
func (g *group) idle() bool {
	return g.events == 0 && g.tx.Altered == "" && g.xa == "" && !g.decides
}
