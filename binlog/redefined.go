package binlog

import (
	"context"
	"fmt"
	"regexp"
	"slices"

	"github.com/outboxrelay/relay/schema"
)

// redefinition is a statement that took something away, or put another in its
// place, through which text that stands before it in the log may have written to
// the outbox.
type redefinition struct {
	alteration
	places []place
	any    bool // what it was cannot be told: a trigger's statement does not say of which table
}

// redefining begins a statement that may be one, where its quotes are not known.
var redefining = regexp.MustCompile(`(?is)^(?:/\*M?!\d*\s*)?(drop|rename|create\b.{0,9}\bor\b.{0,9}\breplace|alter\b.*\b(view|rename))\b`)

// closing is what a server writes where a session with temporary tables ends.
var closing = regexp.MustCompile(`^DROP /\*!40005 TEMPORARY \*/ `)

// redefines reads a statement; ok is false where it takes nothing away.
func (t *text) redefines() (r redefinition, ok bool) {
	if !t.plain {
		return redefinition{any: true}, redefining.MatchString(skipComments(t.text)) && !closing.MatchString(t.text)
	}
	p := parser{rest: t.tokens}
	list := func() (redefinition, bool) {
		for p.keyword("IF") || p.keyword("EXISTS") || p.keyword("NOT") || p.keyword("BODY") {
		}
		for {
			database, name, ok := p.table(t.database)
			if !ok {
				return redefinition{any: true}, true
			}
			if p.keyword("WAIT") {
				p.next()
			}
			p.keyword("NOWAIT")
			if r.places = append(r.places, placeOf(database, name)); !p.sign(",") && !p.keyword("TO") {
				return r, true
			}
		}
	}
	kind := func() string {
		for len(p.rest) > 0 {
			for _, kind := range []string{"TABLE", "TABLES", "VIEW", "FUNCTION", "PROCEDURE", "PACKAGE", "TRIGGER", "DATABASE", "SCHEMA", "TEMPORARY", "EVENT", "USER", "ROLE", "SERVER"} {
				if p.keyword(kind) {
					return kind
				}
			}
			p.next()
		}
		return ""
	}
	switch {
	case p.keyword("DROP"), p.keyword("CREATE") && p.keyword("OR"):
		switch kind() {
		case "TABLE", "TABLES", "VIEW", "FUNCTION", "PROCEDURE", "PACKAGE":
			return list()
		case "TRIGGER", "DATABASE", "SCHEMA":
			return redefinition{any: true}, true
		}
	case p.keyword("RENAME"):
		if p.keyword("TABLE") || p.keyword("TABLES") {
			return list()
		}
	case p.keyword("ALTER"):
		switch kind() {
		case "VIEW":
			return list()
		case "TABLE":
			r, ok = list()
			for i, word := range p.rest {
				if word.is("RENAME") && i+1 < len(p.rest) && !p.rest[i+1].is("COLUMN") && !p.rest[i+1].is("INDEX") && !p.rest[i+1].is("KEY") {
					return r, ok
				}
			}
		}
	}
	return redefinition{}, false
}

// domain is what the transaction under way may write to the outbox through, as it
// is defined by now, and by what was taken away since.
func (st *Stream) domain(ctx context.Context, gtid GTID) (*reach, error) {
	s := st.server
	at, err := s.now(ctx)
	if err != nil {
		return nil, err
	}
	objects, err := s.objects(ctx, gtid)
	if err != nil {
		return nil, err
	}
	executed, err := s.Executed(ctx) // behind the definitions that were read
	if err != nil {
		return nil, err
	}
	behind := st.seen.Clone()
	behind.Add(gtid)
	st.redefined = slices.DeleteFunc(st.redefined, func(r redefinition) bool { return behind.Has(r.gtid) })
	if st.looked != nil {
		behind = behind.Union(st.looked)
	}
	ahead, err := s.redefinitions(ctx, behind, executed, st.assembler.decoder.table)
	if err != nil {
		return nil, err
	}
	st.looked, st.redefined = executed, append(st.redefined, ahead...)
	r := newReach(s.database, s.table, objects, st.redefined)
	r.at = at.Add(-clockTolerance)
	return r, nil
}

// redefinitions reads the log from a position up to another, at least, for such
// statements.
func (s *Server) redefinitions(ctx context.Context, position, until *GTIDSet, table *schema.Table) (list []redefinition, err error) {
	rest := newUnseen(position.Clone(), until)
	if !rest.any() {
		return nil, nil
	}
	st, err := s.stream(ctx, nameOnly(table), heartbeat, s.dialect.behind(passingID(), position))
	if err != nil {
		return nil, err
	}
	defer st.Close()
	a := st.assembler
	a.pass = func(*group) bool { return true }
	a.heard = func(q query) {
		if r, ok := newText(q).redefines(); ok {
			r.alteration = alteration{gtid: a.group.tx.GTID, statement: shown(q.text)}
			list = append(list, r)
		}
	}
	for rest.any() {
		tx, err := st.Next(ctx)
		if err != nil {
			return nil, err
		}
		rest.cover(tx)
	}
	return list, nil
}

// because tells why a statement that names it may have written to the outbox.
func (r *reach) because(through string) string {
	if x, ok := r.lost[through]; ok {
		return fmt.Sprintf("that names %s, which transaction %s changed behind it, so that it cannot be told whether it wrote to it,", through, x)
	}
	if r.any != nil && through == anything {
		return fmt.Sprintf("before transaction %s, which may have taken away a trigger through which it wrote to it,", r.any)
	}
	return "that names " + through + ", through which a trigger, view or routine may write to it,"
}
