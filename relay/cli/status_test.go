package cli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/relay"
	"github.com/outboxrelay/relay/schema"
)

// report runs relay status --json and reads what it prints.
func (r *rig) report(code int, flags ...string) (report relay.Report) {
	r.t.Helper()
	got := r.run(append([]string{"status", "--partitions", "1", "--json"}, flags...)...)
	got.want(r.t, code)
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		r.t.Fatalf("%v in\n%s", err, got.stdout)
	}
	return report
}

// TestStatusBehind: bytes behind are those of the log, thresholds of them give
// warning and exit code 3, and both are over when the relay has caught up.
func TestStatusBehind(t *testing.T) { onEach(t, testStatusBehind) }

func testStatusBehind(t *testing.T, on source) {
	r := rigOn(t, databaseOn(t, on.private(t)), schema.SQL).begun() // nothing is behind where nobody else writes
	size := func() (n int64) {
		r.eachLog(func(_, size string) bool {
			var one int64
			if err := json.Unmarshal([]byte(size), &one); err != nil {
				t.Fatal(err)
			}
			n += one
			return true
		})
		return n
	}
	before := size()
	r.insert(r.db, 1, 300)
	written := size() - before
	report := r.report(0)
	s := report.Source
	if s.BehindBytes == nil || *s.BehindBytes < written || s.BehindAtMost || s.LogBytes < *s.BehindBytes {
		t.Errorf("%d bytes were written, status says %+v", written, s)
	}
	if s.RetentionSeconds != 86400 || s.RetentionBytes != 0 || s.RunwayShare == nil || *s.RunwayShare < 0.9 || *s.RunwayShare > 1 {
		t.Errorf("the retention is %+v, want a day, of which nearly all is left", s)
	}
	if report.Running || report.LastError != nil {
		t.Errorf("the relay is down, and had no error: %+v", report)
	}
	thresholds := []string{"--warn-behind", "1 kB", "--critical-behind", "20KB"}
	r.run(append([]string{"status", "--partitions", "1"}, thresholds...)...).want(t, 3, "state        critical: ", " of log behind", "relay: not everything is as it must be")
	report = r.report(0, "--warn-behind", "1 kB")
	if report.Level != relay.Warning || !strings.Contains(report.Reasons[0].Text, "of log behind") {
		t.Errorf("with a threshold of 1 kB: %+v", report.Reasons)
	}
	report = r.report(3, "--warn-runway", "1", "--critical-runway", "1")
	if report.Level != relay.Critical || !strings.Contains(report.Reasons[0].Text, "of the runway is left") {
		t.Errorf("with a threshold of all the runway: %+v", report.Reasons)
	}
	d := r.start("--partitions", "1")
	d.settled()
	d.until("nothing is behind", func() bool {
		report = r.report(0, "--warn-runway", "1", "--critical-runway", "0")
		return report.Source.BehindBytes != nil && *report.Source.BehindBytes == 0
	})
	if !report.Running || report.Process != d.pid() || *report.Source.RunwayShare != 1 {
		t.Errorf("the relay runs and has caught up: %+v", report)
	}
	d.stop()
	for _, wrong := range [][2]string{{"--warn-behind", "much"}, {"--critical-behind", "1GB"}, {"--warn-runway", "2"}, {"--critical-runway", "0.9"}} {
		r.run("status", wrong[0], wrong[1]).want(t, 64, strings.TrimPrefix(wrong[0], "--critical"), wrong[1])
	}
}

// TestStatusLastError: an error that may pass and one that does not are told
// while they last, with the code, and that they are over when the relay follows
// again. No secret is in the file.
func TestStatusLastError(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	p := r.toBroker()
	d := r.start("--partitions", "1")
	d.settled()
	p.away()
	d.until("the error is kept", func() bool {
		_, err := os.Stat(r.checkpoint() + ".error")
		return err == nil
	})
	got := r.run("status", "--partitions", "1")
	got.want(t, 75, "state        critical: the broker cannot be asked", "the relay does not follow, see last error", "last error   20", "tried again, not over: exchange: ")
	got.oneLine(t)
	p.Accept()
	d.until("it is over", func() bool {
		e := r.report(0).LastError
		return e != nil && e.OverAt != nil
	})
	r.run("status", "--partitions", "1").want(t, 0, "tried again, over since 20")
	d.stop()

	r.exec("REVOKE REPLICATION SLAVE ON *.* FROM " + r.user)
	r.run("run", "--partitions", "1").want(t, 78)
	r.run("status", "--partitions", "1").want(t, 3, "critical: the relay ended with exit code 78 and does not run", "exit code 78, not over: ", "REPLICATION SLAVE")
	noSecret(t, string(mustRead(t, r.checkpoint()+".error")))
	r.exec("GRANT REPLICATION SLAVE ON *.* TO " + r.user)
	r.relay("--partitions", "1")
	if e := r.report(0).LastError; e == nil || e.ExitCode != 78 || e.OverAt == nil {
		t.Errorf("the last error is %+v, want over", e)
	}
}

// TestStatusXA: an XA transaction that is prepared holds the position of MySQL,
// and is counted where the user may ask.
func TestStatusXA(t *testing.T) { onEach(t, testStatusXA) }

func testStatusXA(t *testing.T, on source) {
	r := on.rig(t).begun()
	d := r.start("--partitions", "1")
	conn, err := r.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	name := "'" + r.database() + "'"
	do := func(statement string) {
		t.Helper()
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	do("XA START " + name)
	r.insert(conn, 1, 1)
	do("XA END " + name)
	do("XA PREPARE " + name)
	r.insert(r.db, 2, 2)
	text := func() string { return r.run("status", "--partitions", "1").stdout }
	if r.mariadb() {
		if s := r.report(0).Source; s.PreparedXA == nil || *s.PreparedXA < 1 || s.HeldXA != "" {
			t.Errorf("one is prepared: %+v", s)
		}
	} else {
		d.until("the position waits", func() bool {
			return strings.Contains(text(), "not known how many are prepared") && strings.Contains(text(), "the position waits for ")
		})
		if s := r.report(0).Source; s.PreparedXA != nil || s.HeldXA == "" || s.BehindBytes == nil || *s.BehindBytes == 0 {
			t.Errorf("one is held: %+v", s)
		} else if age := s.RetentionSeconds - *s.RunwaySeconds; age < *s.LagSeconds+0.2 { // the relay began after the file did
			t.Errorf("the place is %.1f s old, as what was last settled, though a transaction is held: %+v", age, s)
		}
		r.exec("GRANT XA_RECOVER_ADMIN ON *.* TO " + r.user)
		if s := r.report(0).Source; s.PreparedXA == nil || *s.PreparedXA < 1 {
			t.Errorf("one is prepared: %+v", s)
		}
	}
	do("XA COMMIT " + name)
	d.settled()
	d.until("nothing is held", func() bool { return r.report(0).Source.HeldXA == "" })
	d.stop()
}

// TestStatusReadOnly: it needs no right to write, and a user of the server who
// may only read its variables sees what those tell.
func TestStatusReadOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	d := r.start("--partitions", "1")
	d.settled()
	defer d.stop()
	for _, path := range []string{filepath.Dir(r.dir), r.dir, filepath.Dir(relayBinary(t))} {
		if err := os.Chmod(path, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(r.checkpoint(), 0o644); err != nil {
		t.Fatal(err)
	}
	r.exec("REVOKE REPLICATION SLAVE, REPLICATION CLIENT ON *.* FROM " + r.user)
	defer r.exec("GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO " + r.user)
	got := runAs(t, nobody(), r.environment(), "status", "--partitions", "1")
	got.want(t, 0, "relay        runs, process ", "table        "+r.database()+".outbox", "behind       ", "runway       ")
}

// TestStatusWatch: it prints again and again, what is away and what has come
// back, until it is interrupted, which is no error. Without --json it appends,
// with the time.
func TestStatusWatch(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	plain := r.startAs("status", "--partitions", "1", "--watch")
	p := r.toSource()
	d := r.startAs("status", "--partitions", "1", "--watch", "--json")
	reports := func() (list []relay.Report) {
		text := d.text()
		for line := range strings.Lines(text[:strings.LastIndexByte(text, '\n')+1]) {
			var one relay.Report
			if err := json.Unmarshal([]byte(line), &one); err != nil {
				t.Fatalf("%v in %s", err, line)
			}
			list = append(list, one)
		}
		return list
	}
	last := func(what string, is func(relay.Report) bool) {
		t.Helper()
		d.until(what, func() bool {
			list := reports()
			return len(list) > 0 && is(list[len(list)-1])
		})
	}
	last("it has looked", func(one relay.Report) bool { return one.Source.Error == "" && one.State != nil })
	r.insert(r.db, 1, 10)
	last("it sees what is behind", func(one relay.Report) bool { return one.Source.BehindBytes != nil && *one.Source.BehindBytes > 0 })
	p.away()
	last("it shows that MySQL is away", func(one relay.Report) bool { return one.Level == relay.Critical && one.Source.Error != "" })
	p.Accept()
	last("it shows that MySQL is back", func(one relay.Report) bool { return one.Source.Error == "" })
	content := mustRead(t, r.checkpoint())
	if err := os.WriteFile(r.checkpoint(), content[:20], 0o600); err != nil {
		t.Fatal(err)
	}
	last("it shows that the checkpoint is corrupt", func(one relay.Report) bool { return strings.Contains(one.Problem, "corrupt") })
	for _, watching := range []*daemon{d, plain} {
		if err := watching.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		<-watching.Done()
		if code := watching.Wait(); code != 0 {
			t.Errorf("it ended with %d after SIGINT", code)
		}
	}
	if text := plain.text(); strings.Count(text, "\ntime  ") < 2 || !strings.HasPrefix(text, "time         20") || strings.Contains(text, "\x1b") {
		t.Errorf("to a file it printed\n%s", text)
	}
}

// TestStatusAsks: status asks the relay that runs, and exits with 3 while that is
// blocked: events come back that no queue takes. It is not asked with --listen
// "", nor believed where it does not answer. Status said ok and exited with 0
// while /readyz was 503.
func TestStatusAsks(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	address := freeAddress(t)
	r.dropTopology()
	r.declare("x-consistent-hash", false)
	d := r.start("--listen", address)
	d.until("it is ready", func() bool { code, _ := get(address, "/readyz"); return code == 200 })
	r.run("status", "--listen", address).want(t, 0, "says         following: What is committed to ")
	r.insert(r.db, 1, 1)
	d.until("it is not", func() bool { code, _ := get(address, "/readyz"); return code == 503 })
	got := r.run("status", "--listen", address)
	got.want(t, 3, "critical: the relay is blocked: ", "says         blocked: ", "Type: rabbitmqctl list_queues name messages policy")
	got.oneLine(t)
	var report relay.Report
	if err := json.Unmarshal([]byte(r.run("status", "--listen", address, "--json").stdout), &report); err != nil {
		t.Fatal(err)
	}
	if report.Relay == nil || report.Relay.State != "blocked" || report.Relay.Next == "" {
		t.Errorf("the relay says %+v", report.Relay)
	}
	if text := r.run("status").stdout; strings.Contains(text, "\nsays ") {
		t.Errorf("it was asked:\n%s", text)
	}
	r.run("status", "--listen", "127.0.0.1:1").want(t, 0, "says         not known: --listen 127.0.0.1:1: ", "refused")
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
}

// TestStatusGone: a queue that is deleted while the relay runs is named, with
// what to type, by status and by check; a relay that is started again has
// declared it. Both said that all is well.
func TestStatusGone(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	d := r.start("--partitions", "2")
	d.settled()
	r.run("status", "--partitions", "2").want(t, 0)
	err := r.onBroker(func(channel *amqp.Channel) error {
		_, err := channel.QueueDelete(r.queue(1), false, false, false)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	got := r.run("status", "--partitions", "2")
	got.want(t, 3, "critical: "+r.queue(1)+" is not there, and the relay runs; type: systemctl restart relay", "queue        "+r.queue(1)+": not there")
	got.oneLine(t)
	r.run("check", "--partitions", "2").want(t, 3, "FAIL  queue "+r.queue(1), "type: systemctl restart relay")
	d.stop()
	r.run("check", "--partitions", "2").want(t, 0, "not there yet: relay run declares it")
	r.relay("--partitions", "2")
	r.run("status", "--partitions", "2").want(t, 0, r.queue(1)+": 0 messages")
}

// TestStatusCorrupt: with a checkpoint that cannot be read everything else is
// told, as text and as JSON. Nothing was.
func TestStatusCorrupt(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	if err := os.WriteFile(r.checkpoint(), mustRead(t, r.checkpoint())[:20], 0o600); err != nil {
		t.Fatal(err)
	}
	got := r.run("status", "--partitions", "1")
	got.want(t, 78, "state        critical: the checkpoint cannot be read", "relay        does not run here", "checkpoint   checkpoint: ", "relay resume --from-gtid",
		"executed ", "broker       RabbitMQ ", "queue        "+r.queue(0))
	got.oneLine(t)
	report := r.report(78)
	if report.State != nil || !strings.Contains(report.Problem, "corrupt") || report.Source.Executed == "" || len(report.Broker.Queues) != 1 {
		t.Errorf("status says %+v", report)
	}
}
