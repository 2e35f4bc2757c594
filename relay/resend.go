package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/cenkalti/backoff/v5"

	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

// Destination is where a replay sends events: one of the constants, or QueuePrefix
// and a queue's name.
type Destination string

// The destinations.
const (
	ToExchange  Destination = "exchange"
	ToLines     Destination = "-" // lines of JSON
	QueuePrefix             = "queue:"
)

// queue is the name of the queue that it is; empty: it is none.
func (d Destination) queue() string {
	name, _ := strings.CutPrefix(string(d), QueuePrefix)
	if name == string(d) {
		return ""
	}
	return name
}

// Again says which events to send again, and where to.
type Again struct {
	schema.Selection
	To     Destination // Defaults to ToExchange.
	DryRun bool        // only tell what would be sent
	Yes    bool        // send any number of them
	// Ask asks the operator and tells the answer. Nil: nobody is there to be asked.
	Ask func(question string) (yes bool, err error)
}

// askFrom is how many events are sent without a question.
const askFrom = 1000

// allow asks whether so many events may be sent. broker says where to.
func (a *Again) allow(events int, broker exchange.Config) error {
	if events <= askFrom || a.Yes || a.DryRun || a.To == ToLines {
		return nil
	}
	place := fmt.Sprintf("exchange %q", broker.Exchange)
	if broker.Queue != "" {
		place = fmt.Sprintf("queue %q", broker.Queue)
	}
	place += " at " + exchange.Address(broker.URL)
	if a.Ask == nil {
		return fmt.Errorf("%w: %d events would be sent to %s, and more than %d want a word; to send them all the same: --yes; to see which: --dry-run", ErrUsage, events, place, askFrom)
	}
	yes, err := a.Ask(fmt.Sprintf("%d events would be sent to %s. Send them?", events, place))
	if err == nil && !yes {
		err = fmt.Errorf("%w: not sent, as answered; to send without a question: --yes", ErrUsage)
	}
	return err
}

// broker is the configuration by which its events are published.
func (a *Again) broker(cfg exchange.Config) exchange.Config {
	cfg.Replayed, cfg.Queue = true, a.To.queue()
	if cfg.Queue != "" {
		cfg.Partitions = 0
	}
	return cfg
}

// resending sends what a source has, which ends, to the broker. It keeps no
// checkpoint: what is confirmed is known to the process alone.
type resending struct {
	cfg          Config
	secret       secret       // of the broker
	certificates certificates // for it
	// open opens the source behind what the state covers.
	open func(ctx context.Context, state checkpoint.State) (Source, error)
	// closed hears of the end of each source, before it is closed. Nil: nobody
	// wants to know.
	closed func(ended bool)
}

// run sends all, and moves state over what is confirmed. A session that ends
// with an error which may pass is followed by another one. It returns nil when all
// is confirmed.
func (r *resending) run(ctx context.Context, state *checkpoint.State) error {
	r.secret.path, r.certificates.files = r.cfg.BrokerPasswordFile, r.cfg.BrokerTLS
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = 200*time.Millisecond, 10*time.Second // half as long again at most
	var since time.Time                                                             // of the trouble; zero: none
	for {
		before := state.Sequence
		done, err := r.session(ctx, state)
		switch {
		case done:
			r.cfg.Logger.Info().Int64("events", state.Sequence).Msg("replayed") // 0: nothing fits what was chosen
			return nil
		case err == nil, ctx.Err() != nil && lasting(err) == 0:
			return stopped(err)
		case lasting(err) != 0 && !(errors.Is(err, exchange.ErrAuth) && r.secret.refused()) && !(errors.Is(err, exchange.ErrTLS) && r.certificates.changed()):
			return err
		}
		if since.IsZero() || state.Sequence != before {
			since = time.Now()
			waits.Reset()
		}
		if limit := r.cfg.GiveUpAfter; limit > 0 && time.Since(since) > limit {
			return fmt.Errorf("%w after %s: %w", ErrUnavailable, limit, err)
		}
		wait := waits.NextBackOff()
		r.cfg.Logger.Warn().Err(err).Str("wait", wait.Round(time.Millisecond).String()).Msg("session ended, another one begins after a wait")
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return stopped(err)
		}
	}
}

// stopped is the end of a replay that was told to stop, and with what.
func stopped(err error) error {
	if err == nil {
		return fmt.Errorf("%w: stopped before all was sent", ErrUnavailable)
	}
	return fmt.Errorf("%w: stopped before all was sent: %w", ErrUnavailable, err)
}

// session sends what state does not cover. done: that is all.
func (r *resending) session(ctx context.Context, state *checkpoint.State) (done bool, err error) {
	ledger, err := newLedger(*state)
	if err != nil {
		return false, err
	}
	if err := errors.Join(r.secret.next(&r.cfg.Broker.Password), r.certificates.next(&r.cfg.Broker.TLS)); err != nil {
		return false, err
	}
	broker, err := exchange.Dial(ctx, r.cfg.Broker)
	if err != nil {
		return false, err
	}
	defer broker.Close()
	r.secret.accepted()
	source, err := r.open(ctx, *state)
	if err != nil {
		return false, err
	}
	defer source.Close()
	s := &session{
		ledger: ledger, lanes: newLanes(r.cfg.Order), source: source, broker: broker, replays: true,
		window: r.cfg.Window, declares: r.cfg.Broker.Partitions > 0, drain: r.cfg.DrainTimeout,
		board: newBoard(), log: r.cfg.Logger,
	}
	err = s.run(ctx)
	*state = ledger.snapshot()
	if r.closed != nil {
		r.closed(err == nil && s.ended)
	}
	return err == nil && s.ended, err
}
