package relay

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rs/zerolog"
)

// TestHandler: what is answered to whom. Each line fails without the code that it
// is about; with the paths bound to GET alone, a POST to them was 404.
func TestHandler(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		method, host, path string
		debug              bool
		code               int
		text               string
	}{
		{"GET", "localhost:9347", "/", false, 200, "<!doctype html>"},
		{"HEAD", "localhost:9347", "/events", false, 200, ""},
		{"GET", "127.0.0.1:9347", "/healthz", false, 200, "alive"},
		{"GET", "[::1]:9347", "/metrics", false, 200, "relay_build_info"},
		{"GET", "127.0.0.1", "/readyz", false, 503, "not yet following MySQL"},
		{"GET", "relay.internal:9347", "/healthz", false, 200, "alive"},
		{"GET", "evil.example", "/metrics", false, 421, "localhost"},
		{"POST", "localhost", "/", false, 405, "only be read"},
		{"DELETE", "localhost", "/metrics", false, 405, "only be read"},
		{"PUT", "localhost", "/nothing", false, 405, "only be read"},
		{"GET", "localhost", "/nothing", false, 404, "/ /events /metrics /healthz /readyz"},
		{"GET", "localhost", "/debug/pprof/", false, 404, "/events"},
		{"GET", "localhost", "/debug/pprof/", true, 200, "goroutine"},
		{"GET", "localhost", "/debug/pprof/cmdline", true, 404, ""}, // it could tell a password
		{"GET", "localhost", "/debug/pprof/trace?seconds=0.01", true, 200, ""},
		{"GET", "localhost", "/nothing", true, 404, "/debug/pprof/"},
	} {
		b := described()
		handler := named("Relay.Internal:9347", b.handler(newStreams(b), c.debug))
		request := httptest.NewRequest(c.method, c.path, nil)
		request.Host = c.host
		answer := httptest.NewRecorder()
		handler.ServeHTTP(answer, request)
		if answer.Code != c.code || !strings.Contains(answer.Body.String(), c.text) {
			t.Errorf("%s %s of %s, debug %v: %d %.200q; want %d %q", c.method, c.path, c.host, c.debug, answer.Code, answer.Body, c.code, c.text)
		}
		if answer.Header().Get("X-Content-Type-Options") != "nosniff" && c.code != http.StatusMisdirectedRequest {
			t.Errorf("%s: the headers are %v", c.path, answer.Header())
		}
	}
}

// TestListen: an address that others reach makes a warning, and one that they do
// not is asked by no foreign name. It fails without either.
func TestListen(t *testing.T) {
	t.Parallel()
	for host, local := range map[string]bool{"127.0.0.1": true, "0.0.0.0": false} {
		free := listen(t)
		free.Close()
		_, port, err := net.SplitHostPort(free.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		stop, err := described().serve(net.JoinHostPort(host, port), true, zerolog.New(&log))
		if err != nil {
			t.Fatal(err)
		}
		request, err := http.NewRequest("GET", "http://127.0.0.1:"+port+"/healthz", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Host = "evil.example"
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		stop()
		if refused := response.StatusCode == http.StatusMisdirectedRequest; refused != local {
			t.Errorf("%s: a foreign name gets %s", host, response.Status)
		}
		if warned := strings.Contains(log.String(), "profiles"); warned == local || strings.Count(log.String(), "\n") > 1 {
			t.Errorf("%s: the log is %q", host, log.String())
		}
	}
}

// served is a board that is served with short limits of the server.
func served(t *testing.T, write time.Duration, listener net.Listener) (*board, *streams) {
	t.Helper()
	b := described()
	s := newStreams(b)
	s.limit = write
	server := newServer(b.handler(s, false))
	server.ReadTimeout, server.WriteTimeout = 100*time.Millisecond, 200*time.Millisecond
	stop, done := make(chan struct{}), make(chan struct{})
	go s.tell(stop)
	go func() {
		defer close(done)
		server.Serve(listener) //nolint:errcheck // it is closed
	}()
	t.Cleanup(func() {
		close(stop)
		server.Close()
		<-done
	})
	return b, s
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// TestStream reads views over a longer time than the server gives to a request
// and to an answer, the history, and the last view at the end. Seen to fail
// without the deadline set by ServeHTTP: the stream ends early.
func TestStream(t *testing.T) {
	t.Parallel()
	listener := listen(t)
	b, s := served(t, patience, listener)
	client := http.Client{Timeout: patience} // for all of it
	response, err := client.Get("http://" + listener.Addr().String() + "/events")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if got := response.Header.Get("Content-Type"); got != "text/event-stream" {
		t.Errorf("the content type is %s", got)
	}
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, 1<<20)
	next := func(prefix string) string {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("the stream ends before %q: %v", prefix, lines.Err())
		}
		rest, ok := strings.CutPrefix(lines.Text(), prefix)
		if !ok {
			t.Fatalf("the line is %.100q, want %q", lines.Text(), prefix)
		}
		return rest
	}
	look := func() (v view) {
		t.Helper()
		if err := json.Unmarshal([]byte(next("data: ")), &v); err != nil {
			t.Fatal(err)
		}
		next("")
		return v
	}
	if v := look(); v.State != stateStarting {
		t.Errorf("the first view is %s", v.State)
	}
	next("event: history")
	var history []sample
	if err := json.Unmarshal([]byte(next("data: ")), &history); err != nil || len(history) == 0 {
		t.Errorf("the history is %v, %v", history, err)
	}
	next("")
	b.connected(true, true)
	b.show(snapshot{following: true})
	for v := look(); v.State != stateFollowing; v = look() {
	}
	before := look().Sample.At
	if after := look().Sample.At; after <= before {
		t.Errorf("the samples are of %d and then %d", before, after)
	}
	b.end(errBroken)
	s.end()
	v := look()
	for v.State != stateStopped && lines.Err() == nil {
		v = look()
	}
	if !strings.Contains(v.Reason, "broken by the test") {
		t.Errorf("the last view says %q", v.Reason)
	}
	for lines.Scan() { // a view may have come between
	}
	if lines.Err() != nil {
		t.Error(lines.Err())
	}
}

// TestStreamsAreBounded: one reader too many is sent away, and let in when
// another has gone.
func TestStreamsAreBounded(t *testing.T) {
	t.Parallel()
	listener := listen(t)
	_, s := served(t, patience, listener)
	get := func() *http.Response {
		t.Helper()
		response, err := http.Get("http://" + listener.Addr().String() + "/events")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { response.Body.Close() })
		return response
	}
	var first *http.Response
	for range maxStreams {
		if first = get(); first.StatusCode != http.StatusOK {
			t.Fatalf("a reader is sent away with %s", first.Status)
		}
	}
	if got := get(); got.StatusCode != http.StatusServiceUnavailable {
		t.Errorf("the reader that is too many gets %s", got.Status)
	}
	first.Body.Close()
	wait(t, "the reader has left", func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.readers < maxStreams })
	if got := get(); got.StatusCode != http.StatusOK {
		t.Errorf("after one has left: %s", got.Status)
	}
}

// pipes is a listener whose connections have no buffer.
type pipes struct{ accepted chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	conn, ok := <-p.accepted
	if !ok {
		return nil, net.ErrClosed
	}
	return conn, nil
}
func (p pipes) Close() error   { return nil }
func (p pipes) Addr() net.Addr { return &net.TCPAddr{} }

// TestStreamDropsSlow asks for events and reads nothing. Seen to fail without
// the deadline of a write, which is longer than a test.
func TestStreamDropsSlow(t *testing.T) {
	t.Parallel()
	p := pipes{make(chan net.Conn, 1)}
	_, s := served(t, 50*time.Millisecond, p)
	t.Cleanup(func() { close(p.accepted) })
	ours, theirs := net.Pipe()
	defer ours.Close()
	p.accepted <- theirs
	if _, err := io.WriteString(ours, "GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	wait(t, "it is counted", s.read)
	wait(t, "it is dropped", func() bool { return !s.read() })
}

// wait waits for a condition.
func wait(t *testing.T, what string, condition func() bool) {
	t.Helper()
	(&trial{t: t}).until(what, condition)
}

// TestPagePolicy: the page has one script and one style, which the policy lets
// run, and neither attributes nor addresses that it would forbid.
func TestPagePolicy(t *testing.T) {
	t.Parallel()
	answer := httptest.NewRecorder()
	servePage(answer, nil)
	policy := answer.Header().Get("Content-Security-Policy")
	for _, content := range regexp.MustCompile(`(?s)<(?:script|style)>(.*?)</(?:script|style)>`).FindAllStringSubmatch(page, -1) {
		sum := sha256.Sum256([]byte(content[1]))
		if hash := base64.StdEncoding.EncodeToString(sum[:]); !strings.Contains(policy, "'sha256-"+hash+"'") {
			t.Errorf("the policy lacks %s of %.60q", hash, content[1])
		}
	}
	if strings.Count(policy, "'sha256-") != 2 || strings.Contains(policy, "unsafe") {
		t.Errorf("the policy is %s", policy)
	}
	for text, want := range map[string]int{"<script": 1, "<style": 1, " style=": 0, " onclick=": 0, "://": 1, "<link": 1, "@import": 0} { // the address is a namespace
		if got := strings.Count(page, text); got != want {
			t.Errorf("the page has %q %d times, want %d", text, got, want)
		}
	}
}
