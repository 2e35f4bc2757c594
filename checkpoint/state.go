package checkpoint

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"
)

// Version is the newest version of the format. A state is written as the oldest
// version that can hold it, so that an older relay can read it.
const Version = 3

// State is what the file holds. Strings are UTF-8.
type State struct {
	// Version of the format. Save sets it.
	Version int `json:"version"`

	// Flavor of the source, which says how to read GTIDSet: "mysql" or
	// "mariadb". Never empty.
	Flavor string `json:"flavor"`

	// GTIDSet holds the transactions that are settled. May be empty: a server
	// that has executed nothing.
	GTIDSet string `json:"gtid_set"`

	// ServerUUID of the source last followed; empty where it has none.
	ServerUUID string `json:"server_uuid"`

	// Sequence is the number of the last settled event; 0 before the first.
	Sequence int64 `json:"sequence"`

	// Table is the outbox, as db.table. Never empty.
	Table string `json:"table"`

	// SavedAt is when the file was written, by the relay's clock. Save sets it.
	SavedAt time.Time `json:"saved_at"`

	// LastGTID is the newest settled transaction, in the order of the log;
	// behind a first start or a resume, the newest in GTIDSet that the log has;
	// empty where it has none. With CommittedAt it shows whether a server still
	// has the history that was relayed.
	LastGTID string `json:"last_gtid,omitempty"`

	// CommittedAt is the commit time of the newest settled transaction, by
	// the source's clock; zero, and null in the file, while it is unknown.
	CommittedAt time.Time `json:"committed_at"`

	// Columns are those of the outbox table behind the transactions in GTIDSet,
	// in its order; nil while they are not known. A log that does not name them
	// (binlog_row_metadata=MINIMAL) is read by them.
	Columns []Column `json:"columns,omitempty"`

	// Topics are those whose events are carried up to here; nil: all.
	Topics *Topics `json:"topics,omitempty"`

	// Partial is nil unless a transaction is settled in part.
	Partial *Partial `json:"partial,omitempty"`

	// Backfill is nil unless one is under way: the initial one, or that of topics
	// that came to be wanted later.
	Backfill *Backfill `json:"backfill,omitempty"`

	// Parked is nil unless events are parked.
	Parked *Parked `json:"parked,omitempty"`
}

// plain is a State that encoding/json writes field by field.
type plain State

// MarshalJSON gives the fields as the file has them, in another order.
func (s State) MarshalJSON() ([]byte, error) {
	fields := struct {
		plain
		CommittedAt *time.Time `json:"committed_at"`
	}{plain: plain(s)}
	if !s.CommittedAt.IsZero() {
		fields.CommittedAt = &s.CommittedAt
	}
	return json.Marshal(fields)
}

// Column is a column as information_schema.columns describes it.
type Column struct {
	Name    string `json:"name"`              // COLUMN_NAME; never empty
	Type    string `json:"type"`              // COLUMN_TYPE, "bigint unsigned"; may be empty
	Octets  int    `json:"octets,omitempty"`  // CHARACTER_OCTET_LENGTH of a CHAR or BINARY, else 0
	Charset string `json:"charset,omitempty"` // CHARACTER_SET_NAME; empty: none
}

// Partial says how far the transaction after those in the GTID set is settled.
type Partial struct {
	GTID   string `json:"gtid"`   // never empty
	Events int64  `json:"events"` // leading events that are settled; at least 1
}

// Topics are globs for the types of events: those of one of Only, or all where
// it is empty, without those of one of Except. One of the two is not empty.
type Topics struct {
	Only   []string `json:"only,omitempty"`
	Except []string `json:"except,omitempty"`
}

// Backfill says how far a backfill has come.
type Backfill struct {
	After      string    `json:"after"`       // cursor of the last settled row; empty before the first
	Until      string    `json:"until"`       // cursor of the last row to send
	SnapshotAt time.Time `json:"snapshot_at"` // when the snapshot was taken

	// TopicsBefore are those that were carried before: their rows are left out.
	// Nil: no rows are.
	TopicsBefore *Topics `json:"topics_before,omitempty"`

	// Stamping is nil unless rows behind After are about to be stamped published,
	// so that a backfill that begins at After may not find them any more.
	Stamping *Stamping `json:"stamping,omitempty"`
}

// Stamping is how far rows are settled that are about to be stamped.
type Stamping struct {
	After    string `json:"after"`    // cursor of the last of them
	Sequence int64  `json:"sequence"` // number of its event
}

// Parked says what the file of parked events holds at least.
type Parked struct {
	Events int64  `json:"events"` // that wait there; at least 1
	Sum    string `json:"sum"`    // of its lines, chained; never empty
}

// clone copies s, with times as they come back from a file.
func (s State) clone() State {
	s.SavedAt = s.SavedAt.UTC().Round(0)
	s.CommittedAt = s.CommittedAt.UTC().Round(0)
	s.Columns = slices.Clone(s.Columns)
	s.Topics = s.Topics.clone()
	if s.Partial != nil {
		p := *s.Partial
		s.Partial = &p
	}
	if s.Backfill != nil {
		b := *s.Backfill
		b.SnapshotAt = b.SnapshotAt.UTC().Round(0)
		b.TopicsBefore = b.TopicsBefore.clone()
		if b.Stamping != nil {
			stamping := *b.Stamping
			b.Stamping = &stamping
		}
		s.Backfill = &b
	}
	if s.Parked != nil {
		p := *s.Parked
		s.Parked = &p
	}
	return s
}

func (t *Topics) clone() *Topics {
	if t == nil {
		return nil
	}
	return &Topics{Only: slices.Clone(t.Only), Except: slices.Clone(t.Except)}
}

// version is the oldest version of the format that can hold s.
func (s State) version() int {
	b := s.Backfill
	switch {
	case s.Topics != nil || b != nil && (b.TopicsBefore != nil || b.Stamping != nil):
		return 3
	case len(s.Columns) > 0 || s.Parked != nil:
		return 2
	}
	return 1
}

// validate reports the first field that no file may hold. Text that is not
// UTF-8 is refused because JSON would change it in silence, and a changed
// cursor skips rows.
func (s State) validate() error {
	type text struct{ name, value string }
	texts := []text{{"flavor", s.Flavor}, {"gtid_set", s.GTIDSet}, {"server_uuid", s.ServerUUID}, {"table", s.Table}}
	if s.Partial != nil {
		texts = append(texts, text{"partial.gtid", s.Partial.GTID})
	}
	if s.Backfill != nil {
		texts = append(texts, text{"backfill.after", s.Backfill.After}, text{"backfill.until", s.Backfill.Until})
		if stamping := s.Backfill.Stamping; stamping != nil {
			texts = append(texts, text{"backfill.stamping.after", stamping.After})
			if stamping.After == "" || stamping.Sequence < s.Sequence {
				return fmt.Errorf("backfill.stamping is after %q with the sequence %d, want one, and %d or more", stamping.After, stamping.Sequence, s.Sequence)
			}
		}
		if err := s.Backfill.TopicsBefore.validate("backfill.topics_before"); err != nil {
			return err
		}
	}
	if err := s.Topics.validate("topics"); err != nil {
		return err
	}
	for _, c := range s.Columns {
		texts = append(texts, text{"columns.name", c.Name}, text{"columns.type", c.Type}, text{"columns.charset", c.Charset})
		if c.Name == "" || c.Octets < 0 {
			return fmt.Errorf("columns has one with the name %q and %d octets", c.Name, c.Octets)
		}
	}
	if s.Parked != nil {
		texts = append(texts, text{"parked.sum", s.Parked.Sum})
	}
	for _, t := range texts {
		if !utf8.ValidString(t.value) {
			return fmt.Errorf("%s is not UTF-8: %+.80q", t.name, t.value)
		}
	}
	switch {
	case s.Version != s.version():
		return fmt.Errorf("version is %d, want %d", s.Version, s.version())
	case s.Flavor == "":
		return fmt.Errorf("flavor is empty")
	case s.Table == "":
		return fmt.Errorf("table is empty")
	case s.Sequence < 0:
		return fmt.Errorf("sequence is %d, want 0 or more", s.Sequence)
	case s.Partial != nil && s.Partial.GTID == "":
		return fmt.Errorf("partial.gtid is empty")
	case s.Partial != nil && s.Partial.Events < 1:
		return fmt.Errorf("partial.events is %d, want 1 or more", s.Partial.Events)
	case s.Parked != nil && s.Parked.Events < 1:
		return fmt.Errorf("parked.events is %d, want 1 or more", s.Parked.Events)
	case s.Parked != nil && s.Parked.Sum == "":
		return fmt.Errorf("parked.sum is empty")
	}
	return nil
}

func (t *Topics) validate(name string) error {
	if t == nil {
		return nil
	}
	if len(t.Only)+len(t.Except) == 0 {
		return fmt.Errorf("%s has no globs", name)
	}
	for _, glob := range slices.Concat(t.Only, t.Except) {
		if glob == "" || !utf8.ValidString(glob) {
			return fmt.Errorf("%s has a glob that is empty or not UTF-8: %+.80q", name, glob)
		}
	}
	return nil
}
