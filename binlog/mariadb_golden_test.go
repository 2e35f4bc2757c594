package binlog_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// TestCapturedMariaDB reads a log file of MariaDB, without a server.
// testdata/binlog/mariadb.bin is what one wrote while it ran mariadb.sql.
func TestCapturedMariaDB(t *testing.T) {
	path := filepath.Join("..", "testdata", "binlog", "mariadb")
	if *update {
		captureMariaDB(t, path)
	}
	table := mariaTable(t)
	archive := archived(t, path+".bin")
	archive.Define = func(context.Context) (*schema.Table, *binlog.GTIDSet, error) { // its columns have no names
		none, err := binlog.ParseGTIDSet("")
		return table, none, err
	}
	list, _, err := playBack(t, archive)
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
}

// mariaTable is the outbox of mariadb.sql.
func mariaTable(t *testing.T) *schema.Table {
	t.Helper()
	columns := slices.Clone(capturedTable(t).Columns)
	for i := range columns {
		if columns[i].Kind == schema.JSON {
			columns[i] = schema.NewColumn(columns[i].Name, "longtext", "longtext", 4294967295, "utf8mb4")
			columns[i].Checked = true
		}
	}
	table, err := schema.NewTable("shop", "outbox", columns, schema.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func captureMariaDB(t *testing.T, path string) {
	t.Helper()
	script, err := os.ReadFile(path + ".sql")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := relaytest.DB(t, relaytest.PrivateMariaDB(t, "--binlog-row-metadata=NO_LOG")).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	statements := strings.Split(strings.TrimSpace(string(script)), ";\n")
	for _, statement := range slices.Concat([]string{"FLUSH BINARY LOGS"}, statements, []string{"FLUSH BINARY LOGS"}) {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	// All of a test's directories stand side by side.
	found, err := filepath.Glob(filepath.Join(filepath.Dir(t.TempDir()), "*", "*", "data", "binlog.000002"))
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
