package relay

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

const (
	notifyInterval = time.Second     // between two looks at what systemd should know
	statusInterval = 5 * time.Second // between two STATUS lines while the state is the same
	extendInterval = 15 * time.Second
	extension      = "EXTEND_TIMEOUT_USEC=60000000" // of the start: a server that is away is no failure
)

// notifier tells systemd how the relay stands, by the protocol of sd_notify(3).
// Without $NOTIFY_SOCKET it tells nobody, and only watches the pulse.
type notifier struct {
	relay    *supervisor
	watchdog time.Duration // between two signs of life; 0: none is wanted
	ready    bool          // READY=1 was sent
	stopping bool
	state    state // last sent in STATUS
	at       time.Time
	extended time.Time
	alive    time.Time // when WATCHDOG=1 was last sent
	stalled  bool
}

// notify keeps systemd informed until the returned function is called. The
// end of ctx is the beginning of the stop.
func (s *supervisor) notify(ctx context.Context) (stop func()) {
	limit, err := daemon.SdWatchdogEnabled(false)
	if err != nil {
		s.log.Warn().Err(err).Msg("no watchdog: $WATCHDOG_USEC cannot be used")
	}
	n := &notifier{relay: s, watchdog: limit / 3}
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(notifyInterval)
		defer ticker.Stop()
		stopping := ctx.Done()
		for {
			n.look(time.Now(), ctx.Err() != nil)
			select {
			case <-ticker.C:
			case <-stopping:
				stopping = nil
			case <-end:
				if ctx.Err() != nil { // a quick stop may have passed the line above
					n.look(time.Now(), true)
				}
				return
			}
		}
	}()
	return func() {
		close(end)
		<-done
	}
}

// look tells what has changed.
func (n *notifier) look(now time.Time, stopping bool) {
	var message []string
	state, line, ready := n.relay.board.line()
	if stopping && !n.stopping {
		n.stopping = true
		message = append(message, daemon.SdNotifyStopping)
	}
	if ready && !n.ready {
		n.ready = true
		message = append(message, daemon.SdNotifyReady)
	}
	if !n.ready && now.Sub(n.extended) >= extendInterval {
		n.extended = now
		message = append(message, extension)
	}
	if state != n.state || now.Sub(n.at) >= statusInterval {
		n.state, n.at = state, now
		message = append(message, "STATUS="+line)
	}
	what := n.relay.pulse.stalled(now)
	n.relay.board.stall(what)
	switch {
	case what == "":
		n.stalled = false
		if n.watchdog > 0 && now.Sub(n.alive) >= n.watchdog {
			n.alive = now
			message = append(message, daemon.SdNotifyWatchdog)
		}
	case !n.stalled:
		n.stalled = true
		n.relay.log.Error().Str("stalled", what).Msg("stalled: systemd's watchdog restarts the relay, where there is one")
	}
	for _, m := range message {
		if _, err := daemon.SdNotify(false, m); err != nil {
			n.relay.log.Warn().Err(err).Msg("systemd cannot be told how the relay stands")
			return
		}
	}
}

// line is the state in a word and in a line for systemctl status, and whether
// the relay follows and publishes.
func (b *board) line() (word state, line string, ready bool) {
	_, ready = b.ready()
	b.mu.Lock()
	defer b.mu.Unlock()
	word, reason := b.phase()
	line = string(word)
	if reason != "" {
		line += ": " + strings.ReplaceAll(reason, "\n", "; ") // a second line would be another message
	}
	return word, fmt.Sprintf("%s; lag %.1f s, %d events in flight", line, b.lag(), b.now.inFlight), ready
}
