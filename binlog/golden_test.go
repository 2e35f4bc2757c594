package binlog_test

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"io"
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

// captures are the logs in testdata/binlog: NAME.bin is the file that a MySQL
// server, started with the options, wrote while it ran NAME.sql; NAME.golden
// is what is to be read from it.
var captures = map[string][]string{
	"minimal": {"--binlog-row-metadata=MINIMAL", "--secure-file-priv="},
	"full":    {"--binlog-row-metadata=FULL", "--secure-file-priv="},
	"named":   {"--binlog-row-metadata=FULL", "--secure-file-priv=", "--binlog-row-value-options=PARTIAL_JSON"},
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
	AggregateType, EventType, Version            string         `json:",omitempty"`
	Headers                                      map[string]any `json:",omitempty"`
	Bad                                          string         `json:",omitempty"`
}

func golden(tx *binlog.Tx) goldenTx {
	g := goldenTx{GTID: tx.GTID.String(), Prepared: tx.Prepared.String(), CommittedAt: tx.CommittedAt, Place: tx.Place, Part: !tx.Last}
	for _, e := range tx.Events {
		event := goldenEvent{e.ID, e.AggregateID, e.Topic, string(e.Payload), e.ContentType, e.CreatedAt, e.AggregateType, e.EventType, e.Version, e.Headers, ""}
		if e.Bad != nil {
			event.Bad = e.Bad.Reason
		}
		g.Events = append(g.Events, event)
	}
	return g
}

// capturedTable is the outbox of minimal.sql; in full.sql its columns come in
// another order, and there are more of them.
func capturedTable(tb testing.TB) *schema.Table {
	tb.Helper()
	table, err := schema.NewTable("shop", "outbox", []schema.Column{
		schema.NewColumn("id", "binary", "binary(16)", 16, ""),
		schema.NewColumn("aggregate_id", "bigint", "bigint", 0, ""),
		schema.NewColumn("topic", "varchar", "varchar(120)", 480, "utf8mb4"),
		schema.NewColumn("payload", "json", "json", 0, ""),
		schema.NewColumn("status", "enum", "enum('pending','published')", 36, "utf8mb4"),
		schema.NewColumn("created_at", "datetime", "datetime(6)", 0, ""),
		schema.NewColumn("published_at", "datetime", "datetime(6)", 0, ""),
	}, schema.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

// archived is the outbox in log files, as their names have it.
func archived(tb testing.TB, files ...string) binlog.ArchiveConfig {
	tb.Helper()
	return binlog.ArchiveConfig{Files: files, Database: "shop", Table: "outbox"}
}

// playBack reads an archive to its end.
func playBack(tb testing.TB, cfg binlog.ArchiveConfig) (list []*binlog.Tx, undecided []binlog.GTID, err error) {
	tb.Helper()
	archive, err := binlog.OpenArchive(tb.Context(), cfg)
	if err != nil {
		return nil, nil, err
	}
	p := archive.Play(tb.Context(), func(binlog.GTID) bool { return true })
	defer p.Close()
	for {
		tx, err := p.Next(tb.Context())
		if err == io.EOF {
			return list, p.Undecided(), nil
		}
		if err != nil {
			return list, nil, err
		}
		list = append(list, tx)
	}
}

// TestCaptured reads log files of a real server, without one. It fails when
// the definition that is made of a log differs from the one of the server in
// any type of column that an event can come from.
func TestCaptured(t *testing.T) {
	for name, options := range captures {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("..", "testdata", "binlog", name)
			if *update {
				capture(t, path, options)
			}
			archive := archived(t, path+".bin")
			if name == "minimal" { // its columns have no names
				archive.Define = func(context.Context) (*schema.Table, *binlog.GTIDSet, error) {
					none, err := binlog.ParseGTIDSet("")
					return capturedTable(t), none, err
				}
			}
			list, undecided, err := playBack(t, archive)
			if err != nil {
				t.Error(err)
			}
			if name == "named" && len(undecided) != 1 {
				t.Errorf("got %d undecided XA transactions, want 1", len(undecided))
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
func capture(t *testing.T, path string, options []string) {
	t.Helper()
	script, err := os.ReadFile(path + ".sql")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := relaytest.DB(t, relaytest.PrivateMySQL(t, options...)).Conn(t.Context())
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
	row := conn.QueryRowContext(t.Context(), "SHOW BINARY LOG STATUS")
	if err := row.Scan(&file, new(int), new(string), new(string), new(string)); err != nil {
		t.Fatal(err)
	}
	exec("FLUSH BINARY LOGS")
	var content sql.RawBytes
	rows, err := conn.QueryContext(t.Context(), "SELECT LOAD_FILE(CONCAT(REGEXP_REPLACE(@@log_bin_basename, '[^/]*$', ''), ?))", file)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	if !rows.Next() || rows.Scan(&content) != nil || len(content) == 0 {
		t.Fatalf("the server does not give %s: %v", file, rows.Err())
	}
	if err := os.WriteFile(path+".bin", content, 0o644); err != nil {
		t.Fatal(err)
	}
}
