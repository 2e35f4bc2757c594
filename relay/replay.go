package relay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

// ReplayOrder says which parked events to deal with, and how.
type ReplayOrder struct {
	Drop   []string // ids to let go without sending them
	DryRun bool     // list what is parked and change nothing
}

// Replay sends what is parked, in the order of each aggregate, and takes out
// of the parked file what the broker has confirmed. An event that still cannot
// be sent stays, and so do those behind it; then the error wraps
// ErrDifferences. No relay may run meanwhile: the checkpoint is locked.
func Replay(ctx context.Context, cfg Config, order ReplayOrder, out io.Writer) error {
	cfg.setDefaults()
	file, err := checkpoint.Open(cfg.Checkpoint)
	if err != nil {
		return unfit(err)
	}
	defer file.Close()
	path := file.Path() + parkedSuffix
	list, _, err := readParked(path)
	if err != nil {
		return err
	}
	for _, id := range order.Drop {
		if !slices.ContainsFunc(list, func(p Line) bool { return p.ID == id }) {
			return fmt.Errorf("%w: --drop %s: no such event is parked in %s; list them with: relay replay --parked --dry-run", ErrUsage, id, path)
		}
	}
	if order.DryRun {
		return listParked(list, order, out)
	}
	left, err := replay(ctx, cfg, list, order, out)
	if saveErr := writeParked(path, left); err == nil {
		err = saveErr
	}
	if err == nil && len(left) > 0 {
		err = fmt.Errorf("%w: %d events are still parked in %s; let one go with: relay replay --parked --drop ID", ErrDifferences, len(left), path)
	}
	return err
}

func listParked(list []Line, order ReplayOrder, out io.Writer) error {
	for _, p := range list {
		p.Would = "send"
		switch {
		case slices.Contains(order.Drop, p.ID):
			p.Would = "drop"
		case p.Broken:
			p.Would = "keep"
		}
		if err := p.writeTo(out); err != nil {
			return err
		}
	}
	return nil
}

// replay returns what is left.
func replay(ctx context.Context, cfg Config, list []Line, order ReplayOrder, out io.Writer) (left []Line, err error) {
	cfg.Broker.Window = 1 // one at a time: there are few, and a failure must stop its aggregate
	var broker *exchange.Publisher
	defer func() {
		if broker != nil {
			broker.Close()
		}
	}()
	stuck := map[string]bool{} // aggregates with an event that stays
	for i, p := range list {
		if slices.Contains(order.Drop, p.ID) {
			fmt.Fprintf(out, "dropped   %s\n", p.ID)
			continue
		}
		if stuck[p.AggregateID] {
			left = append(left, p)
			continue
		}
		if broker == nil {
			if broker, err = exchange.Dial(ctx, cfg.Broker); err != nil {
				return append(left, list[i:]...), unavailable(err)
			}
		}
		err := sendParked(ctx, broker, &p)
		var bad *schema.BadEventError
		switch {
		case err == nil:
			fmt.Fprintf(out, "confirmed %s\n", p.ID)
		case errors.As(err, &bad):
			fmt.Fprintf(out, "kept      %s: %s\n", p.ID, bad.Reason)
			left = append(left, p)
			if p.AggregateID != "" || !p.Broken { // else it is not known what waits for it
				stuck[p.AggregateID] = true
			}
		default:
			return append(left, list[i:]...), unavailable(err)
		}
		if broker.Err() != nil { // the broker closed the channel on that event
			broker.Close()
			broker = nil
		}
	}
	return left, nil
}

// sendParked sends one event and waits for its receipt. One that cannot be
// sent is a *schema.BadEventError.
func sendParked(ctx context.Context, broker *exchange.Publisher, p *Line) error {
	if p.Broken {
		return &schema.BadEventError{ID: p.ID, GTID: p.GTID, Broken: true, Reason: p.Reason}
	}
	event, err := p.event()
	if err != nil {
		return err
	}
	markReplayed(event)
	broker.Publish(event)
	select {
	case receipt, ok := <-broker.Receipts():
		if !ok {
			return broker.Err()
		}
		return receipt.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// markReplayed tells consumers that the event is sent late.
func markReplayed(e *schema.Event) {
	if e.Headers == nil {
		e.Headers = map[string]any{}
	}
	e.Headers["replayed"] = true
}

// writeParked replaces the parked file, durably.
func writeParked(path string, list []Line) error {
	var buffer bytes.Buffer
	for _, p := range list {
		if err := p.writeTo(&buffer); err != nil {
			return err
		}
	}
	temporary := path + ".new"
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return fmt.Errorf("relay: parked events: %w", err)
	}
	_, err = file.Write(buffer.Bytes())
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = errors.Join(os.Rename(temporary, path), syncDirectory(path))
	}
	if err != nil {
		return fmt.Errorf("relay: parked events: %w; those confirmed above are sent again by the next replay", err)
	}
	return nil
}
