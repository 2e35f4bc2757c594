package cli_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// freeAddress is one that nothing listens on.
func freeAddress(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// get asks the relay over HTTP; 0 and the error's text when it does not answer.
func get(address, path string) (code int, body string) {
	client := http.Client{Timeout: 5 * time.Second}
	response, err := client.Get("http://" + address + path)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	return response.StatusCode, string(text)
}

// metric reads one figure.
func metric(t testing.TB, address, name string) float64 {
	t.Helper()
	_, body := get(address, "/metrics")
	for line := range strings.Lines(body) {
		if text, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			value, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			return value
		}
	}
	t.Fatalf("there is no metric %s in\n%s", name, body)
	return 0
}

// TestHTTP: metrics after a known number of events; health and readiness while
// the broker is there, away and there again; no password in any of it, nor in
// the process's title.
func TestHTTP(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	p := r.toBroker()
	address := freeAddress(t)
	r.insert(r.db, 1, 20)
	d := r.start("--partitions", "1", "--listen", address, "--mysql-dsn", r.dsn, "--amqp-password-file", r.passwordFile())
	d.settled()
	cmdline := string(mustRead(t, fmt.Sprintf("/proc/%d/cmdline", d.pid())))
	noSecret(t, cmdline)
	if !strings.Contains(cmdline, "--mysql-dsn\x00***") || !strings.Contains(cmdline, "--amqp-url=***") {
		t.Errorf("the process's title is %q", cmdline)
	}

	d.until("it is ready", func() bool { code, _ := get(address, "/readyz"); return code == 200 })
	if code, body := get(address, "/healthz"); code != 200 || body != "alive\n" {
		t.Errorf("/healthz: %d %s", code, body)
	}
	for name, want := range map[string]float64{
		"relay_events_published_total": 20, "relay_events_confirmed_total": 20, "relay_events_returned_total": 0,
		"relay_events_nacked_total": 0, "relay_events_in_flight": 0, "relay_publish_seconds_count": 20,
		"relay_source_connected": 1, "relay_broker_connected": 1, "relay_broker_blocked": 0,
		`relay_reconnects_total{side="broker"}`: 0, `relay_reconnects_total{side="source"}`: 0,
	} {
		if got := metric(t, address, name); got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	for name, limits := range map[string][2]float64{
		"relay_transactions_total": {1, 1e9}, "relay_lag_seconds": {0, 30}, "relay_lag_bytes": {0, 1e12},
		"relay_checkpoint_age_seconds": {0, 30}, "relay_binlog_runway_seconds": {3600, 1e9},
	} {
		if got := metric(t, address, name); got < limits[0] || got > limits[1] {
			t.Errorf("%s is %v, want %v", name, got, limits)
		}
	}
	_, body := get(address, "/metrics")
	noSecret(t, body)
	if !strings.Contains(body, `relay_build_info{version="`) {
		t.Error("there is no relay_build_info")
	}

	p.away()
	d.until("it is not ready, and says why", func() bool {
		code, body := get(address, "/readyz")
		return code == 503 && strings.Contains(body, "amqp://"+p.Addr())
	})
	if code, _ := get(address, "/healthz"); code != 200 {
		t.Errorf("/healthz is %d while the broker is away", code)
	}
	if got := metric(t, address, "relay_broker_connected"); got != 0 {
		t.Errorf("relay_broker_connected is %v while it is away", got)
	}
	r.insert(r.db, 21, 25)
	p.Accept()
	d.settled()
	d.until("it is ready again", func() bool { code, _ := get(address, "/readyz"); return code == 200 })
	if got := metric(t, address, `relay_reconnects_total{side="broker"}`); got < 1 {
		t.Errorf("relay_reconnects_total is %v after a reconnect", got)
	}
	d.stop()
	r.wantEvents(r.take(0), 1, 25)
}

// passwordFile holds the broker's password.
func (r *rig) passwordFile() string {
	r.t.Helper()
	u, err := url.Parse(r.amqp)
	if err != nil {
		r.t.Fatal(err)
	}
	password, _ := u.User.Password()
	path := r.dir + "/amqp-password"
	if err := os.WriteFile(path, []byte(password+"\n"), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// TestUnroutable: an exchange without a queue returns events. The relay says
// so, and sends them again once there is a queue.
func TestUnroutable(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.declare("x-consistent-hash", false)
	address := freeAddress(t)
	d := r.start("--listen", address)
	d.settled()
	r.insert(r.db, 1, 5)
	d.until("it says that events are returned", func() bool {
		code, body := get(address, "/readyz")
		return code == 503 && strings.Contains(body, "no queue is bound")
	})
	if got := metric(t, address, "relay_events_returned_total"); got < 5 {
		t.Errorf("relay_events_returned_total is %v, want 5 and more", got)
	}
	r.declare("x-consistent-hash", true)
	d.settled()
	d.stop()
	r.wantEvents(r.take(0), 1, 5)
}

// TestUnavailable: a server that is away, with a limit and without.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	nothing := freeAddress(t)
	source := mustDSN(t, r.dsn)
	source.Addr = nothing
	for name, flags := range map[string][]string{
		"source": {"--mysql-dsn", source.FormatDSN()},
		"broker": {"--amqp-url", "amqp://relay:hunter2@" + nothing + "/"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := *r
			r.t, r.dir = t, t.TempDir()
			got := r.run(append([]string{"run", "--give-up-after", "1s", "--log-level", "error"}, flags...)...)
			got.want(t, 75, nothing, "1s")
			got.oneLine(t)
			r.run(append([]string{"status"}, flags...)...).want(t, 75, nothing)
			r.run(append([]string{"check"}, flags...)...).want(t, 3, "FAIL", nothing)
			d := r.start(flags...)
			d.until("it has tried three times", func() bool { return strings.Count(d.text(), "session ended") >= 3 })
			d.stop()
		})
	}
}
