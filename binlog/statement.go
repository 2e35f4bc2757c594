package binlog

import (
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// query does what a statement does to the group.
func (a *assembler) query(body []byte) (*Tx, error) {
	if text, err := peekQuery(body); err == nil && a.group != nil {
		switch string(text) { // as servers write them in nearly all groups
		case "BEGIN":
			a.insertID, a.group.open = 0, true
			return nil, nil
		case "COMMIT":
			a.insertID = 0
			return a.commit()
		}
		if name, ok := bytes.CutPrefix(text, []byte("SAVEPOINT ")); ok {
			a.insertID = 0
			a.mark(a.names.Get(name, identifier))
			return nil, nil
		}
	}
	q, err := parseQuery(body)
	if err != nil {
		return nil, err
	}
	if a.group == nil {
		return nil, fmt.Errorf("%w: a statement outside of a transaction", ErrDamaged)
	}
	g := a.group
	q.mariadb = g.tx.GTID.sequential()
	insertID := a.insertID
	a.insertID = 0
	kind, name := classify(q.text)
	switch kind {
	case begin:
		g.open = true
		return nil, nil
	case xaStart:
		g.open, g.xa = true, name
		return nil, nil
	case commit:
		return a.commit()
	case rollback:
		if err := a.undo(0); err != nil {
			return nil, err
		}
		return a.commit()
	case savepoint:
		a.mark(name)
		return nil, nil
	case rollbackTo:
		mark, ok := g.marks[name]
		if !ok {
			return nil, a.unreadable("ROLLBACK TO %q, a savepoint that is not in the log", name)
		}
		return nil, a.undo(mark)
	case ignored:
		return nil, nil
	case xaCommit, xaRollback:
		return a.decide(kind == xaCommit, name)
	case rows:
		if err := a.textRows(name, newText(q), insertID); err != nil {
			return nil, err
		}
		if g.open {
			return a.part(), nil
		}
	case other:
		if a.heard != nil {
			a.heard(q)
		}
		if a.alters(q) {
			if err := a.alter(q.text); err != nil {
				return nil, err
			}
		}
		if err := a.definition(q); err != nil {
			return nil, err
		}
	}
	if g.open {
		return nil, nil
	}
	return a.commit()
}

// mark notes a savepoint of the group.
func (a *assembler) mark(name string) {
	g := a.group
	if g.marks == nil {
		g.marks = map[string]int{}
	}
	g.marks[name] = g.events
}

// definition takes in a statement that may define something anew.
func (a *assembler) definition(q query) error {
	a.reach = nil
	if a.passes() {
		return nil
	}
	t := newText(q)
	p := parser{rest: t.tokens}
	if !p.keyword("CREATE") {
		return a.renamed(t)
	}
	if p.keyword("OR") {
		p.keyword("REPLACE")
	}
	temporary := p.keyword("TEMPORARY")
	if !p.keyword("TABLE") {
		return nil
	}
	for p.keyword("IF") || p.keyword("NOT") || p.keyword("EXISTS") {
	}
	p.sign(".")
	database, name := q.database, p.next().text // in quotes of any kind
	if p.sign(".") {
		database, name = name, p.next().text
	}
	table := a.decoder.table
	ours := strings.EqualFold(name, table.Name) && strings.EqualFold(database, table.Database)
	switch {
	case ours && temporary:
		return a.hides("made")
	case temporary && len(a.temporary) < maxTemporary:
		if a.temporary == nil {
			a.temporary = map[place]bool{}
		}
		a.temporary[placeOf(database, name)] = true
	}
	for i, word := range p.rest {
		partition := i+1 < len(p.rest) && (p.rest[i+1].is("LESS") || p.rest[i+1].is("IN"))
		switch {
		case !word.is("SELECT") && !word.is("TABLE") && (!word.is("VALUES") || partition):
		case ours:
			return a.textRefused("CREATE TABLE … SELECT")
		default:
			return a.textThrough("CREATE TABLE … SELECT", t)
		}
	}
	if !t.plain && selects.MatchString(q.text) {
		return a.textThrough("CREATE TABLE … SELECT", t)
	}
	return nil
}

// maxTemporary is how many names of temporary tables are known; beyond it any
// table can be one.
const maxTemporary = 4096

// hides stops at a temporary table that stands before the outbox.
func (a *assembler) hides(done string) error {
	return a.unreadable("a session with binlog_format=STATEMENT or MIXED %s a temporary table with the name of %s: what it writes there cannot be told from what it writes into the outbox", done, a.decoder.table)
}

// renamed follows the names of temporary tables that are in the log as text. It
// does not know those made before the stream began, nor which session has one.
func (a *assembler) renamed(t *text) error {
	p := parser{rest: t.tokens}
	if p.keyword("DROP") && p.keyword("TEMPORARY") {
		for name := range names(t.database, p.rest) {
			delete(a.temporary, name)
		}
	}
	if !p.keyword("ALTER") && !p.keyword("RENAME") || !(p.keyword("TABLE") || p.keyword("TABLES")) || !renames.MatchString(t.text) {
		return nil
	}
	for i := range p.rest {
		if p.rest[i].kind == quoted { // with ANSI_QUOTES it is a name
			p.rest[i].kind = name
		}
	}
	all := names(t.database, p.rest)
	known := len(a.temporary) >= maxTemporary
	if t.tokens[0].is("ALTER") { // of what follows, most are columns
		for p.keyword("IF") || p.keyword("EXISTS") {
		}
		database, table, _ := p.table(t.database)
		known = known || a.temporary[placeOf(database, table)]
	} else {
		for name := range all {
			known = known || a.temporary[name]
		}
	}
	if !known {
		return nil
	}
	for name := range all {
		if a.temporary[name] = true; name == placeOf(a.decoder.table.Database, a.decoder.table.Name) {
			return a.hides("gave")
		}
	}
	return nil
}

// selects finds a query where it is not known how a statement is quoted.
var selects = regexp.MustCompile(`(?is)\b(select|values|table\b.*\btable)\b`)

// load takes in a LOAD DATA.
func (a *assembler) load(body []byte) error {
	q, err := parseLoad(body)
	if err != nil {
		return err
	}
	if a.group != nil {
		q.mariadb = a.group.tx.GTID.sequential()
	}
	return a.textRows("LOAD DATA", newText(q), 0)
}

// textRows takes in a statement that changes rows and stands in the log as
// text. What it puts into the outbox is fetched from the table where its ids
// can be told: the row as it is now, which a later UPDATE may have changed. It
// stops at what may come into the outbox otherwise.
func (a *assembler) textRows(verb string, t *text, insertID uint64) error {
	if a.group == nil {
		return fmt.Errorf("%w: a statement outside of a transaction", ErrDamaged)
	}
	if a.passes() {
		return nil
	}
	if a.mentions.MatchString(t.text) || a.disguised(t) {
		if err := a.textNaming(verb, t, insertID); err != nil {
			return err
		}
	}
	return a.textThrough(verb, t)
}

// textThrough stops at a statement that may write to the outbox by way of
// something else.
func (a *assembler) textThrough(verb string, t *text) error {
	a.unseen = a.unseen || a.domain == nil && !a.mentions.MatchString(t.text)
	if a.domain != nil && (a.reach == nil || !a.group.tx.CommittedAt.Before(a.reach.at)) {
		var err error
		if a.reach, err = a.domain(a.group.tx.GTID); err != nil {
			return err
		}
	}
	if through := a.reach.through(t, a.decoder.table); through != "" {
		return a.textRefused(verb + " " + a.reach.because(through))
	}
	return nil
}

// disguised tells whether the outbox's name could stand in the statement in
// other bytes.
func (a *assembler) disguised(t *text) bool {
	return !isASCII(a.decoder.table.Name) && !strings.HasPrefix(t.safeCharset(t.client), "utf8")
}

// textNaming takes in a statement that names the outbox.
func (a *assembler) textNaming(verb string, t *text, insertID uint64) error {
	table := a.decoder.table
	switch verb {
	case "UPDATE", "DELETE", "WITH": // insert nothing
		if t.plain {
			return nil
		}
	case "SELECT", "DO": // of a function
		return nil
	case "LOAD DATA":
		database, name, ok := t.loadsInto()
		if ok && !a.disguised(t) && (!strings.EqualFold(name, table.Name) || !strings.EqualFold(database, table.Database)) {
			return nil
		}
	case "INSERT", "REPLACE":
		ins := t.parseInsert()
		switch {
		case ins == nil, a.disguised(t):
		case !strings.EqualFold(ins.table, table.Name) || !strings.EqualFold(ins.database, table.Database):
			return nil // it only reads the outbox
		case ins.table != table.Name || ins.database != table.Database:
			// Another table, or the same: that depends on lower_case_table_names.
		default:
			return a.insertAsText(ins, insertID)
		}
	}
	return a.textRefused(verb)
}

// insertAsText fetches the rows of an INSERT.
func (a *assembler) insertAsText(ins *insertion, insertID uint64) error {
	g := a.group
	if len(a.decoder.table.Columns) == 0 {
		if a.fetch == nil { // nor are the columns needed
			return a.textRefused(cmp.Or(ins.fault, "INSERT"))
		}
		if err := a.define(); err != nil {
			return err
		}
	}
	ids, fault := ins.ids(a.decoder.table)
	switch {
	case fault != "":
	case g.xa != "": // whose rows cannot be seen before it is decided
		fault = "INSERT in an XA transaction"
	case a.fetch == nil: // there is no server to ask
		fault = "INSERT"
	case len(ids) == 0 && insertID == 0:
		fault = "INSERT without an id"
	case len(ids) == 0:
		ids = []any{insertID}
	}
	if fault != "" {
		return a.textRefused(fault)
	}
	from := g.origin()
	events, fault, err := a.fetch(g.tx.GTID, ins, ids, insertID != 0, from)
	if err != nil {
		return err
	}
	if fault != "" {
		return a.textRefused(fault)
	}
	for _, e := range events {
		g.add(e)
	}
	return nil
}

// textRefused stops at a statement in the log.
func (a *assembler) textRefused(what string) error {
	a.way = cmp.Or(a.textWay, a.way)
	return a.unreadable("%s on %s is in the log as text and not as rows: a session had binlog_format=STATEMENT or MIXED", what, a.decoder.table)
}
