package cli_test

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// TestReplayRows: chosen rows of the table go again beside a relay that runs, as
// it sent them but for three headers.
func TestReplayRows(t *testing.T) { onEach(t, testReplayRows) }

func testReplayRows(t *testing.T, on source) {
	r := on.rig(t).begun()
	d := r.start("--partitions", "1", "--order", "pipelined")
	r.insert(r.db, 1, 5)
	r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (x'"+hexID(6)+"', 77, 'invoice.issued', '{}', '2026-01-02 03:04:05'), (x'"+hexID(7)+"', 77, 'invoice.paid', '{}', '2026-01-02 03:04:06')",
		"UPDATE outbox SET status = 'published'")
	d.settled()
	first := map[string]amqp.Delivery{}
	for _, m := range r.take(0) {
		first[m.MessageId] = m
	}
	for _, tt := range []struct {
		want []int
		args []string
	}{
		{[]int{3}, []string{"--id", idText(3)}},
		{[]int{3, 5}, []string{"--id", idText(5), "--id", strings.ToUpper(idText(3))}},
		{[]int{6, 7}, []string{"--aggregate", "77"}},
		{[]int{6}, []string{"--aggregate", "77", "--topic", "*.issued"}},
		{[]int{6, 7}, []string{"--topic", "invoice.*"}},
		{[]int{7}, []string{"--until", "2026-02-01T00:00:00Z", "--since", "2026-01-02T04:04:06+01:00"}},
		{[]int{6}, []string{"--until", "2026-01-02T03:04:06Z", "--yes"}},
		{nil, []string{"--topic", "none"}},
	} {
		var want []string
		for _, n := range tt.want {
			want = append(want, idText(n))
		}
		r.run(append([]string{"replay", "--dry-run"}, tt.args...)...).want(t, 0, fmt.Sprintf("%d events of", len(want)))
		lines := r.run(append([]string{"replay", "--to", "-"}, tt.args...)...)
		lines.want(t, 0)
		var printed []string
		for _, line := range linesOf(t, lines.stdout) {
			printed = append(printed, line.ID)
		}
		if !slices.Equal(printed, want) {
			t.Errorf("%v: printed %v, want %v", tt.args, printed, want)
		}
		r.run(append([]string{"replay", "--partitions", "1"}, tt.args...)...).want(t, 0)
		sent := r.take(0)
		if got := messageIDs(sent); !slices.Equal(got, want) {
			t.Errorf("%v: sent %v, want %v", tt.args, got, want)
		}
		for _, m := range sent {
			was := first[m.MessageId]
			if m.Headers["replayed"] != true || m.Headers["sequence"] != nil || m.Headers["gtid"] != nil {
				t.Errorf("%v: headers %v", tt.args, m.Headers)
			}
			for _, name := range []string{"replayed", "sequence", "gtid"} {
				delete(m.Headers, name)
				delete(was.Headers, name)
			}
			if got, want := shownMessage(m), shownMessage(was); got != want {
				t.Errorf("%v:\ngot  %s\nwant %s", tt.args, got, want)
			}
		}
	}
	d.settled()
	d.stop()
	if got := r.state().Sequence; got != 7 {
		t.Errorf("the checkpoint has sequence %d, want 7", got)
	}
}

// shownMessage is a message with all that a consumer sees of it.
func shownMessage(m amqp.Delivery) string {
	return fmt.Sprint(m.RoutingKey, m.Type, m.ContentType, m.AppId, m.Timestamp, m.DeliveryMode, m.Headers, string(m.Body))
}

// TestReplayRowsRefused: each with its exit code, in one line what to type, and
// nothing goes out.
func TestReplayRowsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.insert(r.db, 1, 1001)
	r.declare("x-consistent-hash", true)
	for _, tt := range []struct {
		code int
		text string
		args []string
	}{
		{64, "relay replay --id ID", nil},
		{64, "--id " + idText(2000) + ": ", []string{"--id", idText(1), "--id", idText(2000)}},
		{64, "is not a UUID", []string{"--id", "x"}},
		{64, "--until 2026-01-01T00:00:00Z is not behind --since 2026-01-02T00:00:00Z", []string{"--since", "2026-01-02T00:00:00Z", "--until", "2026-01-01T00:00:00Z"}},
		{64, `--since "yesterday" is not a time such as`, []string{"--since", "yesterday"}},
		{64, "an empty glob", []string{"--topic", ""}},
		{64, `--to "queue:" is none of`, []string{"--id", idText(1), "--to", "queue:"}},
		{64, "--gtid is for binlog files", []string{"--id", idText(1), "--gtid", "x"}},
		{64, "--drop is for parked events", []string{"--id", idText(1), "--drop", "x"}},
		{64, "1001 events would be sent to exchange ", []string{"--topic", "*"}},
		{64, "to send them all the same: --yes", []string{"--topic", "*"}},
		{78, "rabbitmqadmin declare queue --name none", []string{"--id", idText(1), "--to", "queue:none"}},
		{78, "relay schema sql", []string{"--id", idText(1), "--table", "none"}},
		{75, "when the server answers", []string{"--id", idText(1), "--mysql-dsn", "relay:x@tcp(127.0.0.1:1)/shop"}},
	} {
		got := r.run(append([]string{"replay"}, tt.args...)...)
		got.want(t, tt.code, tt.text)
		got.oneLine(t)
	}
	if n := r.ready(0); n > 0 {
		t.Errorf("%d events went out", n)
	}
	ask := func(answer string) string {
		args := append([]string{"-i"}, r.environment()...)
		command := exec.CommandContext(t.Context(), "env", append(args, "script", "-qec", relayBinary(t)+" replay --topic '*' --log-format json", "/dev/null")...)
		command.Stdin = strings.NewReader(answer + "\n")
		out, _ := command.CombinedOutput() // with the command's exit code
		return string(out)
	}
	if out := ask("no"); !strings.Contains(out, "Type yes: ") || !strings.Contains(out, "not sent, as answered") || r.ready(0) > 0 {
		t.Errorf("no: %d events went out:\n%s", r.ready(0), out)
	}
	if out := ask("yes"); !strings.Contains(out, `"events":1001,`) || r.ready(0) != 1001 {
		t.Errorf("yes: %d events went out:\n%s", r.ready(0), out)
	}
}

// TestReplayRowsFaults: the link to the broker breaks in the middle, then the
// replay is killed and typed again, then two run at once. Nothing is lost, and no
// aggregate's first deliveries are out of order.
func TestReplayRowsFaults(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const last = 6000
	r.insert(r.db, 1, last)
	r.flags = []string{"--partitions", "1", "--topic", "*", "--yes", "--window", "300"}
	p := r.toBroker()
	d := r.startAs("replay")
	d.until("some of it is there", func() bool { return r.ready(0) > 1000 })
	p.away()
	d.until("it notices", func() bool { return strings.Contains(d.text(), "session ended") })
	p.Accept()
	<-d.Done()
	if code := d.Wait(); code != 0 {
		t.Fatalf("it ended with %d:\n%s", code, d.Tail())
	}
	cut := r.take(0)
	if len(cut) > last+300 {
		t.Errorf("%d messages for %d events; want no more than a window twice", len(cut), last)
	}
	r.wantReplayed(cut, last)
	killed := r.startAs("replay")
	killed.until("some of it is there", func() bool { return r.ready(0) > 1000 })
	if err := killed.Kill(); err != nil {
		t.Fatal(err)
	}
	one, two := r.startAs("replay"), r.startAs("replay")
	for _, d := range []*daemon{one, two} {
		if code := d.Wait(); code != 0 {
			t.Errorf("it ended with %d:\n%s", code, d.Tail())
		}
	}
	list := r.take(0)
	if len(list) < 2*last {
		t.Errorf("%d messages of two replays of %d events", len(list), last)
	}
	r.wantReplayed(list, last)
}

// wantReplayed wants every event at least once, and of each aggregate no first
// delivery behind that of a later one.
func (r *rig) wantReplayed(list []amqp.Delivery, last int) {
	r.t.Helper()
	seen, newest := map[string]bool{}, map[string]string{}
	for _, m := range list {
		if !seen[m.MessageId] && m.MessageId < newest[m.RoutingKey] {
			r.t.Fatalf("event %s of aggregate %s comes first behind %s", m.MessageId, m.RoutingKey, newest[m.RoutingKey])
		}
		seen[m.MessageId] = true
		newest[m.RoutingKey] = max(newest[m.RoutingKey], m.MessageId)
	}
	if len(seen) != last {
		r.t.Errorf("%d of %d events came", len(seen), last)
	}
}

// TestReplayToQueue: rows, parked events and those of log files go to one queue,
// past the exchange; what is parked stays so.
func TestReplayToQueue(t *testing.T) {
	t.Parallel()
	r := parking(t)
	queue := relaytest.Name(t)
	if err := r.onBroker(func(channel *amqp.Channel) error {
		_, err := channel.QueueDeclare(queue, true, false, false, false, nil)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.onBroker(func(channel *amqp.Channel) error {
			_, err := channel.QueueDelete(queue, false, false, false)
			return err
		}); err != nil {
			t.Error(err)
		}
	})
	r.row(1, 1, "NULL")
	r.row(2, 1, "'{}'")
	r.row(3, 2, "NULL")
	r.row(4, 2, "'{}'")
	d := r.start("--partitions", "1", "--on-bad-event", "park")
	d.settled()
	before := mustRead(t, r.checkpoint()+".parked")
	r.run("replay", "--parked", "--to", "-", "--aggregate", "2").want(t, 0, `"id":"`+idText(3), `"id":"`+idText(4))
	r.run("replay", "--parked", "--to", "queue:"+queue, "--aggregate", "2").want(t, 3, "left      "+idText(3)+": ", "payload is NULL")
	r.run("replay", "--id", idText(2), "--to", "queue:"+queue).want(t, 0)
	r.run("replay", "--from-binlog", capture(t, "full.bin"), "--table", "shop.outbox", "--id", "02000000-0000-0000-0000-000000000000", "--to", "queue:"+queue).want(t, 0)
	r.run("replay", "--from-binlog", capture(t, "full.bin"), "--table", "shop.outbox", "--id", "02000000-0000-0000-0000-000000000000", "--dry-run").want(t, 0, "1 events of 1 aggregates")
	if after := mustRead(t, r.checkpoint()+".parked"); string(after) != string(before) {
		t.Errorf("the parked file is another:\n%s\n%s", before, after)
	}
	d.stop()
	r.run("replay", "--parked", "--id", idText(4), "--drop", idText(1)).want(t, 64, "--drop itself names the event")
	r.run("replay", "--parked", "--drop", idText(1)).want(t, 3, "confirmed "+idText(2), "kept      "+idText(3))
	r.run("replay", "--parked", "--id", idText(4)).want(t, 3, "2 events are still parked")
	if got, want := r.parked(), []string{idText(3), idText(4)}; !slices.Equal(got[len(got)-2:], want) {
		t.Errorf("parked %v, want %v", got, want)
	}
	var got []string
	if err := r.onBroker(func(channel *amqp.Channel) error {
		for {
			m, ok, err := channel.Get(queue, true)
			if err != nil || !ok {
				return err
			}
			if m.RoutingKey != queue || m.Headers["replayed"] != true {
				t.Errorf("%s: routing key %s, headers %v", m.MessageId, m.RoutingKey, m.Headers)
			}
			got = append(got, m.MessageId)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if want := []string{idText(4), idText(2), "02000000-0000-0000-0000-000000000000"}; !slices.Equal(got, want) {
		t.Errorf("the queue got %v, want %v", got, want)
	}
}

// TestReplayOdd: ids that begin with a space, or are empty, are not taken for
// others; a row that no message can carry is named and left; what is printed where
// nobody can read it is no success.
func TestReplayOdd(t *testing.T) {
	t.Parallel()
	r := rigOn(t, database(t), "CREATE TABLE outbox (id VARCHAR(60) COLLATE utf8mb4_bin PRIMARY KEY, aggregate_id VARCHAR(300), topic VARCHAR(120), payload JSON, created_at DATETIME(6) NULL)",
		"INSERT INTO outbox VALUES (' lead', ' a', ' t', '{}', '2026-01-01'), ('lead', 'a', 't', '{}', '2026-01-02'), ('', 'a', 't', '{}', '2026-01-03'), ('timeless', 'b', 't', '{}', NULL)")
	r.declare("x-consistent-hash", true)
	for _, tt := range []struct {
		want []string
		args []string
	}{
		{[]string{" lead"}, []string{"--id", " lead"}},
		{[]string{"lead"}, []string{"--aggregate", "a"}},
		{[]string{" lead"}, []string{"--aggregate= a"}},
		{[]string{" lead"}, []string{"--topic", " t"}},
		{[]string{"timeless"}, []string{"--aggregate", "b"}},
	} {
		code := 0
		if len(tt.args) > 1 && tt.args[1] == "a" {
			code = 65
			r.run(append([]string{"replay", "--dry-run"}, tt.args...)...).want(t, 65, "bad          1 events", "message id is empty")
		}
		r.run(append([]string{"replay"}, tt.args...)...).want(t, code)
		if got := messageIDs(r.take(0)); !slices.Equal(got, tt.want) {
			t.Errorf("%v: sent %q, want %q", tt.args, got, tt.want)
		}
	}
	r.run("replay", "--id", "").want(t, 65, "left      '': message id is empty")
	r.run("replay", "--topic", "none", "--dry-run").want(t, 0, "no row fits what was chosen")
	r.wantExplained(r.explained(0, "timeless"), map[string]string{"row": "created at a time that it does not tell"})
	r.exec("DELETE FROM outbox WHERE created_at IS NULL")
	r.run("run").want(t, 65, "message id is empty", "DELETE FROM ")
	for _, args := range []string{"replay --topic t --dry-run", "explain lead", "help", "replay --help", "version"} {
		command := exec.CommandContext(t.Context(), "sh", "-c", relayBinary(t)+" "+args+" > /dev/full")
		command.Env = r.environment()
		out, err := command.CombinedOutput()
		if command.ProcessState.ExitCode() != 1 || !strings.Contains(string(out), "standard output: ") {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}

// TestReplayHelpExample: the help's first example runs, with other addresses.
func TestReplayHelpExample(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.declare("x-consistent-hash", true)
	const id = "7d44a1a0-3c55-4c5b-9f0e-3f2f0f6c1c11"
	r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'" + strings.ReplaceAll(id, "-", "") + "', 1, 't', '{}')")
	help := r.run("replay", "--help").stdout
	_, example, _ := strings.Cut(help, "relay replay --id")
	example, _, _ = strings.Cut("replay --id"+example, "relay replay --topic")
	example = strings.NewReplacer("\\\n", " ", "'relay:pw@tcp(127.0.0.1:3306)/shop'", "'"+r.dsn+"'", "amqp://relay:pw@127.0.0.1:5672/", r.amqp+" --exchange "+r.exchange).Replace(example)
	out, err := exec.CommandContext(context.WithoutCancel(t.Context()), "sh", "-c", relayBinary(t)+" "+strings.TrimSpace(example)).CombinedOutput()
	if got := messageIDs(r.take(0)); err != nil || !slices.Equal(got, []string{id}) {
		t.Errorf("%s: %v, sent %v:\n%s", example, err, got, out)
	}
}
