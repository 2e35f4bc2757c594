package relay

import (
	"os"
	"regexp"
	"strconv"
	"testing"

	"github.com/outboxrelay/relay/schema"
)

// TestWhenItStops holds the README's table together with the errors that end
// the program: each is in it once, with its exit code, and nothing else is.
func TestWhenItStops(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	section := regexp.MustCompile(`(?s)\n## When it stops\n.*?\n## `).Find(readme)
	listed := map[string]int{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (\\d+) \\| [^|]+ \\| .+ \\|$").FindAllSubmatch(section, -1) {
		code, err := strconv.Atoi(string(row[2]))
		if err != nil {
			t.Fatal(err)
		}
		listed[string(row[1])] = code
	}
	bad := (&schema.BadEventError{}).Error()[:len("schema: event id=")]
	known := map[string]int{bad: ExitBadEvent}
	for _, e := range exits {
		known[e.err.Error()] = e.code
	}
	for text, code := range known {
		if listed[text] != code {
			t.Errorf("the README says %d of %q, which ends the relay with %d", listed[text], text, code)
		}
	}
	for text := range listed {
		if known[text] == 0 {
			t.Errorf("the README lists %q, which the relay does not say", text)
		}
	}
}
