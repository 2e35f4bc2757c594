package binlog

import (
	"strings"

	"github.com/outboxrelay/relay/schema"
)

// wanted is the condition that a row's event is one of the topics, as
// schema.Topics.Want has it of schema.Event.Type: by characters, capital or
// small, and NULL is empty. Its text is empty where all are wanted.
func (r *rowReader) wanted(topics schema.Topics) clause {
	if topics.All() {
		return clause{}
	}
	typ := "''"
	for _, role := range []schema.Role{schema.RoleEventType, schema.RoleTopic} {
		if _, ok := r.table.Column(role); ok {
			typ = "IF(CHAR_LENGTH(" + r.name(role) + ") > 0, CONVERT(" + r.name(role) + " USING utf8mb4), " + typ + ")"
		}
	}
	var q clause
	var conditions []string
	one := func(globs []string, negation string) {
		if len(globs) == 0 {
			return
		}
		var likes []string
		for _, glob := range globs {
			likes = append(likes, typ+" COLLATE utf8mb4_bin LIKE ? ESCAPE '|'")
			q.args = append(q.args, like.Replace(glob))
		}
		conditions = append(conditions, negation+"("+strings.Join(likes, " OR ")+")")
	}
	one(topics.Only, "")
	one(topics.Except, "NOT ")
	q.text = "(" + strings.Join(conditions, " AND ") + ")"
	return q
}

// like makes a pattern of a glob.
var like = strings.NewReplacer("|", "||", "%", "|%", "_", "|_", "*", "%", "?", "_")
