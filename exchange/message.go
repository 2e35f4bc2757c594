package exchange

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
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

// message makes the frames of events.
type message struct {
	exchange string
	queue    string // not empty: straight to it, by the broker's default exchange
	replayed bool   // marks all as sent late
	frameMax int    // bytes of a frame, its eight included; 0: no limit
}

// append puts the frames of ev behind dst: the method, the header and the body
// of the message, as the contract's section 5 has it. A *schema.BadEventError
// says that ev fits into no message: sent all the same, it would cost the
// connection, again and again. dst is unchanged then.
func (m *message) append(dst []byte, channel uint16, ev *schema.Event) ([]byte, error) {
	if err := checkShort(ev); err != nil {
		return dst, err
	}
	start := len(dst)
	to, at := beginFrame(dst, frameMethod, channel)
	to = append(be.AppendUint32(to, basicPublish), 0, 0)
	if m.queue != "" {
		to = appendShort(appendShort(to, ""), m.queue)
	} else {
		to = appendShort(appendShort(to, m.exchange), routingKey(ev.AggregateID))
	}
	to = append(to, 1) // mandatory
	to = endFrame(to, at)

	to, at = beginFrame(to, frameHeader, channel)
	to, err := m.properties(to, ev)
	if err != nil {
		return dst[:start], err
	}
	to = endFrame(to, at)
	if size := len(to) - at; m.frameMax > 0 && size > m.frameMax { // unlike the body, it is not split
		return dst[:start], badEvent(ev, "headers and properties have %d bytes, the broker takes %d at most (frame_max)", size, m.frameMax)
	}

	most := len(ev.Payload)
	if m.frameMax > 0 {
		most = m.frameMax - frameHead - 1
	}
	for body := ev.Payload; len(body) > 0; {
		part := body[:min(len(body), most)]
		body = body[len(part):]
		to, at = beginFrame(to, frameBody, channel)
		to = endFrame(append(to, part...), at)
	}
	return to, nil
}

// checkShort looks at what is to go as a short string.
func checkShort(ev *schema.Event) error {
	const text = "%s has %d bytes, AMQP carries %d at most: %.40q..."
	switch typ := ev.Type(); {
	case len(ev.ID) > maxShort:
		return badEvent(ev, text, "message id", len(ev.ID), maxShort, ev.ID)
	case len(typ) > maxShort:
		return badEvent(ev, text, "message type", len(typ), maxShort, typ)
	case len(ev.ContentType) > maxShort:
		return badEvent(ev, text, "content type", len(ev.ContentType), maxShort, ev.ContentType)
	case ev.ID == "":
		return badEvent(ev, "message id is empty: consumers could not tell a duplicate")
	}
	return nil
}

// properties puts the content header behind dst.
func (m *message) properties(dst []byte, ev *schema.Event) ([]byte, error) {
	flags := uint16(hasHeaders | hasDeliveryMode | hasMessageID | hasAppID)
	if ev.ContentType != "" {
		flags |= hasContentType
	}
	// An AMQP timestamp is unsigned: a time before 1970 is in the header alone.
	if ev.CreatedAt.Unix() >= 0 {
		flags |= hasTimestamp
	}
	if ev.Type() != "" {
		flags |= hasType
	}
	dst = append(be.AppendUint16(dst, basicClass), 0, 0) // weight
	dst = be.AppendUint64(dst, uint64(len(ev.Payload)))
	dst = be.AppendUint16(dst, flags)
	if flags&hasContentType != 0 {
		dst = appendShort(dst, ev.ContentType)
	}
	at := len(dst)
	dst, err := m.headers(append(dst, 0, 0, 0, 0), ev)
	if err != nil {
		return dst, err
	}
	be.PutUint32(dst[at:], uint32(len(dst)-at-4))
	dst = append(dst, amqp.Persistent)
	dst = appendShort(dst, ev.ID)
	if flags&hasTimestamp != 0 {
		dst = be.AppendUint64(dst, uint64(ev.CreatedAt.Unix()))
	}
	if flags&hasType != 0 {
		dst = appendShort(dst, ev.Type())
	}
	return appendShort(dst, appID), nil
}

// headers appends the fields of the table of headers.
func (m *message) headers(dst []byte, ev *schema.Event) ([]byte, error) {
	dst = appendText(dst, headerAggregateID, ev.AggregateID)
	for _, f := range [...]struct{ name, value string }{
		{headerAggregateType, ev.AggregateType},
		{headerEventType, ev.EventType},
		{headerTopic, ev.Topic},
		{headerVersion, ev.Version},
		{headerGTID, ev.GTID},
	} {
		if f.value != "" {
			dst = appendText(dst, f.name, f.value)
		}
	}
	dst = append(appendShort(dst, headerCreatedAt), 'S', 0, 0, 0, 0)
	at := len(dst)
	dst = ev.CreatedAt.UTC().AppendFormat(dst, createdAtLayout)
	be.PutUint32(dst[at-4:], uint32(len(dst)-at))
	if ev.Sequence > 0 {
		dst, _ = appendField(dst, headerSequence, ev.Sequence)
	}
	if m.replayed {
		dst, _ = appendField(dst, headerReplayed, true)
	}
	if len(ev.Headers) == 0 {
		return dst, nil
	}
	return appendRow(dst, ev)
}

// appendRow appends what the row's headers column holds, without the names that
// are the relay's own: the row cannot forge them. It is sorted, so that the same
// event always fails for the same reason.
func appendRow(dst []byte, ev *schema.Event) ([]byte, error) {
	for _, name := range slices.Sorted(maps.Keys(ev.Headers)) {
		if len(name) > maxShort {
			return dst, badEvent(ev, "a header name has %d bytes, AMQP carries %d at most: %.40q...", len(name), maxShort, name)
		}
		// RabbitMQ takes CC and BCC for more routing keys: a string there closes
		// the channel, a list would deliver the event twice.
		if name == "CC" || name == "BCC" {
			return dst, badEvent(ev, "header %q: RabbitMQ reserves the name for sender-selected routing", name)
		}
		to, ok := appendField(dst, name, ev.Headers[name])
		if !ok {
			return dst, badEvent(ev, "header %q: AMQP cannot carry a value of type %T", name, ev.Headers[name])
		}
		if !isOwn(name) {
			dst = to
		}
	}
	return dst, nil
}

// isOwn tells whether the relay writes the header itself.
func isOwn(name string) bool {
	switch name {
	case headerAggregateID, headerAggregateType, headerEventType, headerTopic,
		headerVersion, headerCreatedAt, headerGTID, headerSequence, headerReplayed:
		return true
	}
	return false
}

// Check gives a *schema.BadEventError where no message can carry ev, whatever
// broker it is for.
func Check(ev *schema.Event) error {
	_, err := new(message).append(nil, 0, ev)
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

// newEvent is the reverse of a message: the event of a delivery. Headers
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
