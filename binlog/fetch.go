package binlog

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"

	"github.com/outboxrelay/relay/schema"
)

// executedLimit is how long the server may take, in seconds, to have executed a
// transaction that it has sent.
const executedLimit = 10

// awaitExecuted waits until the server has executed a transaction: it sends it
// before its rows can be seen. MariaDB has nothing to wait with: a snapshot must
// tell, and what a definition changed is there before it is in the log.
func (s *Server) awaitExecuted(ctx context.Context, gtid GTID) error {
	if s.Flavor == MariaDB {
		return nil
	}
	var late int
	if err := s.db.QueryRowContext(ctx, "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, ?)", gtid.String(), executedLimit).Scan(&late); err != nil {
		return s.explain(err)
	}
	if late != 0 {
		return fmt.Errorf("binlog: MySQL at %s has sent transaction %s and not executed it %d seconds later", s.dsn.Addr, gtid, executedLimit)
	}
	return nil
}

// fetch reads the rows that a transaction inserted by a statement that is in
// the log as text, in the order of the ids. generated tells that the id came
// from AUTO_INCREMENT. They are as they are now, in a snapshot that has the
// transaction; one that is not what the statement inserted, such as another's
// that has the id again, is a fault. A fault is why they cannot be had.
func (s *Server) fetch(ctx context.Context, table *schema.Table, gtid GTID, ins *insertion, ids []any, generated bool, from schema.Origin) (events []schema.Event, fault string, err error) {
	if err := s.awaitExecuted(ctx, gtid); err != nil {
		return nil, "", err
	}
	id, _ := table.Column(schema.RoleID)
	var triggers, counted int
	if err := s.db.QueryRowContext(ctx, `SELECT
		(SELECT COUNT(*) FROM information_schema.triggers WHERE event_object_schema = ? AND event_object_table = ? AND event_manipulation LIKE '%INSERT%'),
		(SELECT COUNT(*) FROM information_schema.columns WHERE table_schema = ? AND table_name = ? AND column_name = ? AND extra LIKE '%auto_increment%')`,
		table.Database, table.Name, table.Database, table.Name, id.Name).Scan(&triggers, &counted); err != nil {
		return nil, "", s.explain(err)
	}
	switch {
	case triggers > 0:
		return nil, "INSERT that fires a trigger of the outbox, which may change its id,", nil
	case generated && counted == 0:
		return nil, "INSERT without an id", nil
	}
	limited, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	b, err := s.look(limited, table)
	if err != nil {
		return nil, "", err
	}
	defer b.Close()
	if _, err := b.conn.ExecContext(limited, "SET SESSION TRANSACTION ISOLATION LEVEL REPEATABLE READ"); err != nil {
		return nil, "", s.explain(err)
	}
	if err := s.dialect.snapshot(limited, b.conn); err != nil {
		return nil, "", s.explain(err)
	}
	selected := b.selection() + " WHERE " + b.name(schema.RoleID) + " = ? LIMIT 2"
	for i, id := range ids {
		found, rows, err := b.find(ctx, selected, id, from)
		if err != nil {
			return nil, "", err
		}
		if len(found) != 1 {
			return nil, fmt.Sprintf("INSERT of a row of which the table has %d now", len(found)), nil
		}
		if generated && !ins.tells(table, schema.RolePayload, i) { // a TRUNCATE makes its id free
			return nil, "INSERT of a row without an id, and with a payload that is no literal,", nil
		}
		column, err := s.differs(limited, b.conn, table, ins, i, &rows[0])
		if err != nil {
			return nil, "", err
		}
		if column != "" {
			return nil, "INSERT of a row of which " + column + " is another by now,", nil
		}
		events = append(events, found...)
	}
	return events, "", nil
}

// differs is the name of a column in which a row is not as the statement
// inserted it, by its literals; empty where there is none. What is stamped on a
// row that was relayed is not looked at.
func (s *Server) differs(ctx context.Context, conn *sql.Conn, table *schema.Table, ins *insertion, i int, row *schema.Values) (name string, err error) {
	for role := range schema.Role(schema.Roles) {
		column, ok := table.Column(role)
		if !ok || role == schema.RoleID || role == schema.RoleStatus {
			continue
		}
		want, ok := ins.stored(table, column, i)
		switch {
		case !ok:
			continue
		case column.Kind == schema.JSON && want != nil && !row[role].Null: // in the server's own form
			if err := conn.QueryRowContext(ctx, "SELECT CAST(? AS JSON)", string(want)).Scan(&want); err != nil {
				return "", s.explain(err)
			}
		}
		if row[role].Null != (want == nil) || !bytes.Equal(padless(column, row[role].Bytes), padless(column, want)) {
			return column.Name, nil
		}
	}
	return "", nil
}

// padless is a value without what a column can add to it or take from it.
func padless(column schema.Column, value []byte) []byte {
	switch column.Kind {
	case schema.Binary:
		return bytes.TrimRight(value, "\x00")
	case schema.Enum:
		value = bytes.ToLower(value)
	}
	return bytes.TrimRight(value, " ")
}

// find reads the rows that a query gives for an id.
func (b *Backfill) find(ctx context.Context, query string, id any, from schema.Origin) (events []schema.Event, values []schema.Values, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout) // the connection itself has no limit
	defer cancel()
	rows, err := b.conn.QueryContext(ctx, query, id)
	if err != nil {
		return nil, nil, b.server.explain(err)
	}
	defer rows.Close()
	for rows.Next() {
		row, err := b.values(rows)
		if err != nil {
			return nil, nil, err
		}
		events, values = append(events, b.table.Event(&row, from)), append(values, row)
	}
	if err := rows.Err(); err != nil {
		return nil, nil, b.server.explain(err)
	}
	return events, values, nil
}
