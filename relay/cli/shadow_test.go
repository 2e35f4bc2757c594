package cli

import (
	"errors"
	"os"
	"testing"

	"github.com/outboxrelay/relay/relay"
)

// TestShadow: a shadow publishes to no exchange and saves to no checkpoint that
// another relay may have.
func TestShadow(t *testing.T) {
	for _, tt := range []struct {
		variable             string
		args                 []string
		exchange, checkpoint string // no exchange: it is refused
	}{
		{"", []string{"--shadow"}, "outbox.shadow", "checkpoint.shadow.json"},
		{"orders", []string{"--shadow"}, "orders.shadow", "checkpoint.shadow.json"},
		{"orders", []string{"--shadow", "--exchange", "orders"}, "orders.shadow", "checkpoint.shadow.json"},
		{"orders", []string{"--shadow", "--exchange", "trial", "--checkpoint", "/a/c.json"}, "trial", "/a/c.shadow.json"},
		{"", []string{"--shadow", "--exchange", "outbox"}, "", ""},
		{"", []string{}, "outbox", "checkpoint.json"},
	} {
		t.Setenv("RELAY_EXCHANGE", tt.variable)
		if tt.variable == "" {
			os.Unsetenv("RELAY_EXCHANGE") // what it was comes back at the end
		}
		cfg, err := parse(t, tt.args...)
		switch {
		case tt.exchange == "":
			if !errors.Is(err, relay.ErrUsage) {
				t.Errorf("%q, %v: got %v", tt.variable, tt.args, err)
			}
		case err != nil || cfg.Broker.Exchange != tt.exchange || cfg.Checkpoint != tt.checkpoint:
			t.Errorf("%q, %v: exchange %s, checkpoint %s, %v, want %s and %s", tt.variable, tt.args, cfg.Broker.Exchange, cfg.Checkpoint, err, tt.exchange, tt.checkpoint)
		}
	}
}
