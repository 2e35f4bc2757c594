package binlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/outboxrelay/relay/schema"
)

// Remembers tells whether the server's log has, under this GTID, the
// transaction that was committed at that time. A server that was reset, or was
// restored from a backup, counts its GTIDs anew: its set can contain a position
// whose transactions it never had. The error wraps ErrDiverged. A transaction
// that is no longer in the log is believed.
func (s *Server) Remembers(ctx context.Context, gtid string, committedAt time.Time, table *schema.Table) error {
	one, err := ParseGTIDSet(gtid)
	if err != nil {
		return err
	}
	purged, err := s.Purged(ctx)
	if err != nil || purged.Contains(one) {
		return err
	}
	executed, err := s.Executed(ctx)
	if err != nil {
		return err
	}
	positions, err := s.dialect.before(ctx, one, executed)
	if err != nil {
		return err
	}
	for _, position := range positions {
		tx, err := s.find(ctx, position, one, table)
		switch {
		case errors.Is(err, ErrPurged), errors.Is(err, ErrDiverged): // there is no such place
			continue
		case err != nil:
			return err
		case !tx.CommittedAt.Equal(committedAt):
			return fmt.Errorf("%w: transaction %s was committed at %s when it was relayed, and the server (%s) has another one of that name, of %s: its log was reset or restored; to send all that its log has now: relay resume --from-gtid '%s' --yes; to go on behind all of it, once that is dealt with: relay resume --from-gtid '%s' --yes",
				ErrDiverged, gtid, committedAt.Format(time.RFC3339Nano), cmp.Or(s.UUID, s.dsn.Addr), tx.CommittedAt.Format(time.RFC3339Nano), purged, executed)
		}
		return nil
	}
	return nil
}

// find reads the log behind the position up to the one transaction.
func (s *Server) find(ctx context.Context, position, one *GTIDSet, table *schema.Table) (*Tx, error) {
	stream, err := s.glance(ctx, position, table, nil)
	if err != nil {
		return nil, err
	}
	defer stream.Close()
	stream.assembler.pass = func(*group) bool { return true }
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for {
		tx, err := stream.Next(ctx)
		if err != nil || tx.GTID.String() == one.String() {
			return tx, err
		}
	}
}
