package binlog

import (
	"context"
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
	others, err := s.Subtract(ctx, executed, one)
	if err != nil {
		return err
	}
	stream, err := s.Follow(ctx, others, table)
	if err != nil {
		return err
	}
	defer stream.Close()
	stream.assembler.pass = func(*group) bool { return true }
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	for {
		tx, err := stream.Next(ctx)
		if err != nil {
			return err
		}
		if found := tx.GTID; found.String() != one.String() {
			continue // committed meanwhile
		}
		if !tx.CommittedAt.Equal(committedAt) {
			return fmt.Errorf("%w: transaction %s was committed at %s when it was relayed, and the server (%s) has another one of that name, of %s: its log was reset or restored; to send all that its log has now: relay resume --from-gtid '%s' --yes; to go on behind all of it, once that is dealt with: relay resume --from-gtid '%s' --yes",
				ErrDiverged, gtid, committedAt.Format(time.RFC3339Nano), s.UUID, tx.CommittedAt.Format(time.RFC3339Nano), purged, executed)
		}
		return nil
	}
}
