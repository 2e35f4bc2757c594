package relay

import (
	"context"
	"errors"
	"io/fs"
	"time"

	"github.com/rs/zerolog"

	"github.com/outboxrelay/relay/checkpoint"
)

// pruning deletes old rows beside a relay that runs. It never stops the relay,
// nor does what it waits for: what goes wrong is counted, logged, and tried again
// at the next turn.
type pruning struct {
	turn  *pruneTurn
	every time.Duration
	board *board
	log   zerolog.Logger
	last  string // error that was logged; empty: the last turn was a whole one
}

// The shortest and the longest time between the beginnings of two turns beside a
// relay; it is a quarter of the age else.
const (
	shortestTurn = time.Second
	longestTurn  = time.Hour
)

// pruneBeside begins to prune if the configuration wants it; end waits until it
// has stopped. path is the checkpoint's.
func pruneBeside(ctx context.Context, cfg Config, path string, board *board) (end func()) {
	if cfg.PruneAfter <= 0 {
		return func() {}
	}
	order := PruneOrder{OlderThan: cfg.PruneAfter, Pause: 100 * time.Millisecond, MaxLag: time.Minute, GiveUpAfter: time.Minute}
	order.setDefaults()
	p := &pruning{board: board, log: cfg.Logger, every: min(max(cfg.PruneAfter/4, shortestTurn), longestTurn)}
	p.turn = &pruneTurn{access: newAccess(cfg), order: order, path: path, log: cfg.Logger, deleted: func(n int64) { board.pruned.Add(float64(n)) }}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		p.run(ctx)
	}()
	return func() {
		cancel()
		<-done
	}
}

func (p *pruning) run(ctx context.Context) {
	for {
		if _, err := checkpoint.Read(p.turn.path); errors.Is(err, fs.ErrNotExist) { // the first session is about to make it
			if pause(ctx, shortestTurn) != nil {
				return
			}
			continue
		}
		began := time.Now()
		err := p.turn.run(ctx)
		if ctx.Err() != nil {
			return
		}
		p.tell(err)
		if pause(ctx, p.every-time.Since(began)) != nil {
			return
		}
	}
}

// tell notes how a turn ended.
func (p *pruning) tell(err error) {
	t := p.turn
	if t.tally.Deleted > 0 {
		p.log.Info().Int64("rows", t.tally.Deleted).Int64("parked", t.parked).Int64("locked", t.tally.Locked).
			Time("before", t.before).Str("took", t.took.Round(time.Millisecond).String()).Msg("pruned")
	}
	switch {
	case err == nil:
		p.last = ""
		return
	case errors.Is(err, ErrUnavailable): // the relay is behind, or a backfill under way
		p.log.Info().Err(err).Msg("pruning ended early")
		return
	}
	p.board.pruneErrors.Inc()
	if text := err.Error(); text != p.last { // once for each kind
		p.last = text
		p.log.Warn().Err(err).Str("next", p.every.String()).Msg("pruning failed, and is tried again; the relay goes on")
	}
}
