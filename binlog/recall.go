package binlog

import (
	"context"

	"github.com/outboxrelay/relay/schema"
)

// undecided reads all the log that the server still has, up to the position,
// and returns the XA transactions in it that were prepared and not decided.
// A position that was taken from gtid_executed covers the first half of such
// a transaction, whose rows go out with its second.
func (s *Server) undecided(ctx context.Context, position *GTIDSet, table *schema.Table) (map[string]prepared, error) {
	seen, err := s.Purged(ctx)
	if err != nil {
		return nil, err
	}
	if seen.Contains(position) {
		return nil, nil
	}
	stream, err := s.glance(ctx, seen, table)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	stream.assembler.recall = nil // what was prepared before that is gone
	stream.assembler.pass = func(g *group) bool { return g.xa == "" }
	for !seen.Contains(position) {
		tx, err := stream.Next(ctx)
		if err != nil {
			return nil, err
		}
		seen.cover(tx)
	}
	return stream.assembler.prepared, nil
}
