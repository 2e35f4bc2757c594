package relay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

func TestExitCode(t *testing.T) {
	tests := []struct {
		err  error
		want int
	}{
		{nil, 0},
		{io.ErrUnexpectedEOF, 1},
		{binlog.ErrTorn, 1},
		{exchange.ErrNacked, 1},
		{exchange.ErrClosed, 1},
		{&exchange.ReturnError{}, 1},
		{ErrDifferences, 3},
		{ErrUsage, 64},
		{exchange.ErrURL, 64},
		{binlog.ErrSelection, 64},
		{&schema.BadEventError{ID: "1"}, 65},
		{binlog.ErrUnreadable, 65},
		{binlog.ErrDamaged, 65},
		{ErrUnavailable, 75},
		{binlog.ErrAuth, 78},
		{binlog.ErrGrant, 78},
		{binlog.ErrTLS, 78},
		{binlog.ErrSettings, 78},
		{binlog.ErrPurged, 78},
		{binlog.ErrDiverged, 78},
		{binlog.ErrPlace, 78},
		{binlog.ErrChanged, 78},
		{binlog.ErrSpool, 78},
		{binlog.ErrFiles, 78},
		{schema.ErrTable, 78},
		{exchange.ErrAuth, 78},
		{exchange.ErrTLS, 78},
		{exchange.ErrExchange, 78},
		{exchange.ErrQueue, 78},
		{exchange.ErrInbox, 78},
		{checkpoint.ErrCorrupt, 78},
		{checkpoint.ErrVersion, 78},
		{checkpoint.ErrLocked, 78},
		{checkpoint.ErrUnwritable, 78},
		{checkpoint.ErrInvalid, 78},
		{ErrForeign, 78},
		{ErrUnfit, 78},
		// An interrupted command has not done what it was asked for.
		{context.Canceled, 1},
		// What lasts counts, also beside what may pass.
		{errors.Join(io.EOF, checkpoint.ErrUnwritable), 78},
		{fmt.Errorf("%w after 1s: %w", ErrUnavailable, io.EOF), 75},
		{fmt.Errorf("%w: %w", ErrUnavailable, context.Canceled), 75},
	}
	known := map[error]bool{}
	for _, test := range tests {
		known[test.err] = true
		if got := ExitCode(test.err); got != test.want {
			t.Errorf("ExitCode(%v) = %d, want %d", test.err, got, test.want)
		}
		if test.err == nil {
			continue
		}
		if got := ExitCode(fmt.Errorf("session: %w", test.err)); got != test.want {
			t.Errorf("ExitCode(wrapped %v) = %d, want %d", test.err, got, test.want)
		}
	}
	for _, e := range exits {
		if !known[e.err] {
			t.Errorf("the test knows nothing of %v", e.err)
		}
	}
}

// TestLastingIsNotRetried: what the table sorts under an exit code ends Run,
// everything else begins another session.
func TestLastingIsNotRetried(t *testing.T) {
	for _, err := range []error{io.EOF, binlog.ErrTorn, exchange.ErrNacked, exchange.ErrClosed, context.DeadlineExceeded, context.Canceled} {
		if code := lasting(err); code != 0 {
			t.Errorf("lasting(%v) = %d, want 0: it may pass", err, code)
		}
	}
	if lasting(fmt.Errorf("x: %w", &schema.BadEventError{})) != ExitBadEvent {
		t.Error("a bad event is taken to pass")
	}
}
