package binlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outboxrelay/relay/schema"
)

// ErrSelection: what was asked for is nothing that the table's rows have.
var ErrSelection = errors.New("binlog: no such rows")

// Select opens a snapshot and reads the selected rows behind the cursor after,
// stamped published or not, in the order of a backfill; an empty cursor means the
// first. Errors wrap ErrSelection where the selection does not fit the table.
func (s *Server) Select(ctx context.Context, table *schema.Table, selection schema.Selection, after string) (*Backfill, error) {
	conn, err := s.scans.Conn(ctx)
	if err != nil {
		return nil, s.explain(err)
	}
	b := &Backfill{rowReader: rowReader{server: s, table: table}, conn: conn, keys: keys(table), wanted: &selection}
	err = b.begin(ctx)
	if err == nil && after != "" { // a row without a place in the order cannot be gone on behind
		err = b.ordered(ctx)
	}
	if err == nil {
		err = b.query(ctx, after)
	}
	if err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// chosen are the conditions of the selection, as far as the server can tell:
// it may find more rows, of which Next takes those that are meant.
func (r *rowReader) chosen(s schema.Selection) (conditions []string, args []any, err error) {
	for _, by := range []struct {
		role schema.Role
		ids  []string
	}{{schema.RoleID, s.IDs}, {schema.RoleAggregateID, s.Aggregates}} {
		column, ok := r.table.Column(by.role)
		if !ok || len(by.ids) == 0 { // Eventuate has the aggregate in its headers
			continue
		}
		places := make([]string, len(by.ids))
		for i, id := range by.ids {
			value, err := schema.ParseID(column, id)
			if err != nil {
				return nil, nil, fmt.Errorf("%w: %w", ErrSelection, err)
			}
			places[i], args = "?", append(args, value)
		}
		conditions = append(conditions, quote(column.Name)+" IN ("+strings.Join(places, ", ")+")")
	}
	if topics := r.wanted(s.Topics); topics.text != "" {
		conditions, args = append(conditions, topics.text), append(args, topics.args...)
	}
	created, timed := r.table.Column(schema.RoleCreatedAt)
	for _, bound := range []struct {
		at     time.Time
		sign   string
		margin time.Duration
	}{{s.Since, ">=", -time.Hour}, {s.Until, "<=", time.Hour}} {
		switch {
		case bound.at.IsZero():
			continue
		case !timed:
			return nil, nil, fmt.Errorf("%w: %s has no column that tells when a row was created; choose by id, aggregate or topic", ErrSelection, r.table)
		case created.Kind == schema.Time && !created.Zoned && r.table.Zone() != time.UTC:
			bound.at = bound.at.Add(bound.margin) // clocks that are put back have an hour twice
		}
		conditions, args = append(conditions, quote(created.Name)+" "+bound.sign+" ?"), append(args, r.table.Moment(created, bound.at))
	}
	return conditions, args, nil
}
