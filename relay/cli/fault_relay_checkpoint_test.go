package cli_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// forged is a checkpoint's text with something in it replaced, under a
// checksum that fits.
func forged(t testing.TB, text []byte, old, new string) []byte {
	t.Helper()
	const before, after = "  \"checksum\": \"", "\"\n}\n"
	head, _, found := strings.Cut(string(text), before)
	if !found || !strings.Contains(head, old) {
		t.Fatalf("no %q in\n%s", old, text)
	}
	head = strings.Replace(head, old, new, 1)
	sum := sha256.Sum256([]byte(head + before + after))
	return []byte(head + before + "sha256:" + hex.EncodeToString(sum[:]) + after)
}

// line is the line of a checkpoint's text that holds a field.
func line(t testing.TB, text []byte, field string) string {
	t.Helper()
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "  \""+field+"\": ") {
			return line
		}
	}
	t.Fatalf("no %s in\n%s", field, text)
	return ""
}

// TestFaultRelayCheckpoint: files that the relay must not go on from, those of
// TestUnfitCheckpoint apart. None is taken for a beginning, and none is
// changed. Seen to fail with a file of zeros taken for a missing one
// (File.reload): it is written over, and the events come twice.
func TestFaultRelayCheckpoint(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	r.insert(r.db, 1, 3)
	r.relay("--partitions", "1")
	good := mustRead(t, r.checkpoint())
	uuid := r.text("SELECT @@server_uuid")
	files := map[string][]byte{
		"zeros":       make([]byte, len(good)),
		"newer":       forged(t, good, `"version": 2`, `"version": 4`),
		"otherserver": forged(t, good, uuid+":", "3e11fa47-71ca-11e1-9e33-c80aa9429562:"),
		"mixed":       append(append([]byte{}, good[:len(good)/2]...), make([]byte, 512)...),
	}
	path := func(name string) string { return filepath.Join(r.dir, name+".json") }
	for name, text := range files {
		if err := os.WriteFile(path(name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(path("directory"), 0o755); err != nil {
		t.Fatal(err)
	}
	r.refuse(t, []refusal{
		{"zeros", []string{"run", "--checkpoint", path("zeros")}, nil, 78, []string{"corrupt", "all zeros", path("zeros"), "relay resume --from-gtid"}},
		{"half, then zeros", []string{"run", "--checkpoint", path("mixed")}, nil, 78, []string{"corrupt", path("mixed"), "relay resume --from-gtid"}},
		{"directory", []string{"run", "--checkpoint", path("directory")}, nil, 78, []string{"is a directory", "--checkpoint " + path("directory") + "/checkpoint.json"}},
		{"newer version", []string{"run", "--checkpoint", path("newer")}, nil, 78, []string{"newer", "version is 4", path("newer")}},
		{"of another server", []string{"run", "--partitions", "1", "--log-level", "error", "--checkpoint", path("otherserver")}, nil, 78, []string{"3e11fa47-71ca-11e1-9e33-c80aa9429562", "relay resume --from-gtid"}},
	})
	for name, text := range files {
		if after := mustRead(t, path(name)); string(after) != string(text) {
			t.Errorf("the file %s was changed to\n%s", name, after)
		}
	}
	r.wantEvents(r.take(0), 1, 3)
}
