package binlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxrelay/relay/schema"
)

// stampAtOnce is how many rows one statement stamps.
const stampAtOnce = 1000

// stampTries is how often a statement is tried that another transaction holds up.
const stampTries = 5

// Stamp marks the rows with these ids as published, and now as when, where they
// are not marked yet; a row that is gone is none. It needs the privilege UPDATE
// on the columns that it sets. The error wraps schema.ErrTable where the table has
// nothing to mark them by. Writers of other rows never wait for it; it waits for
// who holds one of these.
func (s *Server) Stamp(ctx context.Context, table *schema.Table, ids []string) error {
	for len(ids) > 0 {
		some := ids[:min(len(ids), stampAtOnce)]
		ids = ids[len(some):]
		err := s.stampSome(ctx, table, some)
		for try := 1; try < stampTries && contended(err) && ctx.Err() == nil; try++ {
			err = s.stampSome(ctx, table, some)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// stampSome stamps in one transaction, whose isolation locks no gaps.
func (s *Server) stampSome(ctx context.Context, table *schema.Table, ids []string) error {
	tx, err := s.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return s.explain(err)
	}
	defer tx.Rollback() //nolint:errcheck // after Commit there is nothing to take back
	if err := s.mark(ctx, tx, table, ids); err != nil {
		return s.explainFor(err, "SELECT, "+stampPrivilege(table))
	}
	if err := tx.Commit(); err != nil {
		return s.explain(err)
	}
	return nil
}

// contended tells whether the server gave a statement up for another
// transaction's sake.
func contended(err error) bool {
	var refusal *mysql.MySQLError
	return errors.As(err, &refusal) && (refusal.Number == 1205 || refusal.Number == 1213) // ER_LOCK_WAIT_TIMEOUT, ER_LOCK_DEADLOCK
}

// CheckStamping looks at what Stamp needs beyond what Check looks at. An error
// means that the server could not be asked.
func (s *Server) CheckStamping(ctx context.Context, table *schema.Table) ([]Requirement, error) {
	status, err := table.Status()
	if err != nil {
		return []Requirement{{Name: "status", Need: "a column that tells which rows were published", Found: err.Error(), kind: err}}, nil
	}
	var set []string
	for _, column := range stampColumns(table) {
		set = append(set, column+" = "+column)
	}
	err = s.trying("EXPLAIN UPDATE " + s.quoted() + " SET " + strings.Join(set, ", ") + " WHERE FALSE")(ctx)
	if err != nil && !denied(err) {
		why := s.explain(err)
		if errors.Is(why, schema.ErrTable) {
			return []Requirement{{Name: "status", Need: "a column that can be stamped", Found: why.Error(), kind: why}}, nil
		}
		return nil, why
	}
	found := "granted"
	if err != nil {
		found = "not granted"
	}
	keys, err := s.keys(ctx)
	if err != nil {
		return nil, err
	}
	privilege := stampPrivilege(table)
	return []Requirement{
		NewRequirement(schema.ErrTable, "status", "a column that tells which rows were published", status.Column.Name+" "+status.Column.Type, true, ""),
		NewRequirement(ErrGrant, "grant UPDATE", privilege+" ON "+s.quoted(), found, found == "granted",
			fmt.Sprintf("GRANT %s ON %s TO %s", privilege, s.quoted(), s.account())),
		s.idKey(table, keys),
	}, nil
}

// idKey wants an index by which a row is found by its id.
func (s *Server) idKey(table *schema.Table, keys []key) Requirement {
	id, _ := table.Column(schema.RoleID)
	found := slices.ContainsFunc(keys, func(k key) bool { return len(k.columns) > 0 && strings.EqualFold(k.columns[0], id.Name) })
	return NewRequirement(schema.ErrTable, "key of the id", "an index whose first column is "+id.Name+", or each stamp reads and locks the table", has(found), found,
		fmt.Sprintf("ALTER TABLE %s ADD UNIQUE KEY (%s)", table, quote(id.Name)))
}

// stampPrivilege is what a user needs to stamp rows.
func stampPrivilege(table *schema.Table) string {
	return "UPDATE (" + strings.Join(stampColumns(table), ", ") + ")"
}

// stampColumns are those that a stamp sets.
func stampColumns(table *schema.Table) []string {
	status, _ := table.Status()
	columns := []string{quote(status.Column.Name)}
	if status.At != nil {
		columns = append(columns, quote(status.At.Name))
	}
	return columns
}

// execer is what runs a statement: a pool, a connection, a transaction.
type execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// stamp is mark with its errors explained.
func (s *Server) stamp(ctx context.Context, on execer, table *schema.Table, ids []string) error {
	if err := s.mark(ctx, on, table, ids); err != nil {
		return s.explainFor(err, "SELECT, UPDATE")
	}
	return nil
}

// mark is the statement.
func (s *Server) mark(ctx context.Context, on execer, table *schema.Table, ids []string) error {
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
	return err
}

// offsetNow is by how many seconds the table's DATETIME columns are ahead of UTC.
func offsetNow(table *schema.Table) int {
	_, offset := time.Now().In(table.Zone()).Zone()
	return offset
}
