package relay

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/schema"
)

// TestReplayDrops: dropping needs no broker, an empty id is one that can be
// seen and typed, and a table's name may have capital letters or not. A file
// that is written anew while the checkpoint is not saved is not needed twice.
// What ended before it was done can be typed again, and what it says to type
// has the ids that are still to be dropped. Seen to fail with the bare id:
// "dropped" and nothing; and where an id that was dropped was no such event.
func TestReplayDrops(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	l := mustLot(t, path)
	items := []*item{bad("it's 1", "c", "too long", false), bad("", "a", "empty", false), bad("2", "b", "too long", false)}
	if _, err := l.add(items); err != nil {
		t.Fatal(err)
	}
	state := telling(t, path, l)
	database, table, _ := strings.Cut(strings.ToUpper(state.Table), ".")
	cfg := Config{Checkpoint: path, Source: binlog.Config{DSN: "relay@tcp(127.0.0.1:1)/" + database, Table: table}}
	cfg.Broker.URL, cfg.Broker.Exchange = "amqp://127.0.0.1:1/", "outbox"
	for _, tt := range []struct {
		drop, want, err string
		code            int
	}{
		{"9", "", "no such event", ExitUsage},
		{"2", "", "3 events are still parked in " + path + ".parked; to go on: relay replay --parked --drop 2", ExitUnavailable},
		{"", "", `--parked --drop ''`, ExitUnavailable},
		{"it's 1", "dropped   it's 1 ", "2 events are still parked in " + path + ".parked; to go on: relay replay --parked", ExitUnavailable},
		{"it's 1", "kept      ''", "2 events are still parked", ExitUnavailable},
		{"", "dropped   '' (sequence 0)", "1 events are still parked", ExitUnavailable},
		{"", "", "1 events are still parked", ExitUnavailable},
		{"2", "dropped   2 ", "", ExitOK},
	} {
		var out bytes.Buffer
		err := Replay(t.Context(), cfg, ReplayOrder{Drop: []string{tt.drop}}, &out)
		if ExitCode(err) != tt.code || !strings.Contains(out.String(), tt.want) || err != nil && !strings.Contains(err.Error(), tt.err) {
			t.Errorf("--drop %q: %v\n%s", tt.drop, err, out.String())
		}
	}
	if _, err := os.Stat(path + parkedSuffix); !os.IsNotExist(err) {
		t.Errorf("the file is still there: %v", err)
	}
}

// telling makes the checkpoint that tells of the parked file beside it.
func telling(t *testing.T, path string, l *lot) checkpoint.State {
	t.Helper()
	file, err := checkpoint.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	state := start(10, 0)
	state.Parked = l.mark()
	if err := file.Save(state); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return state
}

// TestReplayDropsAll: the way out of a damaged file is open beside a damaged
// checkpoint as well, whose own way out wants a file that can be read.
func TestReplayDropsAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	for _, name := range []string{path, path + parkedSuffix} {
		if err := os.WriteFile(name, []byte("damaged\n"), 0o640); err != nil {
			t.Fatal(err)
		}
	}
	cfg := Config{Checkpoint: path, Source: binlog.Config{DSN: "relay@tcp(127.0.0.1:1)/shop", Table: "outbox"}}
	var out bytes.Buffer
	if err := Replay(t.Context(), cfg, ReplayOrder{}, &out); ExitCode(err) != ExitUnfit {
		t.Errorf("without --drop-all: %v", err)
	}
	if err := Replay(t.Context(), cfg, ReplayOrder{DropAll: true}, &out); err != nil || !strings.HasPrefix(out.String(), "kept      "+path+parkedSuffix+".") {
		t.Errorf("got %v\n%s", err, out.String())
	}
	if list, _, err := readParked(path + parkedSuffix); err != nil || len(list) > 0 {
		t.Errorf("%d events are left, %v", len(list), err)
	}
}

// TestReplayForesees: a dry run tells of every event what a replay does with it
// as far as no broker is asked, and why it would keep it. Seen to fail where it
// took what was no broken row for one that is sent, and what waits behind it.
func TestReplayForesees(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	l := mustLot(t, path)
	long := good("3", "b")
	long.event.Headers = map[string]any{strings.Repeat("h", 300): 1}
	long.event.Bad = &schema.BadEventError{ID: "3", Reason: "as it was then"}
	items := []*item{
		bad("1", "a", "too large for the broker", false), good("2", "a"),
		long, good("4", "b"),
		bad("5", "c", "payload is NULL", true), good("6", "c"),
		bad("7", "", "no aggregate", true), good("8", ""),
		bad("9", "d", "payload is NULL", true), good("10", "d"),
	}
	for _, it := range items {
		l.takes(it)
	}
	if _, err := l.add(items); err != nil {
		t.Fatal(err)
	}
	state := telling(t, path, l)
	var out bytes.Buffer
	if err := listParked(path, state.Table, ReplayOrder{Drop: []string{"9"}}, &out); err != nil {
		t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(out.String()) {
		l, err := readLine([]byte(line))
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %.30s", l.ID, l.Would, l.Reason)+" "+l.Behind))
	}
	want := []string{
		"1 send too large for the broker", "2 send  1",
		"3 keep a header name has 300 bytes, A", "4 keep  3",
		"5 keep payload is NULL", "6 keep  5",
		"7 keep no aggregate", "8 send",
		"9 drop payload is NULL", "10 send  9",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
