// Package exchange is the RabbitMQ side of the relay: it publishes events with
// confirms, and lets a service consume them with an inbox. It knows nothing of
// binlogs and checkpoints, and links no MySQL replication code, so that a
// service may import it.
//
// # Invariant
//
// A receipt is good (Receipt.Err is nil) only if the broker has acknowledged
// the event and has not returned it. RabbitMQ acknowledges what it can route
// nowhere, too; it returns it first. What is in doubt when a connection ends
// gets no receipt at all: the client library tells it as a nack, which here
// means "unknown", not "refused".
//
// # Data flow
//
//	Publish ─► queue ─► pump ─► tap ─► broker    one connection, one or more channels
//	                     │              │        in confirm mode; mandatory, persistent
//	                     ▼              ▼
//	                  flights ◄─────── tap ─► the client library: login, heartbeats,
//	                     │    ack, nack,      topology, blocking, closing ─► watch
//	                     ▼    return                      │ pump pauses; Err
//	                  Receipts                            ▼
//
// The client library makes the connection and keeps it. The channels on which
// events are published are the publisher's own: the library takes 85 allocations
// and a write for each message, and more than ten times the time. So the tap
// hands their frames over in both directions: pump puts what is queued into one
// write, and an acknowledgement of many settles a range of flights. A channel's
// flights are what it has sent, by delivery tag; a return stands in front of the
// acknowledgement of its message, so it is known by then.
//
// The exchange is of type x-consistent-hash, and each aggregate's routing key
// always leads to the same queue. A queue is a quorum queue with a single
// active consumer, so each aggregate's events are consumed in order. Adding or
// removing a binding moves many aggregates to other queues: that is the
// operator's act, done when the queues are empty. Which queues are bound AMQP
// does not tell: Ask asks RabbitMQ's management API over HTTP, for check and
// status. What relays does without it.
//
// A Reader reads a stream, or a classic queue, and leaves everything in its place;
// an InboxReader reads the inbox of others: for audits.
//
// # Failures
//
// The relay has to tell three kinds apart: unfit (somebody must act), a bad
// event, and transient (dial again, begin from the checkpoint).
//
//	what happens                             what it becomes
//	URL cannot be read                       Dial: ErrURL
//	wrong password, no vhost, no permission  Dial, Err: ErrAuth (403, 530); a full
//	                                         connection limit answers 530 as well
//	certificate does not verify, client's    Dial: ErrTLS
//	is refused, port without TLS
//	broker's certificate has expired         Dial: transient
//	exchange missing, of another type        Dial: ErrExchange (404, 406)
//	plugin is off                            Dial: ErrExchange (503)
//	queue declared otherwise                 Dial: ErrQueue (406)
//	exchange deleted while publishing        Receipts closed, Err: ErrExchange
//	no queue is bound                        receipt: *ReturnError
//	a queue is full and rejects              receipt: ErrNacked
//	id, type, header too long or not         receipt: *schema.BadEventError, never
//	representable, headers over frame_max    sent
//	message over max_message_size            Receipts closed, Err is its
//	                                         *schema.BadEventError; later ones over
//	                                         the limit that the broker has told:
//	                                         receipt, never sent
//	memory or disk alarm                     Blocked; nothing is sent, nothing is
//	                                         lost; goes on by itself
//	network cut, broker restarts, no byte    Receipts closed, Err: transient
//	for 15 s (1.5 heartbeats)
//	cut during the handshake                 Dial: transient; never ErrAuth
//	broker does not answer                   Dial: after 10 s; Close: within 2 s
//	consumer's handler fails                 Run ends, message is requeued; by
//	                                         default a quorum queue of RabbitMQ 4
//	                                         drops a message after 20 requeues
//	                                         (delivery-limit; set it by policy)
//	a queue to be read is a quorum queue,    OpenReader: ErrQueue
//	is consumed, or holds too much
//	inbox cannot be read                     OpenInbox: ErrInbox; a server that
//	                                         is away: transient
//	commit of the inbox in doubt             not acknowledged, delivered again,
//	                                         and the inbox knows
//
// With Config.Partitions 0 the user needs the configure permission on the
// exchange, although nothing is configured: the broker tells the type of an
// exchange only to a client that may declare it.
//
// # Formats
//
// The message is described at https://www.rabbitmq.com/amqp-0-9-1-reference
// (properties, field tables), and for this project in the README; the exchange
// type at https://github.com/rabbitmq/rabbitmq-server/tree/main/deps/rabbitmq_consistent_hash_exchange.
package exchange
