package binlog

import (
	"fmt"
	"regexp"
	"strings"
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
}

// parseQuery reads a query event's body: the statement's text behind its
// status variables and database.
func parseQuery(body []byte) (q query, err error) {
	s := scanner{rest: body}
	s.bytes(8) // thread, execution time
	database := s.uint8()
	s.bytes(2) // error code
	s.bytes(s.uint16())
	q.database = string(s.bytes(database))
	s.bytes(1)
	if s.bad {
		return query{}, fmt.Errorf("%w: query", ErrDamaged)
	}
	q.text = string(s.rest)
	return q, nil
}

// classify tells what a statement does. name is the savepoint's or the XA
// transaction's where it has one, else the first word.
func classify(text string) (kind statement, name string) {
	text = skipComments(text)
	word, rest := firstWord(text)
	switch word {
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
	case "INSERT", "REPLACE", "UPDATE", "DELETE", "LOAD", "WITH", "CALL":
		return rows, word
	}
	return other, word
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

// skipComments drops the comments in front of a statement.
func skipComments(text string) string {
	for {
		text = strings.TrimSpace(text)
		switch {
		case strings.HasPrefix(text, "/*"):
			_, after, found := strings.Cut(text, "*/")
			if !found {
				return ""
			}
			text = after
		case strings.HasPrefix(text, "-- "), strings.HasPrefix(text, "#"):
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
	return regexp.MustCompile(`(?i)(^|[^\w$])` + regexp.QuoteMeta(table) + `($|[^\w$])`)
}
