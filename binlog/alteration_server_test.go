package binlog_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// change is what happens to an outbox: statements, and rows between them.
type change struct {
	name    string
	columns string // of --columns
	steps   []step
	// stops are the relays that end with ErrChanged, as "MINIMAL down", and the
	// text of it; all others follow, with the right values.
	stops map[string]stop
}

// step is a statement; one that inserts a row has what its event is to hold.
type step struct {
	sql  string
	want string // aggregate id, topic, payload
}

// stop is an end behind so many events.
type stop struct {
	events int
	text   string
}

// changing is the table before the change. Topic and payload are of one type,
// and so are extra and they: in their places a guess takes one for another.
const changing = `CREATE TABLE outbox (id INT PRIMARY KEY AUTO_INCREMENT, extra VARCHAR(50) NOT NULL DEFAULT 'extra', aggregate_id INT NOT NULL,
	topic VARCHAR(50) CHARACTER SET latin1 NOT NULL, payload VARCHAR(50) CHARACTER SET latin1 NOT NULL, created_at DATETIME(6) NOT NULL DEFAULT '2024-01-01')`

// a row, and one with the payload in another column.
func a(n int) step { return in(n, "payload") }
func in(n int, payload string) step {
	return step{fmt.Sprintf("INSERT INTO outbox (aggregate_id, topic, %s) VALUES (%d, 'té%d', 'pö%d')", payload, n, n, n), fmt.Sprintf("%d té%d pö%d", n, n, n)}
}
func do(sql string) step { return step{sql: sql} }

const (
	swap  = "ALTER TABLE outbox MODIFY topic VARCHAR(50) CHARACTER SET latin1 NOT NULL AFTER payload"
	first = "ALTER TABLE outbox ADD note VARCHAR(50) CHARACTER SET latin1 NOT NULL DEFAULT 'note' FIRST"
)

// alone is a change by one statement, which every relay follows.
func alone(name, alter string) change {
	return change{name: name, steps: []step{a(1), do(alter), a(2)}}
}

var changes = []change{
	alone("added first", first),
	alone("added in the middle", "ALTER TABLE outbox ADD note VARCHAR(50) CHARACTER SET latin1 NOT NULL DEFAULT 'note' AFTER aggregate_id"),
	alone("dropped", "ALTER TABLE outbox DROP extra"),
	alone("dropped and added", "ALTER TABLE outbox DROP extra, ADD note VARCHAR(50) NOT NULL DEFAULT 'note' AFTER topic"),
	alone("reordered", swap),
	alone("another renamed", "ALTER TABLE outbox RENAME COLUMN extra TO more"),
	alone("INT to BIGINT", "ALTER TABLE outbox MODIFY aggregate_id BIGINT NOT NULL"),
	alone("VARCHAR to TEXT", "ALTER TABLE outbox MODIFY payload TEXT NOT NULL"),
	alone("latin1 to utf8mb4", "ALTER TABLE outbox CONVERT TO CHARACTER SET utf8mb4"),
	{
		name: "signed to unsigned",
		steps: []step{
			{"INSERT INTO outbox (aggregate_id, topic, payload) VALUES (-7, 't', 'p')", "-7 t p"},
			do("UPDATE outbox SET aggregate_id = 7"),
			do("ALTER TABLE outbox MODIFY aggregate_id INT UNSIGNED NOT NULL"),
			{"INSERT INTO outbox (aggregate_id, topic, payload) VALUES (4294967289, 't', 'p')", "4294967289 t p"},
		},
	},
	{
		name: "renamed", columns: "payload=body|payload",
		steps: []step{a(1), do("ALTER TABLE outbox RENAME COLUMN payload TO body"), in(2, "body")},
	},
	{
		name:  "renamed unknown",
		steps: []step{a(1), do("ALTER TABLE outbox RENAME COLUMN payload TO body"), in(2, "body")},
		stops: map[string]stop{
			"FULL running": {1, "lacks the column payload of layout relay"}, "MINIMAL running": {1, "lacks the column payload of layout relay"},
			"FULL down": {-1, "lacks the column payload"}, "MINIMAL down": {-1, "lacks the column payload"},
		},
	},
	{
		name:  "twice",
		steps: []step{a(1), do(swap), a(2), do(first), a(3)},
		stops: map[string]stop{"MINIMAL down": {1, "(" + swap + ") changed the table before, and "}},
	},
	{
		name:  "twice, with no row between",
		steps: []step{a(1), do(swap), do(first), a(2)},
	},
	{
		name:  "twice, the second time in nothing but partitions",
		steps: []step{a(1), do(swap), a(2), do("ANALYZE TABLE outbox"), do("TRUNCATE outbox"), do("ALTER TABLE outbox PARTITION BY HASH (id)"), a(3), do("ALTER TABLE outbox ADD PARTITION PARTITIONS 2"), a(4)},
		stops: map[string]stop{"MINIMAL down": {1, "PARTITION BY HASH (id)) again later"}},
	},
	{
		name: "made anew",
		steps: []step{a(1), do("DROP TABLE outbox"), do("CREATE TABLE outbox (payload VARCHAR(50) NOT NULL, topic VARCHAR(50) NOT NULL, aggregate_id INT NOT NULL, id INT PRIMARY KEY AUTO_INCREMENT, created_at DATETIME(6) NOT NULL DEFAULT '2024-01-01')"),
			a(2)},
	},
	{
		name: "gh-ost",
		steps: []step{a(1), do("CREATE TABLE _outbox_gho LIKE outbox"), a(2), do(strings.Replace(swap, "outbox", "_outbox_gho", 1)), a(3),
			do("INSERT INTO _outbox_gho SELECT id, extra, aggregate_id, payload, topic, created_at FROM outbox WHERE id = 0"),
			do("RENAME TABLE outbox TO _outbox_del, _outbox_gho TO outbox"), a(4), do("DROP TABLE _outbox_del"), a(5)},
	},
	{
		name: "pt-online-schema-change",
		steps: []step{a(1), do("CREATE TABLE _outbox_new LIKE outbox"), do(strings.Replace(swap, "outbox", "_outbox_new", 1)),
			do("CREATE TRIGGER pt_osc_outbox_ins AFTER INSERT ON outbox FOR EACH ROW REPLACE INTO _outbox_new (id, aggregate_id, topic, payload) VALUES (NEW.id, NEW.aggregate_id, NEW.topic, NEW.payload)"),
			a(2), do("RENAME TABLE outbox TO _outbox_old, _outbox_new TO outbox"), do("DROP TRIGGER pt_osc_outbox_ins"), a(3), do("DROP TABLE _outbox_old"), a(4)},
	},
	{
		name: "in two steps",
		steps: []step{a(1), do("CREATE TABLE next LIKE outbox"), do(strings.Replace(swap, "outbox", "next", 1)),
			do("ALTER TABLE outbox RENAME TO last"), do("ALTER TABLE next RENAME TO outbox"), a(2)},
	},
	{
		name:  "made out of another", // its rows are in the transaction that makes it
		steps: []step{a(1), do("ALTER TABLE outbox RENAME TO last"), {"CREATE TABLE outbox (id INT PRIMARY KEY AUTO_INCREMENT) SELECT id + 100 AS id, payload, topic, aggregate_id, created_at FROM last", a(1).want}, a(2)},
	},
	{
		name:  "renamed away",
		steps: []step{a(1), do("RENAME TABLE outbox TO gone")},
		stops: map[string]stop{
			"FULL running": {1, "`.`outbox`; or make a new one"}, "MINIMAL running": {1, "`.gone TO `"},
			"FULL down": {-1, "doesn't exist"}, "MINIMAL down": {-1, "doesn't exist"},
		},
	},
}

// TestAlterations: every change, while a relay follows and while it is away, in
// a log that names the columns and in one that does not. Where the definition
// at the stream's beginning is taken for granted to be the present one,
// "reordered, MINIMAL down" brings "1 pö1 té1"; where a later statement is not
// looked for, "twice" does the same; where the log's names are not used, FULL
// stops or does so, too.
func TestAlterations(t *testing.T) {
	t.Parallel()
	dsn := relaytest.PrivateMySQL(t)
	for _, metadata := range []string{"MINIMAL", "FULL"} {
		for _, when := range []string{"running", "down"} {
			for _, c := range changes {
				t.Run(metadata+"/"+when+"/"+c.name, func(t *testing.T) {
					r := newRigOn(t, dsn, changing)
					r.exec("SET GLOBAL binlog_row_metadata = " + metadata)
					end, must := c.stops[metadata+" "+when]
					got, err := r.alter(c, when == "running")
					switch {
					case must && end.events >= 0:
						wantError(t, err, binlog.ErrChanged, end.text)
					case must:
						wantError(t, err, schema.ErrTable, end.text)
					case err != nil:
						t.Error(err)
					}
					var want []string
					for _, s := range c.steps {
						if s.want != "" {
							want = append(want, s.want)
						}
					}
					if must {
						want = want[:max(end.events, 0)]
					}
					if fmt.Sprint(got) != fmt.Sprint(want) {
						t.Errorf("got %q, want %q", got, want)
					}
				})
			}
		}
		t.Run(metadata+"/under writers", func(t *testing.T) {
			r := newRigOn(t, dsn, changing)
			r.exec("SET GLOBAL binlog_row_metadata = " + metadata)
			testSwapped(r)
		})
	}
}

// alter makes the change, and returns the events that a relay reads which
// follows, or was away meanwhile, and the error that ends it.
func (r *rig) alter(c change, running bool) (got []string, err error) {
	r.Helper()
	columns, err := schema.ParseColumns(c.columns)
	if err != nil {
		r.Fatal(err)
	}
	server := r.open(func(cfg *binlog.Config) { cfg.Options.Columns = columns })
	from, behind := r.executed(server), r.table(server)
	stream, err := server.FollowFrom(r.ctx, from, behind, behind)
	if err != nil {
		r.Fatal(err)
	}
	defer func() { stream.Close() }()
	conn := r.conn()
	read := func() error { // to the end of what is committed
		executed := r.executed(server)
		for seen := from; !seen.Contains(executed); {
			tx, err := stream.Next(r.ctx)
			if err != nil {
				return err
			}
			for _, e := range tx.Events {
				if e.Bad != nil {
					return e.Bad
				}
				got = append(got, e.AggregateID+" "+e.Topic+" "+string(e.Payload))
			}
			seen.Cover(tx)
		}
		return nil
	}
	for _, s := range c.steps {
		r.on(conn, s.sql)
		if running && s.want != "" {
			if err := read(); err != nil {
				return got, err
			}
		}
	}
	if !running {
		stream.Close()
		now, err := server.Table(r.ctx)
		if err != nil {
			return nil, err
		}
		if stream, err = server.FollowFrom(r.ctx, from, now, behind); err != nil {
			return nil, err
		}
	}
	return got, read()
}

// TestAlteredUnknown: a stream that does not know which definition there was
// where it begins reads rows by the present one only when nothing has changed
// it since; and one that knows it does not go on by it when the table is another
// one, without a statement in the log. Each of the refusals brings rows in its
// place where Stream.define does not make it.
func TestAlteredUnknown(t *testing.T) {
	t.Parallel()
	r := newRig(t, changing)
	server := r.open()
	behind, from := r.table(server), r.executed(server)
	r.exec(a(1).sql)
	if e := r.events(r.followFrom(server, from), 1)[0]; e.Topic != "té1" || string(e.Payload) != "pö1" {
		t.Errorf("got %+v", e)
	}
	conn := r.conn("SET SESSION sql_log_bin = 0")
	r.on(conn, swap)
	stream, err := server.FollowFrom(r.ctx, from, r.table(server), behind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Close)
	wantNext(r, stream, binlog.ErrChanged, "it was changed with sql_log_bin=0")
	r.exec(first)
	err = failure(r, r.followFrom(server, from))
	wantError(t, err, binlog.ErrChanged, "changed the table later; to go on behind the change: relay resume --from-gtid '")
	_, rest, _ := strings.Cut(err.Error(), "--from-gtid '")
	set, _, _ := strings.Cut(rest, "'")
	r.exec(a(2).sql)
	if e := r.events(r.followFrom(server, parse(r, set)), 1)[0]; e.AggregateID != "2" || e.Topic != "té2" {
		t.Errorf("behind %s: got %+v", set, e)
	}
}

// TestRenamedInSteps: a relay that looks for the table between the two steps of
// a change waits for the second. It fails where awaitTable looks only once.
func TestRenamedInSteps(t *testing.T) {
	t.Parallel()
	r := newRig(t, changing)
	name, dsn := r.user("%", "SELECT ON *.*", "REPLICATION SLAVE, REPLICATION CLIENT ON *.*")
	stream := r.follow(r.open(as(dsn)))
	r.exec("CREATE TABLE next LIKE outbox")
	r.exec("RENAME TABLE outbox TO last")
	got, errs := make(chan schema.Event, 1), make(chan error, 1)
	go func() {
		for {
			tx, err := stream.Next(r.ctx)
			if err != nil {
				errs <- err
				return
			}
			if len(tx.Events) > 0 {
				got <- tx.Events[0]
				return
			}
		}
	}()
	relaytest.Wait(t, limit, "the relay misses the table", func() bool {
		return r.text("SELECT COALESCE(SUM(sum_error_raised), 0) FROM performance_schema.events_errors_summary_by_user_by_error WHERE user = ? AND error_number = 1146", name) != "0"
	})
	r.exec("RENAME TABLE next TO outbox")
	r.exec(a(1).sql)
	select {
	case e := <-got:
		if e.Topic != "té1" {
			t.Errorf("got %+v", e)
		}
	case err := <-errs:
		t.Error(err)
	}
}

// TestAlteredLongAgo: the log behind a change is long, so that the stream, which
// waits meanwhile, begins anew at the row that was to be read. Without rewind
// the events of two transactions are mixed up, or one of them is lost.
func TestAlteredLongAgo(t *testing.T) {
	t.Parallel()
	r := newRigOn(t, relaytest.PrivateMySQL(t, "--max-allowed-packet=64M"), changing)
	r.exec("CREATE TABLE notes (note LONGBLOB)")
	server := r.open()
	stream := r.follow(server)
	r.exec(a(1).sql)
	r.events(stream, 1)
	r.exec(swap)
	for n := range 3 {
		r.exec(a(n + 2).sql)
		r.exec("INSERT INTO notes VALUES (REPEAT('x', 30 << 20))")
	}
	var got []string
	for _, e := range r.events(stream, 3) {
		got = append(got, e.AggregateID+" "+e.Topic)
	}
	if fmt.Sprint(got) != "[2 té2 3 té3 4 té4]" {
		t.Errorf("got %q", got)
	}
}

// testSwapped: tables change places while sessions write and a relay follows,
// and each event comes once, with its topic in its place.
func testSwapped(r *rig) {
	const sessions, swaps, apart = 3, 3, 1_000_000
	server := r.open()
	stream := r.follow(server)
	errs, reached, stop := make(chan error, sessions+1), make(chan int, swaps), make(chan struct{})
	counts := make(chan int, sessions)
	for w := range sessions {
		conn := r.conn()
		go func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					counts <- n
					return
				default:
				}
				if _, err := conn.ExecContext(r.ctx, a(w*10_000_000+n).sql); err != nil {
					errs <- err
					return
				}
			}
		}()
	}
	swapper := r.conn()
	go func() {
		total := 0
		err := func() error {
			for n := 1; n <= swaps; n++ { // the columns of one type change places each time
				place := []string{"AFTER aggregate_id", "AFTER payload"}[n%2]
				for _, statement := range []string{
					fmt.Sprintf("CREATE TABLE next%d LIKE outbox", n),
					fmt.Sprintf("ALTER TABLE next%d AUTO_INCREMENT = %d, MODIFY topic VARCHAR(50) CHARACTER SET latin1 NOT NULL %s", n, n*apart, place),
					fmt.Sprintf("RENAME TABLE outbox TO last%d, next%d TO outbox", n, n),
				} {
					if _, err := swapper.ExecContext(r.ctx, statement); err != nil {
						return err
					}
				}
				select { // until the relay has a row of this table
				case <-reached:
				case <-r.ctx.Done():
					return r.ctx.Err()
				}
			}
			close(stop)
			for range sessions {
				select {
				case n := <-counts:
					total += n
				case <-r.ctx.Done():
					return r.ctx.Err()
				}
			}
			_, err := swapper.ExecContext(r.ctx, fmt.Sprintf("INSERT INTO outbox (aggregate_id, topic, payload) VALUES (-1, 'end', '%d')", total))
			return err
		}()
		if err != nil {
			errs <- err
		}
	}()
	seen, table := map[string]bool{}, 0
	for {
		tx, err := stream.Next(r.ctx)
		if err != nil {
			select {
			case other := <-errs:
				r.Fatal(err, other)
			default:
				r.Fatal(err)
			}
		}
		for _, e := range tx.Events {
			if e.Topic == "end" {
				if want := string(e.Payload); strconv.Itoa(len(seen)) != want {
					r.Errorf("got %d events, want %s", len(seen), want)
				}
				return
			}
			if e.Topic != "té"+e.AggregateID || string(e.Payload) != "pö"+e.AggregateID || seen[e.AggregateID] {
				r.Fatalf("got %+v", e)
			}
			seen[e.AggregateID] = true
			if id, _ := strconv.Atoi(e.ID); id/apart > table {
				table = id / apart
				reached <- table
			}
		}
	}
}

// TestAlteredUnlogged: the table is changed with sql_log_bin=0 while a relay
// follows. A log that names the columns is followed; one that does not stops the
// relay, whose message gets it on, and a table that was only closed does not.
// Without Stream.verify "té3" comes as "pö3".
func TestAlteredUnlogged(t *testing.T) { onEach(t, testAlteredUnlogged) }

func testAlteredUnlogged(t *testing.T, f flavor) {
	dsn := f.private(t)
	for _, metadata := range []string{"FULL", map[string]string{"mysql": "MINIMAL", "mariadb": "NO_LOG"}[f.name]} {
		t.Run(metadata, func(t *testing.T) {
			r := newRigOn(t, dsn, changing)
			r.exec("SET GLOBAL binlog_row_metadata = " + metadata)
			conn := r.conn() // with the setting that it began with
			server := r.open()
			stream := r.follow(server)
			read := func(n int) {
				t.Helper()
				if e := r.events(stream, 1)[0]; e.AggregateID+" "+e.Topic+" "+string(e.Payload) != a(n).want {
					t.Errorf("got %+v, want %s", e, a(n).want)
				}
			}
			r.on(conn, a(1).sql)
			read(1)
			r.on(conn, "FLUSH TABLES")
			r.on(conn, a(2).sql)
			read(2)
			r.on(conn, "SET SESSION sql_log_bin = 0")
			r.on(conn, swap)
			r.on(conn, "SET SESSION sql_log_bin = 1")
			r.on(conn, a(3).sql)
			if metadata == "FULL" {
				read(3)
				return
			}
			err := failure(r, stream)
			wantError(t, err, binlog.ErrChanged, "it was changed with sql_log_bin=0")
			_, rest, _ := strings.Cut(err.Error(), "--from-gtid '")
			set, _, _ := strings.Cut(rest, "'")
			stream = r.followFrom(server, parse(r, set))
			read(3)
			r.on(conn, "SET SESSION sql_log_bin = 0")
			r.on(conn, "ALTER TABLE outbox ADD more INT FIRST")
			r.on(conn, "SET SESSION sql_log_bin = 1")
			r.on(conn, a(4).sql)
			err = failure(r, stream) // and not only that the columns are more
			wantError(t, err, binlog.ErrChanged, "it was changed with sql_log_bin=0")
			_, rest, _ = strings.Cut(err.Error(), "--from-gtid '")
			set, _, _ = strings.Cut(rest, "'")
			stream = r.followFrom(server, parse(r, set))
			if e := r.events(stream, 1)[0]; e.AggregateID+" "+e.Topic+" "+string(e.Payload) != a(4).want {
				t.Errorf("got %+v, want %s", e, a(4).want)
			}
		})
	}
}
