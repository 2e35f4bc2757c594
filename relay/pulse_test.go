package relay

import (
	"strings"
	"testing"
	"time"
)

// TestPulse: each loop is found to be stalled by itself, and one that only
// waits is not: an idle server, a session that has no room.
func TestPulse(t *testing.T) {
	const late = 10 * time.Minute
	for _, tt := range []struct {
		name string
		do   func(*pulse, time.Time) // the second argument is when it is looked at
		want string
	}{
		{"both move", func(p *pulse, now time.Time) { p.loop.Store(now.UnixNano()); p.read.Store(now.UnixNano()) }, ""},
		{"the session hangs", func(p *pulse, now time.Time) { p.read.Store(now.UnixNano()) }, "publishes and settles"},
		{"the reader hangs", func(p *pulse, now time.Time) { p.loop.Store(now.UnixNano()) }, "reads the log"},
		{"the server is idle", func(p *pulse, now time.Time) { p.server(true); p.loop.Store(now.UnixNano()) }, ""},
		{"the server was idle", func(p *pulse, now time.Time) { p.server(true); p.server(false); p.loop.Store(now.UnixNano()) }, "reads the log"},
		{"the session has no room", func(p *pulse, now time.Time) { p.hand(true); p.loop.Store(now.UnixNano()) }, ""},
		{"connecting hangs", func(p *pulse, now time.Time) { p.run(false) }, "connecting"},
		{"connecting waits for the log", func(p *pulse, now time.Time) { p.run(false); p.server(true) }, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := new(pulse)
			p.run(true)
			now := time.Now().Add(late)
			tt.do(p, now)
			if got := p.stalled(now); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("stalled: %q, want %q", got, tt.want)
			}
		})
	}
	p := new(pulse)
	p.run(true)
	if got := p.stalled(time.Now()); got != "" {
		t.Errorf("stalled at once: %q", got)
	}
}
