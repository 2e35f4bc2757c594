package binlog

import (
	"database/sql"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/outboxrelay/relay/schema"
)

func (c *clause) add(text string, args ...any) {
	c.text += text
	c.args = append(c.args, args...)
}

func (c *clause) join(other clause) { c.add(other.text, other.args...) }

// selected are the expressions that are read of a row: its key, its time, its
// id, whether it is old, whether it is published, and the names of its type.
func (p *Pruner) selected() []clause {
	var list []clause
	for _, c := range p.table.key {
		list = append(list, clause{text: chosen(c)})
	}
	list = append(list, clause{text: chosen(p.table.at)}, clause{text: chosen(p.table.id)}, p.aged(), clause{text: "0"})
	if p.status != nil {
		list[len(list)-1] = clause{quote(p.status.Column.Name) + " <=> ?", []any{p.status.Published}}
	}
	if p.table.Outbox != nil && !p.old.Topics.All() {
		for _, role := range typeRoles {
			text := "''"
			if c, ok := p.table.Outbox.Column(role); ok {
				text = "COALESCE(" + chosen(c) + ", '')"
			}
			list = append(list, clause{text: text})
		}
	}
	return list
}

// chosen is what a query asks for to have a column's bytes: as they are stored
// where the server would put a question mark for what it cannot convert.
func chosen(c schema.Column) string {
	if c.Converted() {
		return "CAST(" + quote(c.Name) + " AS BINARY)"
	}
	return quote(c.Name)
}

// firstMoment is before the first of a row, and behind the zero date, which is
// none.
const firstMoment = "1970-01-01 00:00:01"

// aged is the condition that a row is old, and stamped where it has to be.
func (p *Pruner) aged() clause {
	c := p.within(p.table.at)
	if p.old.Published {
		c.add(" AND "+quote(p.status.Column.Name)+" = ?", p.status.Published)
		if at := p.status.At; at != nil { // not of all: who has stamped it may have left that out
			c.add(" AND (" + quote(at.Name) + " IS NULL OR ")
			c.join(p.within(*at))
			c.add(")")
		}
	}
	return clause{"(" + c.text + ")", c.args}
}

// within is the condition that a time is before the limit. Of an hour that
// clocks in the table's zone go through twice it is before both.
func (p *Pruner) within(c schema.Column) clause {
	name, first, last := quote(c.Name), any(firstMoment), p.old.Before
	if c.Kind == schema.Integer {
		first = 1
	} else if _, now := last.In(p.table.zone).Zone(); !c.Zoned {
		if _, later := last.Add(time.Hour).In(p.table.zone).Zone(); later < now {
			last = last.Add(-time.Duration(now-later) * time.Second)
		}
	}
	return clause{name + " >= ? AND " + name + " < ?", []any{first, c.Moment(last, p.table.zone)}}
}

// of is the condition that a row is of a group.
func (p *Pruner) of(group sql.NullString) (q clause) {
	if !p.grouped {
		return clause{text: "TRUE"}
	}
	status, _ := p.table.Outbox.Column(schema.RoleStatus)
	if !group.Valid {
		return clause{text: quote(status.Name) + " IS NULL"}
	}
	q.add(quote(status.Name) + " = ")
	q.join(valued(status, group.String))
	return q
}

// ordered are the columns along which the walk goes, and order a row's values
// of them.
func (p *Pruner) ordered() []schema.Column {
	if !p.timed {
		return p.table.key
	}
	list := []schema.Column{p.table.at}
	for _, c := range p.table.key {
		if c.Name != p.table.at.Name {
			list = append(list, c)
		}
	}
	return list
}

func (p *Pruner) order(row OldRow) []string {
	if !p.timed {
		return row.key
	}
	list := []string{row.at}
	for i, c := range p.table.key {
		if c.Name != p.table.at.Name {
			list = append(list, row.key[i])
		}
	}
	return list
}

// query reads the next rows of the walk, old or not.
func (p *Pruner) query(limit int) clause {
	q := clause{text: "SELECT "}
	for i, c := range p.selected() {
		if i > 0 {
			q.add(", ")
		}
		q.join(c)
	}
	q.add(" FROM " + p.from() + " FORCE INDEX (" + quote(p.index) + ") WHERE ")
	q.join(p.of(p.groups[0]))
	if p.timed {
		q.add(" AND ")
		q.join(p.within(p.table.at))
	}
	columns := p.ordered()
	if p.after != nil {
		q.add(" AND (")
		for i := range columns {
			if i > 0 {
				q.add(" OR ")
			}
			q.add("(")
			for k, c := range columns[:i+1] {
				q.add(quote(c.Name) + map[bool]string{true: " > ", false: " = "}[k == i])
				q.join(valued(c, p.after[k]))
				if k < i {
					q.add(" AND ")
				}
			}
			q.add(")")
		}
		q.add(")")
	}
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = quote(c.Name)
	}
	q.add(fmt.Sprintf(" ORDER BY %s LIMIT %d", strings.Join(names, ", "), limit))
	return q
}

var wholeNumber = regexp.MustCompile(`^-?\d+$`)

// valued is a column's value, as chosen has read it, in a statement.
func valued(c schema.Column, value string) clause {
	switch {
	case c.Converted():
		return clause{text: fmt.Sprintf("_%s x'%x'", c.Charset, value)}
	case c.Kind == schema.Binary:
		return clause{text: fmt.Sprintf("x'%x'", value)}
	case c.Kind == schema.Integer && wholeNumber.MatchString(value):
		return clause{text: value}
	}
	return clause{"?", []any{value}}
}

// keyed is the condition that a row is one of these.
func (p *Pruner) keyed(rows []OldRow) clause {
	var text strings.Builder // of thousands of parts
	var args []any
	value := func(c schema.Column, of string) {
		q := valued(c, of)
		text.WriteString(q.text)
		args = append(args, q.args...)
	}
	key := p.table.key
	if len(key) == 1 {
		text.WriteString(quote(key[0].Name) + " IN ")
	}
	for i, row := range rows {
		switch {
		case i == 0:
			text.WriteString("(")
		case len(key) == 1:
			text.WriteString(", ")
		default:
			text.WriteString(" OR ")
		}
		if len(key) == 1 {
			value(key[0], row.key[0])
			continue
		}
		for k, c := range key {
			text.WriteString([]string{"(", " AND "}[min(k, 1)] + quote(c.Name) + " = ")
			value(c, row.key[k])
		}
		text.WriteString(")")
	}
	text.WriteString(")")
	return clause{text: text.String(), args: args}
}
