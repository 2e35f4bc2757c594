package schema

import (
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
)

// Selection says which events are meant: those that fit every part of it that is
// given. The zero Selection takes all.
type Selection struct {
	IDs        []string // any of these, as Event.ID has them
	Aggregates []string // of any of these
	Topics     Topics
	Since      time.Time // created then or later
	Until      time.Time // created before then
}

// All tells whether every event is taken.
func (s Selection) All() bool {
	return len(s.IDs) == 0 && len(s.Aggregates) == 0 && s.Topics.All() && s.Since.IsZero() && s.Until.IsZero()
}

// Takes tells whether an event is taken.
func (s Selection) Takes(e *Event) bool {
	switch {
	case len(s.IDs) > 0 && !slices.ContainsFunc(s.IDs, func(id string) bool { return SameID(id, e.ID) }),
		len(s.Aggregates) > 0 && !slices.ContainsFunc(s.Aggregates, func(id string) bool { return SameID(id, e.AggregateID) }),
		!s.Topics.Want(e.Type()),
		!s.Since.IsZero() && e.CreatedAt.Before(s.Since),
		!s.Until.IsZero() && !e.CreatedAt.Before(s.Until):
		return false
	}
	return true
}

// SameID tells whether a typed id is an event's: a UUID may be typed in any of its
// forms.
func SameID(typed, id string) bool {
	if typed == id {
		return true
	}
	u, err := uuid.Parse(typed)
	return err == nil && strings.EqualFold(u.String(), id)
}
