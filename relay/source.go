package relay

import (
	"context"
	"errors"
	"io"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/schema"
)

// Source hands out transactions in commit order. It is used by one
// goroutine, and is closed after that one's last call has returned.
type Source interface {
	// Next waits for the next transaction, or part of a large one. After an
	// error the source is of no more use.
	Next(ctx context.Context) (*binlog.Tx, error)
	Close()
}

// outbox is the Source that a checkpoint asks for: the backfill, if it is not
// finished, and then the log.
type outbox struct {
	server   *binlog.Server
	table    *schema.Table
	position *binlog.GTIDSet
	backfill *binlog.Backfill
	fresh    bool  // the snapshot is the one that the checkpoint's position belongs to
	doubtful int64 // leading transactions of the log that the snapshot may have seen
	stream   *binlog.Stream
}

// openOutbox begins where the state says. snapshot is the one that was opened
// for this very state; nil when the state is from the file.
func openOutbox(ctx context.Context, server *binlog.Server, table *schema.Table, state checkpoint.State, snapshot *binlog.Backfill) (*outbox, error) {
	o := &outbox{server: server, table: table, backfill: snapshot, fresh: snapshot != nil}
	var err error
	if o.position, err = binlog.ParseGTIDSet(state.GTIDSet); err != nil {
		o.Close()
		return nil, err
	}
	if b := state.Backfill; b != nil && snapshot == nil {
		if o.backfill, err = server.Backfill(ctx, table, b.After, b.Until); err != nil {
			return nil, err
		}
	}
	if o.backfill == nil {
		o.stream, err = server.Follow(ctx, o.position, table)
	}
	if err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

func (o *outbox) Next(ctx context.Context) (*binlog.Tx, error) {
	if o.stream == nil {
		tx, err := o.backfill.Next(ctx)
		if errors.Is(err, io.EOF) {
			return o.follow(ctx)
		}
		return tx, err
	}
	tx, err := o.stream.Next(ctx)
	if err != nil || o.doubtful == 0 {
		return tx, err
	}
	return tx, o.sift(ctx, tx)
}

// follow goes over from the table to the log. It returns the transaction
// that stands for the end of the backfill.
func (o *outbox) follow(ctx context.Context) (*binlog.Tx, error) {
	if o.fresh {
		executed, err := o.server.Executed(ctx)
		if err != nil {
			return nil, err
		}
		since, err := o.server.Subtract(ctx, executed, o.position)
		if err != nil {
			return nil, err
		}
		o.doubtful = since.Count()
	}
	if o.doubtful == 0 {
		o.closeBackfill()
	}
	var err error
	if o.stream, err = o.server.Follow(ctx, o.position, o.table); err != nil {
		return nil, err
	}
	return &binlog.Tx{Last: true}, nil
}

// sift takes out what the snapshot has seen. The position was read before the
// snapshot was taken, so a transaction that was committed in between is in
// both. It is in the snapshot as a whole or not at all.
func (o *outbox) sift(ctx context.Context, tx *binlog.Tx) error {
	if !tx.CommittedAt.After(o.backfill.SnapshotAt) {
		kept := tx.Events[:0]
		for _, event := range tx.Events {
			seen, err := o.backfill.Has(ctx, event.ID)
			if err != nil {
				return err
			}
			if !seen {
				kept = append(kept, event)
			}
		}
		tx.Events = kept
	}
	if tx.Last {
		if o.doubtful--; o.doubtful == 0 {
			o.closeBackfill()
		}
	}
	return nil
}

func (o *outbox) closeBackfill() {
	if o.backfill != nil {
		o.backfill.Close()
		o.backfill = nil
	}
}

func (o *outbox) Close() {
	o.closeBackfill()
	if o.stream != nil {
		o.stream.Close()
	}
}
