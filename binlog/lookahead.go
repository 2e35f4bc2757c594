package binlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxrelay/relay/schema"
)

const (
	// longAhead is how many bytes of the log can be read ahead while the server
	// waits for the stream to be read on.
	longAhead = 64 << 20

	awayTime = 10 * time.Second // for a table to come back that was renamed in two steps
	awayBeat = 100 * time.Millisecond
)

// define finds the definition by which the rows that come next are to be read,
// in a log that does not name the columns. That of now is right when no later
// statement may have changed it; that of the place where the stream began, when
// none before has; any other would be a guess.
func (st *Stream) define(ctx context.Context) error {
	s, a := st.server, st.assembler
	now, unfit := st.there, error(nil)
	if st.until == nil {
		now, unfit = s.Table(ctx)
	}
	if unfit != nil && !errors.Is(unfit, schema.ErrTable) {
		return unfit
	}
	later, size, err := st.lookAhead(ctx)
	if err != nil {
		return err
	}
	// A CREATE TABLE … SELECT and its rows are one transaction.
	later = slices.DeleteFunc(later, func(x alteration) bool { return x.gtid == a.group.tx.GTID })
	table, first := now, a.altered.gtid.IsZero()
	switch {
	case first && st.behind != nil: // it is not that of now
		if len(later) == 0 {
			return st.unlogged()
		}
		table = st.behind
	case len(later) > 0 && first:
		return a.undefined(fmt.Sprintf("transaction %s changed the table later", later[0]), later[len(later)-1].set)
	case len(later) > 0:
		return a.undefined(fmt.Sprintf("transaction %s changed the table before, and %s again later", a.altered, later[0]), later[len(later)-1].set)
	case unfit != nil:
		return unfit
	}
	a.decoder.use(table)
	if size < longAhead || a.group.events > 0 { // parts of the group may be out
		return nil
	}
	a.told = &Definition{table.Columns}
	return errAgain
}

// verify refuses rows of a definition that is in force by all that the log says,
// and is not the table's: it was changed without a statement in the log. One
// that is followed by another, with a statement, is not seen.
func (st *Stream) verify(ctx context.Context) error {
	now, err := st.server.Table(ctx)
	if err == nil && sameColumns(now, st.assembler.decoder.table) {
		return nil
	}
	if err != nil && !errors.Is(err, schema.ErrTable) {
		return err
	}
	later, _, err := st.lookAhead(ctx)
	if err != nil || len(later) > 0 {
		return err
	}
	return st.unlogged()
}

// unlogged refuses rows behind, or before, a change that is not in the log.
func (st *Stream) unlogged() error {
	a := st.assembler
	return fmt.Errorf("%w: the rows of %s in transaction %s cannot be mapped: the log does not name their columns (binlog_row_metadata is not FULL), and the server's table is not as it was when the relay read its log last, with no statement in the log that changed it since: it was changed with sql_log_bin=0, or this is another server; if it was before this row: relay resume --from-gtid '%s' --yes reads all that comes by the table of now, and rows that were written before the change wrongly; else change the table back until the relay has read what was written before",
		ErrChanged, a.decoder.table, a.group.tx.GTID, st.seen)
}

// unlike refuses rows that are not stored as the definition in force says.
func (st *Stream) unlike(ctx context.Context, why error) error {
	if err := st.verify(ctx); err != nil {
		return err
	}
	later, _, err := st.lookAhead(ctx)
	if err != nil {
		return err
	}
	a := st.assembler
	if n := len(later); n > 0 {
		return a.undefined(fmt.Sprintf("%v, and transaction %s changed the table later", why, later[0]), later[n-1].set)
	}
	return &TxError{GTID: a.group.tx.GTID, Prepared: a.group.tx.Prepared, Err: a.changed(why)}
}

// unversioned refuses rows of a table that was system-versioned, and is no
// longer; nil: it still is.
func (st *Stream) unversioned(ctx context.Context) error {
	switch _, err := st.server.Table(ctx); {
	case errors.Is(err, schema.ErrTable):
		return nil
	case err != nil:
		return err
	}
	later, _, err := st.lookAhead(ctx)
	if err != nil || len(later) == 0 {
		return err
	}
	last := later[len(later)-1]
	for _, x := range later {
		if unversions.MatchString(x.statement) {
			last = x
		}
	}
	a := st.assembler
	return fmt.Errorf("%w: %s was system-versioned from transaction %s on, or before, up to %s: what the log has of it in between are not only inserts, but each UPDATE as one more; to go on behind that: relay resume --from-gtid '%s' --yes, which skips %d transactions, with all outbox rows in them; how to send those is in the README under 'When the table changes'",
		ErrChanged, a.decoder.table, a.group.tx.GTID, last, last.set, last.set.Minus(st.seen).Count())
}

// undefined refuses rows whose columns cannot be told.
func (a *assembler) undefined(why string, behind *GTIDSet) error {
	return fmt.Errorf("%w: the rows of %s in transaction %s cannot be mapped: the log does not name their columns (binlog_row_metadata is not FULL), and %s; to go on behind the change: relay resume --from-gtid '%s' --yes; how to send what that skips is in the README under 'When the table changes'",
		ErrChanged, a.decoder.table, a.group.tx.GTID, why, behind)
}

func sameColumns(a, b *schema.Table) bool {
	return slices.EqualFunc(a.Columns, b.Columns, schema.Column.Same)
}

// lookAhead finds statements ahead that may have changed the table's definition.
// Of those that it found before it returns what is left, as long as that is any.
// size is how much log it has read, in bytes.
func (st *Stream) lookAhead(ctx context.Context) (later []alteration, size int64, err error) {
	st.ahead = slices.DeleteFunc(st.ahead, func(x alteration) bool { return st.seen.Has(x.gtid) })
	until := st.until
	if until == nil {
		// Such a statement has the table to itself until its GTID is in
		// gtid_executed.
		if _, err := st.server.there(ctx); err != nil {
			return nil, 0, err
		}
		if until, err = st.server.Executed(ctx); err != nil {
			return nil, 0, err
		}
	}
	if len(st.ahead) == 0 {
		st.ahead, size, err = st.server.alterations(ctx, st.seen, until, st.assembler.decoder.table)
	}
	return slices.Clone(st.ahead), size, err
}

// alterations reads the log from a position up to another, at least, for
// statements that may have changed the table's definition. size is how much that
// is, in bytes.
func (s *Server) alterations(ctx context.Context, position, until *GTIDSet, table *schema.Table) (later []alteration, size int64, err error) {
	rest := newUnseen(position.Clone(), until)
	if !rest.any() {
		return nil, 0, nil
	}
	st, err := s.stream(ctx, nameOnly(table), heartbeat, s.dialect.behind(passingID(), position))
	if err != nil {
		return nil, 0, err
	}
	defer st.Close()
	st.assembler.pass = func(*group) bool { return true }
	for rest.any() {
		tx, err := st.Next(ctx)
		if err != nil {
			return nil, 0, err
		}
		rest.cover(tx)
		if tx.Altered != "" {
			later = append(later, alteration{gtid: tx.GTID, statement: tx.Altered, set: rest.seen.Clone()})
		}
	}
	return later, st.size, nil
}

// there tells whether there is such a table, once nobody changes its
// definition.
func (s *Server) there(ctx context.Context) (bool, error) {
	_, err := s.db.ExecContext(ctx, "SELECT 1 FROM "+s.quoted()+" LIMIT 0")
	var refusal *mysql.MySQLError
	if errors.As(err, &refusal) && refusal.Number == 1146 { // ER_NO_SUCH_TABLE
		return false, nil
	}
	if err != nil {
		return false, s.explain(err)
	}
	return true, nil
}

// awaitTable refuses to go on without the table, which a statement may have
// renamed. A change of the table in two steps leaves none for a moment.
func (s *Server) awaitTable(ctx context.Context, gtid GTID, statement string) error {
	limit := time.NewTimer(awayTime)
	defer limit.Stop()
	beat := time.NewTicker(awayBeat)
	defer beat.Stop()
	for {
		if there, err := s.there(ctx); there || err != nil {
			return err
		}
		select {
		case <-beat.C:
		case <-ctx.Done():
			return ctx.Err()
		case <-limit.C:
			return fmt.Errorf("%w: transaction %s renamed %s away, and there is no table of that name now: %s; type: RENAME TABLE %s TO %s; or make a new one: relay schema sql; then start again",
				ErrChanged, gtid, s.TableName(), shown(statement), s.renamedTo(statement), s.quoted())
		}
	}
}
