package relay

import (
	"bytes"
	"encoding/json"
	"io"
	"time"
	"unicode/utf8"

	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

// Line is an event as a line of JSON: in the parked file, and on the standard
// output of replay. It holds what the table held, the payload included.
type Line struct {
	Would         string            `json:"would,omitempty"` // in a dry run: what would become of it
	ID            string            `json:"id"`
	AggregateID   string            `json:"aggregate_id"`
	Reason        string            `json:"reason,omitempty"` // why it cannot be sent
	Behind        string            `json:"behind,omitempty"` // or the id of the one that it waits for
	Broken        bool              `json:"broken,omitempty"` // the row made no event: it cannot be sent as it is here
	Row           map[string][]byte `json:"row,omitempty"`    // of a broken one: its values by column, in base64
	GTID          string            `json:"gtid,omitempty"`
	Sequence      int64             `json:"sequence,omitempty"` // none out of log files
	ParkedAt      time.Time         `json:"parked_at,omitzero"`
	CommittedAt   time.Time         `json:"committed_at,omitzero"` // out of log files
	AggregateType string            `json:"aggregate_type,omitempty"`
	EventType     string            `json:"event_type,omitempty"`
	Topic         string            `json:"topic,omitempty"`
	Version       string            `json:"version,omitempty"`
	CreatedAt     time.Time         `json:"created_at"`
	ContentType   string            `json:"content_type,omitempty"`
	Headers       map[string]any    `json:"headers,omitempty"`

	// Payload is the document itself, byte for byte, where the payload is JSON
	// and no string; of every other UTF-8 text it is a JSON string that holds it.
	Payload      json.RawMessage `json:"payload,omitempty"`
	PayloadBytes []byte          `json:"payload_bytes,omitempty"` // of anything else: base64
}

func newLine(e *schema.Event) Line {
	l := Line{
		ID: e.ID, AggregateID: e.AggregateID, GTID: e.GTID, Sequence: e.Sequence,
		AggregateType: e.AggregateType, EventType: e.EventType, Topic: e.Topic, Version: e.Version,
		CreatedAt: e.CreatedAt, ContentType: e.ContentType, Headers: e.Headers,
	}
	if e.Bad != nil {
		l.Reason, l.Broken, l.Row = e.Bad.Reason, e.Bad.Broken, e.Bad.Row
	}
	switch {
	case isDocument(e):
		l.Payload = e.Payload
	case utf8.Valid(e.Payload):
		l.Payload = quoted(string(e.Payload))
	default:
		l.PayloadBytes = e.Payload
	}
	return l
}

// isDocument tells whether the payload can stand in a line as it is, and be
// told there from a string that holds the text of one.
func isDocument(e *schema.Event) bool {
	p := e.Payload
	return e.ContentType == "application/json" && utf8.Valid(p) && json.Valid(p) && len(bytes.TrimSpace(p)) == len(p) &&
		p[0] != '"' && !bytes.ContainsAny(p, "\r\n")
}

// quoted is a text as a JSON string.
func quoted(text string) json.RawMessage {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	_ = encoder.Encode(text) // of a string it cannot fail
	return bytes.TrimSuffix(out.Bytes(), []byte("\n"))
}

// writeTo writes the line with its end. The payload is put in behind, since
// the library takes its spaces away.
func (l Line) writeTo(out io.Writer) error {
	payload := l.Payload
	l.Payload = nil
	var line bytes.Buffer
	encoder := json.NewEncoder(&line)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(l); err != nil {
		return err
	}
	if payload != nil {
		line.Truncate(line.Len() - len("}\n"))
		line.WriteString(`,"payload":`)
		line.Write(payload)
		line.WriteString("}\n")
	}
	_, err := out.Write(line.Bytes())
	return err
}

// readLine reads one without its end.
func readLine(text []byte) (Line, error) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var l Line
	err := decoder.Decode(&l)
	l.Headers = numbers(l.Headers)
	return l, err
}

// sendable is the event that the line was made of; a *schema.BadEventError where
// it cannot be sent, whatever the broker.
func (l *Line) sendable() (*schema.Event, error) {
	if l.Broken {
		return nil, &schema.BadEventError{ID: l.ID, GTID: l.GTID, Broken: true, Reason: l.Reason}
	}
	e, err := l.event()
	if err != nil {
		return nil, err
	}
	return e, exchange.Check(e)
}

// holds tells whether later events of the aggregate wait for this one, which
// cannot be sent. Of a row whose aggregate could not be read it is not known
// which those are.
func (l *Line) holds() bool { return l.AggregateID != "" || !l.Broken }

// event is the event that the line was made of.
func (l *Line) event() (*schema.Event, error) {
	e := &schema.Event{
		ID: l.ID, AggregateID: l.AggregateID, GTID: l.GTID, Sequence: l.Sequence,
		AggregateType: l.AggregateType, EventType: l.EventType, Topic: l.Topic, Version: l.Version,
		CreatedAt: l.CreatedAt, ContentType: l.ContentType, Headers: l.Headers, Payload: l.PayloadBytes,
	}
	switch {
	case len(l.Payload) == 0:
	case l.Payload[0] != '"':
		e.Payload = l.Payload
	default:
		var text string
		if err := json.Unmarshal(l.Payload, &text); err != nil {
			return nil, err
		}
		e.Payload = []byte(text)
	}
	return e, nil
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
