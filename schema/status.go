package schema

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Status is how a table says of a row that it waits and that it was published.
type Status struct {
	Column             Column
	Pending, Published any // values of it, for a query: "pending" and "published", 0 and 1
	// At is the column that tells when it was published; nil: there is none.
	At *Column
}

// Status finds out; the error wraps ErrTable and has the statement that adds
// what is missing.
func (t *Table) Status() (Status, error) {
	column, ok := t.Column(RoleStatus)
	switch {
	case !ok && t.Layout == Eventuate:
		return Status{}, t.unstamped("has no column that tells which rows were published", "ADD COLUMN published SMALLINT NOT NULL DEFAULT 0")
	case !ok:
		add := "ADD COLUMN status ENUM('pending','published') NOT NULL DEFAULT 'pending', ADD COLUMN published_at DATETIME(6) NULL"
		if created, timed := t.Column(RoleCreatedAt); timed {
			add += ", ADD KEY idx_dispatch (status, " + created.Name + ")"
		}
		return Status{}, t.unstamped("has no column that tells which rows were published", add)
	}
	s := Status{Column: column, Pending: "pending", Published: "published"}
	switch column.Kind {
	case Integer: // Eventuate: 0 or 1
		s.Pending, s.Published = 0, 1
	case Enum:
		for _, value := range []string{"pending", "published"} {
			if !slices.ContainsFunc(column.Values, func(v string) bool { return strings.EqualFold(v, value) }) {
				return s, t.unstamped(fmt.Sprintf("has a column %s of type %s, without '%s'", column.Name, column.Type, value),
					"MODIFY COLUMN "+column.Name+" ENUM('pending','published') NOT NULL DEFAULT 'pending'")
			}
		}
	}
	for _, c := range t.Columns {
		if strings.EqualFold(c.Name, "published_at") && c.Kind == Time {
			s.At = &c
		}
	}
	return s, nil
}

func (t *Table) unstamped(what, change string) error {
	return fmt.Errorf("%w: %s %s; type: ALTER TABLE %s %s; rows that are there already then count as pending: stamp those that were sent",
		ErrTable, t, what, t, change)
}

// Moment is a point in time as a Time column of the table has it, or as
// milliseconds since 1970 in an integer one.
func (t *Table) Moment(c Column, at time.Time) string { return c.Moment(at, t.zone) }

// Moment is a point in time as a Time column has it that was written in a zone,
// or as milliseconds since 1970 in an integer one.
func (c Column) Moment(at time.Time, zone *time.Location) string {
	switch {
	case c.Kind == Integer:
		return fmt.Sprint(at.UnixMilli())
	case c.Zoned:
		return at.UTC().Format("2006-01-02 15:04:05.000000")
	}
	return at.In(zone).Format("2006-01-02 15:04:05.000000")
}
