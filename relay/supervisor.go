package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/cenkalti/backoff/v5"
	"github.com/rs/zerolog"
)

// supervisor is what every relay has that runs until it is told to stop: what is
// seen of it from outside, its passwords and certificates, and the only retry in
// the program.
type supervisor struct {
	cfg   Config
	log   zerolog.Logger
	board *board
	last  *lastFile // nil: the last error is kept nowhere

	sourceSecret, brokerSecret secret
	sourceTLS, brokerTLS       certificates

	pulse  *pulse
	reload chan struct{} // holds one request to connect anew

	followed time.Time // when the session had connected both sides; zero: not yet
}

// carrier is what a supervisor keeps going: a Relay or a poller.
type carrier interface {
	// session connects both sides and carries until ctx ends, or an error. connected
	// is called when both sides are; it is false when that took too long.
	session(ctx context.Context, connected func() bool) error
	// progress tells how far it is: two that differ are another trouble.
	progress() any
	// restore forgets what is not durable, before the next session.
	restore() error
	// condemn tells whether it can go on at once although an error is lasting.
	condemn(error) bool
	// wayOut adds to a lasting error how to go on.
	wayOut(error) error
}

func newSupervisor(cfg Config, last *lastFile) *supervisor {
	s := &supervisor{cfg: cfg, log: cfg.Logger, board: newBoard(), last: last, pulse: newPulse(), reload: make(chan struct{}, 1)}
	s.cfg.Source.Waiting = s.pulse.server
	s.sourceSecret.path, s.brokerSecret.path = cfg.SourcePasswordFile, cfg.BrokerPasswordFile
	s.sourceTLS.files, s.brokerTLS.files = cfg.SourceTLS, cfg.BrokerTLS
	for _, e := range cfg.exposures() {
		s.log.Warn().Str("side", e.side).Str("address", e.address).Str("next", e.next).Msg(e.what)
	}
	return s
}

// serve answers where Config.Listen says until stop is called.
func (s *supervisor) serve() (stop func(), err error) {
	stop = func() {}
	if s.cfg.Listen != "" {
		if stop, err = s.board.serve(s.cfg.Listen, s.cfg.Debug, s.log); err != nil {
			s.last.failed(err, ExitCode(err))
		}
	}
	return stop, err
}

// retry begins sessions of the carrier until ctx ends, or an error that will not
// pass.
func (s *supervisor) retry(ctx context.Context, c carrier) (last error) {
	told := context.AfterFunc(ctx, s.board.stop)
	defer func() {
		told()
		s.board.end(last)
		if last != nil {
			s.last.failed(last, ExitCode(last))
		}
	}()
	defer s.notify(ctx)()
	defer s.obey()()
	waits := backoff.NewExponentialBackOff()
	waits.InitialInterval, waits.MaxInterval = 200*time.Millisecond, 10*time.Second // half as long again at most
	var since time.Time                                                             // of the trouble; zero: none
	limit := cmp.Or(s.cfg.GiveUpAfter, math.MaxInt64)
	left := limit
	for {
		before := c.progress()
		began := time.Now()
		s.followed = time.Time{}
		s.pulse.run(false)
		err := s.attempt(ctx, max(left, lastAttempt), c)
		if err == nil || (ctx.Err() != nil && lasting(err) == 0) {
			s.log.Info().Msg("stopped")
			return nil
		}
		if c.condemn(err) || errors.Is(err, errReload) && lasting(err) == 0 && c.restore() == nil {
			continue
		}
		if lasting(err) != 0 && !s.anotherCertificate(err) && !s.anotherPassword(err) {
			return c.wayOut(err)
		}
		steady := !s.followed.IsZero() && time.Since(s.followed) > min(limit, waits.MaxInterval) // if idle
		if since.IsZero() || c.progress() != before || steady {                                  // this is a new trouble
			if since = began; !s.followed.IsZero() {
				since = time.Now()
			}
			waits.Reset()
		}
		if left = limit - time.Since(since); left <= 0 {
			return fmt.Errorf("%w after %s: %w; to go on when the server answers: relay %s", ErrUnavailable, limit, err, s.board.command())
		}
		wait := min(waits.NextBackOff(), left)
		s.board.failed(err)
		s.last.failed(err, 0)
		s.log.Warn().Err(err).Str("wait", wait.Round(time.Millisecond).String()).Msg("session ended, another one begins after a wait")
		select {
		case <-time.After(wait):
		case <-s.reload:
		case <-ctx.Done():
			s.log.Info().Msg("stopped")
			return nil
		}
		if err := c.restore(); err != nil {
			return err
		}
	}
}

// attempt is one session, which must have connected within the limit.
func (s *supervisor) attempt(ctx context.Context, limit time.Duration, c carrier) (err error) {
	ctx, cancel := context.WithCancelCause(ctx) // not a deadline: what is open goes on to use it
	connecting := time.AfterFunc(limit, func() { cancel(errNoTime) })
	defer func() {
		if connecting.Stop(); context.Cause(ctx) == errNoTime {
			err = fmt.Errorf("%w: %w", errNoTime, err)
		}
		cancel(nil)
	}()
	if err := errors.Join(s.sourceSecret.next(&s.cfg.Source.Password), s.brokerSecret.next(&s.cfg.Broker.Password),
		s.sourceTLS.next(&s.cfg.Source.TLS), s.brokerTLS.next(&s.cfg.Broker.TLS)); err != nil {
		return err
	}
	return c.session(ctx, connecting.Stop)
}
