package relaytest

import (
	"context"
	"testing"
	"time"
)

// The pause between two looks at a condition is a part of the wait so far: a
// look can be a query or a whole page, and many tests wait beside each other.
const (
	shortestPause = 10 * time.Millisecond
	longestPause  = 50 * time.Millisecond
	pausePart     = 10
)

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
	for began := time.Now(); !condition(); {
		if err := pause(ctx, min(max(time.Since(began)/pausePart, shortestPause), longestPause)); err != nil {
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
