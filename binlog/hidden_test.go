package binlog_test

import "testing"

// TestHiddenColumns: a server keeps columns of its own for some indexes, which
// nobody is told of and which stand in MariaDB's log behind all others. Without
// tableMap.fits's allowance MariaDB's rows are refused for their count.
func TestHiddenColumns(t *testing.T) { onEach(t, testHiddenColumns) }

func testHiddenColumns(t *testing.T, f flavor) {
	dsn := f.private(t)
	for _, metadata := range []string{"FULL", map[string]string{"mysql": "MINIMAL", "mariadb": "NO_LOG"}[f.name]} {
		t.Run(metadata, func(t *testing.T) {
			r := newRigOn(t, dsn, "CREATE TABLE outbox (id BINARY(16) PRIMARY KEY, aggregate_id BIGINT, topic VARCHAR(120), payload TEXT, created_at DATETIME(6))")
			r.exec("SET GLOBAL binlog_row_metadata = " + metadata)
			indexes := r.pick("ADD INDEX ((aggregate_id % 10)), ADD UNIQUE ((CONCAT(topic, aggregate_id)))", "ADD UNIQUE (payload), ADD UNIQUE (topic, payload)")
			insert := func(n string) {
				r.on(r.conn(), "INSERT INTO outbox VALUES (UNHEX(REPLACE(UUID(), '-', '')), "+n+", 't"+n+"', 'p"+n+"', NOW(6))")
			}
			server := r.open()
			stream := r.follow(server)
			want := func(n string) {
				t.Helper()
				if e := r.events(stream, 1)[0]; e.Bad != nil || e.AggregateID != n || e.Topic != "t"+n || string(e.Payload) != "p"+n {
					t.Errorf("got %+v, want %s", e, n)
				}
			}
			insert("1")
			want("1")
			r.exec("ALTER TABLE outbox " + indexes)
			insert("2")
			want("2")
			r.exec("ALTER TABLE outbox ADD n BIGINT NOT NULL DEFAULT 7 FIRST")
			r.exec("INSERT INTO outbox VALUES (9, UNHEX(REPLACE(UUID(), '-', '')), 3, 't3', 'p3', NOW(6))")
			want("3")
			stream = r.follow(server)
			r.exec("INSERT INTO outbox VALUES (9, UNHEX(REPLACE(UUID(), '-', '')), 4, 't4', 'p4', NOW(6))")
			want("4")
		})
	}
}
