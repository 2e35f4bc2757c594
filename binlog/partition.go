package binlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/outboxrelay/relay/schema"
)

// Partitions are those of the table that may go when their rows may: by RANGE of
// its time, the oldest first, but for the last one, into which new rows come.
// The error wraps schema.ErrTable where the table is not so partitioned.
func (s *Server) Partitions(ctx context.Context, table *Prunable) (names []string, err error) {
	rows, err := s.db.QueryContext(ctx, `SELECT DISTINCT partition_name, COALESCE(partition_method, ''), COALESCE(partition_expression, ''), COALESCE(partition_description, ''), partition_ordinal_position
		FROM information_schema.partitions WHERE table_schema = ? AND table_name = ? AND partition_name IS NOT NULL ORDER BY partition_ordinal_position`, s.database, s.table)
	if err != nil {
		return nil, s.explain(err)
	}
	defer rows.Close()
	last := ""
	for rows.Next() {
		var name, method, by string
		if err := rows.Scan(&name, &method, &by, &last, new(int)); err != nil {
			return nil, s.explain(err)
		}
		if !strings.HasPrefix(method, "RANGE") || !mentions(table.at.Name).MatchString(by) {
			return nil, fmt.Errorf("%w: %s is partitioned by %s of %s, and whole partitions can go only where it is by RANGE of %s; leave out --drop-partitions", schema.ErrTable, table.Name, method, by, table.at.Name)
		}
		names = append(names, name)
	}
	if err := rows.Err(); err != nil {
		return nil, s.explain(err)
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%w: %s has no partitions; leave out --drop-partitions", schema.ErrTable, table.Name)
	}
	return names[:len(names)-1], nil
}

// Partition is how a part of the table stands.
type Partition struct {
	Due     bool  // all its rows are old, and published where they must be
	Rows    int64 // of one that is due
	Visible *GTIDSet
}

// Look looks at all rows of a partition, and locks none.
func (p *Pruner) Look(ctx context.Context, name string) (found Partition, err error) {
	p.part = name
	defer func() { p.part = "" }()
	aged := p.aged()
	young, err := p.any(ctx, clause{"NOT COALESCE(" + aged.text + ", FALSE)", aged.args})
	if err != nil || young {
		return found, err
	}
	found.Due = true
	if err := p.conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM "+p.from()).Scan(&found.Rows); err != nil {
		return found, p.explain(err)
	}
	if p.table.Outbox != nil && !p.old.Published {
		found.Visible, err = p.table.server.dialect.visible(ctx)
	}
	return found, err
}

// any tells whether there is a row for which the condition holds.
func (p *Pruner) any(ctx context.Context, q clause) (bool, error) {
	err := p.conn.QueryRowContext(ctx, "SELECT 1 FROM "+p.from()+" WHERE "+q.text+" LIMIT 1", q.args...).Scan(new(int))
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	if err != nil {
		return false, p.explain(err)
	}
	return true, nil
}

// Drop drops a partition whose rows were all due, if they still are. It locks the
// table for that, so that no row can come in between: it waits for that lock for
// a second at most, and gives up then. Behind the lock it calls confirmed with
// the transactions of all rows (nil: the table itself tells), which says why the
// partition may not go, and the ids of rows that must stay, in a short time:
// writers wait for it. Drop returns why it did not; empty: it is dropped. It
// needs the privileges LOCK TABLES, ALTER and DROP.
func (p *Pruner) Drop(ctx context.Context, name string, confirmed func(context.Context, *GTIDSet) (why string, parked []string, err error)) (why string, err error) {
	_, err = p.conn.ExecContext(ctx, "LOCK TABLES "+p.from()+" WRITE")
	if waited(err) {
		return "the table is in use: a transaction on it took longer than a second", nil
	}
	if err != nil {
		return "", p.explainDrop(err)
	}
	defer func() {
		if _, unlockErr := p.conn.ExecContext(context.WithoutCancel(ctx), "UNLOCK TABLES"); err == nil && unlockErr != nil {
			err = p.explain(unlockErr)
		}
	}()
	var visible *GTIDSet
	if p.table.Outbox != nil && !p.old.Published {
		if visible, err = p.table.server.dialect.visible(ctx); err != nil {
			return "", err
		}
	}
	why, parked, err := confirmed(ctx, visible)
	if err != nil || why != "" {
		return why, err
	}
	switch stays, err := p.stays(ctx, name, parked); {
	case err != nil:
		return "", err
	case stays:
		return "a row in it must stay: it came in late, is not stamped published, or is parked", nil
	}
	if _, err := p.conn.ExecContext(ctx, "ALTER TABLE "+p.from()+" DROP PARTITION "+quote(name)); err != nil {
		return "", p.explainDrop(err)
	}
	return "", nil
}

// stays tells whether there is a row in a partition that must not go: one that
// is young, that is not stamped where it must be, or that is parked. It is quick
// where there is an index on the time, or on the status and the time.
func (p *Pruner) stays(ctx context.Context, name string, parked []string) (bool, error) {
	p.part = name
	defer func() { p.part = "" }()
	groups, err := p.statuses(ctx)
	if err != nil {
		return false, err
	}
	within, at := p.within(p.table.at), quote(p.table.at.Name)
	for _, group := range groups {
		if p.old.Published && (!group.Valid || !strings.EqualFold(group.String, fmt.Sprint(p.status.Published))) {
			return true, nil
		}
		for _, young := range []clause{{at + " < ?", within.args[:1]}, {at + " >= ?", within.args[1:]}, {at + " IS NULL", nil}} {
			q := p.of(group)
			q.join(clause{" AND " + young.text, young.args})
			if found, err := p.any(ctx, q); found || err != nil {
				return found, err
			}
		}
	}
	if len(parked) == 0 {
		return false, nil
	}
	q := clause{text: quote(p.table.id.Name) + " IN ("}
	for i, id := range parked {
		value, err := schema.ParseID(p.table.id, id)
		if err != nil || id == "" { // which row it is cannot be told
			return true, nil //nolint:nilerr // it is the reason
		}
		if i > 0 {
			q.add(", ")
		}
		q.add("?", value)
	}
	q.add(")")
	return p.any(ctx, q)
}

func (p *Pruner) explainDrop(err error) error {
	s := p.table.server
	return s.explainFor(err, fmt.Sprintf("LOCK TABLES ON %s.* TO %s; GRANT SELECT, DELETE, ALTER, DROP", quote(s.database), s.account()))
}
