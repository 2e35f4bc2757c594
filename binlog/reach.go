package binlog

import (
	"context"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// reach is what may write to the outbox without naming it: tables and views, by
// "db.name" in lower case, through which a statement that writes to them does,
// and routines, and views that call them, through which any statement does that
// names them.
type reach map[string]way

type way int

const (
	target way = iota + 1 // of an INSERT, UPDATE or DELETE
	called                // from any statement
)

// object is a trigger, view or routine.
type object struct {
	kind     way    // target for a trigger, called for a routine; 0: a view
	database string // its own, in which bare names in its body are looked up
	name     string // what a statement names: a trigger's table
	body     string // empty where it may not be seen
}

var inserts = regexp.MustCompile(`(?i)\b(insert|replace)\b`)

// newReach finds out which objects may write to the outbox, directly or by way
// of each other.
func newReach(database, table string, objects []object) reach {
	r := reach{}
	named := make([]map[string]bool, len(objects))
	for i, o := range objects {
		tokens, _ := lex(o.body)
		for k := range tokens {
			if tokens[k].kind == quoted { // with ANSI_QUOTES it is a name
				tokens[k].kind = name
			}
		}
		named[i] = names(o.database, tokens)
	}
	ours, here := mentions(table), mentions(database)
	for changed := true; changed; {
		changed = false
		for i, o := range objects {
			own := qualified(o.database, o.name)
			if own == qualified(database, table) {
				continue // a trigger of the outbox cannot write to it
			}
			var way way
			if ours.MatchString(o.body) && (strings.EqualFold(o.database, database) || here.MatchString(o.body)) &&
				(o.kind == 0 || inserts.MatchString(o.body)) {
				way = target
			}
			for other := range named[i] {
				way = max(way, r[other])
			}
			switch {
			case way == 0:
				continue
			case o.kind != 0:
				way = o.kind
			}
			if way > r[own] {
				r[own], changed = way, true
			}
		}
	}
	return r
}

func qualified(database, name string) string { return strings.ToLower(database + "." + name) }

// names are what the tokens can mean, as "db.name": each name, and what may be
// one, in the database; and each pair with a dot.
func names(database string, tokens []token) map[string]bool {
	found := map[string]bool{}
	for i, t := range tokens {
		if !t.names() {
			continue
		}
		if i > 0 && tokens[i-1].kind == sign && tokens[i-1].text == "." {
			continue
		}
		found[qualified(database, t.text)] = true
		if i+2 < len(tokens) && tokens[i+1].text == "." {
			found[qualified(t.text, tokens[i+2].text)] = true
		}
	}
	return found
}

// through is the name in a statement through which it may write to the outbox;
// empty where there is none.
func (r reach) through(verb string, t *text) string {
	if len(r) == 0 {
		return ""
	}
	if !t.plain { // any word in it may be a name
		for _, name := range slices.Sorted(maps.Keys(r)) { // always the same one
			if _, bare, _ := strings.Cut(name, "."); mentions(bare).MatchString(t.text) {
				return name
			}
		}
		return ""
	}
	all := names(t.database, t.tokens)
	if ins := t.parseInsert(); ins != nil { // the rest is only read
		if into := qualified(ins.database, ins.table); r[into] != 0 {
			return into
		}
		for name := range all {
			if r[name] != called {
				delete(all, name)
			}
		}
	}
	var found []string
	for name := range all {
		if r[name] != 0 {
			found = append(found, name)
		}
	}
	if len(found) == 0 {
		return ""
	}
	return slices.Min(found)
}

// reach reads what the user may see of the server's triggers, views and
// routines, as they are once the transaction is executed.
func (s *Server) reach(ctx context.Context, gtid GTID) (reach, error) {
	if err := s.awaitExecuted(ctx, gtid); err != nil {
		return nil, err
	}
	const systems = " NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')"
	var objects []object
	for _, q := range []struct {
		kind  way
		query string
	}{
		{target, "SELECT event_object_schema, event_object_table, COALESCE(action_statement, '') FROM information_schema.triggers WHERE event_object_schema" + systems},
		{0, "SELECT table_schema, table_name, COALESCE(view_definition, '') FROM information_schema.views WHERE table_schema" + systems},
		{called, "SELECT routine_schema, routine_name, COALESCE(routine_definition, '') FROM information_schema.routines WHERE routine_schema" + systems},
	} {
		rows, err := s.db.QueryContext(ctx, q.query)
		if err != nil {
			return nil, s.explain(err)
		}
		defer rows.Close()
		for rows.Next() {
			o := object{kind: q.kind}
			if err := rows.Scan(&o.database, &o.name, &o.body); err != nil {
				return nil, s.explain(err)
			}
			objects = append(objects, o)
		}
		if err := rows.Err(); err != nil {
			return nil, s.explain(err)
		}
	}
	return newReach(s.database, s.table, objects), nil
}
