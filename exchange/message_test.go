package exchange

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/schema"
)

var created = time.Date(2026, 3, 4, 5, 6, 7, 89_000_000, time.UTC)

func fullEvent() *schema.Event {
	return &schema.Event{
		ID: "0190a0b0-0000-7000-8000-000000000001", AggregateID: "42",
		AggregateType: "order", EventType: "OrderPlaced", Topic: "orders", Version: "3",
		Payload: []byte(`{"a": 1}`), ContentType: "application/json", CreatedAt: created,
		Headers: map[string]any{
			"traceparent": "00-abc-def-01", "attempt": int64(7), "ratio": 0.5, "test": true, "none": nil,
		},
		GTID: "3e11fa47-71ca-11e1-9e33-c80aa9429562:23", Sequence: math.MaxInt64,
	}
}

// publishing is the message of ev as it is on the wire, and its routing key.
func publishing(t *testing.T, ev *schema.Event, replayed bool) (key string, p amqp.Publishing, err error) {
	t.Helper()
	m := message{exchange: "outbox", replayed: replayed, frameMax: 131072}
	wire, err := m.append([]byte("before"), 7, ev)
	if err != nil {
		if string(wire) != "before" {
			t.Errorf("a bad event leaves %q", wire)
		}
		return "", p, err
	}
	wire = wire[len("before"):]
	frame := func(typ byte) *frameReader {
		size := int(be.Uint32(wire[3:]))
		if wire[0] != typ || be.Uint16(wire[1:]) != 7 || wire[frameHead+size] != frameEnd {
			t.Fatalf("want a frame of type %d on channel 7, got %x", typ, wire)
		}
		r := &frameReader{rest: wire[frameHead : frameHead+size]}
		wire = wire[frameHead+size+1:]
		return r
	}
	r := frame(frameMethod)
	if r.uint32() != basicPublish || r.uint16() != 0 || r.short() != "outbox" {
		t.Fatal("no basic.publish")
	}
	key = r.short()
	if mandatory := r.uint8() == 1; !mandatory || r.bad || len(r.rest) > 0 {
		t.Error("not mandatory, or cut short, or too long")
	}

	r = frame(frameHeader)
	if class, weight := r.uint16(), r.uint16(); class != basicClass || weight != 0 {
		t.Errorf("class %d, weight %d", class, weight)
	}
	size, flags := int(r.uint64()), r.uint16()
	if flags&hasContentType != 0 {
		p.ContentType = r.short()
	}
	p.Headers = amqp.Table{}
	table := frameReader{rest: r.long()}
	for len(table.rest) > 0 {
		name := table.short()
		p.Headers[name] = value(t, &table)
	}
	p.DeliveryMode, p.MessageId = r.uint8(), r.short()
	if flags&hasTimestamp != 0 {
		p.Timestamp = time.Unix(int64(r.uint64()), 0).UTC()
	}
	if flags&hasType != 0 {
		p.Type = r.short()
	}
	p.AppId = r.short()
	if r.bad || len(r.rest) > 0 || table.bad {
		t.Error("properties are cut short, or too long")
	}
	for p.Body = []byte{}; len(p.Body) < size; {
		p.Body = append(p.Body, frame(frameBody).rest...)
	}
	if len(p.Body) != size || len(wire) > 0 {
		t.Errorf("a body of %d bytes, %d were announced; %d bytes follow", len(p.Body), size, len(wire))
	}
	return key, p, nil
}

// value reads a field's value.
func value(t *testing.T, r *frameReader) any {
	switch typ := r.rest[0]; typ {
	case 't':
		return r.uint16()&1 == 1
	case 'd':
		r.uint8()
		return math.Float64frombits(r.uint64())
	case 'S', 'l', 'V':
		return r.field()
	default:
		t.Fatalf("a field of type %c", typ)
		return nil
	}
}

func TestPublishing(t *testing.T) {
	key, got, err := publishing(t, fullEvent(), false)
	if err != nil {
		t.Fatal(err)
	}
	want := amqp.Publishing{
		Headers: amqp.Table{
			"aggregate_id": "42", "aggregate_type": "order", "event_type": "OrderPlaced",
			"topic": "orders", "version": "3", "created_at": "2026-03-04T05:06:07.089000Z",
			"gtid": "3e11fa47-71ca-11e1-9e33-c80aa9429562:23", "sequence": int64(math.MaxInt64),
			"traceparent": "00-abc-def-01", "attempt": int64(7), "ratio": 0.5, "test": true, "none": nil,
		},
		ContentType: "application/json", DeliveryMode: 2, MessageId: "0190a0b0-0000-7000-8000-000000000001",
		Timestamp: created.Truncate(time.Second), Type: "orders", AppId: "relay", Body: []byte(`{"a": 1}`),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	if key != "42" {
		t.Errorf("routing key: got %q, want 42", key)
	}
}

func TestPublishingEdges(t *testing.T) {
	long := strings.Repeat("k", 300)
	zone := time.FixedZone("", 2*60*60)
	tests := map[string]struct {
		change func(*schema.Event)
		check  func(t *testing.T, key string, p amqp.Publishing)
	}{
		"optional parts are absent": {
			func(ev *schema.Event) {
				*ev = schema.Event{ID: "1", AggregateID: "2", EventType: "made", CreatedAt: created, Sequence: 5}
			},
			func(t *testing.T, key string, p amqp.Publishing) {
				want := amqp.Table{"aggregate_id": "2", "event_type": "made", "created_at": "2026-03-04T05:06:07.089000Z", "sequence": int64(5)}
				if diff := cmp.Diff(want, p.Headers); diff != "" || p.Type != "made" {
					t.Errorf("type %q, headers (-want +got):\n%s", p.Type, diff)
				}
			},
		},
		"key of 255 bytes stays": {
			func(ev *schema.Event) { ev.AggregateID = long[:255] },
			func(t *testing.T, key string, p amqp.Publishing) {
				if key != long[:255] {
					t.Errorf("routing key: got %q", key)
				}
			},
		},
		"key of 300 bytes is hashed": {
			func(ev *schema.Event) { ev.AggregateID = long },
			func(t *testing.T, key string, p amqp.Publishing) {
				const want = "17b16d8ef494060fefa36a6a41567b8c32d213a17e02b7eeae86158cc4495461"
				if key != want || p.Headers["aggregate_id"] != long {
					t.Errorf("routing key: got %q, want %q; header %q", key, want, p.Headers["aggregate_id"])
				}
			},
		},
		"ours win on a clash": {
			func(ev *schema.Event) {
				ev.GTID = ""
				ev.Headers = map[string]any{"sequence": "x", "aggregate_id": "x", "gtid": "forged", "created_at": nil, "topic": 1}
			},
			func(t *testing.T, key string, p amqp.Publishing) {
				if _, there := p.Headers["gtid"]; there || p.Headers["aggregate_id"] != "42" ||
					p.Headers["sequence"] != int64(math.MaxInt64) || p.Headers["topic"] != "orders" {
					t.Errorf("headers: %v", p.Headers)
				}
			},
		},
		"integers keep 64 bits": {
			func(ev *schema.Event) {
				ev.Headers = map[string]any{"a": 1 << 40, "b": uint64(1 << 40), "c": json.RawMessage(`{}`)}
			},
			func(t *testing.T, key string, p amqp.Publishing) {
				if p.Headers["a"] != int64(1<<40) || p.Headers["b"] != int64(1<<40) || p.Headers["c"] != "{}" {
					t.Errorf("headers: %v", p.Headers)
				}
			},
		},
		"no number, and none forged": {
			func(ev *schema.Event) { ev.Sequence, ev.Headers = 0, map[string]any{"sequence": int64(7)} },
			func(t *testing.T, key string, p amqp.Publishing) {
				if number, there := p.Headers["sequence"]; there {
					t.Errorf("sequence: got %v, want none", number)
				}
			},
		},
		"sent in time, and not forged to be late": {
			func(ev *schema.Event) { ev.Headers = map[string]any{"replayed": true} },
			func(t *testing.T, key string, p amqp.Publishing) {
				if value, there := p.Headers["replayed"]; there {
					t.Errorf("replayed: got %v, want none", value)
				}
			},
		},
		"another zone": {
			func(ev *schema.Event) { ev.CreatedAt = time.Date(2026, 1, 1, 1, 0, 0, 999_999_999, zone) },
			func(t *testing.T, key string, p amqp.Publishing) {
				if got, want := p.Headers["created_at"], "2025-12-31T23:00:00.999999Z"; got != want {
					t.Errorf("created_at: got %v, want %v", got, want)
				}
			},
		},
		"before 1970": {
			func(ev *schema.Event) { ev.CreatedAt = time.Date(1066, 1, 1, 0, 0, 0, 0, time.UTC) },
			func(t *testing.T, key string, p amqp.Publishing) {
				if got, want := p.Headers["created_at"], "1066-01-01T00:00:00.000000Z"; got != want || !p.Timestamp.IsZero() {
					t.Errorf("created_at: got %v, want %v; timestamp %v", got, want, p.Timestamp)
				}
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ev := fullEvent()
			tt.change(ev)
			key, p, err := publishing(t, ev, false)
			if err != nil {
				t.Fatal(err)
			}
			if err := p.Headers.Validate(); err != nil {
				t.Error(err)
			}
			tt.check(t, key, p)
		})
	}
}

func TestPublishingBadEvent(t *testing.T) {
	long := strings.Repeat("x", 256)
	tests := map[string]struct {
		change func(*schema.Event)
		reason string
	}{
		"id":             {func(ev *schema.Event) { ev.ID = long }, "message id has 256 bytes"},
		"no id":          {func(ev *schema.Event) { ev.ID = "" }, "message id is empty"},
		"type":           {func(ev *schema.Event) { ev.Topic = long }, "message type has 256 bytes"},
		"content type":   {func(ev *schema.Event) { ev.ContentType = long }, "content type has 256 bytes"},
		"header name":    {func(ev *schema.Event) { ev.Headers = map[string]any{long: 1} }, "header name has 256 bytes"},
		"uint64":         {func(ev *schema.Event) { ev.Headers = map[string]any{"n": uint64(math.MaxUint64)} }, `header "n": AMQP cannot carry a value of type uint64`},
		"map":            {func(ev *schema.Event) { ev.Headers = map[string]any{"m": map[string]any{}} }, `type map[string]interface {}`},
		"sender-selects": {func(ev *schema.Event) { ev.Headers = map[string]any{"CC": "queue"} }, `header "CC"`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ev := fullEvent()
			tt.change(ev)
			_, _, err := publishing(t, ev, false)
			var bad *schema.BadEventError
			if !errors.As(err, &bad) {
				t.Fatalf("got %v, want a *schema.BadEventError", err)
			}
			if bad.ID != ev.ID || bad.GTID != ev.GTID || !strings.Contains(bad.Reason, tt.reason) {
				t.Errorf("got %+v, want reason %q", bad, tt.reason)
			}
		})
	}
}

func TestRoundTrip(t *testing.T) {
	bare := &schema.Event{ID: "1", AggregateID: "", ContentType: "text/plain;charset=utf-8", CreatedAt: created, Payload: []byte{}, Sequence: 1}
	replayed := fullEvent()
	replayed.Sequence, replayed.Headers["replayed"] = 0, true
	debezium := fullEvent()
	debezium.Topic = ""
	hashed := fullEvent()
	hashed.AggregateID = strings.Repeat("ключ", 100)
	for _, want := range []*schema.Event{fullEvent(), bare, debezium, hashed, replayed} {
		_, p, err := publishing(t, want, want == replayed)
		if err != nil {
			t.Fatal(err)
		}
		got, err := newEvent(&amqp.Delivery{
			Headers: p.Headers, ContentType: p.ContentType, MessageId: p.MessageId,
			Timestamp: p.Timestamp, Type: p.Type, AppId: p.AppId, Body: p.Body,
		})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("event (-want +got):\n%s", diff)
		}
	}
}

func TestNewEventForeign(t *testing.T) {
	good := func() amqp.Table {
		return amqp.Table{"aggregate_id": "1", "created_at": "2026-03-04T05:06:07.089000Z", "sequence": int64(1)}
	}
	tests := map[string]struct {
		id     string
		name   string
		value  any
		reason string
	}{
		"no id":        {"", "x", 1, "no message id"},
		"aggregate id": {"1", "aggregate_id", int64(1), `header "aggregate_id" of the delivery is a int64`},
		"created_at":   {"1", "created_at", "yesterday", "no RFC 3339 time"},
		"sequence":     {"1", "sequence", "1", `header "sequence" of the delivery is a string`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			headers := good()
			headers[tt.name] = tt.value
			_, err := newEvent(&amqp.Delivery{MessageId: tt.id, Headers: headers})
			var bad *schema.BadEventError
			if !errors.As(err, &bad) || !strings.Contains(bad.Reason, tt.reason) {
				t.Errorf("got %v, want reason %q", err, tt.reason)
			}
		})
	}
	unnumbered := good()
	delete(unnumbered, "sequence")
	if _, err := newEvent(&amqp.Delivery{MessageId: "1", Headers: unnumbered}); err == nil {
		t.Error("a delivery without sequence is no event, unless it is replayed")
	}
	if _, err := newEvent(&amqp.Delivery{MessageId: "1"}); err == nil {
		t.Error("a delivery without headers is no event")
	}
}

// TestFrames: what does not fit into one frame is split where it may be, and
// else refused.
func TestFrames(t *testing.T) {
	ev := fullEvent()
	for _, size := range []int{0, 1, 131064, 131065, 400_000} {
		ev.Payload = bytes.Repeat([]byte("x"), size)
		if _, p, err := publishing(t, ev, false); err != nil || !bytes.Equal(p.Body, ev.Payload) {
			t.Errorf("%d bytes: got %d, %v", size, len(p.Body), err)
		}
	}
	ev = fullEvent()
	whole, err := (&message{}).append(nil, 1, ev)
	if err != nil {
		t.Fatal(err)
	}
	method := frameHead + int(be.Uint32(whole[3:])) + 1
	header := frameHead + int(be.Uint32(whole[method+3:])) + 1
	if _, err := (&message{frameMax: header}).append(nil, 1, ev); err != nil {
		t.Errorf("a frame of the largest size: %v", err)
	}
	var bad *schema.BadEventError
	if _, err := (&message{frameMax: header - 1}).append(nil, 1, ev); !errors.As(err, &bad) || !strings.Contains(bad.Reason, "frame_max") {
		t.Errorf("got %v, want a *schema.BadEventError", err)
	}
}
