package binlog_test

import (
	"fmt"
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/schema"
)

// testMariaDB is what MySQL has not: GTID domains, and times in the form of
// MariaDB 5.3.
func testMariaDB(r *rig) {
	if r.mariadb() {
		testDomains(r)
		testOldTimes(r)
		testAlteredInTwo(r)
	}
}

// testAlteredInTwo: a statement that alters the table is in the log twice, when
// it begins and when it ends or fails (binlog_alter_two_phase), and rows between.
func testAlteredInTwo(r *rig) {
	stream := r.follow(r.open())
	conn := r.conn("SET SESSION binlog_alter_two_phase = ON")
	for i, statement := range []string{"ADD note TEXT FIRST", "ADD more INT, FORCE, ALGORITHM = COPY", "DROP note, DROP more"} {
		r.on(conn, "ALTER TABLE outbox "+statement)
		r.insert(newID(), fmt.Sprint(i))
		if got := string(r.events(stream, 1)[0].Payload); got != fmt.Sprint(i) {
			r.Errorf("after %s: got %s", statement, got)
		}
	}
	if _, err := conn.ExecContext(r.ctx, "ALTER TABLE outbox ADD UNIQUE KEY (topic), ALGORITHM = COPY"); err == nil {
		r.Error("a key over equal rows is made")
	}
	r.insert(newID(), "9")
	if got := string(r.events(stream, 1)[0].Payload); got != "9" {
		r.Errorf("after a statement that failed: got %s", got)
	}
}

// testDomains: two domains grow side by side, and the stream goes on from each
// position between. It fails when a position is that of one domain.
func testDomains(r *rig) {
	server := r.open()
	conn := r.conn()
	start := r.executed(server)
	positions := []*binlog.GTIDSet{start}
	for n := 1; n <= 6; n++ {
		r.on(conn, fmt.Sprintf("SET SESSION gtid_domain_id = %d", n%2*5))
		r.on(conn, "INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (?, ?, 't', '{}')", newID(), n)
		positions = append(positions, r.executed(server))
	}
	if end := positions[6]; end.Count() != start.Count()+6 || len(end.String()) <= len(start.String()) {
		r.Fatalf("six transactions in two domains lead from %s to %s", start, end)
	}
	for i, position := range positions[:6] {
		if err := server.CheckPosition(r.ctx, position); err != nil {
			r.Error(err)
		}
		var got []string
		for _, e := range r.events(r.followFrom(r.open(), position), 6-i) {
			got = append(got, e.AggregateID)
		}
		if fmt.Sprint(got) != fmt.Sprint([]string{"1", "2", "3", "4", "5", "6"}[i:]) {
			r.Errorf("behind %s: got events of %v", position, got)
		}
	}
}

// testOldTimes: a table whose times are in the older form is read, but for
// fractions, whose size is not in the log.
func testOldTimes(r *rig) {
	const columns = " (id INT PRIMARY KEY, aggregate_id INT, topic TEXT, payload TEXT, created_at %s, d DATE, t TIME, z TIMESTAMP NULL) DEFAULT CHARSET=utf8mb4"
	r.exec("SET GLOBAL mysql56_temporal_format = OFF")
	for i, typ := range []string{"DATETIME", "TIMESTAMP", "DATETIME(6)"} {
		r.exec(fmt.Sprintf("CREATE TABLE old%d"+columns, i, typ))
	}
	r.exec("SET GLOBAL mysql56_temporal_format = ON")
	for i := range 2 {
		server := r.open(func(c *binlog.Config) { c.Table = fmt.Sprintf("old%d", i) })
		stream := r.follow(server)
		r.exec(fmt.Sprintf("INSERT INTO old%d VALUES (1, 2, 't', 'p', '2024-07-01 12:34:56', '2024-01-02', '-12:00:00', '2024-01-02')", i))
		want := time.Date(2024, 7, 1, 12, 34, 56, 0, time.UTC)
		if e := r.events(stream, 1)[0]; !e.CreatedAt.Equal(want) || string(e.Payload) != "p" {
			r.Errorf("old%d: got %+v, created at %s, want %s", i, e, e.CreatedAt, want)
		}
	}
	server := r.open(func(c *binlog.Config) { c.Table = "old2" })
	_, err := server.Table(r.ctx)
	wantError(r, err, schema.ErrTable, "column created_at is datetime(6) /* mariadb-5.3 */, whose values cannot be told apart in the log; type: SET GLOBAL mysql56_temporal_format = ON; ALTER TABLE ")
	r.exec("ALTER TABLE old2 FORCE")
	if _, err := server.Table(r.ctx); err != nil {
		r.Errorf("after that: %v", err)
	}
}
