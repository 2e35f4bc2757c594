package cli_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// pollRig makes a rig whose user may select and update, and no more.
func pollRig(t testing.TB, root string, ddl ...string) *rig {
	t.Helper()
	r := rigOn(t, root, ddl...)
	r.exec("REVOKE ALL PRIVILEGES, GRANT OPTION FROM "+r.user, "GRANT SELECT, UPDATE ON "+r.database()+".* TO "+r.user)
	return r
}

// poll starts a poller of one partition.
func (r *rig) poll(args ...string) *daemon {
	r.t.Helper()
	return r.startAs("poll", append([]string{"--partitions", "1", "--interval", "200ms"}, args...)...)
}

// pending counts the rows that wait.
func (r *rig) pending() string {
	r.t.Helper()
	return r.text("SELECT COUNT(*) FROM outbox WHERE status = 'pending'")
}

// stamped waits until no row is pending.
func (d *daemon) stamped() {
	d.rig.t.Helper()
	d.until("all is stamped", func() bool { return d.rig.pending() == "0" })
}

// wantPolled wants the events of these numbers, each once, those of an aggregate
// in their order.
func (r *rig) wantPolled(list []amqp.Delivery, first, last int) {
	r.t.Helper()
	seen, behind := map[string]bool{}, map[string]string{}
	for _, m := range list {
		if seen[m.MessageId] {
			r.t.Errorf("event %s came twice", m.MessageId)
		}
		if m.MessageId <= behind[m.RoutingKey] {
			r.t.Errorf("event %s of aggregate %s comes behind %s", m.MessageId, m.RoutingKey, behind[m.RoutingKey])
		}
		seen[m.MessageId], behind[m.RoutingKey] = true, m.MessageId
	}
	for n := first; n <= last; n++ {
		if !seen[idText(n)] {
			r.t.Errorf("event %d did not come", n)
		}
	}
	if len(list) != last-first+1 {
		r.t.Errorf("%d events came, want those from %d to %d", len(list), first, last)
	}
}

// TestPoll: with nothing but SELECT and UPDATE, what is pending is delivered and
// stamped, what is published is not, and SIGTERM ends it with 0.
func TestPoll(t *testing.T) { onEach(t, testPoll) }

func testPoll(t *testing.T, on source) {
	r := pollRig(t, on.database(t), schema.SQL)
	r.insert(r.db, 1, 1000)
	r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload, status) VALUES (x'" + hexID(5000) + "', 1, 't', '{}', 'published')")
	address := freeAddress(t)
	d := r.poll("--batch", "70", "--listen", address)
	d.stamped()
	r.insert(r.db, 1001, 1050) // the last batch was not full: it waits its interval
	d.stamped()
	for name, want := range map[string]float64{
		"relay_events_published_total": 1050, "relay_events_confirmed_total": 1050, "relay_events_in_flight": 0, "relay_publish_seconds_count": 1050,
		"relay_source_connected": 1, "relay_broker_connected": 1, "relay_lag_bytes": 0, "relay_checkpoint_age_seconds": 0, "relay_window_events": 70,
	} {
		if got := metric(t, address, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	d.until("the lag is 0", func() bool { return metric(t, address, "relay_lag_seconds") == 0 })
	if code, body := get(address, "/readyz"); code != 200 || body != "polling and publishing\n" {
		t.Errorf("/readyz: %d %s", code, body)
	}
	d.stop()
	r.wantPolled(r.take(0), 1, 1050)
	if got := r.text("SELECT COUNT(*) FROM outbox WHERE published_at BETWEEN created_at AND UTC_TIMESTAMP(6)"); got != "1050" {
		t.Errorf("%s rows tell when they were published", got)
	}
	if r.exists() {
		t.Error("there is a checkpoint")
	}
}

// TestPollMessage: the messages are those of run, byte for byte, without what
// only the log tells.
func TestPollMessage(t *testing.T) { onEach(t, testPollMessage) }

func testPollMessage(t *testing.T, on source) {
	for name, table := range map[string]struct{ create, rows, set string }{
		"seed": {schema.SQL, `INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES
			(0x0123456789ABCDEF0123456789AB0000, -42, 'order.placed', '{"b":1,"a":"x y","n":[1,2.5,null,true,1e30],"é":"<&>"}', '2026-03-01 12:34:56.789012'),
			(0x00000000000000000000000000000000, 9223372036854775807, 't', '{}', '2026-03-01 00:00:00')`, "status = 'pending'"},
		"optional": {`CREATE TABLE outbox (id VARCHAR(9) PRIMARY KEY, aggregate_id VARCHAR(300) NOT NULL, aggregate_type ENUM('Bücher'), event_type VARCHAR(40),
			topic VARCHAR(120) NOT NULL, payload TEXT NOT NULL, headers TEXT, version INT, created_at TIMESTAMP(3) NOT NULL, status VARCHAR(20) DEFAULT 'pending', KEY (status, created_at)) CHARSET latin1`,
			`INSERT INTO outbox (id, aggregate_id, aggregate_type, event_type, topic, payload, headers, version, created_at) VALUES
			('ö', REPEAT('k', 300), 'Bücher', 'x', 'Größe', 'œ€ÿ', '{"traceparent":"00-1","n":3,"gtid":"forged"}', 9, '2026-03-01 01:02:03.004'), ('b', '', NULL, NULL, 't', '', NULL, NULL, '2026-03-01')`, "status = 'pending'"},
		"eventuate": {`CREATE TABLE outbox (id VARCHAR(767) PRIMARY KEY, destination LONGTEXT NOT NULL, headers LONGTEXT CHARACTER SET utf8mb4 NOT NULL,
			payload LONGTEXT CHARACTER SET utf8mb4 NOT NULL, published SMALLINT DEFAULT 0, message_partition SMALLINT, creation_time BIGINT, KEY (published, id)) CHARSET latin1`,
			`INSERT INTO outbox (id, destination, headers, payload, creation_time) VALUES ('01', 'shop.Örder', '{"PARTITION_ID":"17","event-type":"shop.Created"}', '{"total":"雪"}', 1772323201678),
			('02', 'kitchen', '{"command_type":"Cook"}', '{}', 1772323202000)`, "published = 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := rigOn(t, on.database(t), table.create).begun()
			r.exec("GRANT UPDATE ON "+r.database()+".* TO "+r.user, table.rows)
			streamed := r.relayed()
			d := r.poll()
			d.until("all is stamped", func() bool { return r.text("SELECT COUNT(*) FROM outbox WHERE "+table.set) == "0" })
			d.stop()
			byID := func(list []amqp.Delivery) (messages []message) {
				for _, delivery := range list {
					messages = append(messages, messageOf(delivery))
				}
				slices.SortFunc(messages, func(a, b message) int { return strings.Compare(a.ID, b.ID) })
				return messages
			}
			want, got := byID(streamed), byID(r.take(0))
			for _, m := range want {
				if m.Headers["gtid"] == nil || m.Headers["sequence"] == nil {
					t.Errorf("of run: %+v", m)
				}
				delete(m.Headers, "gtid")
				delete(m.Headers, "sequence")
			}
			if diff := cmp.Diff(want, got); diff != "" || len(got) != 2 {
				t.Errorf("run and poll (-run +poll):\n%s", diff)
			}
		})
	}
}

// TestPollTopics: only what is wanted is carried, given as flags or a variable.
func TestPollTopics(t *testing.T) {
	t.Parallel()
	r := pollRig(t, database(t), schema.SQL)
	for n, topic := range []string{"order.placed", "order.paid", "invoice.sent", "Order.placed", "cart"} {
		r.exec(fmt.Sprintf("INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'%s', 1, '%s', '{}')", hexID(n+1), topic))
	}
	for _, step := range []struct {
		env  []string
		args []string
		want []int
	}{
		{nil, []string{"--only-topics", "order.*,invoice.*", "--except-topics", "*.paid"}, []int{1, 3}},
		{[]string{"RELAY_EXCEPT_TOPICS=cart,order.*"}, nil, []int{4}},
		{nil, nil, []int{2, 5}},
	} {
		d := r.startWith(step.env, "poll", append([]string{"--partitions", "1"}, step.args...)...)
		var want []string
		for _, n := range step.want {
			want = append(want, idText(n))
		}
		last := hexID(step.want[len(step.want)-1])
		d.until("the last is stamped", func() bool { return r.text("SELECT status FROM outbox WHERE id = x'"+last+"'") == "published" })
		d.stop()
		if got := messageIDs(r.take(0)); !slices.Equal(got, want) {
			t.Errorf("%v %v: got %v, want %v", step.env, step.args, got, want)
		}
	}
	r.run("poll", "--only-topics", "a,,b").want(t, 64, "an empty glob")
}

// TestPollRefused: what cannot be meant, and what cannot be polled.
func TestPollRefused(t *testing.T) {
	t.Parallel()
	r := pollRig(t, database(t), "CREATE TABLE outbox (id BINARY(16) PRIMARY KEY, aggregate_id BIGINT, topic VARCHAR(99), payload JSON, created_at DATETIME(6))")
	for _, tt := range []struct {
		args []string
		code int
		text string
	}{
		{[]string{"--interval", "199ms"}, 64, "--interval 199ms is not between 200ms and 1s"},
		{[]string{"--interval", "1001ms"}, 64, "--interval 1.001s is not between"},
		{[]string{"--batch", "0"}, 64, "--batch 0 is not between 1 and 10000"},
		{[]string{"--batch", "10001"}, 64, "--batch 10001"},
		{[]string{"--checkpoint", "x"}, 64, "checkpoint"},
		{nil, 78, "ALTER TABLE " + r.database() + ".outbox ADD COLUMN status ENUM('pending','published') NOT NULL DEFAULT 'pending', ADD COLUMN published_at DATETIME(6) NULL, ADD KEY idx_dispatch (status, created_at)"},
	} {
		got := r.run(append([]string{"poll", "--partitions", "1", "--log-level", "error"}, tt.args...)...)
		got.want(t, tt.code, tt.text)
		got.oneLine(t)
	}
	_, statement, _ := strings.Cut(r.run("poll", "--log-level", "error").stderr, "type: ")
	statement, _, _ = strings.Cut(statement, ";")
	r.exec(statement)
	r.exec("REVOKE UPDATE ON " + r.database() + ".* FROM " + r.user)
	r.run("poll", "--partitions", "1").want(t, 78, "GRANT SELECT, UPDATE ON")
	r.exec("GRANT UPDATE ON " + r.database() + ".* TO " + r.user)
	r.insert(r.db, 1, 1)
	d := r.poll()
	d.stamped()
	d.stop()
}

// TestPollUnstampable: rows that can never be stamped end the poller with 78: with
// a generated column before any of them is sent, with a trigger that forbids it and
// a column that is too short behind the first batch.
func TestPollUnstampable(t *testing.T) { onEach(t, testPollUnstampable) }

func testPollUnstampable(t *testing.T, on source) {
	r := pollRig(t, on.database(t), schema.SQL)
	r.declare("x-consistent-hash", true)
	for n, change := range []string{
		"ALTER TABLE outbox DROP KEY idx_dispatch, DROP COLUMN status, ADD COLUMN status VARCHAR(20) GENERATED ALWAYS AS (IF(published_at IS NULL, 'pending', 'published')) STORED",
		"CREATE TRIGGER forbidden BEFORE UPDATE ON outbox FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'hands off'",
		"ALTER TABLE outbox MODIFY status CHAR(7) NOT NULL DEFAULT 'pending'",
	} {
		r.exec("DROP TABLE outbox", schema.SQL)
		r.exec(change)
		r.insert(r.db, 1, 1)
		r.run("poll").want(t, 78, "does not let its rows be stamped", "SHOW TRIGGERS")
		want := 1
		if n == 0 && !r.mariadb() { // which does not tell before
			want = 0
		}
		if got := len(r.take(0)); got != want {
			t.Errorf("%s: %d events went out, want %d", change, got, want)
		}
	}
}

// TestPollBadRow: a row that cannot be sent ends the poller with 65 and its id,
// once those before it are stamped; the statement that it prints takes the row out.
func TestPollBadRow(t *testing.T) { onEach(t, testPollBadRow) }

func testPollBadRow(t *testing.T, on source) {
	r := pollRig(t, on.database(t), schema.SQL, "ALTER TABLE outbox ADD headers JSON, MODIFY status ENUM('pending', 'published') DEFAULT 'pending'")
	write := func(n int, headers string) {
		r.exec(fmt.Sprintf("INSERT INTO outbox (id, aggregate_id, topic, payload, headers) VALUES (x'%s', %d, 't', '{}', %s)", hexID(n), n%2, headers))
	}
	write(1, "NULL")
	write(2, "NULL")
	write(3, "'[1]'")                                   // no event
	write(4, "'{\""+strings.Repeat("h", 256)+"\": 1}'") // no message
	write(5, "NULL")
	r.exec("UPDATE outbox SET status = NULL WHERE id = x'" + hexID(2) + "'")
	fix := func(id, begin, end, left string) {
		t.Helper()
		got := r.run("poll", "--partitions", "1", "--log-level", "error")
		got.want(t, 65, id)
		got.oneLine(t)
		_, statement, _ := strings.Cut(got.stderr, begin)
		statement, _, found := strings.Cut(statement, end)
		if !found {
			t.Fatalf("there is nothing to type behind %q: %s", begin, got.stderr)
		}
		if pending := r.pending(); pending != left {
			t.Errorf("%s rows are pending, want %s", pending, left)
		}
		r.exec(statement)
	}
	fix(idText(2), "and all like it: ", "; mend", "4")
	fix(idText(3), "take it out: ", "; then: relay poll", "3")
	fix(idText(4), "take it out: ", "; then: relay poll", "1") // 5 is of another aggregate
	if got := r.pending(); got != "0" {
		t.Errorf("%s rows are pending", got)
	}
	if got, want := messageIDs(r.take(0)), []string{idText(1), idText(2), idText(5)}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestPollUnroutable: an event that the broker returns stays pending, readiness
// says why, the lag grows, others go; and all of it goes when it can, in order.
func TestPollUnroutable(t *testing.T) {
	t.Parallel()
	r := pollRig(t, database(t), schema.SQL)
	r.declare("x-consistent-hash", false)
	address := freeAddress(t)
	d := r.startAs("poll", "--interval", "200ms", "--listen", address)
	d.until("it polls", func() bool { return strings.Contains(d.text(), `"message":"polling"`) })
	r.insert(r.db, 1, 250)
	d.until("it says that events are returned", func() bool {
		code, body := get(address, "/readyz")
		return code == 503 && strings.Contains(body, "no queue is bound")
	})
	d.until("the lag grows", func() bool { return metric(t, address, "relay_lag_seconds") > 0.5 })
	if got := r.pending(); got != "250" {
		t.Errorf("%s rows are pending", got)
	}
	_, word, _ := strings.Cut(told(t, address), "data: ")
	var view struct {
		Interval float64 `json:"interval_seconds"`
		Window   int
		GTIDSet  string   `json:"gtid_set"`
		Lag      *float64 `json:"lag_seconds"`
	}
	if err := json.Unmarshal([]byte(word), &view); err != nil || view.Interval != 0.2 || view.Window != 100 || view.GTIDSet != "" || view.Lag == nil {
		t.Errorf("the page is told %+v, %v: %s", view, err, word)
	}
	r.declare("x-consistent-hash", true)
	d.stamped()
	d.until("it is ready", func() bool { code, _ := get(address, "/readyz"); return code == 200 })
	d.stop()
	r.wantPolled(r.take(0), 1, 250)
}

// TestPollNacks: one of two queues is full and rejects. What is for it stays
// pending, many times a batch of it, and is no hindrance to the rest; when another
// queue takes it, it comes in order. Seen to fail with waiting as nil: the batches
// are full of what is refused.
func TestPollNacks(t *testing.T) {
	t.Parallel()
	r := pollRig(t, database(t), schema.SQL)
	r.declare("x-consistent-hash", false)
	full := asDeclared()
	full[amqp.QueueMaxLenArg], full[amqp.QueueOverflowArg] = int32(5), amqp.QueueOverflowRejectPublish
	r.bind(0, full)
	r.bind(1, asDeclared())
	address := freeAddress(t)
	r.insert(r.db, 1, 200)
	d := r.startAs("poll", "--interval", "200ms", "--batch", "5", "--listen", address)
	refused := func() bool {
		code, body := get(address, "/readyz")
		return code == 503 && strings.Contains(body, "refuses events")
	}
	d.until("it says that events are refused", refused)
	d.until("more rows than a batch has are refused", func() bool { return metric(t, address, "relay_events_nacked_total") >= 40 })
	flowing := r.take(1)
	if len(flowing) == 0 {
		t.Fatal("nothing is in the queue that is not full")
	}
	r.exec(fmt.Sprintf("INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'%s', %s, 't', '{}')", hexID(201), flowing[0].RoutingKey))
	d.until("another event of the queue that is not full is stamped", func() bool { return r.text("SELECT status FROM outbox WHERE id = x'"+hexID(201)+"'") == "published" })
	if !refused() {
		t.Error("/readyz does not say that events are refused")
	}
	if err := r.onBroker(func(channel *amqp.Channel) error { // then all go to the other queue
		return channel.QueueUnbind(r.queue(0), "1", r.exchange, nil)
	}); err != nil {
		t.Fatal(err)
	}
	d.stamped()
	d.until("it is ready", func() bool { code, _ := get(address, "/readyz"); return code == 200 })
	d.stop()
	r.wantPolled(slices.Concat(flowing, r.take(0), r.take(1)), 1, 201)
}

// told is the first line that /events streams.
func told(t testing.TB, address string) string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+address+"/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	line, err := bufio.NewReader(response.Body).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return line
}

// TestPollGuarded: while an aggregate's earlier row is locked elsewhere its later
// rows stay pending, and other aggregates go.
func TestPollGuarded(t *testing.T) { onEach(t, testPollGuarded) }

func testPollGuarded(t *testing.T, on source) {
	r := pollRig(t, on.database(t), schema.SQL)
	write := func(n, aggregate int) {
		r.exec(fmt.Sprintf("INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'%s', %d, 't', '{}')", hexID(n), aggregate))
	}
	write(1, 1)
	write(2, 1)
	write(3, 2)
	other := r.session("BEGIN", "SELECT * FROM outbox WHERE id = x'"+hexID(1)+"' FOR UPDATE")
	d := r.poll()
	d.until("the other aggregate is sent", func() bool { return r.pending() == "2" })
	write(4, 2)
	write(5, 1)
	d.until("it goes on with the other", func() bool { return r.pending() == "3" })
	r.on(other, "ROLLBACK")
	d.stamped()
	d.stop()
	if got, want := messageIDs(r.take(0)), []string{idText(3), idText(4), idText(1), idText(2), idText(5)}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// TestPollWithoutLog: a server without a log and without GTIDs.
func TestPollWithoutLog(t *testing.T) {
	t.Parallel()
	for _, on := range sources {
		t.Run(on.name, func(t *testing.T) {
			t.Parallel()
			options := map[string][]string{"mysql": {"--skip-log-bin", "--gtid-mode=OFF"}, "mariadb": {"--skip-log-bin"}}[on.name]
			r := pollRig(t, databaseOn(t, on.private(t, options...)), schema.SQL)
			if got := r.text("SELECT @@log_bin"); got != "0" {
				t.Fatalf("log_bin is %s", got)
			}
			r.insert(r.db, 1, 10)
			d := r.poll()
			d.stamped()
			d.stop()
			r.wantPolled(r.take(0), 1, 10)
		})
	}
}

// TestPollExample: the example in the help does what it says, with the addresses
// of here.
func TestPollExample(t *testing.T) {
	t.Parallel()
	r := pollRig(t, database(t), schema.SQL)
	r.insert(r.db, 1, 20)
	r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'" + hexID(99) + "', 1, 'invoice.sent', '{}')")
	r.exec("UPDATE outbox SET topic = 'cart' WHERE topic = 'order.placed'")
	_, example, _ := strings.Cut(run(t, nil, "poll", "--help").stdout, "Example:\n")
	example, _, _ = strings.Cut(example, "\n\n")
	u, err := url.Parse(r.amqp)
	if err != nil {
		t.Fatal(err)
	}
	replaced := strings.NewReplacer("relay poll", relayBinary(t)+" poll", "relay:pw@tcp(127.0.0.1:3306)/shop", r.dsn, "amqp://relay:pw@127.0.0.1:5672/", u.String(), "--partitions 4", "--partitions 1").Replace(example)
	c := relaytest.Command{Binary: "/bin/sh", Args: []string{"-c", "exec " + strings.TrimSpace(replaced)}, Env: r.environment()[2:], Stderr: r.dir + "/log"}
	process, err := c.Start()
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{process, r, r.dir + "/log"}
	t.Cleanup(func() { d.Kill() }) //nolint:errcheck // it has ended
	d.until("all but the invoice is stamped", func() bool { return r.pending() == "1" })
	d.stop()
	r.wantPolled(r.take(0), 1, 20)
}

// TestPollPage: the status page of a poller shows no place in a log. Seen to fail
// with the tiles left as they are.
func TestPollPage(t *testing.T) {
	t.Parallel()
	r := pollRig(t, database(t), schema.SQL)
	address := freeAddress(t)
	d := r.poll("--listen", address)
	b := newBrowser(t)
	b.do(chromedp.EmulateViewport(1280, 900), chromedp.Navigate("http://"+address+"/"))
	r.insert(r.db, 1, 30)
	b.until("confirmed", "30")
	b.until("state", "following")
	b.until("reason", "at the next poll, 200ms after the last.")
	b.until("fact-polled", "every 200 ms")
	for _, none := range []string{"log behind", "runway", "checkpoint", "GTID set", "sequence", "settled up to", "nothing settled"} {
		if shown := evaluate[string](b, "document.querySelector('main').innerText"); strings.Contains(shown, none) {
			t.Errorf("the page has %q:\n%s", none, shown)
		}
	}
	b.clean("http://" + address + "/")
	d.stop()
	b.until("state", "stopped")
	b.until("next", "relay poll")
}
