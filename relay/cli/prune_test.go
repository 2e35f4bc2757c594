package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// prunes gives the relay's user what prune needs.
func (r *rig) prunes() *rig {
	r.t.Helper()
	r.exec("GRANT DELETE ON " + r.database() + ".* TO " + r.user)
	return r
}

// prune runs it to its end, without the flags that it does not take.
func (r *rig) prune(args ...string) result {
	r.t.Helper()
	return run(r.t, r.environment(), append([]string{"prune"}, args...)...)
}

// left are the rows that the table still has.
func (r *rig) left() (list []int) {
	r.t.Helper()
	rows, err := r.db.Query("SELECT CONV(HEX(id), 16, 10) FROM outbox ORDER BY id")
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var n int
		if err := rows.Scan(&n); err != nil {
			r.t.Fatal(err)
		}
		list = append(list, n)
	}
	return list
}

func (r *rig) wantLeft(want ...int) {
	r.t.Helper()
	if got := r.left(); !slices.Equal(got, want) {
		r.t.Errorf("the table has the rows %v, want %v", got, want)
	}
}

// TestPrune: rows that are old and confirmed go, and no others; a dry run only
// counts. The example in the help is what is typed.
func TestPrune(t *testing.T) { onEach(t, testPrune) }

func testPrune(t *testing.T, on source) {
	r := on.rig(t).begun()
	for n, hours := range []int{100, 49, 47, 0} {
		r.created(n+1, hours)
	}
	d := r.start("--partitions", "1")
	d.settled()
	refused := r.prune()
	refused.want(t, 78, "GRANT SELECT, DELETE ON")
	refused.oneLine(t)
	r.prunes()
	_, example, _ := strings.Cut(run(t, nil, "prune", "--help").stdout, "Examples")
	example = regexp.MustCompile(`relay (prune (?:.*\\\n)*.*)`).FindStringSubmatch(example)[1]
	example = strings.NewReplacer("\\\n", "", "'", "", "relay:pw@tcp(127.0.0.1:3306)/shop", r.dsn, "checkpoint.json", r.checkpoint()).Replace(example)
	dry := run(t, nil, strings.Fields(example)...)
	dry.want(t, 0, "would go     2 rows")
	r.wantLeft(1, 2, 3, 4)
	r.prune("--batch", "1").want(t, 0, "table        "+r.database()+".outbox, rows from before ", "deleted      2 rows")
	r.wantLeft(3, 4)
	r.prune("--older-than", "0s").want(t, 0, "deleted      2 rows")
	d.settled() // what was deleted is no event, and moves the checkpoint
	d.stop()
	r.wantEvents(r.take(0), 1, 4)
}

// TestPruneUnconfirmed: with the relay stopped nothing goes of which it is not
// known that the broker has it: not what was committed since, not what a
// transaction commits that was open when prune looked, with an old created_at,
// and not an XA transaction. Each goes once it was sent. Partitions go whole, by
// the same rule, and the relay goes on behind that although the log has no names
// of columns.
func TestPruneUnconfirmed(t *testing.T) {
	t.Parallel()
	for _, on := range sources {
		t.Run(on.name, func(t *testing.T) {
			t.Parallel()
			server := on.private(t, "--binlog-row-metadata=MINIMAL")
			t.Run("rows", func(t *testing.T) { pruneUnconfirmed(t, server) })
			t.Run("partitions", func(t *testing.T) { prunePartitions(t, server) })
		})
	}
}

func pruneUnconfirmed(t *testing.T, server string) {
	r := rigOn(t, databaseOn(t, server), schema.SQL).prunes().begun()
	now := []string{"--older-than", "0s", "--give-up-after", "1s", "--max-lag", "0"}
	r.created(1, 100)
	r.relayed()
	r.created(2, 100)
	waited := r.prune(now...)
	waited.want(t, 75, "lacks ", "relay status", "kept         2 rows")
	waited.oneLine(t)
	r.wantLeft(1, 2)

	insert := func(n int) string {
		return fmt.Sprintf("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (x'%s', 1, 't', '{}', '2020-01-01')", hexID(n))
	}
	begin := func(statements ...string) func(string) {
		conn, err := r.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		exec := func(statement string) {
			t.Helper()
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				t.Fatalf("%s: %v", statement, err)
			}
		}
		for _, statement := range statements {
			exec(statement)
		}
		return exec
	}
	open := begin("BEGIN", insert(3))
	d := r.start("--partitions", "1")
	d.settled()
	r.prune(now...).want(t, 0, "deleted      2 rows")
	r.wantLeft()
	d.stop()
	open("COMMIT")
	r.prune(now...).want(t, 75)
	r.wantLeft(3)
	if got := len(r.relayed()); got != 2 { // and 2, from before
		t.Errorf("%d events came, want 2 and 3", got)
	}
	d = r.start("--partitions", "1")
	d.settled()
	r.prune(now...).want(t, 0, "deleted      1 rows")

	xa := begin("XA START 'p'", insert(4), "XA END 'p'", "XA PREPARE 'p'")
	r.created(5, 100)
	d.until("the event behind the prepared one is settled", func() bool { return r.state().Sequence == 4 })
	got := r.prune(now...)
	if r.mariadb() { // it numbers the rows anew at XA COMMIT
		got.want(t, 0, "deleted      1 rows")
	} else {
		got.want(t, 75, "XA RECOVER")
	}
	xa("XA COMMIT 'p'")
	d.settled()
	r.prune(now...).want(t, 0)
	r.wantLeft()
	d.stop()
	if got := messageIDs(r.take(0)); !slices.Equal(got, []string{idText(5), idText(4)}) {
		t.Errorf("got %v, want 5 and 4", got)
	}
	content := strings.ReplaceAll(string(mustRead(t, r.checkpoint())), r.database()+".outbox", r.database()+".orders")
	if err := os.WriteFile(r.checkpoint(), []byte(content), 0o640); err != nil {
		t.Fatal(err)
	}
	r.prune(now...).want(t, 78, "corrupt")
}

const partitioned = `CREATE TABLE outbox (id BINARY(16) NOT NULL, aggregate_id BIGINT NOT NULL, topic VARCHAR(120) NOT NULL, payload JSON NOT NULL,
	status ENUM('pending','published') NOT NULL DEFAULT 'pending', created_at DATETIME(6) NOT NULL, published_at DATETIME(6) NULL,
	PRIMARY KEY (id, created_at), KEY idx_dispatch (status, created_at))
	PARTITION BY RANGE (TO_DAYS(created_at)) (PARTITION p0 VALUES LESS THAN (TO_DAYS('2020-01-01')), PARTITION p1 VALUES LESS THAN (TO_DAYS('2020-02-01')),
	PARTITION p2 VALUES LESS THAN (TO_DAYS('2020-03-01')), PARTITION p3 VALUES LESS THAN (TO_DAYS('2120-01-01')), PARTITION p4 VALUES LESS THAN MAXVALUE)`

func prunePartitions(t *testing.T, server string) {
	r := rigOn(t, databaseOn(t, server), partitioned).prunes().begun()
	row := func(n int, created string) {
		r.exec(fmt.Sprintf("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (x'%s', 1, 't', '{}', '%s')", hexID(n), created))
	}
	partitions := func(want string) {
		t.Helper()
		if got := r.text("SELECT GROUP_CONCAT(partition_name ORDER BY partition_ordinal_position) FROM information_schema.partitions WHERE table_schema = DATABASE() AND table_name = 'outbox'"); got != want {
			t.Errorf("there are the partitions %s, want %s", got, want)
		}
	}
	drop := []string{"--drop-partitions", "--give-up-after", "1s"}
	row(1, "2020-01-15")
	row(2, "2020-02-15")
	r.created(3, 0)
	r.prune(drop...).want(t, 75, "lacks ")
	partitions("p0,p1,p2,p3,p4")
	d := r.start("--partitions", "1")
	d.settled()
	r.prune(drop...).want(t, 78, "GRANT LOCK TABLES ON", "ALTER, DROP ON")
	r.exec("GRANT LOCK TABLES, ALTER, DROP ON " + r.database() + ".* TO " + r.user)
	r.prune(append(drop, "--dry-run")...).want(t, 0, "would drop   3 partitions (p0, p1, p2), with 2 rows")

	// One who is writing a late row keeps the table, and nobody waits for him.
	late, err := r.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Exec(fmt.Sprintf("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (x'%s', 1, 't', '{}', '2020-02-16')", hexID(4))); err != nil {
		t.Fatal(err)
	}
	r.prune(drop...).want(t, 0, "dropped      0 partitions", "kept         partition p2: the table is in use")
	if err := late.Commit(); err != nil {
		t.Fatal(err)
	}
	d.settled()
	r.prune(drop...).want(t, 0, "dropped      3 partitions (p0, p1, p2), with 3 rows")
	partitions("p3,p4")
	row(5, "2020-02-16")
	r.prune(append(drop, "--published")...).want(t, 0, "dropped      0 partitions") // it is pending
	r.created(6, 0)
	d.settled()
	d.stop()
	r.relay("--partitions", "1") // from a checkpoint, over the statements
	r.wantLeft(3, 5, 6)
	if got := messageIDs(r.take(0)); len(got) != 6 {
		t.Errorf("got %v, want 1 to 6", got)
	}
	r.relay("--partitions", "1", "--only-topics", "t")
	r.prune(drop...).want(t, 64, "carries some alone")
	r.exec("DROP TABLE outbox", schema.SQL)
	r.prune(append(drop, "--published")...).want(t, 78, "has no partitions")
}

// TestPruneParked: rows of parked events stay, however old, until those are
// dealt with.
func TestPruneParked(t *testing.T) {
	t.Parallel()
	r := parking(t).prunes()
	r.row(1, 1, "NULL")
	r.row(2, 1, "'{}'")
	r.row(3, 2, "'{}'")
	d := r.start("--on-bad-event", "park")
	d.settled()
	r.prune("--older-than", "0s").want(t, 0, "deleted      1 rows", "kept         2 rows: their events are parked")
	r.wantLeft(1, 2)
	d.stop()
	run(t, r.replayEnv(), "replay", "--parked", "--drop", idText(1)).want(t, 0)
	d = r.start("--on-bad-event", "park")
	d.settled()
	r.prune("--older-than", "0s").want(t, 0, "deleted      2 rows")
}

// TestPruneBackfill: while a backfill is under way no row goes, though the
// position covers all of them; once it is over they do.
func TestPruneBackfill(t *testing.T) { onEach(t, testPruneBackfill) }

func testPruneBackfill(t *testing.T, on source) {
	const rows = 3000
	r := on.rig(t).prunes()
	r.insert(r.db, 1, rows)
	p := r.toBroker()
	d := r.start("--partitions", "1", "--window", "1")
	d.until("some of the backfill is settled", func() bool { return r.exists() && r.state().Sequence > 0 })
	p.Stall(relaytest.Down)
	if r.state().Backfill == nil {
		t.Fatal("the backfill was over before it could be held up")
	}
	r.prune("--older-than", "0s", "--give-up-after", "1s").want(t, 75, "a backfill under way")
	if got := len(r.left()); got != rows {
		t.Errorf("%d rows are left, want %d", got, rows)
	}
	d.killed()
	p.Flow(relaytest.Down)
	d = r.start("--partitions", "1")
	d.settled()
	r.prune("--older-than", "0s").want(t, 0, fmt.Sprint("deleted      ", rows, " rows"))
	d.stop()
	r.flags = nil
	if got := len(slices.Compact(slices.Sorted(slices.Values(messageIDs(r.take(0)))))); got != rows {
		t.Errorf("%d events came, want %d", got, rows)
	}
}

// TestPruneFaults: two prunes at once beside a relay with --prune-after, all of
// which take rows as soon as they can, under a writer, while prunes and relays are
// killed. Of what is written while no relay runs no row goes; nothing is lost, and
// in the end all rows are gone.
func TestPruneFaults(t *testing.T) { onEach(t, testPruneFaults) }

func testPruneFaults(t *testing.T, on source) {
	r := on.rig(t).prunes().begun()
	start := func() *daemon { return r.start("--partitions", "1", "--prune-after", "100ms") }
	prune := func() *daemon {
		return r.startAs("prune", "--older-than", "0s", "--every", "50ms", "--batch", "7", "--pause", "1ms", "--give-up-after", "2s")
	}
	l := r.underLoad(1)
	d := start()
	steady, victim := prune(), prune()
	for range 3 {
		l.grown(d, 200)
		victim.killed()
		victim = prune()
		d.killed()
		// What is committed from here on nobody has confirmed; of one transaction
		// that cannot be told.
		first := l.last.Load() + 4
		l.grown(steady, 200)
		last := l.last.Load()
		if got := r.text("SELECT COUNT(*) FROM outbox WHERE id BETWEEN ? AND ?", id(int(first)), id(int(last))); got != fmt.Sprint(last-first+1) {
			t.Fatalf("of the %d rows from %d to %d, which no relay has seen, there are %s", last-first+1, first, last, got)
		}
		d = start()
	}
	l.grown(d, 200)
	last := l.end(t)
	d.settled()
	steady.until("all rows are gone", func() bool { return r.text("SELECT COUNT(*) FROM outbox") == "0" })
	steady.stop()
	victim.stop()
	d.stop()
	r.judge(r.take(0), last)
}

// TestPruneBeside: what goes wrong with --prune-after is counted and logged once,
// and the relay goes on; when it is mended, rows go.
func TestPruneBeside(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	r.created(1, 100)
	address := freeAddress(t)
	d := r.start("--partitions", "1", "--prune-after", "1s", "--listen", address)
	d.until("it fails twice for want of the privilege", func() bool {
		return measures(address) && scrape(t, address).value("relay_prune_errors_total") >= 2
	})
	if n := strings.Count(d.text(), "GRANT SELECT, DELETE ON"); n != 1 {
		t.Errorf("the log says %d times what is missing, want once", n)
	}
	r.created(2, 0)
	d.settled()
	r.prunes()
	d.until("both rows are gone", func() bool { return scrape(t, address).value("relay_pruned_rows_total") == 2 })
	r.wantLeft()
	d.stop()
	r.wantEvents(r.take(0), 1, 2)
	r.run("run", "--prune-after", "-1s").want(t, 64, "--prune-after -1s is below 0")
}

// measures tells whether the metrics are served yet.
func measures(address string) bool {
	code, _ := get(address, "/metrics")
	return code == 200
}

// TestPrunePublished: by the status, and without a checkpoint, only rows that are
// stamped go; a flag that is forgotten deletes nothing.
func TestPrunePublished(t *testing.T) { onEach(t, testPrunePublished) }

func testPrunePublished(t *testing.T, on source) {
	r := on.rig(t).prunes()
	for n := 1; n <= 4; n++ {
		r.created(n, 100)
	}
	stamp := func(n, hours int) {
		r.exec(fmt.Sprintf("UPDATE outbox SET status = 'published', published_at = UTC_TIMESTAMP(6) - INTERVAL %d HOUR WHERE id = x'%s'", hours, hexID(n)))
	}
	stamp(1, 100)
	stamp(2, 1) // a day in a queue of rows that wait
	r.exec("UPDATE outbox SET status = 'published' WHERE id = x'" + hexID(3) + "'")
	refused := r.prune()
	refused.want(t, 78, "there is no checkpoint "+r.checkpoint(), "relay prune --published")
	refused.oneLine(t)
	r.wantLeft(1, 2, 3, 4)
	r.prune("--published").want(t, 0, "deleted      2 rows", "stamped published")
	r.wantLeft(2, 4)
	r.exec("ALTER TABLE outbox DROP INDEX idx_dispatch, DROP COLUMN status, DROP COLUMN published_at")
	r.prune("--published").want(t, 78, "ALTER TABLE "+r.database()+".outbox ADD COLUMN status")
	plain := r.prune()
	plain.want(t, 78, "there is no checkpoint")
	if strings.Contains(plain.stderr, "--published") {
		t.Errorf("it says to type what cannot work:\n%s", plain.stderr)
	}
	r.wantLeft(2, 4)
}

// TestPruneTopics: the checkpoint tells nothing about topics that its relay does
// not carry: of those only stamped rows go.
func TestPruneTopics(t *testing.T) {
	t.Parallel()
	r := newRig(t).prunes().begun()
	for n, topic := range []string{"order.placed", "order.paid", "mail.sent", "mail.sent"} {
		r.created(n+1, 100)
		r.exec(fmt.Sprintf("UPDATE outbox SET topic = '%s', status = '%s' WHERE id = x'%s'", topic, []string{"pending", "published"}[n/3], hexID(n+1)))
	}
	d := r.start("--partitions", "1", "--only-topics", "order.*")
	d.settled()
	r.prune().want(t, 0, "deleted      3 rows")
	r.wantLeft(3)
	d.stop()
}

// TestPruneInbox: an inbox is known by its columns, and needs no checkpoint.
func TestPruneInbox(t *testing.T) { onEach(t, testPruneInbox) }

func testPruneInbox(t *testing.T, on source) {
	for _, index := range []bool{true, false} {
		r := rigOn(t, on.database(t), (&exchange.Inbox{}).Schema()).prunes()
		if !index {
			r.exec("ALTER TABLE processed_messages DROP INDEX processed_at")
		}
		for n, hours := range []int{200, 169, 167, 0} {
			r.exec(fmt.Sprintf("INSERT INTO processed_messages VALUES ('m%d', UTC_TIMESTAMP(6) - INTERVAL %d HOUR)", n, hours))
		}
		args := []string{"--table", "processed_messages", "--older-than", "168h"}
		r.prune(append(args, "--dry-run")...).want(t, 0, "would go     2 rows")
		r.prune(args...).want(t, 0, "deleted      2 rows", "of an inbox")
		if got := r.text("SELECT GROUP_CONCAT(message_id ORDER BY 1) FROM processed_messages"); got != "m2,m3" {
			t.Errorf("the inbox has %s, want m2,m3", got)
		}
		r.prune(append(args, "--published")...).want(t, 64, "is an inbox")
	}
}

// TestPruneUsage: what cannot be meant is said in a line.
func TestPruneUsage(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	for _, tt := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--older-than", "-1s"}, 64, "--older-than -1s is below 0; type: --older-than 48h"},
		{[]string{"--pause", "-1s"}, 64, "--pause -1s is below 0"},
		{[]string{"--batch", "0"}, 64, "--batch 0 is not between 1 and 10000"},
		{[]string{"--table", "nowhere"}, 78, "check --table"},
		{[]string{"--published", "--replica-dsn", "x:hunter2@y"}, 64, "--replica-dsn"},
		{[]string{"--mysql-dsn", "u@tcp(127.0.0.1:1)/shop"}, 75, "type the same again"},
	} {
		got := r.prune(tt.args...)
		got.want(t, tt.code, tt.want)
		got.oneLine(t)
	}
	path := filepath.Join(r.dir, "other.json")
	r.exec("CREATE TABLE other LIKE outbox")
	r.run("run", "--table", "other", "--start", "sideways", "--checkpoint", path).want(t, 64)
	r.begun()
	r.prune("--table", "other").want(t, 78, "is of table")
}

// TestPruneMaxLag: prune waits while a replica does not keep up, and says so.
func TestPruneMaxLag(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	r := rigOn(t, databaseOn(t, p.source.root()), schema.SQL).prunes()
	r.exec("GRANT PROCESS ON *.* TO " + r.user)
	r.created(1, 100)
	r.exec("UPDATE outbox SET status = 'published'")
	p.caughtUp(r.executed())
	p.ofReplica.exec("STOP REPLICA SQL_THREAD")
	args := []string{"--published", "--replica-dsn", p.replica.root()}
	held := r.prune(append(args, "--give-up-after", "1s")...)
	held.want(t, 75, "its replication has stopped", `"message":"pruning waits"`, "held back")
	r.wantLeft(1)
	d := r.startAs("prune", args...)
	d.until("it waits", func() bool { return strings.Contains(d.text(), "pruning waits") })
	p.ofReplica.exec("START REPLICA SQL_THREAD")
	if code := d.Wait(); code != 0 {
		t.Errorf("prune ended with %d", code)
	}
	r.wantLeft()
	r.prune("--published", "--replica-dsn", p.source.root()).want(t, 0) // nothing is old: it is not asked
	r.created(2, 100)
	r.exec("UPDATE outbox SET status = 'published'")
	r.prune("--published", "--replica-dsn", p.source.root()).want(t, 78, "is no replica")
}
