package binlog_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

var update = flag.Bool("update", false, "capture the logs in testdata/binlog again, and write what is read from them")

// captures are the logs in testdata/binlog: NAME.bin is the file that a server,
// started with the options, wrote while it ran NAME.sql; NAME.golden is what is
// to be read from it.
var captures = map[string]struct {
	on      flavor
	options []string
}{
	"minimal": {flavors[0], []string{"--binlog-row-metadata=MINIMAL"}},
	"full":    {flavors[0], []string{"--binlog-row-metadata=FULL"}},
	"mariadb": {flavors[1], []string{"--binlog-row-metadata=NO_LOG"}},
}

// goldenTx is a Tx as a golden file has it.
type goldenTx struct {
	GTID        string        `json:",omitempty"`
	Prepared    string        `json:",omitempty"`
	CommittedAt time.Time     `json:",omitzero"`
	Place       binlog.Place  `json:",omitzero"`
	Part        bool          `json:",omitempty"`
	Events      []goldenEvent `json:",omitempty"`
}

type goldenEvent struct {
	ID, AggregateID, Topic, Payload, ContentType string
	CreatedAt                                    time.Time
}

func golden(tx *binlog.Tx) goldenTx {
	g := goldenTx{GTID: tx.GTID.String(), Prepared: tx.Prepared.String(), CommittedAt: tx.CommittedAt, Place: tx.Place, Part: !tx.Last}
	for _, e := range tx.Events {
		g.Events = append(g.Events, goldenEvent{e.ID, e.AggregateID, e.Topic, string(e.Payload), e.ContentType, e.CreatedAt})
	}
	return g
}

// capturedTable is the outbox of minimal.sql; in full.sql its columns come in
// another order, and there are more of them.
func capturedTable(tb testing.TB, on flavor) *schema.Table {
	tb.Helper()
	payload := schema.NewColumn("payload", "json", "json", 0, "")
	if on.name == "mariadb" {
		payload = schema.NewColumn("payload", "longtext", "longtext", 4294967295, "utf8mb4")
		payload.Checked = true
	}
	table, err := schema.NewTable("shop", "outbox", []schema.Column{
		schema.NewColumn("id", "binary", "binary(16)", 16, ""),
		schema.NewColumn("aggregate_id", "bigint", "bigint", 0, ""),
		schema.NewColumn("topic", "varchar", "varchar(120)", 480, "utf8mb4"),
		payload,
		schema.NewColumn("status", "enum", "enum('pending','published')", 36, "utf8mb4"),
		schema.NewColumn("created_at", "datetime", "datetime(6)", 0, ""),
		schema.NewColumn("published_at", "datetime", "datetime(6)", 0, ""),
	}, schema.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

// TestCaptured reads log files of a real server.
func TestCaptured(t *testing.T) {
	for name, of := range captures {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("..", "testdata", "binlog", name)
			if *update {
				capture(t, path, of.on, of.options)
			}
			file, err := os.ReadFile(path + ".bin")
			if err != nil {
				t.Fatal(err)
			}
			list, err := binlog.ReadLog(file, capturedTable(t, of.on))
			if err != nil {
				t.Error(err)
			}
			var got bytes.Buffer
			encoder := json.NewEncoder(&got)
			encoder.SetIndent("", "  ")
			encoder.SetEscapeHTML(false)
			for _, tx := range list {
				if err := encoder.Encode(golden(tx)); err != nil {
					t.Fatal(err)
				}
			}
			if bytes.Contains(got.Bytes(), []byte("phantom")) {
				t.Error("got an event that was not committed")
			}
			if *update {
				if err := os.WriteFile(path+".golden", got.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path + ".golden")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got.String()); diff != "" {
				t.Errorf("transactions (-want +got):\n%s", diff)
			}
		})
	}
}

// capture runs the script on a server of its own and takes its log.
func capture(t *testing.T, path string, on flavor, options []string) {
	t.Helper()
	script, err := os.ReadFile(path + ".sql")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := relaytest.DB(t, on.private(t, options...)).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	exec := func(statement string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	exec("FLUSH BINARY LOGS")
	for statement := range strings.SplitSeq(strings.TrimSpace(string(script)), ";\n") {
		exec(statement)
	}
	var file string
	row, rest := conn.QueryRowContext(t.Context(), "SHOW BINARY LOG STATUS"), []any{new(int), new(string), new(string), new(string)}
	if on.name == "mariadb" {
		row, rest = conn.QueryRowContext(t.Context(), "SHOW MASTER STATUS"), rest[:3]
	}
	if err := row.Scan(append([]any{&file}, rest...)...); err != nil {
		t.Fatal(err)
	}
	exec("FLUSH BINARY LOGS")
	found, err := filepath.Glob(filepath.Join(filepath.Dir(t.TempDir()), "*", "data", file)) // all of a test's directories stand side by side
	if err != nil || len(found) != 1 {
		t.Fatalf("the server's log is %v, %v", found, err)
	}
	content, err := os.ReadFile(found[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".bin", content, 0o644); err != nil {
		t.Fatal(err)
	}
}
