package relay

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"strconv"

	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

// place is where a missing event belongs among those that are sent again: by an
// integer id, which grows with each insert, else by creation time and id, as a
// backfill has it.
func (a *audit) place(e *schema.Event) string {
	var key []byte
	if id, _ := a.table.Column(schema.RoleID); id.Kind == schema.Integer {
		n, err := strconv.ParseInt(e.ID, 10, 64)
		if err != nil { // of an unsigned one, above all others
			u, _ := strconv.ParseUint(e.ID, 10, 64)
			return string(binary.BigEndian.AppendUint64([]byte{1}, u))
		}
		key = binary.BigEndian.AppendUint64([]byte{0}, uint64(n)+1<<63)
		return string(key)
	}
	key = binary.BigEndian.AppendUint64(nil, uint64(e.CreatedAt.UnixMicro())+1<<63)
	return string(key) + e.ID
}

// republish sends the missing again: as Run does, but for GTID and sequence, and
// with the header replayed. Of one aggregate nothing is sent before the broker
// has confirmed what is before it; an event that cannot be sent holds the later
// ones of its aggregate back.
func (a *audit) republish(ctx context.Context) error {
	if a.lost.count == 0 {
		return nil
	}
	ids, err := a.lost.sorted()
	if err != nil {
		return err
	}
	to := a.cfg.Broker
	to.Replayed = true
	broker, err := exchange.Dial(ctx, to)
	if err != nil {
		return err
	}
	defer broker.Close()
	held := map[string]bool{} // aggregates with an event that cannot be sent
	for {
		batch, err := take(ids, checkAtOnce)
		if err != nil || len(batch) == 0 {
			return err
		}
		rows, err := a.server.Rows(ctx, a.table, batch)
		if err != nil {
			return err
		}
		var events []schema.Event
		for _, id := range batch {
			if e, ok := rows[id]; ok {
				events = append(events, e)
			}
		}
		if err := a.resend(ctx, broker, events, held); err != nil {
			return fmt.Errorf("%w; %d of %d are confirmed", err, a.report.summary.Republished, a.report.summary.Missing)
		}
	}
}

// take is the next n ids, or those that are left.
func take(from *sorted, n int) (ids []string, err error) {
	for len(ids) < n {
		_, id, err := from.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, err
		}
		ids = append(ids, string(id))
	}
	return ids, nil
}

// resend sends events in waves: each has the first that is left of every
// aggregate.
func (a *audit) resend(ctx context.Context, broker *exchange.Publisher, events []schema.Event, held map[string]bool) error {
	left := make([]*schema.Event, 0, len(events))
	for i := range events {
		left = append(left, &events[i])
	}
	for len(left) > 0 {
		var wave, later []*schema.Event
		busy := map[string]bool{}
		for _, e := range left {
			switch {
			case held[e.AggregateID]:
			case busy[e.AggregateID]:
				later = append(later, e)
			default:
				if bad := unsendable(e); bad != nil {
					held[e.AggregateID] = true
					if err := a.report.cannot(e, bad); err != nil {
						return err
					}
					continue
				}
				busy[e.AggregateID] = true
				wave = append(wave, e)
			}
		}
		if err := a.await(ctx, broker, wave); err != nil {
			return err
		}
		left = later
	}
	return nil
}

// await publishes events and waits for their receipts.
func (a *audit) await(ctx context.Context, broker *exchange.Publisher, events []*schema.Event) error {
	broker.Publish(events...)
	for open := len(events); open > 0; {
		select {
		case receipts, ok := <-broker.Receipts():
			if !ok {
				return broker.Err()
			}
			for _, receipt := range receipts {
				if receipt.Err != nil {
					return receipt.Err
				}
				a.report.summary.Republished++
				open--
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}
