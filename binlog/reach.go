package binlog

import (
	"cmp"
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/outboxrelay/relay/schema"
)

// reach is what may write to the outbox without naming it: tables and views
// through which a statement that writes to them does, and routines, and views
// that call them, through which any statement does that names them.
type reach struct {
	ways  map[place]way
	marks map[place]*mark
	odd   []place // those with names that are not ASCII

	lost map[string]alteration // what is in ways because it is no longer what it was
	any  *alteration           // that took something away of which it is not known what; nil: none
	at   time.Time             // transactions from then on may have seen another
}

// anything is what every statement may write to the outbox through.
const anything = "anything"

// place is the full name of a table, view or routine, in lower case.
type place struct{ database, name string }

func (p place) String() string { return p.database + "." + p.name }

func placeOf(database, name string) place {
	return place{strings.ToLower(database), strings.ToLower(name)}
}

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
// of each other. Bodies are not taken apart: their quotes mean what the sql_mode
// says under which each was made, and MySQL's information_schema shows literals
// without their escapes. What may be a name in one is taken for it. since are the
// statements that took away what is no longer among the objects.
func newReach(database, table string, objects []object, since []redefinition) *reach {
	r := &reach{ways: map[place]way{}, marks: map[place]*mark{}, lost: map[string]alteration{}}
	outbox := placeOf(database, table)
	for _, x := range since {
		if x.any && r.any == nil {
			r.any = &x.alteration
		}
		for _, p := range x.places {
			if p != outbox {
				r.add(p, called)
				r.lost[p.String()] = x.alteration
			}
		}
	}
	box, databases := newMark(table), map[string]*mark{outbox.database: newMark(database)}
	bodies := make([]string, len(objects))
	for i, o := range objects {
		bodies[i] = strings.ToLower(o.body)
	}
	names := func(i int, p place, m *mark) bool {
		if !m.in(bodies[i], true) {
			return false
		}
		if strings.EqualFold(objects[i].database, p.database) {
			return true
		}
		if databases[p.database] == nil {
			databases[p.database] = newMark(p.database)
		}
		return databases[p.database].in(bodies[i], true)
	}
	for changed := true; changed; {
		changed = false
		for i, o := range objects {
			own := placeOf(o.database, o.name)
			if own == outbox || r.ways[own] == called || o.kind == target && r.ways[own] == target {
				continue // a trigger of the outbox cannot write to it
			}
			var way way
			if (o.kind == 0 || inserts.MatchString(o.body)) && names(i, outbox, box) {
				way = target
			}
			for p, other := range r.ways {
				if other > way && names(i, p, r.marks[p]) {
					way = other
				}
			}
			switch {
			case way == 0:
				continue
			case o.kind != 0:
				way = o.kind
			}
			if way > r.ways[own] {
				r.add(own, way)
				changed = true
			}
		}
	}
	return r
}

func (r *reach) add(p place, by way) {
	if r.ways[p] == 0 {
		r.marks[p] = newMark(p.name)
		if !isASCII(p.database + p.name) {
			r.odd = append(r.odd, p)
		}
	}
	r.ways[p] = by
}

// through is what a statement names through which it may write to the outbox;
// empty where that is nothing.
func (r *reach) through(t *text, outbox *schema.Table) string {
	if r == nil || len(r.ways) == 0 && r.any == nil {
		return ""
	}
	var found []string // always the same of them is shown
	ins := t.parseInsert()
	if !t.plain { // any word in it may be a name
		body := strings.ToLower(t.text)
		for p, m := range r.marks {
			if m.in(body, t.inUTF8()) {
				found = append(found, p.String())
			}
		}
	} else {
		if ins != nil {
			if p := r.find(placeOf(ins.database, ins.table), t.inUTF8(), target); p != "" {
				return p
			}
		}
		least := target
		if ins != nil || len(t.tokens) > 0 && t.tokens[0].is("CREATE") { // the rest is only read
			least = called
		}
		for p := range names(t.database, t.tokens) {
			if p := r.find(p, t.inUTF8(), least); p != "" {
				found = append(found, p)
			}
		}
	}
	switch {
	case len(found) > 0:
		return slices.Min(found)
	case r.any != nil && !ins.literalInto(outbox):
		return anything
	}
	return ""
}

// find looks up what a statement names; by is the least way that counts.
func (r *reach) find(p place, utf8 bool, by way) string {
	if r.ways[p] >= by {
		return p.String()
	}
	among := r.odd
	if !isASCII(p.database + p.name) {
		among = nil
		for other := range r.ways {
			among = append(among, other)
		}
	}
	for _, other := range among {
		if r.ways[other] >= by && same(other.name, p.name, utf8) && same(other.database, p.database, utf8) {
			return other.String()
		}
	}
	return ""
}

// names are what the tokens can mean: each name, and what may be one, in the
// database; and each pair with a dot.
func names(database string, tokens []token) map[place]bool {
	found := map[place]bool{}
	dot := func(i int) bool {
		return i >= 0 && i < len(tokens) && tokens[i].kind == sign && tokens[i].text == "."
	}
	for i, t := range tokens {
		if !t.names() || dot(i-1) && i > 1 && tokens[i-2].names() {
			continue
		}
		found[placeOf(database, t.text)] = true
		if dot(i+1) && i+2 < len(tokens) {
			found[placeOf(t.text, tokens[i+2].text)] = true
		}
	}
	return found
}

// mark finds a name where it is not known how it is quoted, and in which bytes.
// To a server é and e can be the same letter.
type mark struct {
	forms       []string       // its spellings, in lower case; nil where it is not ASCII
	utf8, other *regexp.Regexp // in a text that is UTF-8, and of another character set
}

func newMark(name string) *mark {
	m := &mark{}
	name = strings.ToLower(name)
	if isASCII(name) {
		m.forms = spellings(name)
	}
	var known, unknown []string
	for _, form := range spellings(name) {
		known, unknown = append(known, alike(form, true, true)), append(unknown, alike(form, false, false))
	}
	m.utf8, m.other = mentioning(strings.Join(known, "|")), mentioning(strings.Join(unknown, "|"))
	return m
}

// in tells whether a text in lower case may name it.
func (m *mark) in(text string, utf8 bool) bool {
	if m.forms != nil && isASCII(text) && !slices.ContainsFunc(m.forms, func(form string) bool { return strings.Contains(text, form) }) {
		return false
	}
	if utf8 {
		return m.utf8.MatchString(text)
	}
	return m.other.MatchString(text)
}

// latin are letters that a server may take for one without its accent.
const latin = `\x{c0}-\x{24f}\x{1e00}-\x{1eff}`

// bases are the commonest of them without it; of others it may be any.
var bases = func() map[rune]string {
	m := map[rune]string{}
	for base, letters := range map[string]string{"a": "àáâãäå", "c": "ç", "e": "èéêë", "i": "ìíîï", "n": "ñ", "o": "òóôõö", "u": "ùúûü", "y": "ýÿ"} {
		for _, r := range letters {
			m[r] = base
		}
	}
	return m
}()

var accented = regexp.MustCompile("[" + latin + "]")

// alike is a pattern for what may be the name to a server, in lower case; loose
// tells that letters may have accents where it has none. A character of another
// set than UTF-8 has up to four bytes, which are read as one each.
func alike(name string, utf8, loose bool) string {
	var b strings.Builder
	for _, r := range name {
		letter := string(r)
		switch {
		case loose && utf8 && r >= 'a' && r <= 'z':
			b.WriteString("[" + letter + latin + "]")
		case loose && r >= 'a' && r <= 'z':
			b.WriteString("(?:" + letter + `|[^\x00-\x7f]{1,2})`)
		case utf8 && accented.MatchString(letter):
			b.WriteString("[" + cmp.Or(bases[r], "a-z") + latin + "]")
		case utf8 || r < 0x80:
			b.WriteString(regexp.QuoteMeta(letter))
		default:
			b.WriteString(`[^\x00-\x7f][\s\S]{0,3}`)
		}
	}
	return b.String()
}

// same tells whether two names in lower case may be one to a server.
func same(name, other string, utf8 bool) bool {
	return regexp.MustCompile("^(?:" + alike(name, utf8, true) + ")$").MatchString(other)
}

// inUTF8 tells whether the text's bytes are surely UTF-8.
func (t *text) inUTF8() bool {
	return isASCII(t.text) || strings.HasPrefix(t.safeCharset(t.client), "utf8")
}

// objects reads what the user may see of the server's triggers, views and
// routines, as they are once the transaction is executed.
func (s *Server) objects(ctx context.Context, gtid GTID) (objects []object, err error) {
	if err := s.awaitExecuted(ctx, gtid); err != nil {
		return nil, err
	}
	const systems = " NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema')"
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
	return objects, nil
}
