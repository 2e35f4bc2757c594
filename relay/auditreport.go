package relay

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/outboxrelay/relay/schema"
)

// finding is a line of an audit: an id, and what is the matter with it.
type finding struct {
	// Kind is missing: a row of which the other side has nothing; unknown: a
	// message of which the table has nothing; duplicate: a message that came more
	// than once; bad: a missing row that cannot be sent as it stands.
	Kind        string     `json:"kind"`
	ID          string     `json:"id"`
	AggregateID string     `json:"aggregate_id,omitempty"`
	Topic       string     `json:"topic,omitempty"`
	CreatedAt   *time.Time `json:"created_at,omitempty"` // of a row
	At          *time.Time `json:"at,omitempty"`         // of a message: when it was processed, or created
	Times       int        `json:"times,omitempty"`      // that it came; of rows without an id, how many they are
	Reason      string     `json:"reason,omitempty"`
}

// auditSummary is the last line of an audit.
type auditSummary struct {
	Kind        string    `json:"kind"` // summary
	Outbox      string    `json:"outbox"`
	Against     string    `json:"against"`
	Since       time.Time `json:"since"`
	Until       time.Time `json:"until"`
	Rows        int64     `json:"rows"`     // created in the window
	Messages    int64     `json:"messages"` // read of the other side
	Missing     int64     `json:"missing"`
	Unknown     int64     `json:"unknown"`
	Undated     int64     `json:"undated"`    // rows without a creation time, which are in no window
	Duplicates  int64     `json:"duplicates"` // deliveries too many
	Republished int64     `json:"republished"`
	Bad         int64     `json:"bad"`
}

// report prints findings and counts them.
type report struct {
	out     *bufio.Writer
	encoder *json.Encoder
	summary auditSummary
	bad     error // the first
}

func newReport(out io.Writer) *report {
	r := &report{out: bufio.NewWriterSize(out, 64<<10), summary: auditSummary{Kind: "summary"}}
	r.encoder = json.NewEncoder(r.out)
	r.encoder.SetEscapeHTML(false)
	return r
}

func (r *report) line(v any) error {
	if err := r.encoder.Encode(v); err != nil {
		return fmt.Errorf("relay: audit: %w", err)
	}
	return nil
}

// missing tells of a row; of many where they have no id, which e is one of.
func (r *report) missing(id string, e *schema.Event, times int) error {
	r.summary.Missing += int64(times)
	line := finding{Kind: "missing", ID: id, AggregateID: e.AggregateID, Topic: e.Type(), CreatedAt: known(e.CreatedAt)}
	if times > 1 {
		line.Times = times
	}
	return r.line(line)
}

func (r *report) unknown(m sighting) error {
	r.summary.Unknown++
	if m.id == "" { // each is another
		r.summary.Unknown += int64(m.times - 1)
	}
	return r.line(finding{Kind: "unknown", ID: m.id, At: known(m.at), Times: m.times})
}

func (r *report) duplicate(m sighting) error {
	r.summary.Duplicates += int64(m.times - 1)
	return r.line(finding{Kind: "duplicate", ID: m.id, At: known(m.at), Times: m.times})
}

// cannot tells of a missing event that cannot be sent.
func (r *report) cannot(e *schema.Event, why *schema.BadEventError) error {
	if r.summary.Bad++; r.bad == nil {
		r.bad = why
	}
	return r.line(finding{Kind: "bad", ID: e.ID, AggregateID: e.AggregateID, Topic: e.Type(), CreatedAt: &e.CreatedAt, Reason: why.Reason})
}

// end prints the summary.
func (r *report) end() error {
	if err := r.line(r.summary); err != nil {
		return err
	}
	if err := r.out.Flush(); err != nil {
		return fmt.Errorf("relay: audit: %w", err)
	}
	return nil
}

// known is a time; nil where there is none.
func known(at time.Time) *time.Time {
	if at.IsZero() {
		return nil
	}
	return &at
}

// textfile writes the counts for Prometheus, whole or not at all.
func (s auditSummary) textfile(path string) error {
	registry := prometheus.NewRegistry()
	labels := prometheus.Labels{"outbox": s.Outbox, "against": s.Against}
	for _, g := range []struct {
		name, help string
		value      float64
	}{
		{"relay_audit_rows", "Outbox rows that were created in the window of the last audit.", float64(s.Rows)},
		{"relay_audit_missing", "Of those, rows of which the other side has nothing.", float64(s.Missing)},
		{"relay_audit_unknown", "Messages of the window of the last audit of which the outbox has nothing.", float64(s.Unknown)},
		{"relay_audit_duplicates", "Messages of the window of the last audit that came again.", float64(s.Duplicates)},
		{"relay_audit_republished", "Missing rows that the last audit sent again.", float64(s.Republished)},
		{"relay_audit_success_timestamp_seconds", "When the last audit ended that could compare both sides, whatever it found.", float64(time.Now().UnixMilli()) / 1000},
	} {
		gauge := prometheus.NewGauge(prometheus.GaugeOpts{Name: g.name, Help: g.help, ConstLabels: labels})
		gauge.Set(g.value)
		if err := registry.Register(gauge); err != nil {
			return fmt.Errorf("relay: audit: %w", err)
		}
	}
	err := prometheus.WriteToTextfile(path, registry)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EIO): // room may be made
		return fmt.Errorf("%w: --textfile %s cannot be written: %w; make room, see: df -h %s", ErrUnavailable, path, err, filepath.Dir(path))
	}
	return fmt.Errorf("%w: --textfile %s cannot be written: %w; type a file, as --textfile DIRECTORY/relay.prom; its directory is that of the node exporter's --collector.textfile.directory, and must let this user write", ErrUnfit, path, err)
}
