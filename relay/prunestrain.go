package relay

import (
	"context"
	"fmt"
	"time"
)

const (
	strainBeat = time.Second // between two looks at replicas and history
	// historyLimit is the length of InnoDB's history list, in transactions, above
	// which deleting waits: the purge of what was deleted does not keep up.
	historyLimit = 1_000_000
)

// relax waits while a replica is behind or the history list is long.
func (t *pruneTurn) relax(ctx context.Context) error {
	if t.order.MaxLag <= 0 || t.order.DryRun || time.Since(t.strained) < strainBeat {
		return ctx.Err()
	}
	began := time.Now()
	told := false
	for {
		strain, err := t.strain(ctx)
		if err != nil {
			return err
		}
		if strain == "" {
			if t.strained = time.Now(); told {
				t.held += time.Since(began)
				t.log.Info().Msg("pruning goes on")
			}
			return nil
		}
		if limit := t.order.GiveUpAfter; limit > 0 && time.Since(began) >= limit {
			t.held += time.Since(began)
			return fmt.Errorf("%w: for %s %s; the rest is for later", ErrUnavailable, limit, strain)
		}
		if !told {
			told = true
			t.log.Warn().Str("reason", strain).Msg("pruning waits")
		}
		if err := pause(ctx, strainBeat); err != nil {
			return err
		}
	}
}

// strain is what deleting more would make worse; empty: nothing.
func (t *pruneTurn) strain(ctx context.Context) (string, error) {
	for _, replica := range t.replicas {
		lag, err := replica.ReplicaLag(ctx)
		switch {
		case lasting(err) != 0:
			return "", err
		case err != nil:
			return err.Error(), ctx.Err()
		case lag > t.order.MaxLag:
			return fmt.Sprintf("the replica at %s is %s behind, more than --max-lag %s", replica.Address(), lag, t.order.MaxLag), nil
		}
	}
	length, known, err := t.server.History(ctx)
	if err != nil {
		return "", err
	}
	if t.blind = !known; length > historyLimit {
		return fmt.Sprintf("InnoDB's history list has %d transactions, more than %d: what was deleted is not purged yet, maybe for a long transaction: SELECT * FROM information_schema.innodb_trx", length, historyLimit), nil
	}
	return "", nil
}
