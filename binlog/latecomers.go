package binlog

import (
	"context"
	"encoding/json"
	"math/big"

	"github.com/outboxrelay/relay/schema"
)

// latecomers reads the log from the position to its end and returns the ids
// of outbox rows in it that could stand among the backfill's: the snapshot may
// have seen them, and the stream brings them.
//
// A transaction can be seen by a snapshot a moment before its GTID is in
// gtid_executed, so what the server has executed is asked for a second time
// when the first answer was read.
func (b *Backfill) latecomers(ctx context.Context, position *GTIDSet) (map[string]bool, error) {
	late := map[string]bool{}
	seen := position.Clone()
	var stream *Stream
	defer func() {
		if stream != nil {
			stream.Close()
		}
	}()
	for range 2 {
		executed, err := b.server.Executed(ctx)
		if err != nil {
			return nil, err
		}
		rest := newUnseen(seen, executed)
		if stream == nil && rest.any() {
			if stream, err = b.server.glance(ctx, position, b.table, b.behind); err != nil {
				return nil, err
			}
		}
		for rest.any() {
			tx, err := stream.Next(ctx)
			if err != nil {
				return nil, err
			}
			for i := range tx.Events {
				if b.covers(&tx.Events[i]) {
					late[tx.Events[i].ID] = true
				}
			}
			rest.cover(tx)
		}
	}
	return late, nil
}

// covers tells whether the event's row could stand at or before Until.
func (b *Backfill) covers(e *schema.Event) bool {
	var until cursor
	if json.Unmarshal([]byte(b.Until), &until) != nil {
		return true
	}
	column, _ := b.table.Column(b.keys[0])
	switch column.Kind {
	case schema.Integer:
		id, ok := new(big.Int).SetString(e.ID, 10)
		last, known := new(big.Int).SetString(until[0], 10)
		return !ok || !known || id.Cmp(last) <= 0
	case schema.Time:
		last, err := b.time(column, until[0])
		return err != nil || !e.CreatedAt.After(last)
	}
	return true
}
