package binlog

import (
	"context"
	"errors"
	"fmt"

	"github.com/outboxrelay/relay/schema"
)

// Defined is the table's definition, and a set of what the server has executed
// that has every statement in the log which made it so.
func (s *Server) Defined(ctx context.Context) (*schema.Table, *GTIDSet, error) {
	table, err := s.Table(ctx)
	if err != nil {
		return nil, nil, err
	}
	// Such a statement has the table to itself until its GTID is in
	// gtid_executed.
	if _, err := s.there(ctx); err != nil {
		return nil, nil, err
	}
	executed, err := s.Executed(ctx)
	return table, executed, err
}

// SinceFiles refuses, with ErrChanged, a server that may have changed the table
// between the end of log files and what it has executed: it looks for that in its
// own log. A server that has nothing of what the files know is taken at its word:
// its table was made for them. So is, on MariaDB, one that was stopped before
// their end, since its numbers do not tell it from one of its own history.
func (s *Server) SinceFiles(ctx context.Context, table *schema.Table, end, executed *GTIDSet) error {
	later, shared := executed.Minus(end), executed.Common(end)
	if later.IsEmpty() || s.Flavor == MySQL && shared.IsEmpty() {
		return nil
	}
	gone, err := s.Purged(ctx)
	switch {
	case err != nil && denied(err):
		p := s.dialect.probes()[1].privilege
		return fmt.Errorf("%w: %s, to see whether the table was changed behind the files: GRANT %s ON *.* TO %s", ErrGrant, p, p, s.account())
	case err != nil:
		return err
	}
	gone = gone.Minus(end)
	if s.Flavor == MariaDB && gone.IsEmpty() { // its log goes on where the files end, or it is of another history
		shared = end
		if gone, err = s.dialect.ahead(ctx, end, executed); err != nil {
			return err
		}
	}
	if !gone.IsEmpty() {
		return fmt.Errorf("%w: it has executed %d transactions behind the files, of which its log does not tell all: %s; in them it may have changed the table", ErrChanged, later.Count(), later)
	}
	changes, _, err := s.alterations(ctx, shared, executed, table)
	if err == nil && len(changes) > 0 {
		err = fmt.Errorf("%w: it has executed %s behind the files", ErrChanged, changes[0])
	}
	return err
}

// otherwise refuses the definition that a server told, whose table is or may be
// of another time than the rows that come next.
func (p *Playback) otherwise(why error) error {
	a := p.assembler
	return fmt.Errorf("%w: they do not name the columns of %s in transaction %s (binlog_row_metadata was not FULL), and the table of --mysql-dsn is or may be of another time: %w; give the files behind these as well, up to one that the server still has, with --gtid '%s'; or --mysql-dsn of an empty server, on which SET sql_log_bin = 0; CREATE TABLE … made it as it was then",
		ErrFiles, a.decoder.table, a.group.tx.GTID, why, p.archive.Set)
}

// since refuses the server's definition where it is not that of the rows that
// come next.
func (p *Playback) since(ctx context.Context) error {
	archive := p.archive
	first := archive.files[0]
	if known := first.previous.Union(archive.Set); first.flavor == MySQL && !known.Common(p.executed).IsEmpty() {
		if lacks := first.previous.Minus(p.executed); !lacks.IsEmpty() {
			return p.otherwise(fmt.Errorf("it has not executed %d transactions before the files: %s", lacks.Count(), lacks))
		}
		for _, earlier := range archive.changes[:p.changed] {
			if !p.executed.Has(earlier.gtid) {
				return p.otherwise(fmt.Errorf("it has not executed %s", earlier))
			}
		}
	}
	if archive.cfg.Since == nil {
		return nil
	}
	err := archive.cfg.Since(ctx, p.present, archive.end, p.executed)
	if errors.Is(err, ErrChanged) {
		return p.otherwise(err)
	}
	return err
}
