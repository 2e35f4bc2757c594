package exchange

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/schema"
)

// Names of the headers that the relay writes itself. A header of the same name
// in the row's headers column gives way to them.
const (
	headerAggregateID   = "aggregate_id"
	headerAggregateType = "aggregate_type"
	headerEventType     = "event_type"
	headerTopic         = "topic"
	headerVersion       = "version"
	headerCreatedAt     = "created_at"
	headerGTID          = "gtid"
	headerSequence      = "sequence"

	// headerReplayed is true in an event that was sent late. One out of log
	// files has no sequence: the number that it had is not known.
	headerReplayed = "replayed"
)

const (
	appID = "relay"

	// maxShort is the length in bytes of an AMQP short string at most: routing
	// key, message id, type, content type, header name. A longer one ends the
	// whole connection.
	maxShort = 255

	// createdAtLayout is RFC 3339 with exactly six fractional digits.
	createdAtLayout = "2006-01-02T15:04:05.000000Z07:00"
)

// newPublishing makes the message of ev, as the contract's section 5 has it,
// and its routing key. A *schema.BadEventError says that ev fits into no
// message: sent all the same, it would cost the connection, again and again.
// Replayed marks it as sent late.
func newPublishing(ev *schema.Event, replayed bool) (key string, p amqp.Publishing, err error) {
	for _, f := range []struct{ name, value string }{
		{"message id", ev.ID},
		{"message type", ev.Type()},
		{"content type", ev.ContentType},
	} {
		if len(f.value) > maxShort {
			return "", p, badEvent(ev, "%s has %d bytes, AMQP carries %d at most: %.40q...", f.name, len(f.value), maxShort, f.value)
		}
	}
	if ev.ID == "" {
		return "", p, badEvent(ev, "message id is empty: consumers could not tell a duplicate")
	}
	headers, err := newHeaders(ev)
	if err != nil {
		return "", p, err
	}
	if replayed {
		headers[headerReplayed] = true
	}
	p = amqp.Publishing{
		Headers:      headers,
		ContentType:  ev.ContentType,
		DeliveryMode: amqp.Persistent,
		MessageId:    ev.ID,
		Type:         ev.Type(),
		AppId:        appID,
		Body:         ev.Payload,
	}
	// An AMQP timestamp is unsigned: a time before 1970 is in the header alone.
	if ev.CreatedAt.Unix() >= 0 {
		p.Timestamp = ev.CreatedAt.UTC().Truncate(time.Second)
	}
	return routingKey(ev.AggregateID), p, nil
}

// Check gives a *schema.BadEventError where no message can carry ev, whatever
// broker it is for.
func Check(ev *schema.Event) error {
	_, _, err := newPublishing(ev, false)
	return err
}

// routingKey is what the consistent-hash exchange hashes: the aggregate id, or
// its SHA-256 in hex where it is too long for a routing key.
func routingKey(aggregateID string) string {
	if len(aggregateID) <= maxShort {
		return aggregateID
	}
	sum := sha256.Sum256([]byte(aggregateID))
	return hex.EncodeToString(sum[:])
}

func newHeaders(ev *schema.Event) (amqp.Table, error) {
	headers := make(amqp.Table, len(ev.Headers)+8)
	// Sorted, so that the same event always fails for the same reason.
	for _, name := range slices.Sorted(maps.Keys(ev.Headers)) {
		if len(name) > maxShort {
			return nil, badEvent(ev, "a header name has %d bytes, AMQP carries %d at most: %.40q...", len(name), maxShort, name)
		}
		// RabbitMQ takes CC and BCC for more routing keys: a string there closes
		// the channel, a list would deliver the event twice.
		if name == "CC" || name == "BCC" {
			return nil, badEvent(ev, "header %q: RabbitMQ reserves the name for sender-selected routing", name)
		}
		value, ok := headerValue(ev.Headers[name])
		if !ok {
			return nil, badEvent(ev, "header %q: AMQP cannot carry a value of type %T", name, ev.Headers[name])
		}
		headers[name] = value
	}
	for _, f := range []struct{ name, value string }{
		{headerAggregateType, ev.AggregateType},
		{headerEventType, ev.EventType},
		{headerTopic, ev.Topic},
		{headerVersion, ev.Version},
		{headerGTID, ev.GTID},
	} {
		// An empty one goes too: the row's headers cannot forge it.
		delete(headers, f.name)
		if f.value != "" {
			headers[f.name] = f.value
		}
	}
	headers[headerAggregateID] = ev.AggregateID
	headers[headerCreatedAt] = ev.CreatedAt.UTC().Format(createdAtLayout)
	delete(headers, headerSequence)
	if ev.Sequence > 0 {
		headers[headerSequence] = ev.Sequence
	}
	delete(headers, headerReplayed)
	return headers, nil
}

// headerValue is v as an AMQP field value that loses nothing. The client
// library cuts int to 32 bits and refuses the larger unsigned types.
func headerValue(v any) (any, bool) {
	switch v := v.(type) {
	case nil, bool, string, []byte, int8, int16, int32, int64, uint8, uint16, uint32, float32, float64:
		return v, true
	case int:
		return int64(v), true
	case uint:
		return int64(v), uint64(v) <= math.MaxInt64
	case uint64:
		return int64(v), v <= math.MaxInt64
	case json.RawMessage:
		return string(v), true
	}
	return nil, false
}

// checkFrame tells whether the message's properties and headers fit into one
// frame, as they must: unlike the body, they are not split. frameMax is the
// negotiated size in bytes; 0: no limit.
func checkFrame(ev *schema.Event, p *amqp.Publishing, frameMax int) error {
	const overhead = 64 // of the frame, the class, the flags and the fixed properties
	size := overhead + len(p.ContentType) + len(p.MessageId) + len(p.Type) + len(p.AppId)
	for name, value := range p.Headers {
		size += 1 + len(name) + 1
		switch v := value.(type) {
		case string:
			size += 4 + len(v)
		case []byte:
			size += 4 + len(v)
		default:
			size += 8
		}
	}
	if frameMax > 0 && size > frameMax {
		return badEvent(ev, "headers and properties have %d bytes, the broker takes %d at most (frame_max)", size, frameMax)
	}
	return nil
}

// newEvent is the reverse of newPublishing: the event of a delivery. Headers
// holds the headers that the relay did not write itself, nil where there are
// none. A message that no relay can have sent gives a *schema.BadEventError.
func newEvent(d *amqp.Delivery) (*schema.Event, error) {
	ev := &schema.Event{ID: d.MessageId, ContentType: d.ContentType, Payload: d.Body}
	for _, f := range []struct {
		name string
		to   *string
	}{
		{headerAggregateID, &ev.AggregateID},
		{headerAggregateType, &ev.AggregateType},
		{headerEventType, &ev.EventType},
		{headerTopic, &ev.Topic},
		{headerVersion, &ev.Version},
		{headerGTID, &ev.GTID},
	} {
		value, there := d.Headers[f.name]
		text, ok := value.(string)
		if there && !ok {
			return nil, badEvent(ev, "header %q of the delivery is a %T, not a string", f.name, value)
		}
		*f.to = text
	}
	if ev.ID == "" {
		return nil, badEvent(ev, "delivery has no message id: no relay sent it")
	}
	if _, there := d.Headers[headerAggregateID]; !there {
		return nil, badEvent(ev, "delivery has no header %q: no relay sent it", headerAggregateID)
	}
	text, _ := d.Headers[headerCreatedAt].(string)
	created, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		return nil, badEvent(ev, "header %q of the delivery is no RFC 3339 time: %q", headerCreatedAt, text)
	}
	ev.CreatedAt = created.UTC()
	sequence, ok := d.Headers[headerSequence].(int64)
	_, there := d.Headers[headerSequence]
	if !ok && (there || d.Headers[headerReplayed] != true) {
		return nil, badEvent(ev, "header %q of the delivery is a %T, not an int64", headerSequence, d.Headers[headerSequence])
	}
	ev.Sequence = sequence
	for name, value := range d.Headers {
		switch name {
		case headerAggregateID, headerAggregateType, headerEventType, headerTopic,
			headerVersion, headerCreatedAt, headerGTID, headerSequence,
			"x-delivery-count", "x-acquired-count": // quorum queues add these
			continue
		}
		if ev.Headers == nil {
			ev.Headers = make(map[string]any)
		}
		ev.Headers[name] = value
	}
	return ev, nil
}

func badEvent(ev *schema.Event, format string, args ...any) error {
	return &schema.BadEventError{ID: ev.ID, GTID: ev.GTID, Sequence: ev.Sequence, Reason: fmt.Sprintf(format, args...)}
}
