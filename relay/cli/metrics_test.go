package cli_test

import (
	"fmt"
	"math"
	"strings"
	"testing"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// scraped is one look at /metrics.
type scraped struct {
	t    testing.TB
	body string
}

func scrape(t testing.TB, address string) scraped {
	t.Helper()
	_, body := get(address, "/metrics")
	return scraped{t, body}
}

func (s scraped) value(name string) float64 {
	s.t.Helper()
	for line := range strings.Lines(s.body) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			var value float64
			if _, err := fmt.Sscan(text, &value); err != nil {
				s.t.Fatalf("%s is %q", name, text)
			}
			return value
		}
	}
	s.t.Fatalf("there is no metric %s in\n%s", name, s.body)
	return 0
}

func (s scraped) want(values map[string]float64) {
	s.t.Helper()
	for name, want := range values {
		if got := s.value(name); got != want {
			s.t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
}

// TestMetrics drives each metric of the relay to another value, on servers that
// nobody else uses, and compares it with what the servers say.
func TestMetrics(t *testing.T) {
	t.Parallel()
	broker := relaytest.PrivateRabbitMQ(t)
	r := rigOn(t, databaseOn(t, relaytest.PrivateMySQL(t)), schema.SQL)
	r.dropTopology() // of the broker of all tests
	r.amqp = broker.URL
	r.begun()
	source, way := r.toSource(), r.toBroker()
	address := freeAddress(t)
	start := r.set(r.state().GTIDSet)
	d := r.start("--partitions", "1", "--window", "100", "--listen", address)
	version := strings.TrimPrefix(run(t, nil, "version").stdout, "relay ")
	version = version[:strings.LastIndex(version, " go")]
	if at := strings.LastIndexByte(version, ' '); at > 0 && strings.HasSuffix(version, "Z") { // the commit's date
		version = version[:at]
	}
	look := func() scraped { return scrape(t, address) }
	settled := func() {
		t.Helper()
		d.settled()
		d.until("it says that it has caught up", func() bool { return look().value("relay_lag_seconds") == 0 })
	}
	d.until("it is ready", func() bool { code, _ := get(address, "/readyz"); return code == 200 })

	t.Log("a known number of events")
	r.insert(r.db, 1, 50)
	r.exec("CREATE TABLE notes (id INT PRIMARY KEY)", "INSERT INTO notes VALUES (1)")
	settled()
	now := look()
	now.want(map[string]float64{
		"relay_events_published_total": 50, "relay_events_confirmed_total": 50, "relay_events_returned_total": 0,
		"relay_events_nacked_total": 0, "relay_events_parked_total": 0, "relay_events_in_flight": 0, "relay_window_events": 100,
		"relay_ready": 1, "relay_parked_events": 0,
		"relay_publish_seconds_count": 50, "relay_source_connected": 1, "relay_broker_connected": 1, "relay_broker_blocked": 0,
		`relay_reconnects_total{side="broker"}`: 0, `relay_reconnects_total{side="source"}`: 0,
		"relay_binlog_retention_seconds": 86400, "relay_binlog_runway_seconds": 86400,
		`relay_build_info{version="` + version + `"}`: 1,
	})
	read := r.set(r.state().GTIDSet).Minus(start).Count()
	if got := now.value("relay_transactions_total"); got != float64(read) {
		t.Errorf("relay_transactions_total is %v, and the checkpoint has moved over %d", got, read)
	}
	d.until("no log is before it", func() bool { return look().value("relay_lag_bytes") == 0 })

	t.Log("the broker does not confirm")
	way.Stall(relaytest.Down)
	before := r.logSize()
	r.insert(r.db, 51, 250) // of 100 aggregates: one each is sent
	written := float64(r.logSize() - before)
	d.until("a window is in flight, and what was written is before it", func() bool {
		s := look()
		return s.value("relay_events_in_flight") == 100 && s.value("relay_lag_bytes") >= written/2 && s.value("relay_lag_bytes") <= written &&
			s.value("relay_lag_seconds") > 1 && s.value("relay_checkpoint_age_seconds") > 1 && s.value("relay_binlog_runway_seconds") < 86400-1
	})
	s := look()
	if sum := s.value("relay_lag_seconds") + s.value("relay_binlog_runway_seconds"); math.Abs(sum-86400) > 1 {
		t.Errorf("lag and runway add up to %v", sum)
	}
	way.Flow(relaytest.Down)
	settled()
	look().want(map[string]float64{"relay_events_in_flight": 0, "relay_events_confirmed_total": 250, "relay_publish_seconds_count": 250})
	if slow := look().value(`relay_publish_seconds_bucket{le="1"}`); slow > 150 {
		t.Errorf("%v of 250 events were confirmed within a second, and 200 waited for longer", slow)
	}

	t.Log("the broker blocks")
	broker.Ctl(t, "set_vm_memory_high_watermark", "absolute", "1")
	r.insert(r.db, 251, 260)
	d.until("it says that it is blocked", func() bool { return look().value("relay_broker_blocked") == 1 })
	broker.Ctl(t, "set_vm_memory_high_watermark", "0.6")
	settled()
	look().want(map[string]float64{"relay_broker_blocked": 0, "relay_events_confirmed_total": 260})

	t.Log("events come back, and are refused")
	unbound := func(bind func(*amqp.Channel) error) {
		t.Helper()
		if err := r.onBroker(bind); err != nil {
			t.Fatal(err)
		}
	}
	unbound(func(ch *amqp.Channel) error { return ch.QueueUnbind(r.queue(0), "1", r.exchange, nil) })
	r.insert(r.db, 261, 265)
	d.until("returned events are counted", func() bool { return look().value("relay_events_returned_total") >= 5 })
	unbound(func(ch *amqp.Channel) error { return ch.QueueBind(r.queue(0), "1", r.exchange, false, nil) })
	settled()
	broker.Ctl(t, "set_policy", "full", r.queue(0), `{"max-length": 1, "overflow": "reject-publish"}`)
	d.until("refused events are counted", func() bool {
		if look().value("relay_events_nacked_total") > 0 {
			return true
		}
		r.insert(r.db, nextID(r), nextID(r))
		return false
	})
	broker.Ctl(t, "clear_policy", "full")
	settled()
	s = look()
	if sent, fates := s.value("relay_events_published_total"), s.value("relay_events_confirmed_total")+s.value("relay_events_returned_total")+s.value("relay_events_nacked_total"); sent != fates {
		t.Errorf("%v were published, and %v confirmed, returned or refused", sent, fates)
	}

	t.Log("each side goes away")
	for _, side := range []struct {
		name  string
		way   proxy
		gauge string
	}{{"source", source, "relay_source_connected"}, {"broker", way, "relay_broker_connected"}} {
		reconnects := fmt.Sprintf(`relay_reconnects_total{side=%q}`, side.name)
		had := look().value(reconnects)
		side.way.away()
		d.until(side.name+" is said to be away", func() bool {
			s := look()
			return s.value(side.gauge) == 0 && s.value("relay_ready") == 0 && s.value(reconnects) > had
		})
		side.way.Accept()
		d.until(side.name+" is said to be back", func() bool { s := look(); return s.value(side.gauge) == 1 && s.value("relay_ready") == 1 })
	}

	t.Log("the server keeps its log for ever")
	r.exec("SET GLOBAL binlog_expire_logs_seconds = 0")
	d.until("the runway is endless", func() bool {
		s := look()
		return math.IsInf(s.value("relay_binlog_runway_seconds"), 1) && math.IsInf(s.value("relay_binlog_retention_seconds"), 1)
	})
	d.stop()
}

// nextID is behind the last event's.
func nextID(r *rig) int {
	var n int
	if _, err := fmt.Sscan(r.text("SELECT COUNT(*) + 1 FROM outbox"), &n); err != nil {
		r.t.Fatal(err)
	}
	return n
}
