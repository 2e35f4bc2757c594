package relay

import (
	"errors"
	"fmt"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

var (
	// ErrForeign: the checkpoint belongs to another outbox.
	ErrForeign = errors.New("relay: the checkpoint is of another outbox")
	// ErrUnavailable: a server could not be used for longer than the relay
	// was told to wait.
	ErrUnavailable = errors.New("relay: gave up")
	// ErrDifferences: a check found something that is not as it must be.
	ErrDifferences = errors.New("relay: not everything is as it must be")
	// ErrUsage: what was typed cannot be meant.
	ErrUsage = errors.New("relay: usage")
	// ErrUnfit: the relay cannot run where and as it was started.
	ErrUnfit = errors.New("relay: unfit to run")
)

// The exit codes, the same for every command. 2 is the Go runtime's.
const (
	ExitOK          = 0  // done, or stopped and drained
	ExitUnexpected  = 1  // none of the below
	ExitDifferences = 3  // a check found differences
	ExitUsage       = 64 // EX_USAGE
	ExitBadEvent    = 65 // EX_DATAERR: an event that cannot be relayed as it stands
	ExitUnavailable = 75 // EX_TEMPFAIL: a server is unavailable
	ExitUnfit       = 78 // EX_CONFIG: settings, grants, topology, checkpoint, position
)

// exits sorts every error that the relay knows. What is not in it is taken to
// pass: a server that is away, a link that broke.
var exits = []struct {
	err  error
	code int
}{
	{ErrUsage, ExitUsage},
	{exchange.ErrURL, ExitUsage},
	{binlog.ErrSelection, ExitUsage},
	{ErrDifferences, ExitDifferences},
	{binlog.ErrUnreadable, ExitBadEvent},
	{binlog.ErrDamaged, ExitBadEvent},
	{binlog.ErrAuth, ExitUnfit},
	{binlog.ErrGrant, ExitUnfit},
	{binlog.ErrTLS, ExitUnfit},
	{binlog.ErrSettings, ExitUnfit},
	{binlog.ErrPurged, ExitUnfit},
	{binlog.ErrDiverged, ExitUnfit},
	{binlog.ErrPlace, ExitUnfit},
	{binlog.ErrChanged, ExitUnfit},
	{binlog.ErrSpool, ExitUnfit},
	{binlog.ErrFiles, ExitUnfit},
	{schema.ErrTable, ExitUnfit},
	{exchange.ErrAuth, ExitUnfit},
	{exchange.ErrTLS, ExitUnfit},
	{exchange.ErrExchange, ExitUnfit},
	{exchange.ErrQueue, ExitUnfit},
	{exchange.ErrInbox, ExitUnfit},
	{checkpoint.ErrCorrupt, ExitUnfit},
	{checkpoint.ErrVersion, ExitUnfit},
	{checkpoint.ErrLocked, ExitUnfit},
	{checkpoint.ErrUnwritable, ExitUnfit},
	{checkpoint.ErrInvalid, ExitUnfit},
	{ErrForeign, ExitUnfit},
	{ErrUnfit, ExitUnfit},
	{ErrUnavailable, ExitUnavailable},
}

// lasting is the exit code of an error that trying again cannot mend; 0 for
// one that may pass.
func lasting(err error) int {
	var bad *schema.BadEventError
	if errors.As(err, &bad) {
		return ExitBadEvent
	}
	for _, known := range exits {
		if errors.Is(err, known.err) {
			return known.code
		}
	}
	return 0
}

// unfit marks an error that at the start is no passing one.
func unfit(err error) error {
	if err == nil || lasting(err) != 0 {
		return err
	}
	return fmt.Errorf("%w: %w", ErrUnfit, err)
}

// ExitCode is the process's exit code for what a command returned. Under
// systemd 64, 65 and 78 are not worth a restart.
func ExitCode(err error) int {
	if err == nil {
		return ExitOK
	}
	if code := lasting(err); code != 0 {
		return code
	}
	return ExitUnexpected
}
