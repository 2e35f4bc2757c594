package main

import (
	"math"
	"testing"
)

func TestFigure(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0", 0.9534: "0.953", 1: "1", 1.3: "1.3", 9.999: "10", 15.25: "15.2", 150: "150", 999.6: "1,000",
		150000: "150,000", 1234567.8: "1,234,568", -0.25: "-0.25", -1500: "-1,500", math.NaN(): "?",
	} {
		if got := figure(v); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
}

func TestSpread(t *testing.T) {
	for want, values := range map[string][]float64{
		"": nil, "3": {3}, "2.5 (1–4)": {4, 1, 3, 2}, "2 (1–9)": {9, 2, 1},
	} {
		if got := spread(values); got != want {
			t.Errorf("%v: got %q, want %q", values, got, want)
		}
	}
}

func TestVerdict(t *testing.T) {
	measured := result{Unit: "ms", Relay: []float64{9, 20, 11}, Reference: []float64{10, 10, 10}}
	tests := map[string]struct {
		goal    goal
		text    string
		verdict string
	}{
		"none":                   {goal{}, "", ""},
		"value met":              {atLeast(ofValue, 11), "≥ 11", "met"},
		"value not met":          {atMost(ofValue, 10), "≤ 10", "NOT met"},
		"ratio met":              {atLeast(ofRatio, 0.95), "ratio ≥ 0.95", "met"},
		"ratio not met":          {atMost(ofRatio, 1.05), "ratio ≤ 1.05", "NOT met"},
		"median of pairs":        {atMost(ofRatio, 1.1), "ratio ≤ 1.1", "met"},
		"difference met":         {atMost(ofDifference, 1), "difference ≤ 1 ms", "met"},
		"difference not reached": {atLeast(ofDifference, 2), "difference ≥ 2 ms", "NOT met"},
	}
	for name, tt := range tests {
		r := measured
		r.Goal = tt.goal
		if got := r.goal(); got != tt.text {
			t.Errorf("%s: got goal %q, want %q", name, got, tt.text)
		}
		if got := r.verdict(); got != tt.verdict {
			t.Errorf("%s: got %q, want %q", name, got, tt.verdict)
		}
	}
	if got := (result{Goal: atMost(ofValue, 1)}).verdict(); got != "NOT met" {
		t.Errorf("not measured: got %q", got)
	}
}
