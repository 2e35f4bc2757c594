package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// relayctl runs the script, its directories in dir, with a relay that prints
// its arguments and its RELAY_ variables, and a systemctl that says state.
func relayctl(t *testing.T, dir, state string, args ...string) (stdout []string, stderr string, code int) {
	t.Helper()
	if err := os.MkdirAll(filepath.Join(dir, "var"), 0o755); err != nil {
		t.Fatal(err)
	}
	script := strings.NewReplacer("/etc/relay", dir, "/var/lib", dir+"/var").Replace(asset(t, "ctl"))
	for name, text := range map[string]string{
		"relayctl":  script,
		"relay":     "#!/bin/sh\nprintf '<%s>\\n' \"$@\"\nenv | grep ^RELAY_ | sort\n",
		"systemctl": "#!/bin/sh\necho " + state + "\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), "sh", append([]string{filepath.Join(dir, "relayctl")}, args...)...)
	cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "LC_ALL=C", "RELAY_STRAY=1", "RELAY_EXCHANGE=caller's"}
	var errors strings.Builder
	cmd.Stderr = &errors
	out, err := cmd.Output()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return slices.DeleteFunc(strings.Split(string(out), "\n"), func(s string) bool { return s == "" }), errors.String(), cmd.ProcessState.ExitCode()
}

func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRelayctl: relay gets the arguments and the unit's settings as they are
// written, and nothing of the caller's. Seen to fail when the file is sourced.
// That systemd reads such a file the same is in testdata/dist-test.sh.
func TestRelayctl(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{
		"relay.env": strings.Join([]string{
			`# RELAY_A=1`, ` ; RELAY_A=2`, ``,
			`RELAY_DSN='relay:a"b$HOME` + "`id`" + `#\x@tcp(127.0.0.1:3306)/shop'  `,
			` RELAY_DOUBLE = "x \"y\" \$z \q 'k' (1) # \\"`,
			`RELAY_BARE=a b # c "d" (e) $HOME \$f it's`,
			`RELAY_EMPTY=`, `RELAY_NONE=''`, `export RELAY_EXPORT=1`, `PASSWORD`,
			"RELAY_CRLF=a b\r", "RELAY_LAST='(a)'\r",
		}, "\n"),
		"mysql-password": "secret\n", "amqp-password": "\n",
		"shop.env":            "RELAY_CHECKPOINT=/c\nRELAY_MYSQL_PASSWORD_FILE=/p\n",
		"shop.mysql-password": "secret\n", "shop.amqp-password": "secret",
	})
	got, stderr, code := relayctl(t, dir, "active", "status", "a  b", "$HOME'")
	want := []string{
		"<status>", "<a  b>", "<$HOME'>",
		`RELAY_BARE=a b # c "d" (e) $HOME $f it's`,
		"RELAY_CHECKPOINT=" + dir + "/var/relay/checkpoint.json",
		"RELAY_CRLF=a b",
		`RELAY_DOUBLE=x "y" $z \q 'k' (1) # \`,
		`RELAY_DSN=relay:a"b$HOME` + "`id`" + `#\x@tcp(127.0.0.1:3306)/shop`,
		"RELAY_EMPTY=", "RELAY_LAST=(a)",
		"RELAY_MYSQL_PASSWORD_FILE=" + dir + "/mysql-password",
		"RELAY_NONE=",
	}
	if diff := cmp.Diff(want, got); diff != "" || code != 0 {
		t.Errorf("exit %d, -want +got:\n%s", code, diff)
	}
	if !strings.Contains(stderr, "line 9 of") || !strings.Contains(stderr, "line 10 of") || strings.Count(stderr, "\n") != 2 {
		t.Errorf("of what is no setting it says %q", stderr)
	}
	got, _, _ = relayctl(t, dir, "active", "-i", "shop", "check")
	want = []string{"<check>", "RELAY_AMQP_PASSWORD_FILE=" + dir + "/shop.amqp-password", "RELAY_CHECKPOINT=/c", "RELAY_MYSQL_PASSWORD_FILE=/p"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("relayctl -i shop, -want +got:\n%s", diff)
	}
}

// TestRelayctlSays: what it refuses, and what it says before a resume. Seen to
// fail without the look at the unit's state.
func TestRelayctlSays(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeFiles(t, dir, map[string]string{"relay.env": "", "open.env": "RELAY_MYSQL_DSN='secret\nmore'\n"})
	for _, test := range []struct {
		state, typed string
		code         int
		want         string
	}{
		{"inactive", "", 64, "type: relayctl status"},
		{"inactive", "-i", 64, "type: relayctl -i NAME status"},
		{"inactive", "-i ../x status", 64, "type: relayctl -i NAME status"},
		{"inactive", "-i open status", 78, "line 1 of " + dir + "/open.env: the value of RELAY_MYSQL_DSN is not one line"},
		{"active", "resume --undo", 78, "type: systemctl stop relay first"},
		{"activating", "resume --undo", 78, "type: systemctl stop relay first"},
		{"failed", "resume --undo", 0, "stop it with Ctrl-C when it follows, then: systemctl start relay\n"},
		{"inactive", "resume", 0, "stop it with Ctrl-C when it follows, then: systemctl start relay\n"},
		{"active", "resume --undo --dry-run", 0, ""},
		{"active", "replay --parked", 0, ""},
	} {
		_, stderr, code := relayctl(t, dir, test.state, strings.Fields(test.typed)...)
		if code != test.code || !strings.Contains(stderr, test.want) || (test.want == "") != (stderr == "") || strings.Contains(stderr, "secret") {
			t.Errorf("relayctl %s, the unit %s: exit %d, want %d: %q, want %q", test.typed, test.state, code, test.code, stderr, test.want)
		}
	}
}
