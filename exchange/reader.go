package exchange

import (
	"context"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	streamPrefetch = 2000                   // deliveries of a stream that wait for their acknowledgement
	probeTimeout   = 3 * time.Second        // for the last chunk of a stream, which an empty one has not
	restTimeout    = 500 * time.Millisecond // for the rest of the last chunk, when its beginning is there
	copyTimeout    = 30 * time.Second       // for the next of the messages that a queue has

	// maxCopied is how many messages of a queue can be delivered and not
	// acknowledged: prefetch-count is 16 bits.
	maxCopied = 1<<16 - 1
)

// Message is what a Reader tells of a message.
type Message struct {
	ID, Type, RoutingKey string
	Body                 []byte
	Replayed             bool      // it was marked as sent late
	At                   time.Time // its header created_at, else its timestamp; zero: it has none

	headers amqp.Table
}

// Header is a header's value as text; false: there is none.
func (m *Message) Header(name string) (string, bool) {
	value, ok := m.headers[name]
	if !ok || value == nil {
		return "", false
	}
	if bytes, ok := value.([]byte); ok {
		return string(bytes), true
	}
	return fmt.Sprint(value), true
}

// Reader reads what is in a stream or a queue, and leaves it there. It is used
// by one goroutine.
//
// A stream is what it is made for. The messages of a classic queue are taken
// without acknowledgement, and go back to their places when the Reader is
// closed: 65,535 of them at most, and none that another consumer has. A quorum
// queue is refused: it counts how often a message was delivered, and by default
// drops it after the twentieth time.
type Reader struct {
	link   *link
	queue  string
	stream bool
	count  int // of the messages of a classic queue
}

// OpenReader connects to the broker and looks at the queue. Time limit and errors
// are those of Dial, with ErrQueue for one that is missing or cannot be read.
// Of the configuration it takes what concerns the broker. The caller must Close
// the Reader.
func OpenReader(ctx context.Context, cfg Config, queue string) (*Reader, error) {
	dialing, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	l, err := connect(dialing, cfg, "relay read "+queue)
	if err != nil {
		return nil, err
	}
	r := &Reader{link: l, queue: queue}
	if err = r.look(dialing, cfg); err == nil {
		err = l.established(dialing)
	}
	if err != nil {
		l.close(dialing.Err() == nil)
		return nil, err
	}
	return r, nil
}

// Close closes the connection, and gives back what was taken.
func (r *Reader) Close() { r.link.close(true) }

// Name is the queue's.
func (r *Reader) Name() string { return r.queue }

// look finds out what kind of queue it is: only a stream lets a consumer say
// where it begins.
func (r *Reader) look(ctx context.Context, cfg Config) error {
	var found amqp.Queue
	code, err := r.link.try(func(ch *amqp.Channel) (err error) {
		found, err = ch.QueueDeclarePassive(r.queue, true, false, false, false, nil)
		return err
	})
	switch {
	case code == amqp.NotFound:
		return fmt.Errorf("%w: there is no queue or stream %q at %s: %w; next: rabbitmqadmin%s declare queue --name %s --type stream --durable true, and bind it", ErrQueue, r.queue, r.link.endpoint, err, vhostFlag(r.link.endpoint), r.queue)
	case code == amqp.ResourceLocked:
		return fmt.Errorf("%w: queue %q at %s is another connection's own: %w", ErrQueue, r.queue, r.link.endpoint, err)
	case err != nil:
		return r.link.explain(ctx, fmt.Sprintf("look at queue %q", r.queue), err)
	}
	code, err = r.link.try(func(ch *amqp.Channel) error {
		_, err := r.from(ch, "next", 1)
		return err
	})
	switch {
	case err == nil:
		r.stream = true
		return nil
	case code != amqp.PreconditionFailed:
		return r.link.explain(ctx, fmt.Sprintf("consume queue %q", r.queue), err)
	}
	r.count = found.Messages
	return r.mayCopy(ctx, cfg, found)
}

// mayCopy refuses a queue whose messages cannot all be seen, or that would come
// to harm.
func (r *Reader) mayCopy(ctx context.Context, cfg Config, found amqp.Queue) error {
	instead := fmt.Sprintf("; next, a stream that gets the same: rabbitmqadmin%s declare queue --name %s.audit --type stream --durable true, and bind it", vhostFlag(r.link.endpoint), r.queue)
	m, err := newManagement(cfg)
	if err != nil {
		return err
	}
	defer m.client.CloseIdleConnections()
	q := BoundQueue{Name: r.queue}
	if err := m.queue(ctx, &q); err != nil {
		return fmt.Errorf("%w: %q is no stream, and of what type it is only the management API tells: %w%s", ErrQueue, r.queue, err, instead)
	}
	switch {
	case q.Type != "classic":
		return fmt.Errorf("%w: %q is a %s queue, which counts deliveries and drops a message after some: reading it again and again would lose messages%s", ErrQueue, r.queue, q.Type, instead)
	case found.Consumers > 0:
		return fmt.Errorf("%w: %q has %d consumers, and what they take is not seen%s", ErrQueue, r.queue, found.Consumers, instead)
	case found.Messages > maxCopied:
		return fmt.Errorf("%w: %q is a classic queue with %d messages, of which %d can be read without taking them out%s", ErrQueue, r.queue, found.Messages, maxCopied, instead)
	}
	return nil
}

// from consumes a stream from an offset on.
func (r *Reader) from(ch *amqp.Channel, offset any, prefetch int) (<-chan amqp.Delivery, error) {
	if err := ch.Qos(prefetch, 0, false); err != nil {
		return nil, err
	}
	return ch.Consume(r.queue, "", false, false, false, false, amqp.Table{"x-stream-offset": offset})
}

// Read calls each with every message that is there now: of a stream with those
// that came at from or later, and some before them. Each does not keep the
// message.
func (r *Reader) Read(ctx context.Context, from time.Time, each func(*Message) error) error {
	if r.stream {
		return r.readStream(ctx, from, each)
	}
	return r.copy(ctx, each)
}

// readStream reads to the end of the stream as it is when it begins. AMQP does
// not tell where that is: it tells where the last chunk begins. When that is
// reached and another chunk is the last by then, the end is before it; else what
// is missing of the chunk comes at once.
func (r *Reader) readStream(ctx context.Context, from time.Time, each func(*Message) error) error {
	end, found, err := r.last(ctx)
	if err != nil || !found {
		return err
	}
	ch, err := r.link.Channel()
	if err != nil {
		return r.link.explain(ctx, "open a channel", err)
	}
	defer ch.Close()
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	deliveries, err := r.from(ch, from, streamPrefetch)
	if err != nil {
		return r.link.explain(ctx, fmt.Sprintf("consume stream %q", r.queue), err)
	}
	idle := time.NewTimer(probeTimeout) // nothing comes where all of the stream is older
	defer idle.Stop()
	reached, beyond := false, false // the last chunk; and another one is the last
	var seen int64
	for n := 1; ; n++ {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return r.ended(closes)
			}
			offset, _ := d.Headers["x-stream-offset"].(int64)
			if beyond && offset >= end {
				return nil
			}
			seen = offset
			if err := each(messageOf(&d)); err != nil {
				return err
			}
			if n%(streamPrefetch/4) == 0 {
				if err := d.Ack(true); err != nil {
					return r.link.explain(ctx, "acknowledge", err)
				}
			}
			switch {
			case offset < end:
				idle.Reset(copyTimeout)
			case !reached:
				reached = true
				idle.Reset(restTimeout)
			}
		case <-idle.C:
			if !reached && n == 1 {
				return nil
			}
			if !reached {
				return fmt.Errorf("exchange: stream %q at %s: nothing came for %s, and its end is at offset %d", r.queue, r.link.endpoint, copyTimeout, end)
			}
			last, _, err := r.last(ctx)
			if err != nil || last <= max(end, seen) {
				return err
			}
			end, beyond, reached = last, true, false
			idle.Reset(copyTimeout)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// last is the offset at which the stream's last chunk begins; false: it is empty.
func (r *Reader) last(ctx context.Context) (offset int64, found bool, err error) {
	ch, err := r.link.Channel()
	if err != nil {
		return 0, false, r.link.explain(ctx, "open a channel", err)
	}
	defer ch.Close()
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	deliveries, err := r.from(ch, "last", 1)
	if err != nil {
		return 0, false, r.link.explain(ctx, fmt.Sprintf("consume stream %q", r.queue), err)
	}
	select {
	case d, ok := <-deliveries:
		if !ok {
			return 0, false, r.ended(closes)
		}
		offset, _ := d.Headers["x-stream-offset"].(int64)
		return offset, true, nil
	case <-time.After(probeTimeout):
		return 0, false, nil
	case <-ctx.Done():
		return 0, false, ctx.Err()
	}
}

// copy takes the messages of a queue, and acknowledges none.
func (r *Reader) copy(ctx context.Context, each func(*Message) error) error {
	if r.count == 0 {
		return nil
	}
	ch, err := r.link.Channel()
	if err != nil {
		return r.link.explain(ctx, "open a channel", err)
	}
	closes := ch.NotifyClose(make(chan *amqp.Error, 1))
	if err := ch.Qos(r.count, 0, false); err != nil {
		return r.link.explain(ctx, "set the prefetch count", err)
	}
	deliveries, err := ch.Consume(r.queue, "", false, false, false, false, nil)
	if err != nil {
		return r.link.explain(ctx, fmt.Sprintf("consume queue %q", r.queue), err)
	}
	for n := range r.count {
		select {
		case d, ok := <-deliveries:
			if !ok {
				return r.ended(closes)
			}
			if err := each(messageOf(&d)); err != nil {
				return err
			}
		case <-time.After(copyTimeout):
			return fmt.Errorf("%w: %q had %d messages, and only %d came; does a consumer take them, or do they expire?", ErrQueue, r.queue, r.count, n)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// ended says why the deliveries ended.
func (r *Reader) ended(closes <-chan *amqp.Error) error {
	if err := <-closes; err != nil {
		return fmt.Errorf("exchange: read queue %q at %s: %w", r.queue, r.link.endpoint, err)
	}
	return fmt.Errorf("exchange: read queue %q at %s: the connection was lost", r.queue, r.link.endpoint)
}

func messageOf(d *amqp.Delivery) *Message {
	m := &Message{ID: d.MessageId, Type: d.Type, RoutingKey: d.RoutingKey, Body: d.Body, At: d.Timestamp, headers: d.Headers}
	m.Replayed, _ = d.Headers[headerReplayed].(bool)
	if text, ok := d.Headers[headerCreatedAt].(string); ok {
		if at, err := time.Parse(time.RFC3339Nano, text); err == nil {
			m.At = at.UTC()
		}
	}
	return m
}
