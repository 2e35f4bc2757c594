package relaytest

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestMonitor fails when a second process is taken for the first one: its
// growth would be measured from the wrong start.
func TestMonitor(t *testing.T) {
	var started, goroutines int
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/readyz" {
			w.WriteHeader(map[bool]int{true: http.StatusOK, false: http.StatusServiceUnavailable}[started > 1])
			return
		}
		fmt.Fprintf(w, "# HELP x y\nprocess_start_time_seconds %d\ngo_goroutines %d\nprocess_open_fds 15\n"+
			"process_resident_memory_bytes 2.4e+07\nrelay_reconnects_total{side=\"broker\"} 3\n", started, goroutines)
	}))
	m := newMonitor(strings.TrimPrefix(server.URL, "http://"))
	at := func(process, holds int) {
		t.Helper()
		started, goroutines = process, holds
		if got := m.ready(); got != (process > 1) {
			t.Errorf("ready is %t", got)
		}
		m.mark()
	}
	at(1, 20)
	at(2, 30)
	at(2, 31)
	at(2, 32)
	want := vitals{goroutines: 30, files: 15, resident: 24_000_000}
	if m.longest.first != want || m.longest.last.goroutines != 32 || m.longest.length() == 0 {
		t.Errorf("the longest life is %+v", m.longest)
	}
	server.Close()
	m.mark()
	if m.ready() || m.read() != nil || m.longest.last.goroutines != 32 {
		t.Errorf("without an answer: ready %t, metrics %v, %+v", m.ready(), m.read(), m.longest)
	}
}
