package cli_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/relay"
	"github.com/outboxrelay/relay/relay/relaytest"
)

// asset is what relay print writes.
func asset(t testing.TB, args ...string) string {
	t.Helper()
	got := run(t, nil, append([]string{"print"}, args...)...)
	if got.code != 0 || got.stderr != "" {
		t.Fatalf("relay print %v: %d\n%s", args, got.code, got.stderr)
	}
	return got.stdout
}

// TestUnits: systemd takes both units without a word, and calls their exposure
// under 2.0. Seen to fail with an option misspelt (verify prints a line) and
// without SystemCallFilter= and CapabilityBoundingSet= (4.4).
func TestUnits(t *testing.T) {
	t.Parallel()
	for name, file := range map[string]string{"unit": "relay.service", "unit@": "relay@.service"} {
		unit := asset(t, name)
		path := filepath.Join(t.TempDir(), file)
		here := strings.ReplaceAll(unit, "/usr/bin/relay", relayBinary(t))
		if err := os.WriteFile(path, []byte(here), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, all, err := tool(t, "systemd-analyze", "verify", "--man=no", path); err != nil || all != "" {
			t.Errorf("systemd-analyze verify %s: %v\n%s", file, err, all)
		}
		if _, all, err := tool(t, "systemd-analyze", "security", "--offline=true", "--threshold=19", "--no-pager", path); err != nil {
			t.Errorf("systemd-analyze security %s: %v\n%s", file, err, all)
		}
		for setting, want := range map[string]string{
			"Type": "notify", "NotifyAccess": "main", "WatchdogSec": "60", "DynamicUser": "yes", "Restart": "on-failure",
			"RestartPreventExitStatus": strings.Join([]string{strconv.Itoa(relay.ExitUsage), strconv.Itoa(relay.ExitBadEvent), strconv.Itoa(relay.ExitUnfit)}, " "),
		} {
			if !strings.Contains(unit, "\n"+setting+"="+want+"\n") {
				t.Errorf("%s has no %s=%s", file, setting, want)
			}
		}
	}
}

// TestAuditUnits: so are the audit's units, the service being taken with the
// timer that starts it; and the service sets what is an option.
func TestAuditUnits(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	service := strings.ReplaceAll(asset(t, "audit.service"), "/usr/bin/relay", relayBinary(t))
	paths := []string{filepath.Join(dir, "relay-audit.service"), filepath.Join(dir, "relay-audit.timer")}
	write(t, paths[0], service)
	write(t, paths[1], asset(t, "audit.timer"))
	if _, all, err := tool(t, "systemd-analyze", "verify", "--man=no", paths[0], paths[1]); err != nil || all != "" {
		t.Errorf("systemd-analyze verify: %v\n%s", err, all)
	}
	if _, all, err := tool(t, "systemd-analyze", "security", "--offline=true", "--threshold=19", "--no-pager", paths[0]); err != nil {
		t.Errorf("systemd-analyze security: %v\n%s", err, all)
	}
	help := run(t, nil, "audit", "--help").stdout
	for _, name := range regexp.MustCompile(`RELAY_[A-Z_]+`).FindAllString(service, -1) {
		if !strings.Contains(help, "[$"+name+"]") {
			t.Errorf("%s is no option's", name)
		}
	}
}

// TestEnvFile: what the environment file names are options, which have these
// values for their examples.
func TestEnvFile(t *testing.T) {
	t.Parallel()
	var env []string
	for _, line := range regexp.MustCompile(`(?m)^#(RELAY_[A-Z_]+)='?([^'\n]*)'?$`).FindAllStringSubmatch(asset(t, "env"), -1) {
		env = append(env, line[1]+"="+line[2])
	}
	if len(env) < 6 {
		t.Fatalf("the file has %q", env)
	}
	help := run(t, nil, "run", "--help").stdout
	for _, variable := range env {
		name, _, _ := strings.Cut(variable, "=")
		if !strings.Contains(help, "[$"+name+"]") {
			t.Errorf("%s is no option's", name)
		}
	}
	// All is understood: the relay gets as far as the source, which is not there.
	env = append(env, "RELAY_MYSQL_DSN=relay@tcp(127.0.0.1:1)/shop", "RELAY_CHECKPOINT="+filepath.Join(t.TempDir(), "c"))
	run(t, env, "check").want(t, relay.ExitDifferences, "127.0.0.1:1")
}

// TestGrantsSource: the statements run on either server, the relay runs with
// their user, and without any one of its privileges check asks for it: there is
// none too many. Seen to fail without SLAVE MONITOR in the statements.
func TestGrantsSource(t *testing.T) {
	onEach(t, func(t *testing.T, on source) {
		r := on.rig(t)
		r.exec("DROP USER " + r.user)
		for statement := range strings.SplitSeq(asset(t, "grants", "--mysql-dsn", r.dsn), ";\n") {
			if statement = regexp.MustCompile(`(?m)^--.*\n`).ReplaceAllString(statement, ""); strings.TrimSpace(statement) != "" {
				r.exec(strings.ReplaceAll(statement, "'PASSWORD'", "'"+secret+"'"))
			}
		}
		r.begun()
		r.insert(r.db, 1, 2)
		r.wantEvents(r.relayed(), 1, 2)
		got := r.run("check", "--partitions", "1")
		got.want(t, 0)

		user := "'" + r.user + "'@'%'"
		for privilege, what := range map[string]string{
			"REPLICATION SLAVE": "*.*", "REPLICATION CLIENT": "*.*", "SELECT": r.database() + ".outbox", "SLAVE MONITOR": "*.*",
		} {
			if privilege == "SLAVE MONITOR" && !r.mariadb() {
				continue
			}
			name := privilege
			if privilege == "REPLICATION CLIENT" {
				name = r.pick(privilege, "BINLOG MONITOR")
			}
			if !regexp.MustCompile(`(?m)^ok +grant ` + name + ` `).MatchString(got.stdout) {
				t.Errorf("relay check does not see %s:\n%s", privilege, got.stdout)
			}
			r.exec("REVOKE " + privilege + " ON " + what + " FROM " + user)
			without := r.run("check", "--partitions", "1")
			if !strings.Contains(without.stdout, "GRANT "+name+" ON") {
				t.Errorf("without %s, relay check does not ask for it:\n%s", privilege, without.stdout)
			}
			r.exec("GRANT " + privilege + " ON " + what + " TO " + user)
		}
	})
}

// TestGrantsBroker: the broker takes the permissions, and the relay runs with
// them, with and without --partitions.
func TestGrantsBroker(t *testing.T) {
	t.Parallel()
	b := relaytest.PrivateRabbitMQ(t)
	r := newRig(t)
	r.dropTopology()
	r.amqp, r.exchange = b.URL, "orders.out" // as guest, for the test
	grant := func(partitions string) {
		t.Helper()
		text := asset(t, "grants", "--table", "shop.outbox", "--amqp-url", "amqp://relay:any@h/", "--exchange", r.exchange, "--partitions", partitions)
		for _, line := range regexp.MustCompile(`(?m)^-- rabbitmqctl (.*)$`).FindAllStringSubmatch(text, -1) {
			words, err := exec.Command("bash", "-c", `printf '%s\n' `+strings.ReplaceAll(line[1], "'PASSWORD'", "'"+secret+"'")).Output()
			if err != nil {
				t.Fatal(err)
			}
			args := strings.Split(strings.TrimSuffix(string(words), "\n"), "\n")
			if args[0] == "add_user" && partitions == "0" {
				continue
			}
			b.Ctl(t, args...)
		}
	}
	grant("2")
	r.flags = []string{"--amqp-url", onVhost(t, b, "/")}
	r.relay("--partitions", "2")
	grant("0")
	r.insert(r.db, 1, 1)
	r.relay()
	if got := len(r.take(0)) + len(r.take(1)); got != 1 {
		t.Errorf("%d events arrived, want 1", got)
	}
	r.run("run", "--partitions", "3").want(t, relay.ExitUnfit, "orders.out") // the smaller rights declare nothing
}

// TestGrantsRefused: without a database there is no statement; names are quoted.
func TestGrantsRefused(t *testing.T) {
	t.Parallel()
	run(t, nil, "print", "grants").want(t, relay.ExitUsage, "--table shop.outbox")
	run(t, nil, "print", "grants", "--table", "a.b", "--amqp-url", "amqp://u:hunter2@h:x/").want(t, relay.ExitUsage, "--amqp-url amqp://")
	got := asset(t, "grants", "--mysql-dsn", "o'b@/we`ird", "--amqp-url", "amqp://a%27b@h/v", "--exchange", "a.b")
	for _, want := range []string{"'o''b'@'%'", "`we``ird`.`outbox`", `-p 'v' 'a'\''b' '^$' '^a\.b$' '^$'`} {
		if !strings.Contains(got, want) {
			t.Errorf("there is no %s in:\n%s", want, got)
		}
	}
}
