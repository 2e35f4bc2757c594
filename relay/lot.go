package relay

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/outboxrelay/relay/schema"
)

// parkedSuffix makes the parked file's path of the checkpoint's.
const parkedSuffix = ".parked"

// lot is where bad events are put aside, with the later ones of their
// aggregates: a file of JSON lines beside the checkpoint. A line is synced
// before the position moves over its event. It is used by one goroutine, for
// one session: after an error it is opened again, from what is durable.
type lot struct {
	path string
	file *os.File
	ids  map[string]bool   // of all that is parked
	held map[string]string // by aggregate: the id of the bad event that holds it
}

// Parked is one line of the parked file. It holds what the table held, the
// payload included.
type Parked struct {
	ID            string            `json:"id"`
	AggregateID   string            `json:"aggregate_id"`
	Reason        string            `json:"reason,omitempty"` // why it cannot be sent
	Behind        string            `json:"behind,omitempty"` // or the id of the one that it waits for
	Broken        bool              `json:"broken,omitempty"` // the row made no event: it cannot be sent as it is here
	Row           map[string][]byte `json:"row,omitempty"`    // of a broken one: its values by column, in base64
	GTID          string            `json:"gtid,omitempty"`
	Sequence      int64             `json:"sequence"`
	ParkedAt      time.Time         `json:"parked_at"`
	AggregateType string            `json:"aggregate_type,omitempty"`
	EventType     string            `json:"event_type,omitempty"`
	Topic         string            `json:"topic,omitempty"`
	Version       string            `json:"version,omitempty"`
	CreatedAt     time.Time         `json:"created_at"`
	ContentType   string            `json:"content_type,omitempty"`
	Headers       map[string]any    `json:"headers,omitempty"`
	Payload       *string           `json:"payload,omitempty"`       // of UTF-8 text
	PayloadBase64 []byte            `json:"payload_bytes,omitempty"` // of anything else
}

func newParked(e *schema.Event, behind string) Parked {
	p := Parked{
		ID: e.ID, AggregateID: e.AggregateID, Behind: behind, GTID: e.GTID, Sequence: e.Sequence, ParkedAt: time.Now().UTC(),
		AggregateType: e.AggregateType, EventType: e.EventType, Topic: e.Topic, Version: e.Version,
		CreatedAt: e.CreatedAt, ContentType: e.ContentType, Headers: e.Headers,
	}
	if e.Bad != nil {
		p.Reason, p.Broken, p.Row = e.Bad.Reason, e.Bad.Broken, e.Bad.Row
	}
	if utf8.Valid(e.Payload) {
		text := string(e.Payload)
		p.Payload = &text
	} else {
		p.PayloadBase64 = e.Payload
	}
	return p
}

// event is the event that was parked.
func (p *Parked) event() *schema.Event {
	e := &schema.Event{
		ID: p.ID, AggregateID: p.AggregateID, GTID: p.GTID, Sequence: p.Sequence,
		AggregateType: p.AggregateType, EventType: p.EventType, Topic: p.Topic, Version: p.Version,
		CreatedAt: p.CreatedAt, ContentType: p.ContentType, Headers: p.Headers, Payload: p.PayloadBase64,
	}
	if p.Payload != nil {
		e.Payload = []byte(*p.Payload)
	}
	return e
}

// readParked reads a parked file; none is an empty one. whole is the length of
// what was read: a last line without its end was not synced, and its event is
// not passed by the position.
func readParked(path string) (list []Parked, whole int64, err error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%w: parked events: %w; make it readable for the user that runs the relay", ErrUnfit, err)
	}
	for n := 1; ; n++ {
		line, rest, found := bytes.Cut(content[whole:], []byte("\n"))
		if !found {
			return list, whole, nil
		}
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.UseNumber()
		var p Parked
		if err := decoder.Decode(&p); err != nil {
			return nil, 0, fmt.Errorf("%w: parked events: %s: line %d is not one that the relay wrote: %w; mend the line or move the file away", ErrUnfit, path, n, err)
		}
		p.Headers = numbers(p.Headers)
		list = append(list, p)
		whole = int64(len(content) - len(rest))
	}
}

// numbers brings back the types that headers had.
func numbers(headers map[string]any) map[string]any {
	for name, value := range headers {
		if n, ok := value.(json.Number); ok {
			if i, err := n.Int64(); err == nil {
				headers[name] = i
			} else if f, err := n.Float64(); err == nil {
				headers[name] = f
			}
		}
	}
	return headers
}

// openLot opens the parked file beside a checkpoint.
func openLot(checkpoint string) (*lot, error) {
	l := &lot{path: checkpoint + parkedSuffix, ids: map[string]bool{}, held: map[string]string{}}
	list, whole, err := readParked(l.path)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		l.note(p)
	}
	if l.file, err = os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o640); err != nil {
		return nil, fmt.Errorf("%w: parked events: %w", ErrUnfit, err)
	}
	err = errors.Join(l.file.Truncate(whole), syncDirectory(l.path))
	if _, seekErr := l.file.Seek(whole, io.SeekStart); err == nil {
		err = seekErr
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("%w: parked events: %w", ErrUnfit, err)
	}
	return l, nil
}

func syncDirectory(path string) error {
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer directory.Close()
	return directory.Sync()
}

func (l *lot) close() {
	if l != nil {
		l.file.Close()
	}
}

func (l *lot) note(p Parked) {
	l.ids[p.ID] = true
	if p.Behind == "" {
		l.hold(p.AggregateID, p.ID, p.Broken)
	}
}

// hold makes later events of the aggregate wait for the bad one. Of a row
// whose aggregate could not be read it is not known which those are.
func (l *lot) hold(aggregate, id string, broken bool) {
	if broken && aggregate == "" {
		return
	}
	if _, held := l.held[aggregate]; !held {
		l.held[aggregate] = id
	}
}

// takes tells whether the item is to be parked: it is bad, or an earlier one
// of its aggregate is. A nil lot takes none.
func (l *lot) takes(it *item) bool {
	if l == nil {
		return false
	}
	if bad := it.event.Bad; bad != nil {
		l.hold(it.event.AggregateID, it.event.ID, bad.Broken)
		return true
	}
	_, held := l.held[it.event.AggregateID]
	return held
}

// add writes items and returns when they are durable. One that is there
// already, from before a crash, is not written again.
func (l *lot) add(items []*item) error {
	buffer := bufio.NewWriter(l.file)
	encoder := json.NewEncoder(buffer)
	encoder.SetEscapeHTML(false)
	for _, it := range items {
		if l.ids[it.event.ID] {
			continue
		}
		l.ids[it.event.ID] = true
		behind := ""
		if it.event.Bad == nil {
			behind = l.held[it.event.AggregateID]
		}
		if err := encoder.Encode(newParked(&it.event, behind)); err != nil {
			return fmt.Errorf("relay: parked events: %w", err)
		}
	}
	if err := errors.Join(buffer.Flush(), l.file.Sync()); err != nil {
		return fmt.Errorf("relay: parked events: %s: %w", l.path, err)
	}
	return nil
}
