package relay

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/schema"
)

// takes tells whether a parked event is selected.
func (o *ReplayOrder) takes(l *Line) bool {
	return o.Takes(&schema.Event{ID: l.ID, AggregateID: l.AggregateID, EventType: l.EventType, Topic: l.Topic, CreatedAt: l.CreatedAt})
}

// copyParked sends what is parked to a queue, or prints it, and leaves all of it
// parked. An event that cannot be sent is told; then the error wraps
// ErrDifferences.
func copyParked(ctx context.Context, cfg Config, outbox string, order ReplayOrder, out io.Writer) error {
	p, err := readBeside(cfg.Checkpoint, outbox, order)
	if err != nil {
		return err
	}
	var lines parkedSource
	left := 0
	buffer := bufio.NewWriter(out)
	for _, l := range p.events {
		if !order.takes(&l) {
			continue
		}
		if order.To == ToLines {
			if err := l.writeTo(buffer); err != nil {
				return err
			}
			continue
		}
		event, err := l.sendable()
		var bad *schema.BadEventError
		switch {
		case errors.As(err, &bad):
			fmt.Fprintf(buffer, "left      %s: %s\n", shown(l.ID), bad.Reason)
			left++
		case err != nil:
			return err
		default:
			event.GTID = l.GTID
			lines.events = append(lines.events, *event)
		}
	}
	if err := buffer.Flush(); err != nil {
		return fmt.Errorf("relay: replay: %w", err)
	}
	if order.To == ToLines {
		return nil
	}
	if err := order.allow(len(lines.events), cfg.Broker); err != nil {
		return err
	}
	state := checkpoint.State{Backfill: &checkpoint.Backfill{}}
	sending := resending{cfg: cfg, open: func(_ context.Context, state checkpoint.State) (Source, error) {
		rest := lines
		rest.next, _ = strconv.Atoi(state.Backfill.After) // 0 where nothing is confirmed
		return &rest, nil
	}}
	if err := sending.run(ctx, &state); err != nil {
		return fmt.Errorf("%w; %d of %d events are confirmed by queue %q; all are still parked", err, state.Sequence, len(lines.events), cfg.Broker.Queue)
	}
	if left > 0 {
		return fmt.Errorf("%w: %d events cannot be sent as they stand; to see them: relay replay --parked --to -", ErrDifferences, left)
	}
	return nil
}

// parkedSource is a source of events that are in memory.
type parkedSource struct {
	events []schema.Event
	next   int
}

// Next returns an event as a transaction of its own; io.EOF after the last.
func (l *parkedSource) Next(context.Context) (*binlog.Tx, error) {
	if l.next == len(l.events) {
		return nil, io.EOF
	}
	l.next++
	event := l.events[l.next-1]
	return &binlog.Tx{Events: []schema.Event{event}, CommittedAt: event.CreatedAt, Last: true, Cursor: strconv.Itoa(l.next)}, nil
}

func (l *parkedSource) Close() {}
