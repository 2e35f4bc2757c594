package cli

import (
	"slices"
	"testing"

	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/schema"
)

// TestTopicsFlags: globs come with commas between them, as flags again and again,
// or as a variable.
func TestTopicsFlags(t *testing.T) {
	t.Setenv("RELAY_EXCEPT_TOPICS", "a.*, b")
	var got schema.Topics
	a := &cli.App{
		Flags: topicsFlags(), DisableSliceFlagSeparator: true,
		Action: func(c *cli.Context) (err error) { got, err = topics(c); return err },
	}
	if err := a.Run([]string{"relay", "--only-topics", "order.*,cart", "--only-topics", "x?y"}); err != nil {
		t.Fatal(err)
	}
	if only, except := []string{"order.*", "cart", "x?y"}, []string{"a.*", "b"}; !slices.Equal(got.Only, only) || !slices.Equal(got.Except, except) {
		t.Errorf("got %q, %q, want %q, %q", got.Only, got.Except, only, except)
	}
	if err := a.Run([]string{"relay", "--only-topics", "order.*,"}); err == nil {
		t.Error("an empty glob is taken")
	}
}

// TestPollDefaults are those of the issue; the flags of poll are those of run, and
// its own.
func TestPollDefaults(t *testing.T) {
	want := map[string]string{"interval": "500ms", "batch": "100"}
	for _, flag := range pollFlags() {
		name := flag.Names()[0]
		value, own := want[name]
		if !own {
			value = defaults[name]
		}
		if got := valueOf(t, flag); !computed[name] && got != value && name != "only-topics" && name != "except-topics" {
			t.Errorf("--%s has the default %q, want %q", name, got, value)
		}
		if slices.Contains([]string{"checkpoint", "server-id", "start", "window", "order", "on-bad-event"}, name) {
			t.Errorf("poll has --%s", name)
		}
	}
}
