package binlog

import (
	"context"
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
// transaction. A fault is why they cannot be had.
func (s *Server) fetch(ctx context.Context, table *schema.Table, gtid GTID, ids []any, generated bool, from schema.Origin) (events []schema.Event, fault string, err error) {
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
	for _, id := range ids {
		found, err := b.find(ctx, selected, id, from)
		if err != nil {
			return nil, "", err
		}
		if len(found) != 1 {
			return nil, fmt.Sprintf("INSERT of a row of which the table has %d now", len(found)), nil
		}
		events = append(events, found...)
	}
	return events, "", nil
}

// find reads the rows that a query gives for an id.
func (b *Backfill) find(ctx context.Context, query string, id any, from schema.Origin) (events []schema.Event, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout) // the connection itself has no limit
	defer cancel()
	rows, err := b.conn.QueryContext(ctx, query, id)
	if err != nil {
		return nil, b.server.explain(err)
	}
	defer rows.Close()
	for rows.Next() {
		row, err := b.values(rows)
		if err != nil {
			return nil, err
		}
		events = append(events, b.table.Event(&row, from))
	}
	if err := rows.Err(); err != nil {
		return nil, b.server.explain(err)
	}
	return events, nil
}
