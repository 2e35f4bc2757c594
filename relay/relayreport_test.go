package relay

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestAskRelay: what the relay on this checkpoint says is believed, also where
// the paths differ in their writing; what another one or something else says is
// not. Without sameCheckpoint "another" is believed; without sayLimit "does not
// answer" never ends.
func TestAskRelay(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "c.json"), filepath.Join(dir, "link.json")
	if err := os.Symlink("c.json", link); err != nil {
		t.Fatal(err)
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	relative, err := filepath.Rel(here, path)
	if err != nil {
		t.Fatal(err)
	}
	says := func(checkpoint string) string {
		return string(message("", view{State: stateBlocked, Tone: "bad", Reason: "Full.", Next: "look", Partitions: 2, Checkpoint: checkpoint}))
	}
	const hangs = "hangs"
	for name, test := range map[string]struct{ body, problem string }{
		"ours":             {says(path), ""},
		"by a link":        {says(link), ""},
		"by relative path": {says(relative), ""},
		"another":          {says(filepath.Join(dir, "d.json")), "a relay on another checkpoint answers"},
		"no relay":         {"<html>\n", "it answers as no relay does"},
		"cut short":        {"data: {}", "EOF"},
		"no such page":     {"", "it answers 404 Not Found"},
		"does not answer":  {hangs, "deadline exceeded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case test.body == hangs:
					<-r.Context().Done()
				case test.body == "" || r.URL.Path != "/events":
					http.NotFound(w, r)
				default:
					fmt.Fprint(w, test.body)
				}
			}))
			defer server.Close()
			address := server.Listener.Addr().String()
			got := askRelay(t.Context(), address, path, os.Getpid())
			want := &RelayReport{Address: address, State: "blocked", Tone: "bad", Reason: "Full.", Next: "look", Partitions: 2}
			if test.problem != "" {
				if !strings.Contains(got.Error, test.problem) {
					t.Errorf("the error is %q, want %q", got.Error, test.problem)
				}
				want = &RelayReport{Address: address, Error: got.Error}
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
