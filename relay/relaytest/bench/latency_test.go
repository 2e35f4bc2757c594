package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestQuantile(t *testing.T) {
	thousand := make([]time.Duration, 1000) // 1 to 1000 ms
	for i := range thousand {
		thousand[i] = time.Duration(i+1) * time.Millisecond
	}
	for _, tt := range []struct {
		values []time.Duration
		of     float64
		want   float64
	}{
		{thousand, 0.5, 501},
		{thousand, 0.99, 991},
		{thousand, 0.999, 1000},
		{thousand[:1], 0.999, 1},
		{nil, 0.5, 0},
	} {
		if got := quantile(tt.values, tt.of); got != tt.want {
			t.Errorf("%v of %d values: %v ms, want %v", tt.of, len(tt.values), got, tt.want)
		}
	}
}

func TestMeasuredIsSortedAndWithoutTheWarmUp(t *testing.T) {
	values := []time.Duration{9, 3, 5, 1, 4}
	if diff := cmp.Diff([]time.Duration{1, 4, 5}, measured(values, 2)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]time.Duration{9, 3, 5, 1, 4}, values); diff != "" {
		t.Errorf("what was measured is changed (-want +got):\n%s", diff)
	}
}

func TestWritersFor(t *testing.T) {
	for rate, want := range map[float64]int{1: 8, 200: 8, 1000: 30, 6000: 64} {
		if got := writersFor(rate); got != want {
			t.Errorf("%v events/s: %d connections, want %d", rate, got, want)
		}
	}
}

func TestScatteredGTIDs(t *testing.T) {
	if got, want := scattered(3), "6ba7b810-9dad-11d1-80b4-00c04fd430c8:1:3:5"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMessageIDIsAnEventsNumber(t *testing.T) {
	if n, ok := eventNumber(7, messageID(eventID(7, 4711))); n != 4711 || !ok {
		t.Errorf("%d, %t", n, ok)
	}
}
