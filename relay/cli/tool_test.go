package cli_test

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"testing"
)

// tool runs a program of the operator's; that it is missing fails the test. It
// returns standard output, and both together.
func tool(t testing.TB, args ...string) (stdout, all string, err error) {
	t.Helper()
	script, err := filepath.Abs("../../testdata/servers.sh")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var out, errors bytes.Buffer
	cmd := exec.CommandContext(ctx, script, append([]string{"tool"}, args...)...)
	cmd.Stdout, cmd.Stderr, cmd.Dir = &out, &errors, t.TempDir()
	err = cmd.Run()
	return out.String(), out.String() + errors.String(), err
}
