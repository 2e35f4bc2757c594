package relay

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
)

// TestReplayDrops: dropping needs no broker, an empty id is one that can be
// seen and typed, and a table's name may have capital letters or not. A file
// that is written anew while the checkpoint is not saved is not needed twice.
// Seen to fail with the bare id: "dropped" and nothing.
func TestReplayDrops(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	l := mustLot(t, path)
	items := []*item{bad("", "a", "empty", false), bad("2", "b", "too long", false)}
	if _, err := l.add(items); err != nil {
		t.Fatal(err)
	}
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
	database, table, _ := strings.Cut(strings.ToUpper(state.Table), ".")
	cfg := Config{Checkpoint: path, Source: binlog.Config{DSN: "relay@tcp(127.0.0.1:1)/" + database, Table: table}}
	cfg.Broker.URL, cfg.Broker.Exchange = "amqp://127.0.0.1:1/", "outbox"
	for _, tt := range []struct {
		drop, want, err string
		code            int
	}{
		{"9", "", "no such event", ExitUsage},
		{"", "dropped   '' (sequence 0)", "1 events are still parked", ExitUnavailable},
		{"", "", "--drop ''", ExitUsage},
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
