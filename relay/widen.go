package relay

import (
	"context"
	"errors"
	"io"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/schema"
)

// widen makes the state carry the topics of now. What the relay passed over up to
// its position, and wants now, is read from the table by a backfill, which is
// returned open; nil: there is none to begin.
func (r *Relay) widen(ctx context.Context, server *binlog.Server, table *schema.Table, state checkpoint.State) (checkpoint.State, *binlog.Backfill, error) {
	widened, err := mayWant(r.file.Path(), state, r.cfg.Topics)
	if err != nil {
		return state, nil, err
	}
	before := state.Topics
	if state.Topics = keptTopics(r.cfg.Topics); !widened {
		return state, nil, nil
	}
	position, err := binlog.ParseGTIDSet(state.GTIDSet)
	if err != nil {
		return state, nil, err
	}
	snapshot, err := server.BackfillFrom(ctx, table, definition(state, r.cfg.Source, table), position, "", "")
	if err != nil {
		return state, nil, err
	}
	if snapshot.Until != "" {
		state.Backfill = &checkpoint.Backfill{Until: snapshot.Until, SnapshotAt: snapshot.SnapshotAt, TopicsBefore: before}
	}
	was, _ := topicsOf(before)
	rows := "those that are not stamped published"
	if _, stamped := table.Column(schema.RoleStatus); !stamped {
		rows = "all, since the table does not tell which were published"
	}
	r.log.Info().Str("before", was.String()).Str("now", r.cfg.Topics.String()).Str("rows", rows).
		Msg("topics were added: their rows in the table are sent first")
	return state, snapshot, nil
}

// restamp ends what a crash broke off between the stamps of a backfill's rows and
// the save of the checkpoint: the rows up to the place that it tells are
// confirmed. Those of them that are not stamped yet are stamped, and the backfill
// goes on behind them.
func (r *Relay) restamp(ctx context.Context, server *binlog.Server, table *schema.Table, state checkpoint.State) (checkpoint.State, error) {
	b := state.Backfill
	if b == nil || b.Stamping == nil {
		return state, nil
	}
	if r.cfg.Stamp {
		if err := r.stampRows(ctx, server, table, state); err != nil {
			return state, err
		}
	}
	return pastStamps(state), nil
}

// pastStamps is the state behind the rows that state.Backfill.Stamping tells of.
func pastStamps(state checkpoint.State) checkpoint.State {
	b := *state.Backfill
	state.Sequence, b.After, b.Stamping = b.Stamping.Sequence, b.Stamping.After, nil
	state.Backfill = &b
	return state
}

// stampRows stamps the rows of which state.Backfill.Stamping tells, those apart
// that were parked or are not wanted.
func (r *Relay) stampRows(ctx context.Context, server *binlog.Server, table *schema.Table, state checkpoint.State) error {
	position, err := binlog.ParseGTIDSet(state.GTIDSet)
	if err != nil {
		return err
	}
	want, err := wantsOf(r.cfg.Topics, state, table)
	if err != nil {
		return err
	}
	waiting, p, err := readParked(r.file.Path() + parkedSuffix)
	if err != nil {
		return err
	}
	parked := p.dropped
	for _, e := range waiting {
		parked[e.ID] = true
	}
	rows, err := server.BackfillFrom(ctx, table, definition(state, r.cfg.Source, table), position, state.Backfill.After, state.Backfill.Stamping.After)
	if err != nil {
		return err
	}
	defer rows.Close()
	var ids []string
	for {
		tx, err := rows.Next(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return server.Stamp(ctx, table, ids)
		case err != nil:
			return err
		}
		for i := range tx.Events {
			if e := &tx.Events[i]; e.Bad == nil && want.row(e) && !parked[e.ID] {
				ids = append(ids, e.ID)
			}
		}
	}
}
