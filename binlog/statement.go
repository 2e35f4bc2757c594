package binlog

import (
	"fmt"
)

// query does what a statement does to the group.
func (a *assembler) query(body []byte) (*Tx, error) {
	q, err := parseQuery(body)
	if err != nil {
		return nil, err
	}
	if a.group == nil {
		return nil, fmt.Errorf("%w: a statement outside of a transaction", ErrDamaged)
	}
	g := a.group
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
		if g.marks == nil {
			g.marks = map[string]int{}
		}
		g.marks[name] = g.events
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
		if err := a.textRows(name, q.text); err != nil {
			return nil, err
		}
	case other:
		if a.alters(q) {
			if err := a.alter(q.text); err != nil {
				return nil, err
			}
		}
	}
	if g.open {
		return nil, nil
	}
	return a.commit()
}

// textRows stops at a statement that may write to the outbox and stands in
// the log as text, by a session that set binlog_format=STATEMENT.
func (a *assembler) textRows(verb, text string) error {
	if a.passes() || !a.mentions.MatchString(text) {
		return nil
	}
	return a.unreadable("%s on %s is in the log as text and not as rows: a session had binlog_format=STATEMENT", verb, a.decoder.table)
}
