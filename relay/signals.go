package relay

import (
	"math"
	"syscall"
)

// obey does what Config.Signals says until the returned function is called.
func (r *Relay) obey() (stop func()) {
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case s := <-r.cfg.Signals:
				switch s {
				case syscall.SIGHUP:
					r.log.Info().Msg("SIGHUP: password and certificate files are read again, and both servers connected anew")
					select {
					case r.reload <- struct{}{}:
					default: // it is going to
					}
				case syscall.SIGUSR1:
					r.tell()
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
func (r *Relay) tell() {
	state, _ := r.file.State()
	b := r.board
	_, line, ready := b.line()
	b.mu.Lock()
	lag, behind, runway := b.lag(), b.behind, b.runway()
	if math.IsInf(runway, 1) {
		runway = -1
	}
	b.mu.Unlock()
	r.log.Log().Str("state", line).Bool("ready", ready).
		Str("position", state.GTIDSet).Int64("sequence", state.Sequence).Time("saved_at", state.SavedAt).
		Float64("lag_seconds", lag).Int64("lag_bytes", behind).Float64("runway_seconds", runway). // -1: for ever
		Msg("status")
}
