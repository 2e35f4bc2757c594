package binlog

import (
	"context"
	"errors"
	"fmt"
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
	triggers, err := s.seesTriggers(ctx)
	if err != nil {
		return nil, nil, err
	}
	return table, append(append(list, grants...), triggers), nil
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

// seesTriggers looks for the privilege by which it is seen what triggers write to
// the outbox. It matters only for sessions that write statements as text. No
// statement tries it without changing something, so it is read from what was
// granted to the account itself; what it has by a role is not told there.
func (s *Server) seesTriggers(ctx context.Context) (Requirement, error) {
	const granted = ` WHERE privilege_type = 'TRIGGER' AND REPLACE(grantee, CHAR(39), '') = CURRENT_USER()`
	object := quote(s.database) + ".*"
	var n int
	err := s.db.QueryRowContext(ctx, `SELECT
		(SELECT COUNT(*) FROM information_schema.user_privileges`+granted+`) +
		(SELECT COUNT(*) FROM information_schema.schema_privileges`+granted+` AND ? LIKE table_schema)`,
		s.database).Scan(&n)
	if err != nil {
		return Requirement{}, s.explain(err)
	}
	if n > 0 {
		return NewRequirement(ErrGrant, "grant TRIGGER", "TRIGGER ON "+object, "granted", true, ""), nil
	}
	r := NewRequirement(ErrGrant, "grant TRIGGER", "TRIGGER ON "+object,
		"not granted, unless by a role: without it, what a statement of a session with binlog_format=STATEMENT writes to the outbox through a trigger passes unseen",
		false, "GRANT TRIGGER ON "+object+" TO "+s.account())
	r.Advice = true
	return r, nil
}

// Denied tells whether an error is a refusal for want of a privilege.
func Denied(err error) bool { return errors.Is(err, ErrGrant) || denied(err) }

// denied tells whether the server refused something for want of a privilege.
func denied(err error) bool {
	var refusal *mysql.MySQLError
	return errors.As(err, &refusal) && (refusal.Number == 1142 || refusal.Number == 1143 || refusal.Number == 1227)
}
