package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// result is one line of the table.
type result struct {
	Section   string    `json:"section"` // "drain", "cpu", "ceiling", "catch-up", "latency", "memory", "start", "growth", "audit", "prune"
	Case      string    `json:"case"`    // "quorum queues, transactions of 10"
	Unit      string    `json:"unit"`    // of Relay and Reference: "events/s", "rows/s", "µs/event", "ms", "MiB", "MB/s"
	Relay     []float64 `json:"relay"`   // one for each run
	Against   string    `json:"against,omitempty"`
	Reference []float64 `json:"reference,omitempty"` // run i of it was made beside run i of Relay
	Goal      goal      `json:"goal"`
	Note      string    `json:"note,omitempty"`
}

// about says what of a result a goal is about.
type about string

const (
	ofValue      about = "value"
	ofRatio      about = "ratio"      // Relay / Reference
	ofDifference about = "difference" // Relay - Reference
)

// goal is a bound for the median. The zero goal is none.
type goal struct {
	Of    about   `json:"of,omitempty"`
	Least bool    `json:"least,omitempty"` // Bound is the least that will do; else the most
	Bound float64 `json:"bound,omitempty"`
}

func atLeast(of about, bound float64) goal { return goal{of, true, bound} }
func atMost(of about, bound float64) goal  { return goal{of, false, bound} }

// goal as text; empty without one.
func (r result) goal() string {
	g := r.Goal
	sign := "≤"
	if g.Least {
		sign = "≥"
	}
	switch g.Of {
	case ofRatio:
		return fmt.Sprintf("ratio %s %s", sign, figure(g.Bound))
	case ofDifference:
		return fmt.Sprintf("difference %s %s %s", sign, figure(g.Bound), r.Unit)
	case ofValue:
		return fmt.Sprintf("%s %s", sign, figure(g.Bound))
	}
	return ""
}

// verdict is "met" or "NOT met"; empty without a goal.
func (r result) verdict() string {
	var values []float64
	switch r.Goal.Of {
	case ofValue:
		values = r.Relay
	case ofRatio:
		values = r.ratios()
	case ofDifference:
		values = r.differences()
	default:
		return ""
	}
	m := median(values)
	if r.Goal.Least && m >= r.Goal.Bound || !r.Goal.Least && m <= r.Goal.Bound {
		return "met"
	}
	return "NOT met" // so is one that was not measured
}

func (r result) ratios() []float64 {
	return pairwise(r, func(x, y float64) float64 { return x / y })
}

func (r result) differences() []float64 {
	return pairwise(r, func(x, y float64) float64 { return x - y })
}

func pairwise(r result, f func(relay, reference float64) float64) []float64 {
	values := make([]float64, min(len(r.Relay), len(r.Reference)))
	for i := range values {
		values[i] = f(r.Relay[i], r.Reference[i])
	}
	return values
}

// summary is the result in a few words, for the progress.
func (r result) summary() string {
	words := []string{spread(r.Relay), r.Unit}
	if len(r.Reference) > 0 {
		words = append(words, "against", spread(r.Reference)+",", "ratio", spread(r.ratios()))
	}
	return strings.TrimSpace(strings.Join(append(words, r.verdict()), " "))
}

// median is NaN of nothing.
func median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// spread is the median, and of several values the least and the greatest.
func spread(values []float64) string {
	switch len(values) {
	case 0:
		return ""
	case 1:
		return figure(values[0])
	}
	return fmt.Sprintf("%s (%s–%s)", figure(median(values)), figure(slices.Min(values)), figure(slices.Max(values)))
}

// figure writes three digits, or all of those before the point, in groups of
// three.
func figure(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return "?"
	}
	digits := 0
	if a := math.Abs(v); a > 0 && a < 100 {
		digits = min(2-int(math.Floor(math.Log10(a))), 6)
	}
	text := strconv.FormatFloat(v, 'f', digits, 64)
	whole, fraction, _ := strings.Cut(text, ".")
	sign := strings.HasPrefix(whole, "-")
	whole = strings.TrimPrefix(whole, "-")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction = strings.TrimRight(fraction, "0"); fraction != "" {
		whole += "." + fraction
	}
	if sign {
		whole = "-" + whole
	}
	return whole
}
