package binlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sort"
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
	tx, err := s.inPlaceOf(ctx, one, executed, table)
	if err != nil || tx == nil || tx.name().String() == gtid && tx.CommittedAt.Equal(committedAt) {
		return err
	}
	return fmt.Errorf("%w: transaction %s was committed at %s when it was relayed, and the server (%s) has another one in its place, %s of %s: its log was reset or restored; to send all that its log has now: relay resume --from-gtid '%s' --yes; to go on behind all of it, once that is dealt with: relay resume --from-gtid '%s' --yes",
		ErrDiverged, gtid, committedAt.Format(time.RFC3339Nano), cmp.Or(s.UUID, s.dsn.Addr), tx.name(), tx.CommittedAt.Format(time.RFC3339Nano), purged, executed)
}

// Newest is the transaction of the set, which the server has executed, that
// stands last in its log, without its rows: what Remembers asks for later. Nil:
// the log has none of them. It needs REPLICATION SLAVE and REPLICATION CLIENT.
func (s *Server) Newest(ctx context.Context, set *GTIDSet, table *schema.Table) (*Tx, error) {
	rest, err := s.inLastFile(ctx, set, table)
	if err != nil {
		return nil, err
	}
	executed, err := s.Executed(ctx)
	if err != nil {
		return nil, err
	}
	var newest *Tx
	for _, last := range rest.lasts() {
		one := emptySet()
		one.Add(last)
		tx, err := s.inPlaceOf(ctx, one, executed, table)
		if err != nil {
			return nil, err
		}
		if tx != nil && tx.name() == last && (newest == nil || tx.Place.Offset > newest.Place.Offset) {
			newest = tx
		}
	}
	return newest, nil
}

// inLastFile are the transactions of the set that stand in the last of the log
// files that has any; empty: none has.
func (s *Server) inLastFile(ctx context.Context, set *GTIDSet, table *schema.Table) (*GTIDSet, error) {
	files, err := s.logFiles(ctx)
	if err != nil {
		return nil, err
	}
	rest := emptySet()
	behind := func(i int) bool { // the file begins behind the whole set
		if err != nil {
			return true
		}
		var w *walk
		if w, err = s.walk(ctx, files[i].name, table); err != nil {
			return true
		}
		defer w.close()
		missing := set.Minus(w.set)
		if missing.IsEmpty() {
			return true
		}
		rest = missing
		return false
	}
	if last := len(files) - 1; behind(last) { // as a rule it is not
		sort.Search(last, behind)
	}
	if errors.Is(err, ErrPlace) { // a file does not tell where it begins
		return emptySet(), nil
	}
	return rest, err
}

// inPlaceOf finds in the log the one transaction of a set, which the server has
// executed, or of MariaDB another one that stands where it should. Nil: the log
// does not have the place.
func (s *Server) inPlaceOf(ctx context.Context, one, executed *GTIDSet, table *schema.Table) (*Tx, error) {
	positions, err := s.dialect.before(ctx, one, executed)
	if err != nil {
		return nil, err
	}
	for _, position := range positions {
		tx, err := s.find(ctx, position, one, table)
		if errors.Is(err, ErrPurged) || errors.Is(err, ErrDiverged) { // there is no such place
			continue
		}
		return tx, err
	}
	return nil, nil
}

// find reads the log behind the position up to the one transaction, or one that
// is behind it in its domain.
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
		if err != nil {
			return nil, err
		}
		gtid := tx.name()
		if r, ok := one.domains[gtid.Domain]; gtid.String() == one.String() || ok && gtid.Number >= r.last {
			return tx, nil
		}
	}
}

// name is the transaction's GTID, of one that is only prepared that of its first
// half.
func (tx *Tx) name() GTID { return cmp.Or(tx.GTID, tx.Prepared) }
