package relaytest

import (
	"bufio"
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

// saveInterval is the relay's, between two saves of its checkpoint.
const saveInterval = 250 * time.Millisecond

// vitals are what a process holds.
type vitals struct {
	goroutines int
	files      int // open file descriptors
	resident   int // bytes of memory
}

// max is the larger one of each.
func (v vitals) max(w vitals) vitals {
	return vitals{max(v.goroutines, w.goroutines), max(v.files, w.files), max(v.resident, w.resident)}
}

// life is a process of the relay, from the first round that it lived through to
// the last one.
type life struct {
	first, last         vitals
	firstSeen, lastSeen time.Time
}

func (l life) length() time.Duration { return l.lastSeen.Sub(l.firstSeen) }

// monitor reads the relay's metrics, of one process after the other.
type monitor struct {
	address string
	client  http.Client

	mu      sync.Mutex
	started float64 // process_start_time_seconds of the present process; guarded by mu, as what follows
	present life
	longest life
	highest vitals
	rate    float64 // the most events confirmed per second between two looks
}

func newMonitor(address string) *monitor {
	return &monitor{address: address, client: http.Client{
		Timeout:   time.Second,
		Transport: &http.Transport{DisableKeepAlives: true}, // it is to cost the relay no descriptor
	}}
}

// run looks at the relay until ctx ends.
func (m *monitor) run(ctx context.Context) {
	var confirmed, started float64
	var at time.Time
	for {
		if metrics := m.read(); metrics != nil {
			now, total := time.Now(), metrics["relay_events_confirmed_total"]
			m.mu.Lock()
			m.highest = m.highest.max(vital(metrics))
			if start := metrics["process_start_time_seconds"]; start == started {
				m.rate = max(m.rate, (total-confirmed)/max(now.Sub(at), saveInterval).Seconds())
			} else {
				started = start
			}
			m.mu.Unlock()
			confirmed, at = total, now
		}
		if pause(ctx, saveInterval) != nil {
			return
		}
	}
}

// mark notes what the present process holds, at a moment of calm.
func (m *monitor) mark() {
	metrics := m.read()
	if metrics == nil {
		return
	}
	now, held := time.Now(), vital(metrics)
	m.mu.Lock()
	defer m.mu.Unlock()
	if started := metrics["process_start_time_seconds"]; started != m.started {
		m.started, m.present = started, life{first: held, firstSeen: now}
	}
	m.present.last, m.present.lastSeen = held, now
	if m.present.length() >= m.longest.length() {
		m.longest = m.present
	}
}

// ready reports whether the relay says that it follows and publishes.
func (m *monitor) ready() bool {
	response, err := m.client.Get("http://" + m.address + "/readyz")
	if err != nil {
		return false
	}
	response.Body.Close()
	return response.StatusCode == http.StatusOK
}

// read returns the metrics without labels, by name; nil when there is no answer.
func (m *monitor) read() map[string]float64 {
	response, err := m.client.Get("http://" + m.address + "/metrics")
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	metrics := make(map[string]float64)
	lines := bufio.NewScanner(response.Body)
	for lines.Scan() {
		name, text, _ := strings.Cut(lines.Text(), " ")
		if value, err := strconv.ParseFloat(text, 64); err == nil {
			metrics[name] = value
		}
	}
	if lines.Err() != nil {
		return nil
	}
	return metrics
}

func vital(metrics map[string]float64) vitals {
	return vitals{
		goroutines: int(metrics["go_goroutines"]),
		files:      int(metrics["process_open_fds"]),
		resident:   int(metrics["process_resident_memory_bytes"]),
	}
}
