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
	table    *schema.Table // as it is now
	behind   *schema.Table // as it was at the position; nil: not known
	position *binlog.GTIDSet
	backfill *binlog.Backfill // nil: none, or finished
	stream   *binlog.Stream   // nil: not yet
}

// openOutbox begins where the state says, and behind is the table's definition
// there; nil: it is not known. snapshot is one that is open for
// this very state already; nil where there is none.
func openOutbox(ctx context.Context, server *binlog.Server, table, behind *schema.Table, state checkpoint.State, snapshot *binlog.Backfill) (*outbox, error) {
	o := &outbox{server: server, table: table, behind: behind, backfill: snapshot}
	var err error
	if o.position, err = binlog.ParseGTIDSet(state.GTIDSet); err != nil {
		o.Close()
		return nil, err
	}
	if b := state.Backfill; b != nil && snapshot == nil {
		o.backfill, err = server.BackfillFrom(ctx, table, behind, o.position, b.After, b.Until)
	}
	if err == nil && o.backfill == nil {
		o.stream, err = server.FollowFrom(ctx, o.position, table, behind)
	}
	if err != nil {
		o.Close()
		return nil, err
	}
	return o, nil
}

func (o *outbox) Next(ctx context.Context) (*binlog.Tx, error) {
	if o.stream != nil {
		return o.stream.Next(ctx)
	}
	tx, err := o.backfill.Next(ctx)
	if !errors.Is(err, io.EOF) {
		return tx, err
	}
	o.backfill.Close()
	o.backfill = nil
	o.stream, err = o.server.FollowFrom(ctx, o.position, o.table, o.behind)
	return &binlog.Tx{Last: true, Exhausted: true}, err
}

func (o *outbox) Close() {
	if o.backfill != nil {
		o.backfill.Close()
	}
	if o.stream != nil {
		o.stream.Close()
	}
}
