package relaytest

import (
	"context"
	"testing"
	"time"
)

// pollEvery is the pause between two looks at a condition.
const pollEvery = 10 * time.Millisecond

// Wait looks at condition until it holds, and fails the test after limit. What
// names the condition in the failure: "the queue is empty".
func Wait(t testing.TB, limit time.Duration, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if poll(ctx, condition) != nil {
		t.Fatalf("waited %v in vain until %s", limit, what)
	}
}

// poll looks at condition until it holds (nil) or ctx ends (its error).
func poll(ctx context.Context, condition func() bool) error {
	for !condition() {
		if err := pause(ctx, pollEvery); err != nil {
			return err
		}
	}
	return nil
}

// pause waits for d, or less when ctx ends: then it returns its error.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
