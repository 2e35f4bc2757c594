package binlog_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// TestMariaDBCollations: text in columns of MariaDB's own collations, the first
// and the last of each of its kinds for each character set, is what SELECT prints.
// Those of UCA 14, which are its defaults, come as unknown without
// CollationCharset's ranges.
func TestMariaDBCollations(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, relaytest.MariaDB(t)+"?interpolateParams=true", "CREATE TABLE outbox (id INT PRIMARY KEY, aggregate_id INT, topic TEXT, payload TEXT, created_at DATETIME)")
	rows, err := r.db.QueryContext(r.ctx, `SELECT full_collation_name FROM information_schema.collation_character_set_applicability
		JOIN (SELECT MIN(id) low, MAX(id) high FROM information_schema.collation_character_set_applicability WHERE id >= 576 GROUP BY character_set_name, id DIV 448) q ON id IN (low, high)`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var names []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
	}
	if len(names) < 80 {
		t.Fatalf("the server has %d collations", len(names))
	}
	stream := r.follow(r.open())
	conn := r.conn("SET SESSION sql_mode = ''") // what a set does not have becomes a question mark
	columns := []string{"aggregate_id", "aggregate_type", "event_type", "topic", "version", "payload"}
	for chunk := range slices.Chunk(names, len(columns)) {
		create, insert := "CREATE OR REPLACE TABLE outbox (id INT PRIMARY KEY, created_at DATETIME", "INSERT INTO outbox VALUES (1, '2024-01-01'"
		for i, column := range columns {
			create += fmt.Sprintf(", %s VARCHAR(40) COLLATE %s", column, chunk[i%len(chunk)])
			insert += ", 'z é ж 中 あ Ա ש ก 😀'"
		}
		r.on(conn, create+")")
		r.on(conn, insert+")")
		var texts []string
		for _, column := range columns {
			texts = append(texts, "CONVERT("+column+" USING utf8mb4) COLLATE utf8mb4_bin")
		}
		want := r.text("SELECT CONCAT_WS('|', " + strings.Join(texts, ", ") + ") FROM outbox")
		e := r.events(stream, 1)[0]
		if got := strings.Join([]string{e.AggregateID, e.AggregateType, e.EventType, e.Topic, e.Version, string(e.Payload)}, "|"); got != want || e.Bad != nil {
			t.Errorf("%s (-select +event): %s %v", chunk, cmp.Diff(want, got), e.Bad)
		}
	}
}
