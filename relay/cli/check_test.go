package cli_test

import (
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/relay"
	"github.com/outboxrelay/relay/relay/relaytest"
)

// names are the requirements that check looks at, in its order.
func checked(t *testing.T, got result) map[string]binlog.Requirement {
	t.Helper()
	var list []binlog.Requirement
	if err := json.Unmarshal([]byte(got.stdout), &list); err != nil {
		t.Fatalf("check --json prints no JSON: %v\n%s", err, got.stdout)
	}
	found := map[string]binlog.Requirement{}
	for _, r := range list {
		found[r.Name] = r
	}
	return found
}

func TestCheck(t *testing.T) { onEach(t, testCheck) }

func testCheck(t *testing.T, on source) {
	r := on.rig(t)
	all := []string{
		"mysql", "log_bin", r.pick("gtid_mode", "gtid_strict_mode"), "binlog_row_image", "table", "engine", "grant SELECT", "grant REPLICATION SLAVE",
		r.pick("grant REPLICATION CLIENT", "grant BINLOG MONITOR"), "retention", "clock", "checkpoint directory", "checkpoint", "rabbitmq", "exchange", "queue " + r.queue(0), "queue " + r.queue(3),
	}
	before := r.run("check", "--partitions", "4")
	before.want(t, 0, "none yet", "not there yet", r.pick("MySQL ", "MariaDB ")+r.text("SELECT @@version"))
	if r.exists() {
		t.Error("check has made a checkpoint")
	}
	r.run("check").want(t, 3, "FAIL  exchange", "does not exist")
	r.relay("--partitions", "4")
	text := r.run("check", "--partitions", "4")
	text.want(t, 0, "RabbitMQ")
	found := checked(t, r.run("check", "--partitions", "4", "--json"))
	for _, name := range all {
		if requirement, there := found[name]; !there || !requirement.OK || requirement.Found == "" {
			t.Errorf("%s is %+v", name, requirement)
		}
		if !strings.Contains(text.stdout, name) {
			t.Errorf("the text has no %s:\n%s", name, text.stdout)
		}
	}
	d := r.start("--partitions", "4")
	d.settled()
	if got := strings.Count(d.text(), "GRANT TRIGGER ON `"+r.database()+"`.* TO "); got != 1 {
		t.Errorf("run warns %d times of what it may not see", got)
	}
	r.run("check", "--partitions", "4").want(t, 0, "hint  sight of triggers", "hint  sight of views", "hint  sight of routines") // the lock is the relay's
	if r.mariadb() {
		r.run("check", "--partitions", "4").want(t, 0, "hint  server id", "type: GRANT REPLICATION MASTER ADMIN")
	} else {
		r.run("check", "--partitions", "4").want(t, 0, "ok    server id", "of the relay that runs here")
	}
	d.stop()

	r.exec("REVOKE REPLICATION SLAVE ON *.* FROM " + r.user)
	got := r.run("check", "--partitions", "4")
	got.want(t, 3, "FAIL  grant REPLICATION SLAVE", "type: GRANT REPLICATION SLAVE ON *.* TO '"+r.user+"'@'%'")
	got.oneLine(t)
	got = r.run("check", "--json")
	got.want(t, 3)
	if slave := checked(t, got)["grant REPLICATION SLAVE"]; slave.OK || !strings.HasPrefix(slave.Fix, "GRANT REPLICATION SLAVE") {
		t.Errorf("the grant is %+v", slave)
	}
	r.exec("GRANT REPLICATION SLAVE ON *.* TO " + r.user)
	for name, args := range map[string][]string{
		"table": {"--table", "nothing"},
		"checkpoint directory       checkpoint: the file cannot be kept there: directory /nowhere": {"--checkpoint", "/nowhere/c.json"},
		"server id": {"--server-id", r.text("SELECT @@server_id")},
		"rabbitmq":  {"--amqp-url", "amqp://guest:hunter2@" + strings.TrimPrefix(r.amqp[strings.Index(r.amqp, "@"):], "@")},
		"mysql":     {"--mysql-dsn", strings.Replace(r.dsn, secret, "hunter2", 1)},
	} {
		got := r.run(append([]string{"check"}, args...)...)
		got.want(t, 3, "FAIL  "+name, "  checkpoint                 ") // its line is there in any case
		got.oneLine(t)
	}
	r.run("check", "--amqp-url", "amqp://relay:hunter2@0.0.0.0:1/").want(t, 3, "hint  tls of the broker", "not encrypted: 0.0.0.0:1", "type: --amqp-url amqps://")
}

func TestStatus(t *testing.T) { onEach(t, testStatus) }

func testStatus(t *testing.T, on source) {
	r := on.rig(t)
	r.exec("CREATE TABLE notes (id INT PRIMARY KEY)")
	none := r.run("status", "--partitions", "1")
	none.want(t, 78, "does not exist", r.exchange)
	none.oneLine(t)
	if strings.Contains(none.stdout, "does not exist") { // it was there, too
		t.Errorf("standard output repeats the refusal:\n%s", none.stdout)
	}
	away := mustDSN(t, r.dsn)
	away.Addr = "127.0.0.1:1"
	got := r.run("status", "--partitions", "1", "--mysql-dsn", away.FormatDSN())
	got.want(t, 75, "source       at 127.0.0.1:1: see the last line", "broker       exchange:", "type the same again")
	got.oneLine(t)
	r.begun()
	report := func() (report relay.Report) {
		t.Helper()
		got := r.run("status", "--partitions", "1", "--json")
		got.want(t, 0)
		if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
			t.Fatalf("%v in\n%s", err, got.stdout)
		}
		return report
	}
	r.exec("INSERT INTO notes VALUES (1)")
	r.insert(r.db, 1, 3)
	down := report()
	if down.State == nil || down.State.Sequence != 0 || down.Source.Behind < 2 || down.Source.Missing == "" || down.Source.RunwaySeconds == nil || down.Broker.Queues[0].Messages != 0 {
		t.Errorf("the daemon is down, status is %+v", down)
	}
	r.run("status", "--partitions", "1").want(t, 0, "table        "+r.database()+".outbox", "behind       ", "sequence     0", r.queue(0)+": 0 messages ready, 0 consumers")
	d := r.start("--partitions", "1")
	d.settled()
	up := report()
	if up.State.Sequence != 3 || up.Broker.Queues[0].Messages != 3 {
		t.Errorf("the daemon is up, status is %+v", up)
	}
	r.run("status", "--partitions", "1").want(t, 0, "sequence     3", "executed "+r.text(r.pick("SELECT @@server_uuid", "SELECT '0-1-'")))
	d.stop()
}

// TestCheckBroker: what a broker lacks for --partitions, check says as run
// does. It said ok in each of these cases, and that run declares what is not
// there.
func TestCheckBroker(t *testing.T) {
	t.Parallel()
	b := relaytest.PrivateRabbitMQ(t)
	b.Ctl(t, "add_user", "relay", secret)
	r := newRig(t)
	r.dropTopology() // of the broker of all tests
	r.amqp = b.URL
	user := *r
	user.amqp = onVhost(t, b, "/")
	t.Run("no right to declare", func(t *testing.T) {
		b.Ctl(t, "set_permissions", "-p", "/", "relay", "^$", ".*", ".*")
		r.declare("x-consistent-hash", false)
		user.sameWords(t, "--partitions", "1")
		user.run("check").want(t, 0) // it needs none
		r.dropTopology()
	})
	permit(t, b, "/")
	t.Run("a queue with a limit", func(t *testing.T) {
		err := r.onBroker(func(channel *amqp.Channel) error {
			_, err := channel.QueueDeclare(r.queue(0), true, false, false, false, amqp.Table{"x-queue-type": "quorum", "x-single-active-consumer": true, "x-max-length": 7})
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		user.sameWords(t, "--partitions", "1")
		r.dropTopology()
	})
	t.Run("no plugin", func(t *testing.T) {
		user.run("check", "--partitions", "1").want(t, 0, "not there yet")
		b.Ctl(t, "eval", `rabbit_registry:unregister(exchange, <<"x-consistent-hash">>).`)
		user.sameWords(t, "--partitions", "1")
		user.run("run", "--partitions", "1").want(t, 78, "does not know the exchange type", "rabbitmq-plugins enable")
	})
}

// TestCheckQueues: what is bound is read from the broker's management API, with
// the relay's own user, whom it first refuses. No output has its password (run
// looks).
func TestCheckQueues(t *testing.T) {
	t.Parallel()
	b, api := relaytest.PrivateManagedRabbitMQ(t)
	r := newRig(t)
	r.dropTopology() // of the broker of all tests
	r.amqp = b.URL
	b.Ctl(t, "add_user", "relay", secret)
	permit(t, b, "/")
	user := *r
	user.amqp = onVhost(t, b, "/")
	user.flags = []string{"--amqp-management-url", strings.Replace(api, "//", "//relay:"+url.QueryEscape(secret)+"@", 1)}
	r.declare("x-consistent-hash", false)
	user.run("check").want(t, 0, "hint  bindings", `user "relay"`, "rabbitmqctl set_user_tags relay management", "type: rabbitmqctl list_bindings source_name")
	b.Ctl(t, "set_user_tags", "relay", "management")
	user.run("check").want(t, 3, "FAIL  bindings", "none is", "relay run --partitions 4")
	r.declare("x-consistent-hash", true)
	user.run("check").want(t, 0, "ok    queue "+r.queue(0), "weight 1, classic, durable", "hint  single active consumer")
	r.dropTopology()
	user.flags = user.flags[:2:2]
	d := r.start("--partitions", "2")
	d.settled()
	r.insert(r.db, 1, 40)
	d.settled()
	d.stop()
	user.run("check", "--partitions", "2").want(t, 0, "ok    queue "+r.queue(1), "weight 1, quorum, durable, single active consumer; ",
		"hint  delivery limit", "drops a message after 20 deliveries", "type: rabbitmqctl set_policy "+r.exchange)
	b.Ctl(t, "set_policy", r.exchange, "^"+r.exchange+`\.`, `{"delivery-limit": -1}`, "--apply-to", "queues") // as it is typed
	relaytest.Wait(t, patience, "the policy holds", func() bool {
		return !strings.Contains(user.run("check", "--partitions", "2").stdout, "hint  delivery limit")
	})
	found := checked(t, user.run("check", "--partitions", "1", "--json"))
	if other := found["queue "+r.queue(1)]; other.OK || !other.Advice || !strings.Contains(other.Found, "none of the partitions") {
		t.Errorf("a queue beside the partitions is %+v", other)
	}
	got := user.run("status", "--json")
	got.want(t, 0, "no consumer on "+r.queue(0)+", "+r.queue(1))
	var report relay.Report
	if err := json.Unmarshal([]byte(got.stdout), &report); err != nil {
		t.Fatal(err)
	}
	if q := report.Broker.Queues; len(q) != 2 || q[0].Messages+q[1].Messages != 40 {
		t.Errorf("40 events are in two queues, status says %+v", q)
	}
	run(t, user.environment(), "check", "--amqp-management-url", "localhost").want(t, 64, "--amqp-management-url http://")
}
