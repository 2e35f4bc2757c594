package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// TestCredential: the credential that systemd hands over is the password file
// where the flag names none; one of a line end alone, which the unit has for
// what the operator did not give, is none.
func TestCredential(t *testing.T) {
	for name, test := range map[string]struct {
		content string // of the credential; none: no file
		flag    string
		want    string // the file's name
	}{
		"none":      {"none", "", ""},
		"line end":  {"\n", "", ""},
		"given":     {"hunter2\n", "", "mysql-password"},
		"flag wins": {"hunter2\n", "own", "own"},
	} {
		directory := t.TempDir()
		t.Setenv("CREDENTIALS_DIRECTORY", directory)
		for file, content := range map[string]string{"mysql-password": test.content, "own": "other"} {
			if content != "none" {
				if err := os.WriteFile(filepath.Join(directory, file), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		var args []string
		if test.flag != "" {
			args = []string{"--mysql-password-file", filepath.Join(directory, test.flag)}
		}
		cfg, err := parse(t, args...)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := ""
		if test.want != "" {
			want = filepath.Join(directory, test.want)
		}
		if cfg.SourcePasswordFile != want || cfg.BrokerPasswordFile != "" {
			t.Errorf("%s: files %q and %q, want %q and none", name, cfg.SourcePasswordFile, cfg.BrokerPasswordFile, want)
		}
		if want != "" && cfg.Source.Password == "" {
			t.Errorf("%s: the file was not read", name)
		}
	}
}
