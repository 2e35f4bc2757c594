package binlog

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"github.com/outboxrelay/relay/schema"
)

// logFilter is what the server leaves out of its log, by database. Where there is
// an only, the server does not look at except.
type logFilter struct {
	only, except []string // binlog_do_db, binlog_ignore_db
}

// excludes tells whether the rows of a database's tables are left out.
func (f logFilter) excludes(database string) bool {
	if len(f.only) > 0 {
		return !slices.Contains(f.only, database)
	}
	return slices.Contains(f.except, database)
}

// String is the filter as the option file has it.
func (f logFilter) String() string {
	var lines []string
	for _, name := range f.only {
		lines = append(lines, "binlog-do-db = "+name)
	}
	for _, name := range f.except {
		lines = append(lines, "binlog-ignore-db = "+name)
	}
	return strings.Join(lines, ", ")
}

// filter reads what the server leaves out; no variable of MySQL tells it. It
// needs REPLICATION CLIENT, of MariaDB BINLOG MONITOR.
func (s *Server) filter(ctx context.Context) (f logFilter, err error) {
	rows, err := s.db.QueryContext(ctx, s.dialect.logStatus())
	if err != nil {
		return f, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return f, err
	}
	for rows.Next() { // one, or none where there is no log
		cells := make([]sql.RawBytes, len(columns))
		if err := rows.Scan(pointers(cells)...); err != nil {
			return f, err
		}
		for i, name := range columns {
			switch names := string(cells[i]); {
			case names == "":
			case strings.EqualFold(name, "Binlog_Do_DB"):
				f.only = strings.Split(names, ",")
			case strings.EqualFold(name, "Binlog_Ignore_DB"):
				f.except = strings.Split(names, ",")
			}
		}
	}
	return f, rows.Err()
}

// logged looks whether the log has the table's rows. Who may not see that lacks a
// privilege that Check names.
func (s *Server) logged(ctx context.Context, table *schema.Table) (Requirement, error) {
	const name, need = "binlog filter", "every row of the outbox in the log: no binlog-do-db or binlog-ignore-db that leaves its database out"
	f, err := s.filter(ctx)
	switch text := f.String(); {
	case err != nil && denied(err):
		return NewRequirement(ErrSettings, name, need, "not to be seen without "+s.dialect.probes()[1].privilege, true, ""), nil
	case err != nil:
		return Requirement{}, s.explain(err)
	case text == "":
		return NewRequirement(ErrSettings, name, need, "none", true, ""), nil
	case f.excludes(table.Database):
		return NewRequirement(ErrSettings, name, need, fmt.Sprintf("%s, which leaves %s out", text, table.Database), false,
			f.mend(table.Database)+" the server's option file, then restart it; what was committed until then is in no log, and only a backfill sends it"), nil
	default:
		r := NewRequirement(ErrSettings, name, need,
			text+fmt.Sprintf(": the rows of %s are in the log, but statements as text go by the session's default database: an ALTER TABLE of the outbox, or a write with binlog_format=STATEMENT, from a session in a database that is left out, is in no log", table.Database), false,
			"take "+text+" out of the server's option file, then restart it")
		r.Advice = true
		return r, nil
	}
}

// mend is what brings a database into the log.
func (f logFilter) mend(database string) string {
	if len(f.only) > 0 {
		return "add binlog-do-db = " + database + " to"
	}
	return "take binlog-ignore-db = " + database + " out of"
}
