package binlog

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/outboxrelay/relay/schema"
)

// statement is what a query event does to the group that it stands in.
type statement int

const (
	other      statement = iota // DDL or something that touches no row
	begin                       // opens a group
	commit                      // ends it
	rollback                    // ends it, and undoes it
	savepoint                   // marks a place in it
	rollbackTo                  // undoes it back to that place
	xaStart                     // opens a group that ends in XA PREPARE
	xaCommit                    // decides an earlier group
	xaRollback
	ignored // stands in a group and changes nothing: XA END
	rows    // changes rows, written as text
)

// query is a query event's content (MySQL's Query_event).
type query struct {
	text     string
	database string // the session's
	failed   bool   // it ended with an error and was logged for what it had done
	modes    uint64 // sql_mode
	told     bool   // modes are
	mariadb  bool   // it is MariaDB's
	// The character sets of the client, which is the text's, and of its
	// literals, by the number of one of their collations; 0: not told.
	client, literals int
}

// parseQuery reads a query event's body: the statement's text behind its
// status variables and database.
func parseQuery(body []byte) (query, error) { return parseQueryBehind(0, body) }

// parseLoad reads the body of MySQL's Execute_load_query_event: that of a query
// event with thirteen bytes more, which tell of the file.
func parseLoad(body []byte) (query, error) { return parseQueryBehind(13, body) }

// peekQuery reads no more than a statement's text, which aliases the body.
func peekQuery(body []byte) (text []byte, err error) {
	s := scanner{rest: body}
	s.bytes(8) // thread, execution time
	database := s.uint8()
	s.bytes(2) // error
	s.bytes(s.uint16())
	s.bytes(database + 1)
	if s.bad {
		return nil, fmt.Errorf("%w: query", ErrDamaged)
	}
	return s.rest, nil
}

func parseQueryBehind(extra int, body []byte) (q query, err error) {
	s := scanner{rest: body}
	s.bytes(8) // thread, execution time
	database := s.uint8()
	q.failed = s.uint16() != 0
	variables := s.uint16()
	s.bytes(extra)
	status := s.bytes(variables)
	q.database = string(s.bytes(database))
	s.bytes(1)
	if s.bad {
		return query{}, fmt.Errorf("%w: query", ErrDamaged)
	}
	q.text = string(s.rest)
	q.status(status)
	return q, nil
}

// The status variables that are looked at, and those that come before them
// (MySQL's Query_event::Query_event_status_vars).
const (
	statusFlags2        = 0
	statusSQLMode       = 1
	statusAutoIncrement = 3
	statusCharset       = 4
	statusCatalog       = 6
	statusCollations    = 131 // MariaDB's: the defaults of character sets
)

// status reads the session's settings; what is not told, or stands behind what
// is not known, stays zero.
func (q *query) status(variables []byte) {
	for s := (scanner{rest: variables}); len(s.rest) > 0; {
		switch s.uint8() {
		case statusFlags2, statusAutoIncrement:
			s.bytes(4)
		case statusSQLMode:
			if b := s.bytes(8); b != nil {
				q.modes, q.told = le.Uint64(b), true
			}
		case statusCharset:
			q.client, q.literals = s.uint16(), s.uint16()
			s.bytes(2) // of the server
		case statusCatalog:
			s.bytes(s.uint8())
		case statusCollations: // two numbers for each
			s.bytes(4 * s.uint8())
		default:
			return
		}
	}
}

// The SQL modes that change what a statement's characters mean.
const (
	modeANSIQuotes         = 1 << 2
	modeNoBackslashEscapes = 1 << 20
)

// ordinary tells whether the statement's characters surely mean what lex takes
// them for: a mode that does not change quotes, and a character set in which
// no byte below 0x80 belongs to a longer character.
func (q *query) ordinary() bool {
	if !q.told || q.failed || q.modes&(modeANSIQuotes|modeNoBackslashEscapes) != 0 {
		return false
	}
	return q.safeCharset(q.client) != ""
}

// safeCharset is the name of a character set in which no byte below 0x80
// belongs to a longer character, by the number of a collation; empty where it
// is another.
func (q *query) safeCharset(collation int) string {
	switch name := schema.CollationCharset(collation, q.mariadb); name {
	case "ascii", "binary", "latin1", "utf8mb3", "utf8mb4":
		return name
	}
	return ""
}

// classify tells what a statement does. name is the savepoint's or the XA
// transaction's where it has one, else the first word.
func classify(text string) (kind statement, name string) {
	text = skipComments(text)
	for strings.HasPrefix(text, "/*") { // which some servers execute: their words or those behind
		inside, behind, _ := strings.Cut(text[strings.IndexByte(text, '!')+1:], "*/")
		if kind, name = classifyPlain(skipComments(strings.TrimLeft(inside, "0123456789"))); kind != other {
			return kind, name
		}
		text = skipComments(behind)
	}
	return classifyPlain(text)
}

// classifyPlain is classify for a text without comments in front of it.
func classifyPlain(text string) (kind statement, name string) {
	word, rest := leadingWord(text)
	switch word {
	case "SET", "ANALYZE":
		tokens, _ := lex(text)
		inner, wrapped := unwrap(tokens)
		if !wrapped {
			return other, word
		}
		if len(inner) == 0 { // its end is not found
			return rows, word + " STATEMENT"
		}
		return classifyPlain(inner[0].text)
	case "BEGIN":
		return begin, word
	case "COMMIT":
		return commit, word
	case "SAVEPOINT":
		return savepoint, identifier(rest)
	case "ROLLBACK":
		next, after := firstWord(rest)
		if next != "TO" {
			return rollback, word
		}
		if maybe, behind := firstWord(after); maybe == "SAVEPOINT" {
			after = behind
		}
		return rollbackTo, identifier(after)
	case "XA":
		verb, xid := firstWord(rest)
		switch verb {
		case "START", "BEGIN":
			return xaStart, xid
		case "COMMIT":
			return xaCommit, xid
		case "ROLLBACK":
			return xaRollback, xid
		}
		return ignored, word
	case "INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD", "WITH", "CALL",
		"SELECT", "DO": // of a function that changes rows
		return rows, word
	}
	return other, word
}

// leadingWord cuts off the keyword in front, in upper case.
func leadingWord(text string) (word, rest string) {
	end := 0
	for end < len(text) && isWord(text[end]) {
		end++
	}
	return strings.ToUpper(text[:end]), strings.TrimSpace(text[end:])
}

// firstWord cuts off the first word, in upper case.
func firstWord(text string) (word, rest string) {
	text = strings.TrimSpace(text)
	end := strings.IndexFunc(text, func(r rune) bool {
		return r == ' ' || r == '\t' || r == '\n' || r == '\r' || r == '(' || r == ';'
	})
	if end < 0 {
		return strings.ToUpper(text), ""
	}
	return strings.ToUpper(text[:end]), strings.TrimSpace(text[end:])
}

// skipComments drops the comments in front of a statement, up to one that some
// servers execute.
func skipComments(text string) string {
	for {
		text = strings.TrimSpace(text)
		switch {
		case strings.HasPrefix(text, "/*!"), strings.HasPrefix(text, "/*M!"):
			return text
		case strings.HasPrefix(text, "/*"):
			_, after, found := strings.Cut(text, "*/")
			if !found {
				return ""
			}
			text = after
		case strings.HasPrefix(text, "--") && (len(text) == 2 || text[2] <= ' '), strings.HasPrefix(text, "#"):
			_, after, _ := strings.Cut(text, "\n")
			text = after
		default:
			return text
		}
	}
}

// identifier strips a name's quotes; savepoints are compared without case.
func identifier(text string) string {
	return strings.ToLower(strings.ReplaceAll(strings.Trim(text, "` ;"), "``", "`"))
}

// mentions makes a test for statements that name the table.
func mentions(table string) *regexp.Regexp {
	var forms []string
	for _, form := range spellings(table) {
		forms = append(forms, regexp.QuoteMeta(form))
	}
	return mentioning(strings.Join(forms, "|"))
}

func mentioning(pattern string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)(^|[^\w$])(?:` + pattern + `)($|[^\w$])`)
}

// spellings are the ways in which a name can stand in a statement: in quotes,
// those in it are written twice.
func spellings(name string) []string {
	list := []string{name}
	for _, quote := range []string{"`", `"`} {
		if strings.Contains(name, quote) {
			list = append(list, strings.ReplaceAll(name, quote, quote+quote))
		}
	}
	return list
}
