package schema

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Topics says which events are wanted, by their type: those of one of Only, or
// all where it is empty, without those of one of Except. Each is a glob: * stands
// for any characters or none, ? for one; all others stand for themselves, capital
// or small. The zero Topics wants all.
type Topics struct {
	Only, Except []string
	only, except *regexp.Regexp
}

// NewTopics makes a Topics. An empty glob, which would be the topic of no event,
// is an error, and so is one that is not UTF-8.
func NewTopics(only, except []string) (Topics, error) {
	for _, glob := range append(append([]string{}, only...), except...) {
		if glob == "" {
			return Topics{}, fmt.Errorf("schema: topics: an empty glob takes no event; type: order.placed, or 'order.*'")
		}
		if !utf8.ValidString(glob) {
			return Topics{}, fmt.Errorf("schema: topics: %q is not UTF-8, as topics are", glob)
		}
	}
	return Topics{Only: only, Except: except, only: globs(only), except: globs(except)}, nil
}

// globs is an expression for what one of them takes; nil: there is none.
func globs(list []string) *regexp.Regexp {
	if len(list) == 0 {
		return nil
	}
	var text []string
	for _, glob := range list {
		quoted := regexp.QuoteMeta(glob)
		text = append(text, strings.NewReplacer(`\*`, ".*", `\?`, ".").Replace(quoted))
	}
	return regexp.MustCompile("(?s)^(?:" + strings.Join(text, "|") + ")$") // of what is quoted, in UTF-8: it cannot fail
}

// All tells whether every event is wanted.
func (t Topics) All() bool { return t.only == nil && t.except == nil }

// Want tells whether events of a type are wanted.
func (t Topics) Want(typ string) bool {
	return (t.only == nil || t.only.MatchString(typ)) && (t.except == nil || !t.except.MatchString(typ))
}
