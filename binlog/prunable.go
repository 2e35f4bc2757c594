package binlog

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxrelay/relay/schema"
)

// Prunable is a table whose old rows can be deleted: an outbox, or a consumer's
// inbox (exchange.Inbox), which is known by its columns message_id and
// processed_at, and by having none for a payload.
type Prunable struct {
	Outbox *schema.Table // nil: it is an inbox
	Name   string        // db.table

	server  *Server
	columns []schema.Column
	id      schema.Column   // of the event or the message
	at      schema.Column   // that tells how old a row is
	key     []schema.Column // the primary key's
	indexes []index
	zone    *time.Location
}

// index is one that the rows can be read by in order.
type index struct {
	name    string
	columns []string // those of which the index has the whole
}

// Prunable reads the table's definition. The error wraps schema.ErrTable where
// its rows cannot be deleted by their age.
func (s *Server) Prunable(ctx context.Context) (*Prunable, error) {
	database, name, columns, err := s.columns(ctx)
	if err != nil {
		return nil, err
	}
	p := &Prunable{Name: database + "." + name, server: s, columns: columns, zone: s.cfg.Options.Zone}
	if p.zone == nil {
		p.zone = time.UTC
	}
	if err := p.outbox(database, name); err != nil && !p.inbox() {
		return nil, err
	}
	if p.indexes, err = s.indexes(ctx); err != nil {
		return nil, err
	}
	return p, p.keyed()
}

// inbox takes the table for one, unless a column may hold a payload: then it is
// an outbox of which something was not told.
func (p *Prunable) inbox() (ok bool) {
	payload := slices.ContainsFunc(p.columns, func(c schema.Column) bool {
		return c.Kind == schema.JSON || strings.HasSuffix(c.DataType(), "text") || strings.HasSuffix(c.DataType(), "blob")
	})
	id, known := p.column("message_id")
	at, timed := p.column("processed_at")
	if payload || !known || !timed || at.Kind != schema.Time {
		return false
	}
	p.Outbox, p.id, p.at = nil, id, at
	return true
}

// outbox takes the table for one.
func (p *Prunable) outbox(database, name string) (err error) {
	if p.Outbox, err = schema.NewTable(database, name, p.columns, p.server.cfg.Options); err != nil {
		return err
	}
	p.id, _ = p.Outbox.Column(schema.RoleID)
	var timed bool
	if p.at, timed = p.Outbox.Column(schema.RoleCreatedAt); !timed {
		return fmt.Errorf("%w: %s has no column that tells when a row was created; name it, as --columns created_at=inserted, or add one: ALTER TABLE %s ADD COLUMN %s; rows that are there already then count as created at that moment",
			schema.ErrTable, p.Name, p.server.quoted(), map[schema.Layout]string{
				schema.Debezium:  "`timestamp` DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)), ADD KEY (`timestamp`)",
				schema.Eventuate: "creation_time BIGINT NOT NULL DEFAULT (UNIX_TIMESTAMP() * 1000), ADD KEY (creation_time)",
			}[p.Outbox.Layout])
	}
	return nil
}

func (p *Prunable) column(name string) (schema.Column, bool) {
	i := slices.IndexFunc(p.columns, func(c schema.Column) bool { return strings.EqualFold(c.Name, name) })
	if i < 0 {
		return schema.Column{}, false
	}
	return p.columns[i], true
}

// keyed finds the primary key, by which rows are named and walked along.
func (p *Prunable) keyed() error {
	i := slices.IndexFunc(p.indexes, func(x index) bool { return x.name == "PRIMARY" })
	if i < 0 {
		return fmt.Errorf("%w: %s has no primary key, by which its rows are told apart; type: ALTER TABLE %s ADD PRIMARY KEY (%s)", schema.ErrTable, p.Name, p.server.quoted(), quote(p.id.Name))
	}
	for _, name := range p.indexes[i].columns {
		c, known := p.column(name)
		switch {
		case !known, c.Kind == schema.Enum, c.Kind == schema.JSON, c.Kind == schema.Other && !slices.Contains([]string{"date", "decimal"}, c.DataType()):
			return fmt.Errorf("%w: %s has in its primary key the column %s of type %s, along which rows cannot be walked; type: ALTER TABLE %s DROP PRIMARY KEY, ADD PRIMARY KEY (%s)",
				schema.ErrTable, p.Name, name, c.Type, p.server.quoted(), quote(p.id.Name))
		}
		p.key = append(p.key, c)
	}
	return nil
}

// indexes are those of the table that hold their rows in order, with the columns
// at the beginning of which they have the whole.
func (s *Server) indexes(ctx context.Context) ([]index, error) {
	rows, err := s.db.QueryContext(ctx, "SHOW INDEX FROM "+s.quoted())
	if err != nil {
		return nil, s.explain(err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, s.explain(err)
	}
	var list []index
	for rows.Next() {
		cells := make([]sql.NullString, len(names))
		into := make([]any, len(names))
		for i := range cells {
			into[i] = &cells[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, s.explain(err)
		}
		field := map[string]sql.NullString{}
		for i, name := range names {
			field[strings.ToLower(name)] = cells[i]
		}
		if field["index_type"].String != "BTREE" || field["visible"].String == "NO" || field["ignored"].String == "YES" { // MySQL's word and MariaDB's
			continue
		}
		name := field["key_name"].String
		if len(list) == 0 || list[len(list)-1].name != name {
			list = append(list, index{name: name})
		}
		x := &list[len(list)-1]
		whole := field["column_name"].Valid && !field["sub_part"].Valid
		if at, err := strconv.Atoi(field["seq_in_index"].String); err == nil && whole && at == len(x.columns)+1 {
			x.columns = append(x.columns, field["column_name"].String)
		}
	}
	return list, rows.Err()
}

// begins tells whether the index begins with these columns.
func (x index) begins(columns ...string) bool {
	if len(x.columns) < len(columns) {
		return false
	}
	return slices.EqualFunc(x.columns[:len(columns)], columns, strings.EqualFold)
}
