package relay

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// stampPatience is how long the stamps of one save may wait for who holds the rows.
const stampPatience = 5 * time.Minute

// stamping is what a session's saver does before it saves: rows that are locked
// can hold it up for long.
type stamping struct {
	// mark stamps rows by their ids; nil: none are stamped.
	mark func(ctx context.Context, ids []string) error

	under  atomic.Bool        // way
	limit  context.Context    // of all stamps
	giveUp context.CancelFunc // them
	ending bool               // giveUp is called within the drain timeout
}

// begin makes room for the stamps of a session, which go on behind the end of its
// context. The session calls giveUp in the end.
func (s *stamping) begin(ctx context.Context) {
	s.limit, s.giveUp = context.WithCancel(context.WithoutCancel(ctx))
}

// end gives the stamps so long from now on, or from when it was first called.
func (s *stamping) end(within time.Duration) {
	if !s.ending {
		s.ending = true
		time.AfterFunc(within, s.giveUp)
	}
}

// stamp stamps rows. Those of a backfill are noted in the file before, since a
// backfill that begins there anew does not find them, and could not tell how many
// numbers they had.
func (s *session) stamp(covered coverage) error {
	if len(covered.ids) == 0 {
		return nil
	}
	if covered.rows != nil {
		state, _ := s.file.State()
		state.Backfill.Stamping = covered.rows
		if err := s.file.Save(state); err != nil {
			return err
		}
	}
	began := time.Now()
	s.under.Store(true)
	defer s.under.Store(false)
	ctx, cancel := context.WithTimeout(s.limit, stampPatience)
	defer cancel()
	err := s.mark(ctx, covered.ids)
	if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("relay: %d rows could not be stamped within %s: somebody holds one of them locked; who: SHOW ENGINE INNODB STATUS: %w", len(covered.ids), time.Since(began).Round(time.Second), err)
	}
	return err
}
