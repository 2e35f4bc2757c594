package binlog

import (
	"context"
	"time"

	"github.com/outboxrelay/relay/schema"
)

// Identity is what the server is known by; a test may change it.
func (s *Server) Identity() *string { return &s.identity }

// Kept reads what variables say of the log's retention.
var Kept = kept

// Statement is one that a Poller asks the server, with its values.
type Statement struct {
	Text string
	Args []any
}

// Statements are those of a poller: the claim, the look behind it at what holds a
// row up, up to a row that is claimed now, and that for the oldest row.
func (p *Poller) Statements(ctx context.Context) []Statement {
	var b Batch
	last, err := p.read(ctx, &b, p.claim(clause{}, p.limit))
	if err != nil {
		panic(err)
	}
	upTo, err := p.upTo(last)
	if err != nil {
		panic(err)
	}
	without, err := p.without([]string{"1", "2"})
	if err != nil {
		panic(err)
	}
	var list []Statement
	for _, q := range []clause{
		p.claim(clause{}, p.limit),
		p.claim(without, p.limit),
		p.pending(p.guard.selectionOf(schema.RoleID, schema.RoleAggregateID), upTo),
		p.pending(p.guard.selectionOf(schema.RoleCreatedAt)),
	} {
		list = append(list, Statement{q.text, q.args})
	}
	return list
}

// CreatedQuery is the statement of Created.
func CreatedQuery(s *Server, table *schema.Table, from, to time.Time) (query string, args []any, err error) {
	where, args, err := s.created(table, from, to)
	r := rowReader{server: s, table: table}
	return r.createdFrom() + where, args, err
}

// UndatedQuery is the statement of Undated.
func UndatedQuery(s *Server, table *schema.Table) (query string, args []any) {
	status, args := ofAnyStatus(table)
	return s.countFrom() + undated(table) + status, args
}

// Plan is the query for the next rows, which it reads.
func (p *Pruner) Plan(ctx context.Context, limit int) (query string, args []any) {
	if p.groups == nil {
		if err := p.group(ctx); err != nil {
			return err.Error(), nil
		}
	}
	q := p.query(limit)
	if _, err := p.read(ctx, limit, &Found{}); err != nil {
		return err.Error(), nil
	}
	return q.text, q.args
}

// OwnedSet is ownedSet.
var OwnedSet = ownedSet
