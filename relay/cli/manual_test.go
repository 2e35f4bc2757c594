package cli_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestManual: mandoc has nothing to say about the page, and the page has every
// section, command, option and exit code. Seen to fail with fill replaced by
// roff (long lines), and with a "." at the beginning of a line of a help text.
func TestManual(t *testing.T) {
	t.Parallel()
	page := asset(t, "man")
	path := filepath.Join(t.TempDir(), "relay.1")
	if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, all, err := tool(t, "mandoc", "-T", "lint", path); err != nil || all != "" {
		t.Errorf("mandoc -T lint: %v\n%s", err, all)
	}
	text, all, err := tool(t, "mandoc", "-T", "utf8", "-O", "width=200", path)
	if err != nil {
		t.Fatal(err, all)
	}
	text = regexp.MustCompile(`.\x08`).ReplaceAllString(text, "") // bold
	wants := []string{
		"NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS", "OPTIONS", "ENVIRONMENT", "EXIT STATUS", "FILES", "SIGNALS", "EXAMPLES",
		"   relay run\n", "   relay schema sql\n", "   relay print unit@\n", "Variable: RELAY_SERVER_ID.",
	}
	for option := range strings.SplitSeq(run(t, nil, "run", "--help").stdout, "\n   --") {
		if name, _, ok := strings.Cut(option, " "); ok && strings.Contains(option, "[$RELAY_") {
			wants = append(wants, "\n       --"+name)
		}
	}
	_, codes, _ := strings.Cut(readme(t), "| code | meaning |\n|---|---|\n")
	codes, _, _ = strings.Cut(codes, "\n\n")
	for _, row := range regexp.MustCompile(`(?m)^\| (\d+) \|`).FindAllStringSubmatch(codes, -1) {
		wants = append(wants, "\n       "+row[1]+" ")
	}
	if len(wants) < 40 {
		t.Errorf("too few things are looked for: %q", wants)
	}
	for _, want := range wants {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %q", want)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
