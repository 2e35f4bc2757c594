package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

// Polling says how a poller asks the table.
type Polling struct {
	Interval time.Duration // from one poll to the next, when the last was not full. Defaults to 500 ms.
	Batch    int           // rows that one takes at most. Defaults to 100.
	Topics   schema.Topics // of the events to carry. Defaults to all.
}

func (p *Polling) setDefaults() {
	if p.Interval <= 0 {
		p.Interval = 500 * time.Millisecond
	}
	if p.Batch <= 0 {
		p.Batch = 100
	}
}

// poller carries an outbox to the broker by its status column.
type poller struct {
	*supervisor
	polling Polling
	table   *schema.Table // as the session found it
	warned  bool          // of what pollers can do without
	// distrust: the last session could not stamp what was confirmed. Until that is
	// seen to work nothing is sent, since it would be again and again.
	distrust bool
}

// Poll relays the pending rows of the table, and stamps them when the broker has
// confirmed them, until ctx ends; then it settles what is in flight, stamps it and
// returns nil. It needs neither a log nor a checkpoint, and any number of pollers
// may run on a table. Its retries are those of Run.
func Poll(ctx context.Context, cfg Config, polling Polling) error {
	polling.setDefaults()
	cfg.Window, cfg.Order, cfg.OnBadEvent, cfg.Checkpoint = polling.Batch, Strict, StopOnBad, ""
	cfg.setDefaults()
	if _, _, _, err := cfg.Source.Parse(); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	p := &poller{supervisor: newSupervisor(cfg, nil), polling: polling}
	p.board.describe(cfg, checkpoint.State{})
	p.board.polls(polling.Interval)
	stop, err := p.serve()
	if err != nil {
		return err
	}
	defer stop()
	return p.retry(ctx, p)
}

// progress is what was confirmed.
func (p *poller) progress() any { return p.board.confirms.Load() }

// restore has nothing to do: what is pending stands in the table.
func (p *poller) restore() error { return nil }

func (p *poller) condemn(error) bool { return false }

// wayOut adds to an error about a row what to do about it.
func (p *poller) wayOut(err error) error {
	var bad *schema.BadEventError
	if !errors.As(err, &bad) || bad.Several {
		return err
	}
	return fmt.Errorf("%w; mend the row, or, when it is dealt with, take it out: %s; then: relay poll", err, binlog.TakeOut(p.table, bad))
}

// session connects both sides and polls.
func (p *poller) session(ctx context.Context, connected func() bool) error {
	server, table, err := p.connect(ctx)
	if err != nil {
		p.board.lost("source", err)
		return err
	}
	defer server.Close()
	p.table = table
	p.sourceSecret.accepted()
	p.board.met(server, table)
	p.board.connected(true, false)
	broker, err := exchange.Dial(ctx, p.cfg.Broker)
	if err != nil {
		p.board.lost("broker", err)
		return err
	}
	defer broker.Close()
	p.brokerSecret.accepted()
	p.board.accepted(p.cfg.Broker)
	outbox, err := server.Poller(ctx, table, p.polling.Topics, p.polling.Batch)
	if err != nil {
		p.board.lost("source", err)
		return err
	}
	defer outbox.Close()
	if p.distrust {
		if err := outbox.Try(ctx); err != nil {
			p.board.lost("source", err)
			return err
		}
	}
	if !connected() {
		return errors.New("relay: it was just connected")
	}
	p.followed = time.Now()
	p.board.connected(true, true)
	p.log.Info().Str("table", table.String()).Str("layout", string(table.Layout)).Str("server", server.Address()).
		Str("interval", p.polling.Interval.String()).Int("batch", p.polling.Batch).Msg("polling")
	s := &pollSession{
		outbox: outbox, broker: broker, interval: p.polling.Interval, drain: p.cfg.DrainTimeout, declares: p.cfg.Broker.Partitions > 0,
		board: p.board, pulse: p.pulse, reload: p.reload, log: p.log, refused: map[string]*refusal{},
	}
	err = s.run(ctx)
	p.distrust = s.unstamped
	s.show(false)
	if err != nil && !errors.Is(err, errReload) {
		side := "source"
		if broker.Err() != nil {
			side = "broker"
		}
		p.board.lost(side, err)
	}
	return err
}

// connect opens the server and refuses one that cannot be polled.
func (p *poller) connect(ctx context.Context) (*binlog.Server, *schema.Table, error) {
	server, err := binlog.Open(ctx, p.cfg.Source)
	if err != nil {
		return nil, nil, err
	}
	table, requirements, err := server.CheckPolling(ctx)
	for _, requirement := range requirements {
		if err == nil {
			err = requirement.Err()
		}
	}
	if err != nil {
		server.Close()
		return nil, nil, err
	}
	for _, r := range requirements {
		if !r.OK && !p.warned {
			p.warned = true
			p.log.Warn().Str("need", r.Need).Str("next", strings.TrimSpace(r.Fix)).Msg("polling works better with an index")
		}
	}
	return server, table, nil
}
