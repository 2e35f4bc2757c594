package relay

import (
	"slices"
	"strings"
	"time"
)

// maxTroubles is how many are kept.
const maxTroubles = 10

// trouble is an error that did not end the relay, or that which did.
type trouble struct {
	Text  string     `json:"text"`
	First time.Time  `json:"first"`
	Last  time.Time  `json:"last"`
	Times int        `json:"times"`
	Over  *time.Time `json:"over"` // nil: it is not

	hindrance bool // within a session, whose text may change
}

// troubles are the last ones, the newest last.
type troubles []trouble

// add notes the end of a session. One that ends as an earlier one since the
// relay last followed, but for numbers such as a port, is the same trouble.
func (l *troubles) add(text string, now time.Time) {
	again := func(t trouble) bool {
		return t.Over == nil && wordsOf(t.Text) == wordsOf(text)
	}
	t := trouble{First: now}
	if i := slices.IndexFunc(*l, again); i >= 0 {
		t = (*l)[i]
		*l = slices.Delete(*l, i, i+1)
	}
	t.Text, t.Last = text, now
	t.Times++
	l.append(t)
}

// show notes that a session follows, and what hinders it; empty: nothing.
func (l *troubles) show(hindrance string, now time.Time) {
	known := false
	for i := range *l {
		switch t := &(*l)[i]; {
		case t.Over != nil:
		case t.hindrance && hindrance != "":
			t.Text, t.Last, known = hindrance, now, true
		default:
			t.Over = &now
		}
	}
	if hindrance != "" && !known {
		l.append(trouble{Text: hindrance, First: now, Last: now, Times: 1, hindrance: true})
	}
}

// wordsOf is a text without its digits.
func wordsOf(text string) string {
	return strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' {
			return -1
		}
		return r
	}, text)
}

func (l *troubles) append(t trouble) {
	if *l = append(*l, t); len(*l) > maxTroubles {
		*l = slices.Delete(*l, 0, 1)
	}
}

// newest returns them, the newest first.
func (l troubles) newest() []trouble {
	list := make([]trouble, 0, len(l)) // in JSON not null
	for _, t := range slices.Backward(l) {
		list = append(list, t)
	}
	return list
}
