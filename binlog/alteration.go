package binlog

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/outboxrelay/relay/schema"
)

// alteration is a statement that may have changed the outbox table's
// definition. What cannot be told is taken for one that has.
type alteration struct {
	gtid      GTID
	statement string   // its beginning
	set       *GTIDSet // all transactions up to it; nil where it was not looked for
}

func (x alteration) String() string { return fmt.Sprintf("%s (%s)", x.gtid, x.statement) }

// shownStatement is how much of a statement is shown, in bytes.
const shownStatement = 200

// shown is a statement in one line, cut short.
func shown(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > shownStatement {
		text = strings.ToValidUTF8(text[:shownStatement], "") + " …"
	}
	return text
}

var (
	// harmless are statements that may name the table and leave its columns as
	// they are.
	harmless = regexp.MustCompile(`(?is)^((truncate|grant|revoke|analyze|optimize|repair|flush|set\s+(password|default|role))\b` +
		`|(create|alter|drop)\s+(or\s+replace\s+)?(temporary|trigger|procedure|function|view|event|user|role|server|(definer|algorithm)\s*=|sql\s+security)` +
		`|alter\s+table\s+\S+\s+(add|drop|truncate|reorganize|coalesce|exchange|rebuild|analyze|check|optimize|repair)\s+partition\b)`)
	// created is the name of the table that a statement creates.
	created    = regexp.MustCompile("(?is)^create\\s+table\\s+(?:if\\s+not\\s+exists\\s+)?(?:(?:`[^`]+`|[\\w$]+)\\s*\\.\\s*)?(`[^`]+`|[\\w$]+)(?:\\s|\\()")
	versions   = regexp.MustCompile(`(?i)\b(add|with)\s+system\s+versioning\b`)
	unversions = regexp.MustCompile(`(?i)\bdrop\s+(system\s+versioning|table)\b`)
	renames    = regexp.MustCompile(`(?i)\brename\b`)
	plain      = regexp.MustCompile(`^[\w$]+$`)
	one        = regexp.MustCompile("^(`[^`]+`|[\\w$]+)$") // name, without a database's
)

// alters tells whether a statement may have changed the table's definition. A
// name with other characters than letters, digits, _ and $ may be written in
// more than one way, and is not looked for.
func (a *assembler) alters(q query) bool {
	t := a.decoder.table
	text := skipComments(q.text)
	if plain.MatchString(t.Name) && !a.mentions.MatchString(q.text) || harmless.MatchString(text) {
		return false
	}
	if plain.MatchString(t.Database) && !strings.EqualFold(q.database, t.Database) && !mentions(t.Database).MatchString(q.text) {
		return false
	}
	name := created.FindStringSubmatch(text)
	return name == nil || strings.EqualFold(strings.Trim(name[1], "`"), t.Name)
}

// alter takes note of a statement that may have changed the table's definition:
// it is not known any more.
func (a *assembler) alter(statement string) error {
	g := a.group
	clear(a.tables)
	g.tx.Altered = shown(statement)
	a.altered = alteration{gtid: g.tx.GTID, statement: g.tx.Altered}
	if g.tx.GTID.sequential() && versions.MatchString(statement) && !a.passes() {
		return a.refuseVersions(versioned(a.decoder.table.Database, a.decoder.table.Name))
	}
	if a.redefine == nil {
		return nil
	}
	a.decoder.use(nameOnly(a.decoder.table))
	a.told = &Definition{}
	if a.moved != nil && !a.passes() && renames.MatchString(statement) {
		return a.moved(g.tx.GTID, statement)
	}
	return nil
}

// refuseVersions is the end at rows of a system-versioned table.
func (a *assembler) refuseVersions(why error) error {
	if a.versioned != nil {
		if err := a.versioned(); err != nil {
			return err
		}
	}
	return a.unreadable("%v", why)
}

// define sees to it that the definition in force is known.
func (a *assembler) define() error {
	if a.redefine == nil {
		return errUndefined
	}
	if err := a.redefine(); err != nil {
		return err
	}
	a.told = &Definition{a.decoder.table.Columns}
	return nil
}

// nameOnly is the table without its definition.
func nameOnly(t *schema.Table) *schema.Table {
	return &schema.Table{Database: t.Database, Name: t.Name}
}

// changed is the end of a stream at rows that no known definition is right for.
func (a *assembler) changed(why error) error {
	way := "see 'When the table changes' in the README"
	if errors.Is(why, schema.ErrTable) {
		way = "a column that was renamed is found by both names, such as: --columns 'payload=body|payload'; else " + way
	}
	return fmt.Errorf("%w: in transaction %s: %w; %s", ErrChanged, a.group.tx.GTID, why, way)
}

// renamedTo is the table's new name in a statement that renamed it, with the
// database.
func (s *Server) renamedTo(statement string) string {
	name := "(?:^|[^\\w$`])(?:`" + regexp.QuoteMeta(s.table) + "`|" + regexp.QuoteMeta(s.table) + ")"
	to := "((?:(?:`[^`]+`|[\\w$]+)\\s*\\.\\s*)?(?:`[^`]+`|[\\w$]+))"
	for _, form := range []string{"(?is)" + name + "\\s+to\\s+" + to, "(?is)\\brename\\s+(?:to\\s+|as\\s+|=\\s*)" + to} {
		if found := regexp.MustCompile(form).FindStringSubmatch(statement); found != nil {
			if one.MatchString(found[1]) {
				return quote(s.database) + "." + found[1]
			}
			return found[1]
		}
	}
	return "its_new_name"
}
