package binlog

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"

	"github.com/outboxrelay/relay/schema"
)

// text is a statement that changes rows and stands in the log as it was
// written, by a session that set binlog_format to STATEMENT or MIXED.
type text struct {
	query
	tokens []token
	plain  bool // tokens are surely those that the server saw
}

// newText takes a query apart. It is not plain where its session's settings
// give the quotes or the bytes another meaning.
func newText(q query) *text {
	t := &text{query: q}
	all, plain := lex(q.text)
	t.tokens, _ = unwrap(all)
	t.plain = plain && q.ordinary() && !slices.ContainsFunc(all[:len(all)-len(t.tokens)], meaning)
	return t
}

// unwrap steps over what MariaDB takes in front of a statement that it executes:
// SET STATEMENT … FOR, and ANALYZE. rest is empty where the end of that is not
// found.
func unwrap(tokens []token) (rest []token, wrapped bool) {
	for p := (parser{rest: tokens}); ; tokens, wrapped = p.rest, true {
		switch {
		case len(tokens) > 1 && tokens[0].is("SET") && tokens[1].is("STATEMENT"):
			for depth := 0; len(p.rest) > 0 && (depth > 0 || !p.peek().is("FOR")); {
				switch t := p.next(); {
				case t.kind == sign && t.text == "(":
					depth++
				case t.kind == sign && t.text == ")":
					depth--
				}
			}
			p.next()
		case p.keyword("ANALYZE"):
			if p.keyword("FORMAT") {
				p.sign("=")
				p.next()
			}
			if t := p.peek(); t.is("TABLE") || t.is("TABLES") || t.is("LOCAL") || t.is("NO_WRITE_TO_BINLOG") {
				return tokens, wrapped
			}
		default:
			return tokens, wrapped
		}
	}
}

// meaning tells of a setting that gives a statement's characters another meaning.
func meaning(t token) bool {
	setting := strings.ToLower(t.text)
	return strings.HasSuffix(setting, "_mode") || strings.HasPrefix(setting, "character_set") || strings.HasPrefix(setting, "collation")
}

// insertion is an INSERT … VALUES.
type insertion struct {
	database, table string
	columns         []string    // nil: those of the table, in its order
	rows            [][][]token // rows of expressions
	fault           string      // why its rows cannot be told; empty: they can

	client string // the text's character set; empty: none that is safe

	raw  bool // a text's bytes go into a binary column as they are
	utf8 bool // and are UTF-8
}

// parseInsert reads an INSERT or REPLACE. It returns nil where not even its
// table can be told.
func (t *text) parseInsert() *insertion {
	p := parser{rest: t.tokens}
	ins := &insertion{client: t.safeCharset(t.client)}
	ins.raw = t.safeCharset(t.client) == t.safeCharset(t.literals)
	ins.utf8 = ins.raw && strings.HasPrefix(t.safeCharset(t.client), "utf8")
	switch {
	case p.keyword("REPLACE"):
		ins.fault = "REPLACE"
	case !p.keyword("INSERT"):
		return nil
	}
	for p.keyword("LOW_PRIORITY") || p.keyword("DELAYED") || p.keyword("HIGH_PRIORITY") {
	}
	if p.keyword("IGNORE") {
		ins.fault = "INSERT IGNORE"
	}
	p.keyword("INTO")
	if !t.plain {
		return nil
	}
	var ok bool
	if ins.database, ins.table, ok = p.table(t.database); !ok {
		return nil
	}
	if ins.fault == "" {
		ins.fault = ins.parseValues(&p)
	}
	return ins
}

// loadsInto is the table of a LOAD DATA or LOAD XML; ok is false where it cannot
// be told.
func (t *text) loadsInto() (database, table string, ok bool) {
	p := parser{rest: t.tokens}
	for len(p.rest) > 0 && !p.peek().is("INTO") {
		p.next()
	}
	if !t.plain || !p.keyword("INTO") || !p.keyword("TABLE") {
		return "", "", false
	}
	return p.table(t.database)
}

// parseValues reads what stands behind the table's name. It returns what the
// statement is where that is not VALUES of rows.
func (ins *insertion) parseValues(p *parser) (fault string) {
	if list, ok := p.list(); ok {
		ins.columns = []string{}
		for _, column := range list {
			if len(column) == 0 && len(list) == 1 {
				break // ()
			}
			if len(column) != 1 || !column[0].names() {
				return "INSERT with a list that is none of columns"
			}
			ins.columns = append(ins.columns, column[0].text)
		}
	}
	if !p.keyword("VALUES") && !p.keyword("VALUE") {
		switch t := p.peek(); {
		case t.is("SELECT"), t.is("WITH"), t.is("TABLE"), t.text == "(":
			return "INSERT … SELECT"
		case t.is("SET"), t.is("PARTITION"):
			return "INSERT … " + strings.ToUpper(t.text)
		}
		return "INSERT that is not of VALUES"
	}
	for {
		row, ok := p.list()
		if !ok {
			return "INSERT that is not of VALUES"
		}
		if len(row) == 1 && len(row[0]) == 0 {
			row = nil
		}
		if ins.rows = append(ins.rows, row); !p.sign(",") {
			break
		}
	}
	p.sign(";")
	switch {
	case p.keyword("ON"), p.keyword("AS"):
		return "INSERT … ON DUPLICATE KEY UPDATE"
	case p.keyword("RETURNING") && !slices.ContainsFunc(p.rest, func(t token) bool { return t.kind == sign && t.text == "(" }):
		// columns of the rows, and nothing that is called
	case len(p.rest) > 0:
		return "INSERT with more behind its VALUES"
	}
	return ""
}

// parser steps through tokens.
type parser struct{ rest []token }

func (p *parser) peek() token {
	if len(p.rest) == 0 {
		return token{kind: sign}
	}
	return p.rest[0]
}

func (p *parser) next() token {
	t := p.peek()
	p.rest = p.rest[min(1, len(p.rest)):]
	return t
}

// keyword steps over the word if it is next.
func (p *parser) keyword(text string) bool {
	if !p.peek().is(text) {
		return false
	}
	p.next()
	return true
}

// table reads a table's name, which in MariaDB may begin with the dot. database
// is that of a name without one.
func (p *parser) table(database string) (_, name string, ok bool) {
	p.sign(".")
	if !p.peek().names() {
		return "", "", false
	}
	if name = p.next().text; p.sign(".") {
		database, name = name, p.next().text
	}
	return database, name, true
}

func (p *parser) sign(text string) bool {
	if t := p.peek(); t.kind != sign || t.text != text {
		return false
	}
	p.next()
	return true
}

// list reads a list in parentheses, of which each part is some tokens. It
// steps over nothing where there is none.
func (p *parser) list() (parts [][]token, ok bool) {
	if t := p.peek(); t.kind != sign || t.text != "(" {
		return nil, false
	}
	depth, begin := 0, 1
	for i, t := range p.rest {
		if t.kind != sign {
			continue
		}
		switch {
		case t.text == "(":
			depth++
		case t.text == ")":
			depth--
		}
		if end := depth == 0; end || t.text == "," && depth == 1 {
			parts, begin = append(parts, p.rest[begin:i]), i+1
			if end {
				p.rest = p.rest[begin:]
				return parts, true
			}
		}
	}
	return nil, false
}

// ids are the values of the id column of the rows, as query arguments. An empty
// list means that there is one row, which took the id from AUTO_INCREMENT.
func (ins *insertion) ids(table *schema.Table) (ids []any, fault string) {
	if ins.fault != "" {
		return nil, ins.fault
	}
	id, _ := table.Column(schema.RoleID)
	columns, at := len(ins.columns), -1
	if ins.columns == nil {
		columns = len(table.Columns)
		at = slices.IndexFunc(table.Columns, func(c schema.Column) bool { return c.Name == id.Name })
	} else {
		at = slices.IndexFunc(ins.columns, func(c string) bool { return strings.EqualFold(c, id.Name) })
	}
	for _, row := range ins.rows {
		if len(row) != columns {
			return nil, "INSERT of rows that do not have the table's columns"
		}
		if at < 0 || generated(row[at]) {
			if len(ins.rows) > 1 || id.Kind != schema.Integer || !steady(row) {
				return nil, "INSERT of rows without an id that can be told"
			}
			return nil, ""
		}
		value := ins.literal(id, row[at])
		if value == nil {
			return nil, "INSERT of an id that is no literal"
		}
		ids = append(ids, value)
	}
	return ids, ""
}

// stored is what a column of a row was given, as it is stored, in UTF-8 if it is
// text; nil: NULL. ok is false where that is no literal.
func (ins *insertion) stored(table *schema.Table, column schema.Column, row int) (value []byte, ok bool) {
	var at int
	if ins.columns == nil {
		at = slices.IndexFunc(table.Columns, func(c schema.Column) bool { return c.Name == column.Name })
	} else {
		at = slices.IndexFunc(ins.columns, func(c string) bool { return strings.EqualFold(c, column.Name) })
	}
	if at < 0 {
		return nil, false
	}
	tokens := ins.rows[row][at]
	if len(tokens) == 1 && tokens[0].is("NULL") {
		return nil, column.Kind != schema.Time // which may take it for now
	}
	switch column.Kind {
	case schema.Integer:
		n, ok := digits(tokens)
		return []byte(n), ok
	case schema.Binary:
		value = ins.bytesLiteral(tokens)
		return value, value != nil
	case schema.Text, schema.JSON, schema.Enum:
		if n, ok := digits(tokens); ok && column.Kind != schema.Enum && tokens[len(tokens)-1].kind == number {
			return []byte(n), true
		}
		if len(tokens) != 1 || tokens[0].kind != quoted || ins.client == "" {
			return nil, false
		}
		value, err := schema.UTF8(ins.client, []byte(tokens[0].text))
		return value, err == nil && value != nil
	}
	return nil, false
}

// literalInto tells whether it inserts into the table and calls nothing of which
// it is not known what it does.
func (ins *insertion) literalInto(table *schema.Table) bool {
	return ins != nil && ins.fault == "" && ins.table == table.Name && ins.database == table.Database &&
		!slices.ContainsFunc(ins.rows, func(row [][]token) bool { return !steady(row) })
}

// tells tells whether the value for a role is a literal.
func (ins *insertion) tells(table *schema.Table, role schema.Role, row int) bool {
	column, _ := table.Column(role)
	_, ok := ins.stored(table, column, row)
	return ok
}

// digits is an integer as the server writes it.
func digits(value []token) (text string, ok bool) {
	minus := ""
	if len(value) == 2 && value[0].text == "-" && value[0].kind == sign {
		minus, value = "-", value[1:]
	}
	if len(value) != 1 || value[0].kind != number && (value[0].kind != quoted || minus != "") {
		return "", false
	}
	if n, err := strconv.ParseInt(minus+value[0].text, 10, 64); err == nil {
		return strconv.FormatInt(n, 10), true
	}
	n, err := strconv.ParseUint(value[0].text, 10, 64)
	return strconv.FormatUint(n, 10), err == nil && minus == ""
}

// generated tells whether the value asks for one from AUTO_INCREMENT.
func generated(value []token) bool {
	return len(value) == 1 && (value[0].is("NULL") || value[0].is("DEFAULT") || value[0].kind == number && strings.Trim(value[0].text, "0") == "")
}

// builtin are functions of the server that change no rows, so that the one id
// that the log tells is the row's.
var builtin = []string{
	"NOW", "CURRENT_TIMESTAMP", "UTC_TIMESTAMP", "SYSDATE", "JSON_OBJECT", "JSON_ARRAY", "CAST", "CONCAT", "REPLACE", "UNHEX", "UUID_TO_BIN", "FROM_UNIXTIME",
}

// steady tells whether a row calls no function but those.
func steady(row [][]token) bool {
	for _, value := range row {
		for i, t := range value {
			if t.kind != sign || t.text != "(" {
				continue
			}
			if i == 0 || value[i-1].kind != word || i > 1 && value[i-2].text == "." || !slices.Contains(builtin, strings.ToUpper(value[i-1].text)) {
				return false
			}
		}
	}
	return true
}

// literal is the value of an expression as it was stored in the id column; nil
// where that is not certain.
func (ins *insertion) literal(column schema.Column, value []token) any {
	switch column.Kind {
	case schema.Integer:
		return integerLiteral(value)
	case schema.Binary:
		b := ins.bytesLiteral(value)
		switch {
		case b == nil:
			return nil
		case column.Length == 0:
			return b
		case len(b) > column.Length:
			return nil
		}
		return append(bytes.Clone(b), make([]byte, column.Length-len(b))...)
	case schema.UUID:
		if len(value) == 1 && value[0].kind == quoted && uuid.Validate(value[0].text) == nil && len(value[0].text) <= 36 {
			return value[0].text
		}
	case schema.Text:
		if len(value) == 1 && value[0].kind == quoted && (isASCII(value[0].text) || ins.utf8 && utf8.ValidString(value[0].text)) {
			return value[0].text
		}
		if n, ok := integerLiteral(value).(int64); ok {
			return strconv.FormatInt(n, 10)
		}
	}
	return nil
}

// integerLiteral is an int64, or a uint64 where it is beyond that.
func integerLiteral(value []token) any {
	var text string
	switch {
	case len(value) == 1 && (value[0].kind == number || value[0].kind == quoted):
		text = value[0].text
	case len(value) == 2 && value[0].text == "-" && value[0].kind == sign && value[1].kind == number:
		text = "-" + value[1].text
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n != 0 {
		return n
	}
	if n, err := strconv.ParseUint(text, 10, 64); err == nil && n != 0 {
		return n
	}
	return nil
}

// bytesLiteral is the value of x'…', 0x…, a text, _binary'…', UNHEX('…'),
// UNHEX(REPLACE('…', '-', ”)) and UUID_TO_BIN('…' [, 0 | 1]).
func (ins *insertion) bytesLiteral(value []token) []byte {
	switch {
	case len(value) == 1 && (value[0].kind == hexed || value[0].kind == quoted && (ins.raw || isASCII(value[0].text))):
		return []byte(value[0].text)
	case len(value) == 2 && value[0].is("_binary") && (value[1].kind == quoted || value[1].kind == hexed):
		return []byte(value[1].text)
	case len(value) < 4:
		return nil
	}
	p := parser{rest: value[1:]}
	args, ok := p.list()
	if !ok || len(p.rest) > 0 {
		return nil
	}
	if len(args) == 1 && value[0].is("UNHEX") {
		args[0] = withoutHyphens(args[0])
	}
	if len(args[0]) != 1 || args[0][0].kind != quoted {
		return nil
	}
	switch arg := args[0][0].text; {
	case value[0].is("UNHEX") && len(args) == 1:
		t, n := lexWord("x'" + arg + "'")
		if t.kind != hexed || n != len(arg)+3 {
			return nil
		}
		return []byte(t.text)
	case value[0].is("UUID_TO_BIN"):
		u, err := uuid.Parse(arg)
		if err != nil || strings.HasPrefix(strings.ToLower(arg), "urn") {
			return nil
		}
		swapped := len(args) == 2 && len(args[1]) == 1 && args[1][0].kind == number && args[1][0].text == "1"
		if swapped {
			return slices.Concat(u[6:8], u[4:6], u[:4], u[8:])
		}
		if len(args) == 1 || len(args) == 2 && len(args[1]) == 1 && args[1][0].kind == number && args[1][0].text == "0" {
			return u[:]
		}
	}
	return nil
}

// withoutHyphens is the value of REPLACE('…', '-', ”); any other comes back as
// it is.
func withoutHyphens(value []token) []token {
	p := parser{rest: value}
	if !p.keyword("REPLACE") {
		return value
	}
	args, ok := p.list()
	if !ok || len(args) != 3 || len(p.rest) > 0 {
		return value
	}
	for _, arg := range args {
		if len(arg) != 1 || arg[0].kind != quoted {
			return value
		}
	}
	if args[1][0].text != "-" || args[2][0].text != "" {
		return value
	}
	return []token{{kind: quoted, text: strings.ReplaceAll(args[0][0].text, "-", "")}}
}

func isASCII(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r >= 0x80 }) < 0
}
