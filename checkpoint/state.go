package checkpoint

import (
	"encoding/json"
	"fmt"
	"time"
	"unicode/utf8"
)

// Version is the version of the format that this package writes, and the
// newest that it reads.
const Version = 1

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
	// empty before the first. With CommittedAt it shows whether a server still
	// has the history that was relayed.
	LastGTID string `json:"last_gtid,omitempty"`

	// CommittedAt is the commit time of the newest settled transaction, by
	// the source's clock; zero, and null in the file, while it is unknown:
	// before the first, and behind a resume.
	CommittedAt time.Time `json:"committed_at"`

	// Partial is nil unless a transaction is settled in part.
	Partial *Partial `json:"partial,omitempty"`

	// Backfill is nil unless the initial backfill is under way.
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

// Partial says how far the transaction after those in the GTID set is settled.
type Partial struct {
	GTID   string `json:"gtid"`   // never empty
	Events int64  `json:"events"` // leading events that are settled; at least 1
}

// Backfill says how far the initial backfill has come.
type Backfill struct {
	After      string    `json:"after"`       // cursor of the last settled row; empty before the first
	Until      string    `json:"until"`       // cursor of the last row to send
	SnapshotAt time.Time `json:"snapshot_at"` // when the snapshot was taken
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
	if s.Partial != nil {
		p := *s.Partial
		s.Partial = &p
	}
	if s.Backfill != nil {
		b := *s.Backfill
		b.SnapshotAt = b.SnapshotAt.UTC().Round(0)
		s.Backfill = &b
	}
	if s.Parked != nil {
		p := *s.Parked
		s.Parked = &p
	}
	return s
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
	case s.Version != Version:
		return fmt.Errorf("version is %d, want %d", s.Version, Version)
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
