package relay

import (
	"testing"
	"time"
)

// TestTrace fills the ring one and a half times. Seen to fail with the ring not
// turned, and with the rate over the nominal second instead of the time that
// passed.
func TestTrace(t *testing.T) {
	t.Parallel()
	var l trace
	if got := l.last(); got != (sample{}) || l.rate() != nil || len(l.all()) != 0 {
		t.Errorf("the empty trace has %v", got)
	}
	begin := time.UnixMilli(1_000_000)
	const taken = traceLength * 3 / 2
	for n := range taken {
		lag := float64(n)
		l.add(begin.Add(time.Duration(n)*2*time.Second), &lag, int64(n)*10)
	}
	all := l.all()
	if len(all) != traceLength {
		t.Fatalf("%d samples are kept, want %d", len(all), traceLength)
	}
	for i, s := range all {
		n := taken - traceLength + i
		if *s.Lag != float64(n) || s.At != 1_000_000+int64(n)*2000 || *s.Rate != 5 {
			t.Fatalf("sample %d is lag %v, rate %v at %d", i, *s.Lag, *s.Rate, s.At)
		}
	}
	if got := *l.rate(); got != 5 {
		t.Errorf("the rate is %v, want 5", got)
	}
	l.add(begin.Add(time.Hour), nil, 0)
	if l.last().Lag != nil {
		t.Error("an unknown lag became known")
	}
}
