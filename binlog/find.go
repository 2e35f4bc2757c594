package binlog

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"time"

	"github.com/outboxrelay/relay/schema"
)

// Find reads the log behind the position, up to what the server has executed by
// now, for the insert of the event with an id. It returns the transaction, with
// that event alone; nil: it is not there. It goes beside a stream that is open.
func (s *Server) Find(ctx context.Context, table *schema.Table, position *GTIDSet, id string) (*Tx, error) {
	executed, err := s.Executed(ctx)
	if err != nil {
		return nil, err
	}
	rest := newUnseen(position.Clone(), executed)
	if !rest.any() {
		return nil, nil
	}
	st, err := s.follow(ctx, passingID(), position, table, nil)
	if err != nil {
		return nil, err
	}
	defer st.Close()
	st.assembler.gather = st.gather
	for rest.any() {
		tx, err := st.Next(ctx)
		if err != nil {
			return nil, err
		}
		if i := slices.IndexFunc(tx.Events, func(e schema.Event) bool { return schema.SameID(id, e.ID) }); i >= 0 {
			found := *tx
			found.Events = tx.Events[i : i+1]
			return &found, nil
		}
		rest.cover(tx)
	}
	return nil, nil
}

// Stamped is what the row with an id says of whether it was published, and when,
// in UTC; a zero time: it does not say. Without a column for it, or a row, the
// text is empty.
func (s *Server) Stamped(ctx context.Context, table *schema.Table, id string) (status string, at time.Time, err error) {
	column, ok := table.Column(schema.RoleStatus)
	if !ok {
		return "", at, nil
	}
	key, _ := table.Column(schema.RoleID)
	value, err := schema.ParseID(key, id)
	if err != nil {
		return "", at, err
	}
	b, err := s.look(ctx, table)
	if err != nil {
		return "", at, err
	}
	defer b.Close()
	when := "NULL"
	stamp, err := table.Status()
	if err == nil && stamp.At != nil {
		when = quote(stamp.At.Name)
	}
	var text, moment sql.NullString
	err = b.conn.QueryRowContext(ctx, "SELECT "+quote(column.Name)+", "+when+" FROM "+b.from()+" WHERE "+quote(key.Name)+" = ?", value).Scan(&text, &moment)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return "", at, nil
	case err != nil:
		return "", at, s.explain(err)
	}
	if moment.Valid {
		at, err = b.time(*stamp.At, moment.String)
	}
	return text.String, at, err
}
