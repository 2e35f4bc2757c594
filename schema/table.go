package schema

import (
	"fmt"
	"strings"
	"time"
)

// Table is an outbox: which of its columns holds which part of an event. It
// is not changed after NewTable and may be used by many goroutines.
type Table struct {
	Database string
	Name     string
	Layout   Layout
	Columns  []Column // in the table's order

	roles [Roles]int // index into Columns; -1: no such column
	zone  *time.Location
}

// Options says how a table's columns are to be taken.
type Options struct {
	Layout  Layout          // Defaults to Auto.
	Columns map[Role]string // single columns, against the layout's names; several names have | between them
	Zone    *time.Location  // in which DATETIME columns were written. Defaults to UTC.
}

// NewTable finds the parts of an event among the columns of database.name.
// The error wraps ErrTable and names what is missing, what was found and the
// way out.
func NewTable(database, name string, columns []Column, opts Options) (*Table, error) {
	t := &Table{Database: database, Name: name, Columns: columns, zone: opts.Zone}
	if t.zone == nil {
		t.zone = time.UTC
	}
	var best []string // what the layout lacks of which most is there
	most := -1
	for _, c := range conventions {
		if opts.Layout != c.layout && opts.Layout != Auto && opts.Layout != "" {
			continue
		}
		roles, missing := c.assign(columns, opts.Columns)
		if len(missing) == 0 {
			t.Layout, t.roles = c.layout, roles
			return t, t.fit()
		}
		if there := len(c.needed) - len(missing); there > most {
			t.Layout, best, most = c.layout, missing, there
		}
	}
	found := make([]string, len(columns))
	for i, c := range columns {
		found[i] = c.Name
	}
	return nil, fmt.Errorf("%w: %s.%s lacks the column %s of layout %s; it has %s; name another with --columns role=column, or see: relay schema sql",
		ErrTable, database, name, strings.Join(best, ", "), t.Layout, strings.Join(found, ", "))
}

func (t *Table) fit() error {
	for _, c := range t.Columns {
		if c.unreadable() {
			return fmt.Errorf("%w: %s: column %s is %s, whose values cannot be told apart in the log; type: SET GLOBAL mysql56_temporal_format = ON; ALTER TABLE %s FORCE", ErrTable, t, c.Name, c.Type, t)
		}
	}
	for r := range Role(Roles) {
		c, ok := t.Column(r)
		if !ok {
			continue
		}
		if err := c.can(r, t.String()); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrTable, t, err)
		}
	}
	return nil
}

// String is db.table.
func (t *Table) String() string { return t.Database + "." + t.Name }

// Zone is the zone in which DATETIME columns were written.
func (t *Table) Zone() *time.Location { return t.zone }

// Column is the column that serves the role; false when the table has none.
func (t *Table) Column(r Role) (Column, bool) {
	if t.roles[r] < 0 {
		return Column{}, false
	}
	return t.Columns[t.roles[r]], true
}
