package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTable(t *testing.T) {
	got := table([]result{
		{Section: "drain", Case: "a", Unit: "events/s", Relay: []float64{1000, 3000, 2000}, Against: "raw", Reference: []float64{2000, 3000, 1000}, Goal: atLeast(ofRatio, 0.95), Note: "first"},
		{Section: "drain", Case: "µ", Unit: "events/s", Relay: []float64{5}},
		{Section: "cpu", Case: "c", Unit: "µs/event", Relay: []float64{5}, Goal: atMost(ofValue, 4), Note: "second"},
	})
	want := `|       | case  | unit     | relay               | reference           |     | ratio     | goal         |         |
|-------|-------|----------|---------------------|---------------------|-----|-----------|--------------|---------|
| drain | a [1] | events/s | 2,000 (1,000–3,000) | 2,000 (1,000–3,000) | raw | 1 (0.5–2) | ratio ≥ 0.95 | met     |
|       | µ     | events/s | 5                   |                     |     |           |              |         |
| cpu   | c [2] | µs/event | 5                   |                     |     |           | ≤ 4          | NOT met |

[1] first
[2] second
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
