package cli

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"
)

// TestComplete: what the last word can become. With "..." only the values
// before it must be there.
func TestComplete(t *testing.T) {
	for _, test := range []struct{ line, want string }{
		{"", "run resume poll check status prune audit replay explain schema print completion version"},
		{"ru", "run resume poll check status prune audit replay explain schema print completion version"}, // the shell picks
		{"schema ", "sql"},
		{"completion ", "bash zsh fish"},
		{"run --start ", "backfill latest earliest"},
		{"run --start la", "backfill latest earliest"},
		{"run --start = la", "backfill latest earliest"}, // bash
		{"run --start =", "backfill latest earliest"},
		{"run --start=la", "--start=backfill --start=latest --start=earliest"},
		{"run -start=", "-start=backfill -start=latest -start=earliest"},
		{"run --start latest --order ", "strict pipelined"},
		{"run --checkpoint ", ""}, // a file
		{"resume --yes --gap ", "backfill"},
		{"resume --yes --", "--from-gtid --from-time --from-file --undo ..."},
		{"check ", "--mysql-dsn ..."},
		{"version ", "--help"},
		{"nonsense ", ""},
		{"nonsense --", ""},
	} {
		var out bytes.Buffer
		args := append([]string{"relay", completeWord}, strings.Split(test.line, " ")...)
		if err := Run(t.Context(), args, &out, nil); err != nil {
			t.Errorf("%q: %v", test.line, err)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			value, help, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
			if help == "" {
				t.Errorf("%q: no help for %q", test.line, value)
			}
			got = append(got, value)
		}
		want := strings.Fields(test.want)
		if n := len(want); n > 0 && want[n-1] == "..." {
			want, got = want[:n-1], got[:min(n-1, len(got))]
		}
		if diff := cmp.Diff(want, got, cmp.Transformer("", func(s []string) string { return strings.Join(s, " ") })); diff != "" {
			t.Errorf("%q (-want +got):\n%s", test.line, diff)
		}
	}
}

// TestValues: run takes the values that are offered, and a flag that refuses
// another has some to offer.
func TestValues(t *testing.T) {
	all := map[string]bool{}
	var walk func([]*cli.Command)
	walk = func(commands []*cli.Command) {
		for _, command := range commands {
			for _, flag := range command.Flags {
				all[flag.Names()[0]] = true
			}
			walk(command.Subcommands)
		}
	}
	walk(app(nil, nil).Commands)
	for name := range values {
		if !all[name] {
			t.Errorf("there is no --%s", name)
		}
	}
	for _, flag := range runFlags() {
		name := flag.Names()[0]
		if _, ok := flag.(*cli.StringFlag); !ok || name == "time-zone" || name == "columns" {
			continue
		}
		for _, value := range values[name] {
			if _, err := parse(t, "--"+name, value); err != nil {
				t.Errorf("--%s %s is offered: %v", name, value, err)
			}
		}
		if _, err := parse(t, "--"+name, "x-y"); err != nil && !strings.HasSuffix(name, "-file") && !strings.Contains(name, "-tls-") && !slices.Contains([]string{"mysql-dsn", "amqp-url"}, name) && len(values[name]) == 0 {
			t.Errorf("--%s takes few values, and none is offered: %v", name, err)
		}
	}
}
