package binlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxrelay/relay/schema"
)

// CheckPolling looks at everything on the server that a Poller stands on: neither
// the log nor any right on it. An error means that the server could not be asked,
// or refused the table.
func (s *Server) CheckPolling(ctx context.Context) (*schema.Table, []Requirement, error) {
	need, tooOld := "MySQL 8.0.1 and later (SKIP LOCKED)", old(s.Version, "5.", "8.0.0")
	if s.Flavor == MariaDB {
		need, tooOld = "MariaDB 10.6 and later (SKIP LOCKED)", old(s.Version, "5.", "10.0.", "10.1.", "10.2.", "10.3.", "10.4.", "10.5.")
	}
	list := []Requirement{NewRequirement(ErrSettings, "version", need, s.Version, !tooOld, "relay run, which follows the log, or upgrade the server")}
	table, err := s.Table(ctx)
	if err == nil {
		_, err = table.Status()
	}
	switch {
	case errors.Is(err, schema.ErrTable), errors.Is(err, ErrGrant):
		return nil, append(list, Requirement{Name: "table", Need: "the columns of an outbox, one that tells what was published, and the right to read them", Found: err.Error(), kind: err}), nil
	case err != nil:
		return nil, nil, err
	}
	engine, err := s.engine(ctx)
	if err != nil {
		return nil, nil, err
	}
	list = append(list, NewRequirement(schema.ErrTable, "engine", "InnoDB", engine, strings.EqualFold(engine, "InnoDB"),
		fmt.Sprintf("ALTER TABLE %s ENGINE=InnoDB", table)))
	rights, err := s.stampRights(ctx, table)
	if err != nil {
		return nil, nil, err
	}
	keys, err := s.keys(ctx)
	if err != nil {
		return nil, nil, err
	}
	list = append(list, rights, s.idKey(table, keys))
	id, _ := table.Column(schema.RoleID)
	leads := func(k key) bool { return len(k.columns) > 0 && strings.EqualFold(k.columns[0], id.Name) }
	wanted := dispatchColumns(table)
	index := dispatchIndex(keys, wanted)
	if len(keys) > 0 && keys[0].name == "PRIMARY" && leads(keys[0]) { // the index has it without being told
		wanted = wanted[:len(wanted)-1]
	}
	for i, column := range wanted {
		wanted[i] = quote(column)
	}
	columns := "(" + strings.Join(wanted, ", ") + ")"
	r := NewRequirement(schema.ErrTable, "index", "one on "+columns+": without it every poll reads the table, and locks all that is pending, so that pollers cannot share the work",
		has(index != ""), index != "", fmt.Sprintf("ALTER TABLE %s ADD KEY idx_dispatch %s", table, columns))
	r.Advice = true
	return table, append(list, r), nil
}

func has(found bool) string {
	if found {
		return "there"
	}
	return "none"
}

// stampRights tries the right to stamp rows, without doing it.
func (s *Server) stampRights(ctx context.Context, table *schema.Table) (Requirement, error) {
	id, _ := table.Column(schema.RoleID)
	set := []string{quote(id.Name) + " = " + quote(id.Name)} // rows are locked by a right on the whole table
	for _, column := range stampColumns(table) {
		set = append(set, column+" = "+column)
	}
	err := s.trying("EXPLAIN UPDATE " + s.quoted() + " SET " + strings.Join(set, ", ") + " WHERE FALSE")(ctx)
	if err != nil && !denied(err) {
		return Requirement{}, s.explainFor(err, "SELECT, UPDATE")
	}
	found := "granted"
	if err != nil {
		found = "not granted"
	}
	return NewRequirement(ErrGrant, "grant UPDATE", "SELECT, UPDATE ON "+s.quoted(), found, err == nil,
		fmt.Sprintf("GRANT SELECT, UPDATE ON %s TO %s", s.quoted(), s.account())), nil
}

// key is an index of the table.
type key struct {
	name    string
	columns []string // by which it is ordered; of InnoDB the primary key's follow
	cut     bool     // it goes on with what is of no use here: descending, an expression, the beginning of a column
}

// keys are those of the table that statements may use, the primary one first.
func (s *Server) keys(ctx context.Context) ([]key, error) {
	usable := "is_visible = 'YES'"
	if s.Flavor == MariaDB {
		usable = "ignored = 'NO'"
	}
	rows, err := s.db.QueryContext(ctx, `SELECT index_name, COALESCE(column_name, ''), collation = 'A' AND sub_part IS NULL AND column_name IS NOT NULL
		FROM information_schema.statistics WHERE table_schema = ? AND table_name = ? AND index_type = 'BTREE' AND `+usable+`
		ORDER BY index_name <> 'PRIMARY', index_name, seq_in_index`, s.database, s.table)
	if err != nil {
		return nil, s.explain(err)
	}
	defer rows.Close()
	var list []key
	for rows.Next() {
		var name, column string
		var whole bool
		if err := rows.Scan(&name, &column, &whole); err != nil {
			return nil, s.explain(err)
		}
		if len(list) == 0 || list[len(list)-1].name != name {
			list = append(list, key{name: name})
		}
		k := &list[len(list)-1]
		if k.cut = k.cut || !whole; !k.cut {
			k.columns = append(k.columns, column)
		}
	}
	if err := rows.Err(); err != nil {
		return nil, s.explain(err)
	}
	return list, nil
}

// dispatchColumns are those of the index by which pollers find rows.
func dispatchColumns(table *schema.Table) []string {
	var list []string
	for _, role := range append([]schema.Role{schema.RoleStatus}, pollKeys(table)...) {
		column, _ := table.Column(role)
		list = append(list, column.Name)
	}
	return list
}

// dispatchIndex is the name of an index that begins with these columns; empty:
// there is none.
func dispatchIndex(keys []key, columns []string) string {
	for _, k := range keys {
		all := k.columns
		if keys[0].name == "PRIMARY" && !k.cut {
			all = slices.Concat(all, keys[0].columns)
		}
		if len(all) >= len(columns) && slices.EqualFunc(all[:len(columns)], columns, strings.EqualFold) {
			return k.name
		}
	}
	return ""
}

// dispatch is the index by which pollers find rows; empty: there is none.
func (s *Server) dispatch(ctx context.Context, table *schema.Table) (string, error) {
	keys, err := s.keys(ctx)
	return dispatchIndex(keys, dispatchColumns(table)), err
}
