package binlog

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/outboxrelay/relay/schema"
)

// stampAtOnce is how many rows one statement stamps.
const stampAtOnce = 1000

// Stamp marks the rows with these ids as published, and now as when, where they
// are not marked yet; a row that is gone is none. It needs the privilege UPDATE
// on the table. The error wraps schema.ErrTable where the table has nothing to
// mark them by.
func (s *Server) Stamp(ctx context.Context, table *schema.Table, ids []string) error {
	for len(ids) > 0 {
		some := ids[:min(len(ids), stampAtOnce)]
		ids = ids[len(some):]
		if err := s.stamp(ctx, s.db, table, some); err != nil {
			return err
		}
	}
	return nil
}

// execer is what runs a statement: a pool, a connection, a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (s *Server) stamp(ctx context.Context, on execer, table *schema.Table, ids []string) error {
	status, err := table.Status()
	if err != nil {
		return err
	}
	column := quote(status.Column.Name)
	set, args := column+" = ?", []any{status.Published}
	if at := status.At; at != nil { // by the server's clock, as created_at is
		now := "NOW(6)" // of a TIMESTAMP, in whatever zone the session has
		if !at.Zoned {
			now = "UTC_TIMESTAMP(6)"
			if offset := offsetNow(table); offset != 0 {
				now += fmt.Sprintf(" + INTERVAL %d SECOND", offset)
			}
		}
		set += ", " + quote(at.Name) + " = " + now
	}
	id, _ := table.Column(schema.RoleID)
	places := make([]string, len(ids))
	for i, text := range ids {
		value, err := schema.ParseID(id, text)
		if err != nil {
			return err
		}
		places[i], args = "?", append(args, value)
	}
	_, err = on.ExecContext(ctx, "UPDATE "+s.quoted()+" SET "+set+" WHERE "+quote(id.Name)+" IN ("+strings.Join(places, ", ")+") AND NOT ("+column+" <=> ?)",
		append(args, status.Published)...)
	if err != nil {
		return s.explainFor(err, "SELECT, UPDATE")
	}
	return nil
}

// offsetNow is by how many seconds the table's DATETIME columns are ahead of UTC.
func offsetNow(table *schema.Table) int {
	_, offset := time.Now().In(table.Zone()).Zone()
	return offset
}
