package relay

import (
	"bytes"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

const (
	maxStreams  = 16              // at a time
	streamWrite = 5 * time.Second // that a reader may take for one view
)

// streams are the readers of /events. One goroutine makes the views, and all
// readers get the same bytes; who is slow misses some.
type streams struct {
	board *board
	limit time.Duration // for one write

	mu      sync.Mutex
	readers int
	latest  []byte        // the last message
	fresh   chan struct{} // closed when there is another
	closing chan struct{} // closed when all are to end
}

func newStreams(b *board) *streams {
	return &streams{board: b, limit: streamWrite, fresh: make(chan struct{}), closing: make(chan struct{})}
}

// message is a server-sent event; an empty name is that of all which have none.
func message(name string, content any) []byte {
	var text bytes.Buffer
	if name != "" {
		text.WriteString("event: " + name + "\n")
	}
	text.WriteString("data: ")
	if err := json.NewEncoder(&text).Encode(content); err != nil { // which ends its line
		panic(err) // no value of these types is without JSON
	}
	text.WriteByte('\n')
	return text.Bytes()
}

// tell samples the board each second, and makes a view where there is a reader,
// until stop is closed.
func (s *streams) tell(stop <-chan struct{}) {
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for {
		s.board.sample()
		if s.read() {
			text := message("", s.board.view())
			s.mu.Lock()
			s.latest = text
			close(s.fresh)
			s.fresh = make(chan struct{})
			s.mu.Unlock()
		}
		select {
		case <-tick.C:
		case <-stop:
			return
		}
	}
}

// read tells whether there is a reader.
func (s *streams) read() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.readers > 0
}

// enter counts a reader in; false: there are too many.
func (s *streams) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.readers == maxStreams {
		return false
	}
	s.readers++
	return true
}

func (s *streams) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.readers--
}

// news is the last message, and a channel that is closed when there is another.
func (s *streams) news() ([]byte, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest, s.fresh
}

// end ends all streams, with a last view each.
func (s *streams) end() { close(s.closing) }

// ServeHTTP sends a view at once, then the history, and then a view a second,
// until the reader goes, does not read, or the relay ends.
func (s *streams) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		w.Header().Set("Content-Type", "text/event-stream")
		return
	}
	if !s.enter() {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "too many read this already: close other pages of this relay", http.StatusServiceUnavailable)
		return
	}
	defer s.leave()
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would hold it back
	rc := http.NewResponseController(w)
	send := func(text []byte) bool {
		rc.SetWriteDeadline(time.Now().Add(s.limit)) //nolint:errcheck // the write tells
		_, err := w.Write(text)
		return err == nil && rc.Flush() == nil
	}
	_, fresh := s.news()
	if !send(append(message("", s.board.view()), message("history", s.board.history())...)) {
		return
	}
	for {
		select {
		case <-fresh:
			var text []byte
			if text, fresh = s.news(); !send(text) {
				return
			}
		case <-r.Context().Done():
			return
		case <-s.closing:
			send(message("", s.board.view()))
			return
		}
	}
}
