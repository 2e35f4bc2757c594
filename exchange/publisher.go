package exchange

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
	"github.com/rs/zerolog"

	"github.com/outboxrelay/relay/schema"
)

// Config says which broker and exchange to use.
type Config struct {
	// URL of the broker, amqp:// or amqps://. Required.
	URL string

	// Password overrides the URL's. Defaults to the URL's.
	Password string

	// Exchange is the name of the consistent-hash exchange. Required.
	Exchange string

	// Partitions is the number of queues to declare with the exchange. Defaults
	// to 0: declare nothing, check that the exchange exists and is fit.
	Partitions int

	// Window is the number of events in flight at most. Defaults to 4096.
	Window int

	// Limit keeps over several Publishers what the broker tells of its size
	// limit. Defaults to one for each Publisher.
	Limit *Limit

	// Replayed marks all events as sent late, by a header.
	Replayed bool

	// TLS is used with amqps://. Defaults to what the URL's query says
	// (cacertfile, certfile, keyfile), else the system's authorities.
	TLS *tls.Config

	// ManagementURL is where RabbitMQ's management API is, http:// or https://.
	// Only Ask uses it. Defaults to port 15672 or, with amqps://, 15671 of the
	// broker's host, and to the broker's user and password.
	ManagementURL string

	// Logger hears of changes of state. Defaults to silence.
	Logger zerolog.Logger
}

// String shows no secret: neither the password nor the URL.
func (c Config) String() string {
	return fmt.Sprintf("exchange %q at %s", c.Exchange, Address(c.URL))
}

// GoString is String, for %#v.
func (c Config) GoString() string { return c.String() }

// Receipt tells what became of a published event.
type Receipt struct {
	Event *schema.Event

	// Err is nil where the broker has confirmed the event and routed it to a
	// queue at least. Else it is a *ReturnError: routed to no queue; ErrNacked:
	// refused; or a *schema.BadEventError: was never sent.
	Err error
}

// flight is an event between Publish and its receipt.
type flight struct {
	event   *schema.Event
	confirm *amqp.DeferredConfirmation // nil: never sent
	err     error                      // why not
}

// Publisher publishes events on one connection to the broker and tells of each
// what became of it. It does not reconnect: when the connection is lost,
// Receipts is closed, and a new Dial begins again.
type Publisher struct {
	link       *link
	channel    *amqp.Channel
	exchange   string
	partitions int
	limit      *Limit
	replayed   bool
	log        zerolog.Logger

	queue    chan *schema.Event // Publish to pump
	inFlight chan flight        // pump to settle, in the order of Publish
	receipts chan Receipt       // settle to the caller

	returns  chan amqp.Return   // broker to settle
	closes   chan *amqp.Error   // broker to watch
	blocks   chan amqp.Blocking // broker to watch
	returned map[identity][]amqp.Return

	stop   chan struct{} // closed by Close
	down   chan struct{} // closed when the channel is; cause is set then
	cause  error         // as the library tells it; nil: Close
	closed sync.Once
	wg     sync.WaitGroup

	mu        sync.Mutex
	err       error         // set before receipts is closed
	blocked   bool          // by the broker
	reason    string        // of it
	unblocked chan struct{} // closed while not blocked
}

// Dial connects to the broker, declares or checks the topology (see
// Config.Partitions) and opens a channel in confirm mode. It takes 10 seconds
// at most and one more for each partition, and less where ctx ends first; ctx
// has no meaning after Dial. Errors
// wrap ErrURL, ErrAuth, ErrTLS, ErrExchange or ErrQueue where somebody has to
// act; all others are transient. The caller must Close the Publisher.
func Dial(ctx context.Context, cfg Config) (*Publisher, error) {
	if err := checkName(cfg.Exchange); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout+time.Duration(cfg.Partitions)*time.Second)
	defer cancel()
	l, err := connect(ctx, cfg, "relay "+cfg.Exchange)
	if err != nil {
		return nil, err
	}
	channel, err := prepare(ctx, l, cfg)
	if err == nil {
		err = l.established(ctx)
	}
	if err != nil {
		l.close(ctx.Err() == nil)
		return nil, err
	}
	return newPublisher(l, channel, cfg), nil
}

// prepare makes the topology and the channel to publish on.
func prepare(ctx context.Context, l *link, cfg Config) (*amqp.Channel, error) {
	if err := topology(ctx, l, cfg.Exchange, cfg.Partitions); err != nil {
		return nil, err
	}
	channel, err := l.Channel()
	if err != nil {
		return nil, l.explain(ctx, "open a channel", err)
	}
	if err := channel.Confirm(false); err != nil {
		return nil, l.explain(ctx, "switch confirms on", err)
	}
	return channel, nil
}

func newPublisher(l *link, channel *amqp.Channel, cfg Config) *Publisher {
	window := cfg.Window
	if window <= 0 {
		window = 4096
	}
	limit := cfg.Limit
	if limit == nil {
		limit = new(Limit)
	}
	p := &Publisher{
		link:       l,
		channel:    channel,
		exchange:   cfg.Exchange,
		partitions: cfg.Partitions,
		limit:      limit,
		replayed:   cfg.Replayed,
		log:        cfg.Logger,
		queue:      make(chan *schema.Event, window),
		inFlight:   make(chan flight, window),
		receipts:   make(chan Receipt, window),
		// The library drops a return after five seconds where there is no room.
		returns:   channel.NotifyReturn(make(chan amqp.Return, window+1)),
		closes:    channel.NotifyClose(make(chan *amqp.Error, 1)),
		blocks:    l.NotifyBlocked(make(chan amqp.Blocking, 16)),
		returned:  make(map[identity][]amqp.Return),
		stop:      make(chan struct{}),
		down:      make(chan struct{}),
		unblocked: make(chan struct{}),
	}
	close(p.unblocked)
	p.wg.Go(p.watch)
	p.wg.Go(p.pump)
	p.wg.Go(p.settle)
	p.log.Info().Str("broker", l.endpoint.String()).Str("exchange", cfg.Exchange).
		Str("version", text(l.Properties["version"])).Msg("broker connected")
	return p
}

// Publish queues ev, which the caller does not change any more. It does not
// block as long as the caller keeps its side: at most Config.Window events
// published whose receipt it has not received. Events in flight differ in id,
// sequence or GTID; of two that do not, a return may be told of the other.
// After the connection is lost or closed, Publish does nothing. One goroutine at
// a time may call it, as it makes the order.
func (p *Publisher) Publish(ev *schema.Event) {
	select {
	case p.queue <- ev:
	case <-p.down:
	case <-p.stop:
	}
}

// Receipts delivers one Receipt for each published event, in the order of
// Publish. It is closed when the connection is lost or closed; the events
// without a receipt by then are in doubt: the broker may have them or not, and
// they must be published again.
func (p *Publisher) Receipts() <-chan Receipt { return p.receipts }

// Err tells why Receipts was closed, and is nil before that: ErrClosed after
// Close; else what ended the connection, which wraps ErrExchange where the
// exchange is gone, ErrAuth where the user may not publish, and is a
// *schema.BadEventError where the broker takes no message of that size. Safe
// for concurrent use.
func (p *Publisher) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.err
}

// Blocked tells whether the broker has blocked publishing (connection.blocked:
// its memory or disk alarm), and its reason. Publishing goes on by itself when
// the broker lifts the alarm. Safe for concurrent use.
func (p *Publisher) Blocked() (reason string, blocked bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason, p.blocked
}

// Close closes the connection and ends all goroutines of the Publisher. It does
// not wait for events in flight: who wants their receipts receives them first.
// It takes two seconds at most, also when the broker does not answer. Safe for
// concurrent use, and more than once; it returns nil.
func (p *Publisher) Close() error {
	p.closed.Do(func() {
		close(p.stop)
		_, blocked := p.Blocked()
		p.link.close(!blocked)
	})
	p.wg.Wait()
	return nil
}

// watch hears what the broker says of the connection, until the channel ends.
func (p *Publisher) watch() {
	defer close(p.down)
	blocks := p.blocks
	for {
		select {
		case b, ok := <-blocks:
			if !ok {
				blocks = nil
				continue
			}
			p.setBlocked(b)
		case err, ok := <-p.closes:
			if ok {
				p.cause = err
			}
			return
		}
	}
}

func (p *Publisher) setBlocked(b amqp.Blocking) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case b.Active && !p.blocked:
		p.unblocked = make(chan struct{})
		p.log.Warn().Str("reason", b.Reason).Msg("broker blocked publishing")
	case !b.Active && p.blocked:
		close(p.unblocked)
		p.log.Info().Msg("broker unblocked publishing")
	}
	p.blocked, p.reason = b.Active, b.Reason
}

// pump sends what Publish queued, and pauses while the broker blocks: a write
// that the broker does not read would hold up the heartbeats.
func (p *Publisher) pump() {
	defer close(p.inFlight)
	for {
		var ev *schema.Event
		select {
		case ev = <-p.queue:
		case <-p.down:
			return
		case <-p.stop:
			return
		}
		if !p.awaitUnblocked() {
			return
		}
		f, ok := p.send(ev)
		if !ok {
			return
		}
		select {
		case p.inFlight <- f:
		case <-p.stop:
			return
		}
	}
}

func (p *Publisher) awaitUnblocked() bool {
	p.mu.Lock()
	unblocked := p.unblocked
	p.mu.Unlock()
	select {
	case <-unblocked:
		return true
	case <-p.down:
		return false
	case <-p.stop:
		return false
	}
}

// send publishes ev. It is false when the channel is of no more use.
func (p *Publisher) send(ev *schema.Event) (flight, bool) {
	f := flight{event: ev}
	key, msg, err := newPublishing(ev, p.replayed)
	if err == nil {
		err = p.limit.check(ev)
	}
	if err == nil {
		err = checkFrame(ev, &msg, p.link.Config.FrameSize)
	}
	if err != nil {
		f.err = err
		return f, true
	}
	f.confirm, err = p.channel.PublishWithDeferredConfirm(p.exchange, key, true, false, msg)
	if err != nil {
		// Where the broker closed the channel, watch is about to hear why. Where
		// the write failed or the library refused, cutting makes it so.
		if !p.channel.IsClosed() && !p.link.IsClosed() {
			p.link.wire.Close()
		}
		return f, false
	}
	return f, true
}

// settle turns what the broker says into receipts, in the order of Publish.
//
// It waits on each event's own confirmation, not on NotifyPublish: there the
// library (v1.16.0) lets an acknowledgement of many overwrite the nack of one
// among them that came earlier but out of order.
func (p *Publisher) settle() {
	defer close(p.receipts)
	for f := range p.inFlight {
		err := f.err
		if f.confirm != nil {
			<-f.confirm.Done()
			acked := f.confirm.Acked()
			if !acked && p.channel.IsClosed() {
				// The library's nack of a closed channel: in doubt, not refused.
				p.end(f.event)
				return
			}
			err = p.verdict(f.event, acked)
		}
		select {
		case p.receipts <- Receipt{Event: f.event, Err: err}:
		case <-p.stop:
			p.end(nil)
			return
		}
	}
	p.end(nil)
}

// verdict says what an event came to that the broker has answered. A return
// comes before the acknowledgement of its message, so all that is in the
// channel of returns is taken before the acknowledgement is believed.
func (p *Publisher) verdict(ev *schema.Event, acked bool) error {
	for {
		select {
		case r, ok := <-p.returns:
			if ok {
				r.Body = nil
				who := identity{r.MessageId, r.Headers[headerSequence], r.Headers[headerGTID]}
				p.returned[who] = append(p.returned[who], r)
				continue
			}
		default:
		}
		break
	}
	who := identityOf(ev)
	if list := p.returned[who]; len(list) > 0 {
		r := list[0]
		if p.returned[who] = list[1:]; len(list) == 1 {
			delete(p.returned, who)
		}
		return &ReturnError{ID: ev.ID, AggregateID: ev.AggregateID, Exchange: r.Exchange, Code: r.ReplyCode, Text: r.ReplyText}
	}
	if !acked {
		return ErrNacked
	}
	return nil
}

// end waits until the channel is down and sets Err. First is the first event in
// doubt, nil where there is none.
func (p *Publisher) end(first *schema.Event) {
	<-p.down
	var doubt []*schema.Event
	if first != nil {
		doubt = append(doubt, first)
	}
	for f := range p.inFlight {
		if f.confirm != nil {
			doubt = append(doubt, f.event)
		}
	}
	err := p.endError(doubt)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.err = err
}

// endError says why the channel ended, with the events in doubt.
func (p *Publisher) endError(doubt []*schema.Event) error {
	select {
	case <-p.stop:
		return ErrClosed
	default:
	}
	var reply *amqp.Error
	if errors.As(p.cause, &reply) && reply.Server {
		switch reply.Code {
		case amqp.NotFound:
			if p.partitions > 0 { // the next Dial declares it
				return fmt.Errorf("exchange: exchange %q at %s was deleted: %w", p.exchange, p.link.endpoint, reply)
			}
			return exchangeMissing(p.link.endpoint, p.exchange, reply)
		case amqp.AccessRefused:
			return p.link.refusal(reply)
		case amqp.PreconditionFailed, amqp.ContentTooLarge:
			// On this channel only a message over the broker's limit does that.
			if err := p.limit.learn(reply, doubt); err != nil {
				return err
			}
		}
	}
	p.limit.forget()    // the broker may come back with another one
	if p.cause == nil { // the library closed it without a reason
		return fmt.Errorf("exchange: connection to %s was lost", p.link.endpoint)
	}
	return fmt.Errorf("exchange: connection to %s was lost: %w", p.link.endpoint, p.cause)
}
