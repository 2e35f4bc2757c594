package cli

import (
	"bytes"
	"errors"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/relay"
)

// defaults are those of the contract's section 2, and of the flags beside it,
// as a reader is told them.
var defaults = map[string]string{
	"mysql-dsn": "required", "mysql-password-file": "none", "table": "outbox", "layout": "auto", "columns": "none", "time-zone": "UTC",
	"mysql-tls-ca": "the system's", "mysql-tls-cert": "none", "mysql-tls-key": "none", "mysql-tls-server-name": "the host that is dialled",
	"amqp-tls-ca": "the system's", "amqp-tls-cert": "none", "amqp-tls-key": "none", "amqp-tls-server-name": "the host that is dialled",
	"server-id": "derived from host and checkpoint path, 2^31 and up", "amqp-url": "required", "amqp-password-file": "none",
	"exchange": "outbox", "partitions": "0", "checkpoint": "$STATE_DIRECTORY/checkpoint.json, else ./checkpoint.json",
	"start": "backfill", "window": "4096", "order": "strict", "listen": "127.0.0.1:9347", "debug": "off", "drain-timeout": "15s", "on-bad-event": "stop", "prune-after": "0", "give-up-after": "0",
	"only-topics": "all", "except-topics": "none", "stamp": "off", "shadow": "off",
	"log-level": "info", "log-format": "console on a terminal, else json",
}

// computed are the flags whose default is no value of the flag.
var computed = map[string]bool{
	"mysql-dsn": true, "mysql-password-file": true, "columns": true, "server-id": true, "amqp-url": true, "amqp-password-file": true,
	"checkpoint": true, "log-format": true, "only-topics": true, "except-topics": true,
	"mysql-tls-ca": true, "mysql-tls-cert": true, "mysql-tls-key": true, "mysql-tls-server-name": true,
	"amqp-tls-ca": true, "amqp-tls-cert": true, "amqp-tls-key": true, "amqp-tls-server-name": true,
}

// valueOf is a flag's default in the code.
func valueOf(t *testing.T, flag cli.Flag) string {
	t.Helper()
	switch f := flag.(type) {
	case *cli.DurationFlag:
		if f.Value == 0 {
			return "0"
		}
		return f.Value.String()
	case *cli.BoolFlag:
		if !f.Value {
			return "off"
		}
		return "on"
	case cli.DocGenerationFlag:
		return f.GetValue()
	}
	t.Fatalf("%s is a %T", flag.Names()[0], flag)
	return ""
}

// TestDefaults holds the flags of run against the contract, and their
// variables against their names.
func TestDefaults(t *testing.T) {
	found := map[string]bool{}
	for _, flag := range runFlags() {
		name := flag.Names()[0]
		found[name] = true
		want, known := defaults[name]
		if !known {
			t.Errorf("--%s is in no contract", name)
		}
		got := valueOf(t, flag)
		if computed[name] {
			if got != "" && got != "0" {
				t.Errorf("--%s has the default %q, and is to be computed", name, got)
			}
		} else if got != want {
			t.Errorf("--%s has the default %q, want %q", name, got, want)
		}
		variable := "RELAY_" + strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
		if got := flag.(cli.DocGenerationFlag).GetEnvVars(); len(got) != 1 || got[0] != variable {
			t.Errorf("--%s is also %v, want %s", name, got, variable)
		}
		if flag.(cli.DocGenerationFlag).GetUsage() == "" {
			t.Errorf("--%s says nothing about itself", name)
		}
	}
	for name := range defaults {
		if !found[name] {
			t.Errorf("there is no --%s", name)
		}
	}
}

// TestReadmeOptions: the table in the README has one row for each flag of run,
// with its default, and no other.
func TestReadmeOptions(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, flag := range runFlags() {
		name := flag.Names()[0]
		if want[name] = valueOf(t, flag); computed[name] {
			want[name] = defaults[name]
		}
	}
	got := map[string]string{}
	_, options, _ := strings.Cut(string(text), "\n## Options\n")
	options, _, _ = strings.Cut(options, "\n## ")
	for line := range strings.Lines(options) {
		row := regexp.MustCompile("^\\| `--([a-z-]+)` \\| (.+) \\| (.+) \\|$").FindStringSubmatch(strings.TrimSpace(line))
		if row == nil {
			if strings.HasPrefix(line, "| `--") {
				t.Errorf("no row of flag, meaning, default: %s", line)
			}
			continue
		}
		if _, twice := got[row[1]]; twice {
			t.Errorf("--%s has two rows", row[1])
		}
		got[row[1]] = strings.ReplaceAll(row[3], "`", "")
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("options and their defaults (-code +README):\n%s", diff)
	}
}

// TestHelp: each command's help has an example, and each example's command
// and flags exist.
func TestHelp(t *testing.T) {
	var walk func(path []string, commands []*cli.Command)
	walk = func(path []string, commands []*cli.Command) {
		for _, command := range commands {
			path := append(append([]string{}, path...), command.Name)
			walk(path, command.Subcommands)
			if len(command.Subcommands) > 0 {
				continue
			}
			var stdout, stderr bytes.Buffer
			if err := Run(t.Context(), append(path, "--help"), &stdout, &stderr); err != nil || stderr.Len() > 0 {
				t.Errorf("%v --help: %v\n%s", path, err, stderr.String())
			}
			_, example, found := strings.Cut(stdout.String(), "Example")
			_, example, _ = strings.Cut(example, "\n")
			example, _, _ = strings.Cut(example, "\n\n")
			if !found || !strings.HasPrefix(strings.TrimSpace(example), strings.Join(path, " ")) {
				t.Errorf("%v --help has no example of itself:\n%s", path, stdout.String())
			}
			known := map[string]bool{}
			for _, flag := range command.Flags {
				known[flag.Names()[0]] = true
			}
			for _, used := range regexp.MustCompile(`--([a-z-]+)`).FindAllStringSubmatch(example, -1) {
				if !known[used[1]] {
					t.Errorf("the example of %v has --%s, which it does not take", path, used[1])
				}
			}
		}
	}
	walk([]string{"relay"}, app(nil, nil).Commands)
}

// TestCommands lists the contract's commands that this version has.
func TestCommands(t *testing.T) {
	var names []string
	for _, command := range app(nil, nil).Commands {
		names = append(names, command.Name)
	}
	if diff := cmp.Diff([]string{"run", "resume", "poll", "check", "status", "prune", "audit", "replay", "explain", "schema", "print", "completion", "version"}, names); diff != "" {
		t.Errorf("commands (-want +got):\n%s", diff)
	}
}

func TestVersion(t *testing.T) {
	var stdout bytes.Buffer
	if err := Run(t.Context(), []string{"relay", "version"}, &stdout, nil); err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`^relay \S.* go1\.\d+\S*\n$`).MatchString(stdout.String()) {
		t.Errorf("relay version prints %q", stdout.String())
	}
}

func TestLine(t *testing.T) {
	for _, test := range []struct {
		err  error
		want string
	}{
		{errors.New("plain"), "relay: plain"},
		{errors.New("relay: gave up"), "relay: gave up"},
		{errors.Join(errors.New("one"), errors.New("two")), "relay: one; two"},
		{errors.New("a\r\nb\n"), "relay: a; b"},
		{usage("%q is wrong", "x"), `relay: usage: "x" is wrong`},
	} {
		if got := Line(test.err); got != test.want {
			t.Errorf("Line(%q) = %q, want %q", test.err, got, test.want)
		}
	}
}

// parse gives the configuration that flags and variables make.
func parse(t *testing.T, args ...string) (relay.Config, error) {
	t.Helper()
	var cfg relay.Config
	a := app(nil, nil)
	command := a.Command("run")
	command.Action = func(c *cli.Context) (err error) {
		cfg, err = config(c)
		return err
	}
	err := a.RunContext(t.Context(), append([]string{"relay", "run", "--mysql-dsn", "u@tcp(h:1)/shop", "--amqp-url", "amqp://h/"}, args...))
	return cfg, err
}

// TestFlagsWin: a flag wins over its variable, and a variable over the default.
func TestFlagsWin(t *testing.T) {
	t.Setenv("RELAY_WINDOW", "7")
	t.Setenv("RELAY_ORDER", "pipelined")
	t.Setenv("RELAY_DRAIN_TIMEOUT", "3s")
	cfg, err := parse(t, "--window", "9")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Window != 9 || cfg.Order != relay.Pipelined || cfg.DrainTimeout != 3*time.Second || cfg.Start != relay.Backfill {
		t.Errorf("window %d, order %s, drain timeout %s, start %s", cfg.Window, cfg.Order, cfg.DrainTimeout, cfg.Start)
	}
}

// TestServerID is stable for a checkpoint, differs between two, and stays away
// from the numbers that people give.
func TestServerID(t *testing.T) {
	id := func(args ...string) uint32 {
		t.Helper()
		cfg, err := parse(t, args...)
		if err != nil {
			t.Fatal(err)
		}
		return cfg.Source.ServerID
	}
	a, again, b := id("--checkpoint", "/a/c.json"), id("--checkpoint", "/a/../a/c.json"), id("--checkpoint", "/b/c.json")
	if a != again || a == b || a < 1<<31 || b < 1<<31 {
		t.Errorf("ids are %d, %d for one checkpoint and %d for another", a, again, b)
	}
	if got := id("--server-id", "17"); got != 17 {
		t.Errorf("--server-id 17 gives %d", got)
	}
}

func TestCheckpointPath(t *testing.T) {
	for _, test := range []struct{ path, state, want string }{
		{"", "", "checkpoint.json"},
		{"", "/var/lib/relay", "/var/lib/relay/checkpoint.json"},
		{"", "/var/lib/a:/var/lib/b", "/var/lib/a/checkpoint.json"},
		{"/c.json", "/var/lib/relay", "/c.json"},
	} {
		t.Setenv("STATE_DIRECTORY", test.state)
		if got := checkpointPath(test.path); got != test.want {
			t.Errorf("checkpointPath(%q) with STATE_DIRECTORY=%q is %q, want %q", test.path, test.state, got, test.want)
		}
	}
}
