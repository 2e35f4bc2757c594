package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// measured matches the name of a metric in an expression.
var measured = regexp.MustCompile(`\b(relay|process)_[a-z_]+`)

// TestAlerts: promtool takes the printed rules, each fires when it is to and
// does not when nothing is wrong (testdata/alerts_test.yaml), and what they and
// the dashboard measure is what a relay shows.
func TestAlerts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rules := run(t, nil, "print", "alerts").stdout
	write(t, filepath.Join(dir, "alerts.yaml"), rules)
	tests := string(mustRead(t, "../../testdata/alerts_test.yaml"))
	write(t, filepath.Join(dir, "alerts_test.yaml"), tests)
	for _, args := range [][]string{{"check", "rules", filepath.Join(dir, "alerts.yaml")}, {"test", "rules", filepath.Join(dir, "alerts_test.yaml")}} {
		if _, all, err := tool(t, append([]string{"promtool"}, args...)...); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, all)
		}
	}
	alerts := regexp.MustCompile(`- alert: (\w+)`).FindAllStringSubmatch(rules, -1)
	if len(alerts) == 0 {
		t.Fatal("there are no rules")
	}
	for _, alert := range alerts {
		if n := strings.Count(tests, "alertname: "+alert[1]+"\n") + strings.Count(tests, "alertname: "+alert[1]+","); n != 2 {
			t.Errorf("%s is in %d tests, want 2: it fires, and it does not", alert[1], n)
		}
	}

	dashboard := run(t, nil, "print", "dashboard").stdout
	expressions := expressions(t, dashboard)
	var recorded strings.Builder // as rules, for promtool to parse
	fmt.Fprintln(&recorded, "groups: [{name: dashboard, rules: [")
	for i, e := range expressions {
		fmt.Fprintf(&recorded, "{record: e%d, expr: %q},\n", i, strings.ReplaceAll(e, "$instance", ".*"))
	}
	fmt.Fprintln(&recorded, "]}]")
	write(t, filepath.Join(dir, "dashboard.yaml"), recorded.String())
	if _, all, err := tool(t, "promtool", "check", "rules", filepath.Join(dir, "dashboard.yaml")); err != nil {
		t.Errorf("the dashboard's expressions: %v\n%s", err, all)
	}

	r := newRig(t)
	address := freeAddress(t)
	d := r.start("--partitions", "1", "--listen", address)
	d.settled()
	_, body := get(address, "/metrics")
	var names []string
	for line := range strings.Lines(body) {
		name, _, _ := strings.Cut(line, " ")
		name, _, _ = strings.Cut(name, "{")
		names = append(names, name)
	}
	shown := slices.Concat(names, r.auditMetrics())
	var own []string // that the two name
	for _, name := range measured.FindAllString(rules+strings.Join(expressions, "\n"), -1) {
		if own = append(own, name); !slices.Contains(shown, name) {
			t.Errorf("%s is named, and a relay does not show it", name)
		}
	}
	for _, name := range names {
		if strings.HasPrefix(name, "relay_") && !strings.HasSuffix(name, "_sum") && !strings.HasSuffix(name, "_count") && !slices.Contains(own, name) {
			t.Errorf("%s is on no dashboard and in no alert", name)
		}
	}
	for name := range strings.FieldsFuncSeq(body, func(r rune) bool { return r == '\n' }) {
		if family, ok := strings.CutPrefix(name, "# TYPE relay_"); ok {
			family, _, _ = strings.Cut(family, " ")
			if !regexp.MustCompile(`# HELP relay_` + family + ` \S+ \S+`).MatchString(body) {
				t.Errorf("relay_%s has no help", family)
			}
		}
	}
}

// auditMetrics are those that an audit writes.
func (r *rig) auditMetrics() (names []string) {
	r.t.Helper()
	r.inbox()
	textfile := filepath.Join(r.dir, "audit.prom")
	r.run("audit", "--textfile", textfile).want(r.t, 0)
	for _, metric := range regexp.MustCompile(`(?m)^(relay_audit_[a-z_]+)\{`).FindAllStringSubmatch(string(mustRead(r.t, textfile)), -1) {
		names = append(names, metric[1])
	}
	return names
}

// expressions are all of a dashboard's.
func expressions(t *testing.T, dashboard string) (list []string) {
	t.Helper()
	var board struct {
		Panels []struct {
			Title   string `json:"title"`
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal([]byte(dashboard), &board); err != nil {
		t.Fatal(err)
	}
	for _, panel := range board.Panels {
		if len(panel.Targets) == 0 {
			t.Errorf("the panel %q shows nothing", panel.Title)
		}
		for _, target := range panel.Targets {
			list = append(list, target.Expr)
		}
	}
	return list
}

func write(t testing.TB, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
