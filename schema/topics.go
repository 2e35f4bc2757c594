package schema

import (
	"fmt"
	"regexp"
	"slices"
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

// Same tells whether both have the same globs, in whatever order.
func (t Topics) Same(other Topics) bool {
	return sameSet(t.Only, other.Only) && sameSet(t.Except, other.Except)
}

// Within tells whether all that t wants is wanted by the other, too, as far as
// the globs show it: false where it may not be.
func (t Topics) Within(other Topics) bool {
	exceptsMore := subset(other.Except, t.Except)
	if len(t.Only) == 0 {
		return len(other.Only) == 0 && exceptsMore
	}
	for _, glob := range t.Only {
		switch {
		case !strings.ContainsAny(glob, "*?") && (other.Want(glob) || !t.Want(glob)):
		case exceptsMore && (len(other.Only) == 0 || slices.Contains(other.Only, glob)):
		default:
			return false
		}
	}
	return true
}

// String is how the topics are typed, as flags; empty where all are wanted.
func (t Topics) String() string {
	var flags []string
	for _, f := range []struct {
		name  string
		globs []string
	}{{"--only-topics", t.Only}, {"--except-topics", t.Except}} {
		if len(f.globs) > 0 {
			flags = append(flags, f.name+" '"+strings.Join(f.globs, ",")+"'")
		}
	}
	return strings.Join(flags, " ")
}

func sameSet(a, b []string) bool { return subset(a, b) && subset(b, a) }

func subset(a, b []string) bool {
	return !slices.ContainsFunc(a, func(s string) bool { return !slices.Contains(b, s) })
}
