package relay

import (
	"math"
	"syscall"
)

// obey does what Config.Signals says until the returned function is called.
func (s *supervisor) obey() (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case signal := <-s.cfg.Signals:
				switch signal {
				case syscall.SIGHUP:
					s.log.Info().Msg("SIGHUP: password and certificate files are read again, and both servers connected anew")
					select {
					case s.reload <- struct{}{}:
					default: // it is going to
					}
				case syscall.SIGUSR1:
					s.tell()
				}
			case <-end:
				return
			}
		}
	}()
	return func() {
		close(end)
		<-done
	}
}

// tell logs where the relay stands, whatever the level.
func (s *supervisor) tell() {
	b := s.board
	_, line, ready := b.line()
	b.mu.Lock()
	state, polls := b.kept, b.about.interval > 0
	lag, behind, runway := b.lag(), b.behind, b.runway()
	if math.IsInf(runway, 1) {
		runway = -1
	}
	b.mu.Unlock()
	told := s.log.Log().Str("state", line).Bool("ready", ready).Float64("lag_seconds", lag)
	if !polls {
		told = told.Str("position", state.GTIDSet).Int64("sequence", state.Sequence).Time("saved_at", state.SavedAt).
			Int64("lag_bytes", behind).Float64("runway_seconds", runway) // -1: for ever
	}
	told.Msg("status")
}
