package binlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxrelay/relay/schema"
)

// Requirement is one thing that the relay needs of a server.
type Requirement struct {
	Name  string `json:"name"`
	Need  string `json:"need"`
	Found string `json:"found"`
	OK    bool   `json:"ok"`
	Fix   string `json:"fix,omitempty"` // the statement or command that mends it
	// Advice is set where the relay can run without it.
	Advice bool `json:"advice,omitempty"`

	kind error // the sentinel that Err wraps
}

// NewRequirement makes a requirement that, when it is not met, wraps kind.
func NewRequirement(kind error, name, need, found string, ok bool, fix string) Requirement {
	r := Requirement{Name: name, Need: need, Found: found, OK: ok, kind: kind}
	if !ok {
		r.Fix = fix
	}
	return r
}

// Err is the refusal in one line; nil where the requirement is met or is only
// advice.
func (r Requirement) Err() error {
	if r.OK || r.Advice {
		return nil
	}
	if r.Fix == "" && r.kind != nil {
		return r.kind // it says all there is to say
	}
	return fmt.Errorf("%w: %s: need %s, found %s; type: %s", r.kind, r.Name, r.Need, r.Found, r.Fix)
}

// Check looks at everything on the server that the relay stands on. An error
// means that the server could not be asked, or refused the table.
func (s *Server) Check(ctx context.Context) (*schema.Table, []Requirement, error) {
	list, err := s.settings(ctx)
	if err != nil {
		return nil, nil, err
	}
	table, err := s.Table(ctx)
	switch {
	case err == nil:
		list = append(list, NewRequirement(schema.ErrTable, "table", "the columns of an outbox", fmt.Sprintf("%s, layout %s", table, table.Layout), true, ""))
	case errors.Is(err, schema.ErrTable), errors.Is(err, ErrGrant):
		failed := Requirement{Name: "table", Need: "the columns of an outbox, and the right to read them", Found: err.Error(), kind: err}
		return nil, append(list, failed), nil
	default:
		return nil, nil, err
	}
	engine, err := s.engine(ctx)
	if err != nil {
		return nil, nil, err
	}
	list = append(list, NewRequirement(schema.ErrTable, "engine", "InnoDB", engine, strings.EqualFold(engine, "InnoDB"),
		fmt.Sprintf("ALTER TABLE %s ENGINE=InnoDB", table)))
	logged, err := s.logged(ctx, table)
	if err != nil {
		return nil, nil, err
	}
	list = append(list, logged)
	grants, err := s.grants(ctx)
	if err != nil {
		return nil, nil, err
	}
	sights, err := s.sights(ctx)
	if err != nil {
		return nil, nil, err
	}
	return table, slices.Concat(list, grants, sights), nil
}

// setting is a server variable that must have one value.
type setting struct {
	variable, want, fix string
	advice              bool
}

func (s *Server) settings(ctx context.Context) ([]Requirement, error) {
	values, err := s.variables(ctx)
	if err != nil {
		return nil, err
	}
	var list []Requirement
	for _, want := range s.dialect.needs(values) {
		found, exists := values[want.variable]
		if !exists {
			continue // of a version in which there is nothing to set
		}
		r := NewRequirement(ErrSettings, want.variable, want.want, found, found == want.want, want.fix)
		r.Advice = want.advice
		list = append(list, r)
	}
	return list, nil
}

func (s *Server) variables(ctx context.Context) (map[string]string, error) {
	rows, err := s.db.QueryContext(ctx, `SHOW GLOBAL VARIABLES WHERE Variable_name IN
		('log_bin', 'gtid_mode', 'binlog_format', 'binlog_row_image', 'binlog_row_metadata', 'binlog_expire_logs_seconds',
		'gtid_strict_mode', 'gtid_slave_pos', 'log_slave_updates', 'sync_binlog', 'server_id',
		'expire_logs_days', 'binlog_expire_logs_auto_purge', 'max_binlog_total_size', 'binlog_space_limit')`)
	if err != nil {
		return nil, s.explain(err)
	}
	defer rows.Close()
	values := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, s.explain(err)
		}
		values[strings.ToLower(name)] = value
	}
	return values, rows.Err()
}

func (s *Server) engine(ctx context.Context) (string, error) {
	var engine string
	err := s.db.QueryRowContext(ctx, `SELECT COALESCE(engine, table_type) FROM information_schema.tables WHERE table_schema = ? AND table_name = ?`,
		s.database, s.table).Scan(&engine)
	if err != nil {
		return "", s.explain(err)
	}
	return engine, nil
}

// probe is a privilege on everything, tried by what it is needed for.
type probe struct {
	privilege string
	try       func(context.Context) error
	advice    bool
}

// trying is a probe by a query.
func (s *Server) trying(query string) func(context.Context) error {
	return func(ctx context.Context) error {
		rows, err := s.db.QueryContext(ctx, query)
		if err != nil {
			return err
		}
		rows.Close()
		return rows.Err()
	}
}

// grants tries what each privilege is needed for, since only the server knows
// what roles and wildcards add up to.
func (s *Server) grants(ctx context.Context) ([]Requirement, error) {
	list := []Requirement{}
	look := func(p probe, object string) error {
		err := p.try(ctx)
		if err != nil && !denied(err) {
			return s.explain(err)
		}
		found := "granted"
		if err != nil {
			found = "not granted"
		}
		r := NewRequirement(ErrGrant, "grant "+p.privilege, p.privilege+" ON "+object, found, err == nil,
			fmt.Sprintf("GRANT %s ON %s TO %s", p.privilege, object, s.account()))
		r.Advice = p.advice
		list = append(list, r)
		return nil
	}
	if err := look(probe{privilege: "SELECT", try: s.trying("SELECT * FROM " + s.quoted() + " LIMIT 0")}, s.quoted()); err != nil {
		return nil, err
	}
	for _, p := range s.dialect.probes() {
		if err := look(p, "*.*"); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// Sight begins the names of the requirements by which the relay sees through what
// else text may write to the outbox.
const Sight = "sight of "

// sights looks for the privileges by which it is seen what triggers, views and
// routines write to the outbox. They matter only for sessions that write statements
// as text. No statement tries them without changing something, so they are read
// from what was granted to the account itself; what it has by a role is not told
// there.
func (s *Server) sights(ctx context.Context) ([]Requirement, error) {
	ours := quote(s.database) + ".*"
	routine, of := "SHOW_ROUTINE", "*.*"
	switch {
	case s.Flavor == MariaDB && old(s.Version, "10.", "11.0.", "11.1.", "11.2."):
		routine, of = "SELECT", "mysql.proc"
	case s.Flavor == MariaDB:
		routine = "SHOW CREATE ROUTINE"
	}
	var list []Requirement
	for _, look := range []struct{ what, privilege, on, or string }{
		{"triggers", "TRIGGER", ours, ""},
		{"views", "SHOW VIEW", ours, ""},
		{"routines", routine, of, "SELECT"}, // SELECT of all there is
	} {
		var n int
		err := s.db.QueryRowContext(ctx, `SELECT
			(SELECT COUNT(*) FROM information_schema.user_privileges WHERE privilege_type IN (?, ?) AND REPLACE(grantee, CHAR(39), '') = CURRENT_USER()) +
			(SELECT COUNT(*) FROM information_schema.schema_privileges WHERE privilege_type = ? AND REPLACE(grantee, CHAR(39), '') = CURRENT_USER() AND ? LIKE table_schema) +
			(SELECT COUNT(*) FROM information_schema.table_privileges WHERE privilege_type = ? AND REPLACE(grantee, CHAR(39), '') = CURRENT_USER() AND CONCAT(table_schema, '.', table_name) = ?)`,
			look.privilege, look.or, look.privilege, s.database, look.privilege, look.on).Scan(&n)
		if err != nil {
			return nil, s.explain(err)
		}
		r := NewRequirement(ErrGrant, Sight+look.what, look.privilege+" ON "+look.on, "granted", true, "")
		if n == 0 {
			r = NewRequirement(ErrGrant, r.Name, r.Need,
				"not granted, unless by a role: without it, what a statement of a session with binlog_format=STATEMENT writes to the outbox through "+look.what+" passes unseen",
				false, "GRANT "+look.privilege+" ON "+look.on+" TO "+s.account())
			r.Advice = true
		}
		list = append(list, r)
	}
	return list, nil
}

// Denied tells whether an error is a refusal for want of a privilege.
func Denied(err error) bool { return errors.Is(err, ErrGrant) || denied(err) }

// denied tells whether the server refused something for want of a privilege.
func denied(err error) bool {
	var refusal *mysql.MySQLError
	return errors.As(err, &refusal) && (refusal.Number == 1142 || refusal.Number == 1143 || refusal.Number == 1227)
}
