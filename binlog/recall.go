package binlog

import (
	"context"

	"github.com/outboxrelay/relay/schema"
)

// undecided reads the log before the position, and returns the XA transactions
// in it that were prepared and not decided. A position of MariaDB, and one that
// was taken from gtid_executed, covers the first half of such a transaction,
// whose rows go out with its second. It begins with the last log file, and goes
// further back until it has seen the one that is wanted; whole tells that it has
// read all that the server still has. behind is the definition in force at the
// position, which is that of rows before it, too, up to the last statement that
// may have changed it; nil: it is not known.
func (s *Server) undecided(ctx context.Context, position *GTIDSet, table, behind *schema.Table, wanted string) (found map[string]prepared, whole bool, err error) {
	files, err := s.logFiles(ctx)
	if err != nil {
		return nil, false, err
	}
	for back := 1; ; back *= 2 {
		var from *GTIDSet
		if whole = back >= len(files); whole {
			from, err = s.Purged(ctx)
		} else {
			from, err = s.begins(ctx, files[len(files)-back].name, table)
		}
		if err == nil {
			found, err = s.undecidedBehind(ctx, from, position, table, behind)
		}
		if _, ok := found[wanted]; ok || whole || err != nil {
			return found, whole, err
		}
	}
}

// begins is the set of what stands before a log file.
func (s *Server) begins(ctx context.Context, file string, table *schema.Table) (*GTIDSet, error) {
	w, err := s.walk(ctx, file, table)
	if err != nil {
		return nil, err
	}
	defer w.close()
	return w.set, nil
}

func (s *Server) undecidedBehind(ctx context.Context, from, position *GTIDSet, table, behind *schema.Table) (map[string]prepared, error) {
	rest := newUnseen(from.Clone(), position)
	if !rest.any() {
		return nil, nil
	}
	stream, err := s.glance(ctx, from, table, nil)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	if behind != nil {
		stream.until, stream.there = position, behind
		stream.assembler.verify = nil
	}
	stream.assembler.recall = nil // what was prepared before that is looked for there
	stream.assembler.pass = func(g *group) bool { return g.xa == "" }
	for rest.any() {
		tx, err := stream.Next(ctx)
		if err != nil {
			return nil, err
		}
		rest.cover(tx)
	}
	return stream.assembler.prepared, nil
}
