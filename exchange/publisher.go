package exchange

import (
	"context"
	"crypto/tls"
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

	// Queue is the name of a queue that is there: events go straight to it, and
	// past the exchange. Defaults to none.
	Queue string

	// Partitions is the number of queues to declare with the exchange. Defaults
	// to 0: declare nothing, check that the exchange exists and is fit.
	Partitions int

	// Channels is how many channels the events are spread over, where there are
	// many. The broker serves them at the same time: with more than one, events
	// that are in flight together reach their queues in any order. Defaults to 1.
	Channels int

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

// Publisher publishes events on one connection to the broker and tells of each
// what became of it. It does not reconnect: when the connection is lost,
// Receipts is closed, and a new Dial begins again.
type Publisher struct {
	link       *link
	exchange   string
	partitions int
	message    message
	limit      *Limit
	log        zerolog.Logger

	receipts chan []Receipt   // has room for one: what is not taken is put together with what follows
	wake     chan struct{}    // there is something in queue
	ready    chan struct{}    // closed when all channels are open
	refusal  chan *amqp.Error // by which the broker closed a channel
	closes   chan *amqp.Error // of the connection
	blocks   chan amqp.Blocking

	stop   chan struct{} // closed by Close
	down   chan struct{} // closed when the channels are; cause is set then
	cause  error         // as the library tells it; nil: Close
	closed sync.Once
	wg     sync.WaitGroup

	mu        sync.Mutex
	queue     []*schema.Event // published, and not yet taken by the writer
	channels  []*channel
	opened    int           // channels
	next      int           // the channel that the next write is on; pump's
	settled   []Receipt     // not yet in receipts
	ended     bool          // receipts is closed
	err       error         // set before that
	blocked   bool          // by the broker
	reason    string        // of it
	unblocked chan struct{} // closed while not blocked
}

// Dial connects to the broker, declares or checks the topology (see
// Config.Partitions) and opens channels in confirm mode. It takes 10 seconds
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
	var p *Publisher
	if cfg.Queue != "" {
		err = checkQueue(ctx, l, cfg.Queue)
	} else {
		err = topology(ctx, l, cfg.Exchange, cfg.Partitions)
	}
	if err == nil {
		p = newPublisher(l, cfg)
		err = p.open(ctx)
	}
	if err == nil {
		err = l.established(ctx)
	}
	if err != nil {
		l.close(ctx.Err() == nil)
		return nil, err
	}
	p.start()
	return p, nil
}

func newPublisher(l *link, cfg Config) *Publisher {
	limit := cfg.Limit
	if limit == nil {
		limit = new(Limit)
	}
	p := &Publisher{
		link:       l,
		exchange:   cfg.Exchange,
		partitions: cfg.Partitions,
		message:    message{exchange: cfg.Exchange, queue: cfg.Queue, replayed: cfg.Replayed, frameMax: l.Config.FrameSize},
		limit:      limit,
		log:        cfg.Logger,
		receipts:   make(chan []Receipt, 1),
		wake:       make(chan struct{}, 1),
		ready:      make(chan struct{}),
		refusal:    make(chan *amqp.Error, 1),
		closes:     l.NotifyClose(make(chan *amqp.Error, 1)),
		blocks:     l.NotifyBlocked(make(chan amqp.Blocking, 16)),
		stop:       make(chan struct{}),
		down:       make(chan struct{}),
		unblocked:  make(chan struct{}),
	}
	close(p.unblocked)
	most := int(l.Config.ChannelMax) - 1 // one is left to the library
	for i := range max(1, min(cfg.Channels, most)) {
		p.channels = append(p.channels, newChannel(l.Config.ChannelMax-uint16(i)))
	}
	return p
}

// open opens the channels and switches confirms on, in one go.
func (p *Publisher) open(ctx context.Context) error {
	var frames []byte
	lowest := p.channels[len(p.channels)-1].id
	for _, c := range p.channels {
		frames = appendMethod(frames, c.id, channelOpen, 0)
		frames = appendMethod(frames, c.id, confirmSelect, 0)
	}
	p.link.tap.own.Store(&ownChannels{from: lowest, frame: p.frame, idle: p.deliver})
	_, err := p.link.tap.Write(frames)
	if err == nil {
		select {
		case <-p.ready:
			return nil
		case err = <-p.refusal:
		case reply, ok := <-p.closes:
			if err = amqp.ErrClosed; ok {
				err = reply
			}
		}
	}
	return p.link.explain(ctx, "open a channel", err)
}

func (p *Publisher) start() {
	p.wg.Go(p.watch)
	p.wg.Go(p.pump)
	p.log.Info().Str("broker", p.link.endpoint.String()).Str("exchange", p.exchange).
		Str("version", text(p.link.Properties["version"])).Msg("broker connected")
}

// Publish queues the events, which the caller does not change any more. It does
// not block: the caller bounds how many are in flight. Events in flight differ in id,
// sequence or GTID; of two that do not, a return may be told of the other.
// After the connection is lost or closed, Publish does nothing. One goroutine at
// a time may call it, as it makes the order.
func (p *Publisher) Publish(events ...*schema.Event) {
	p.mu.Lock()
	p.queue = append(p.queue, events...)
	p.mu.Unlock()
	select {
	case p.wake <- struct{}{}:
	default: // it is awake
	}
}

// Receipts delivers one Receipt for each published event, as the broker answers
// them: not in the order of Publish. They come many at a time, at least one, and
// are the receiver's. It is closed when the connection is lost or closed; the
// events without a receipt by then are in doubt: the broker may have them or
// not, and they must be published again.
func (p *Publisher) Receipts() <-chan []Receipt { return p.receipts }

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

// watch hears what the broker says of the connection, until it or a channel
// ends.
func (p *Publisher) watch() {
	defer p.end()
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
		case p.cause = <-p.refusal:
			return
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
