package relay

import (
	"os"
	"time"

	"github.com/rs/zerolog"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/relay/certs"
	"github.com/outboxrelay/relay/schema"
)

// Start is where a relay without a checkpoint begins.
type Start string

// The starts.
const (
	Backfill Start = "backfill" // the rows in the table, then the log from here
	Latest   Start = "latest"   // the log from here
	Earliest Start = "earliest" // all the log that the server still has
)

// OnBadEvent is what becomes of an event that cannot be relayed as it stands.
type OnBadEvent string

// What can become of it.
const (
	StopOnBad OnBadEvent = "stop" // the relay stops on it, with exit code 65
	ParkBad   OnBadEvent = "park" // it goes into the parked file, and holds its aggregate back
)

// Config is all that a Relay needs to know.
type Config struct {
	Source     binlog.Config
	Broker     exchange.Config
	Checkpoint string // path of the file

	// Files with the passwords, which are read for each session and win over
	// those of Source and Broker. Default to none.
	SourcePasswordFile, BrokerPasswordFile string

	// Files for TLS, which are read for each session and win over the TLS of
	// Source and Broker. Default to none.
	SourceTLS, BrokerTLS certs.Files

	Start        Start         // Defaults to Backfill.
	Window       int           // events in flight at most. Defaults to 4096.
	Order        Order         // Defaults to Strict.
	DrainTimeout time.Duration // to settle what is in flight at a stop. Defaults to 15 s.
	GiveUpAfter  time.Duration // of a server being away. Defaults to never (0).
	OnBadEvent   OnBadEvent    // Defaults to StopOnBad.
	Topics       schema.Topics // whose events are carried. Defaults to all.
	Stamp        bool          // mark rows as published when the broker has confirmed their events
	PruneAfter   time.Duration // age from which on confirmed rows are deleted beside the relay. Defaults to never (0).
	Listen       string        // address of the status page, metrics and health; empty: none
	Debug        bool          // serve profiles there, too

	// Signals that a running relay takes: SIGHUP makes it read its password and
	// certificate files again and connect anew, SIGUSR1 makes it log where it
	// stands. Defaults to none.
	Signals <-chan os.Signal

	Logger zerolog.Logger
}

func (c *Config) setDefaults() {
	if c.Start == "" {
		c.Start = Backfill
	}
	if c.Window <= 0 {
		c.Window = 4096
	}
	if c.Order == "" {
		c.Order = Strict
	}
	if c.OnBadEvent == "" {
		c.OnBadEvent = StopOnBad
	}
	if c.DrainTimeout <= 0 {
		c.DrainTimeout = 15 * time.Second
	}
	if c.Order == Strict { // of one aggregate a single event is in flight: nothing can pass it
		c.Broker.Channels = strictChannels
	}
	c.Broker.Logger = c.Logger
	if c.Broker.Limit == nil {
		c.Broker.Limit = new(exchange.Limit)
	}
}
