package exchange

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

const (
	dialTimeout  = 10 * time.Second // for everything from the first packet to a usable channel
	closeTimeout = time.Second      // for the broker's answer to connection.close
	heartbeat    = 10 * time.Second
)

// endpoint is what an AMQP URL says.
type endpoint struct {
	amqp.URI
}

// parseURL reads an amqp:// or amqps:// URL. Its error wraps ErrURL and quotes
// nothing of the URL: net/url's errors hold it whole, and in a URL that is
// wrong the password may stand anywhere.
func parseURL(text string) (endpoint, error) {
	uri, err := amqp.ParseURI(text)
	parsed, parseErr := url.Parse(text)
	switch {
	case text == "":
		return endpoint{}, fmt.Errorf("%w: it is empty; next: --amqp-url amqp://USER@HOST:5672/VHOST", ErrURL)
	case err != nil, parseErr != nil,
		parsed.Fragment != "",
		parsed.User == nil && strings.Contains(text, "@"):
		return endpoint{}, fmt.Errorf("%w: not of the form amqp://USER:PASSWORD@HOST:PORT/VHOST, or amqps://...; "+
			"in user, password and vhost write %%40 for @, %%3A for :, %%2F for /, %%3F for ?, %%23 for #, %%25 for %%", ErrURL)
	}
	for _, name := range uri.AuthMechanism {
		if !slices.Contains([]string{"PLAIN", "AMQPLAIN", "EXTERNAL"}, strings.ToUpper(name)) {
			return endpoint{}, fmt.Errorf("%w: auth_mechanism %q is none of plain, amqplain, external", ErrURL, name)
		}
	}
	return endpoint{uri}, nil
}

// String is the address without user and password: scheme, host, port and,
// escaped, the vhost.
func (e endpoint) String() string {
	return fmt.Sprintf("%s://%s/%s", e.Scheme, e.host(), url.PathEscape(e.Vhost))
}

// host is host and port.
func (e endpoint) host() string { return net.JoinHostPort(e.Host, strconv.Itoa(e.Port)) }

// Address returns the broker's address in url without user and password, for
// logs and messages. Of a URL that cannot be read it shows nothing.
func Address(url string) string {
	e, err := parseURL(url)
	if err != nil {
		return "(unreadable AMQP URL)"
	}
	return e.String()
}

// Vhost is the virtual host in url; "/" of a URL that cannot be read.
func Vhost(url string) string {
	e, err := parseURL(url)
	if err != nil {
		return "/"
	}
	return e.Vhost
}

// wire is the connection's socket. It exists for what the client library does
// not do: give up a write that hangs once the other side is known to be dead,
// and live on while the broker only withholds reading (a memory or disk alarm)
// but still sends heartbeats.
type wire struct {
	net.Conn
	idle  atomic.Int64 // time.Duration without a byte from the broker; 0: no limit
	first atomic.Int32 // the broker's first byte, plus 1
}

func (w *wire) Read(b []byte) (int, error) {
	n, err := w.Conn.Read(b)
	if n > 0 {
		w.first.CompareAndSwap(0, int32(b[0])+1)
	}
	if err != nil {
		w.Conn.Close() // frees a writer that hangs, which the library waits for
	} else if idle := time.Duration(w.idle.Load()); idle > 0 {
		w.Conn.SetReadDeadline(time.Now().Add(idle)) //nolint:errcheck // the next Read tells
	}
	return n, err
}

// announcing makes the client announce authentication_failure_close, which the
// library leaves out: without it RabbitMQ drops the socket on a wrong password,
// and the library then takes every drop during the handshake, a cut cable too,
// for a wrong password.
// See https://www.rabbitmq.com/docs/auth-notification.
type announcing struct {
	amqp.Authentication
	properties amqp.Table
}

// Response is called by the library after it has set the capabilities and
// before it sends them.
func (a *announcing) Response() string {
	if capabilities, ok := a.properties["capabilities"].(amqp.Table); ok {
		capabilities["authentication_failure_close"] = true
	}
	return a.Authentication.Response()
}

// link is one connection to the broker.
type link struct {
	*amqp.Connection
	endpoint endpoint
	wire     *wire
	tap      *tap
	secured  *secured // nil: there is no TLS
}

// connect logs in to the broker. Until the caller calls established, the end of
// ctx cuts the connection, so that ctx bounds what the caller does first, too.
// The caller closes the link.
func connect(ctx context.Context, cfg Config, name string) (*link, error) {
	uri, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	if cfg.Password != "" {
		uri.Password = cfg.Password
	}
	security, err := uri.security(cfg.TLS)
	if err != nil {
		return nil, err
	}
	properties := amqp.NewConnectionProperties()
	properties["product"] = appID
	delete(properties, "version")
	properties.SetClientConnectionName(name)

	l := &link{endpoint: uri}
	config := amqp.Config{
		Vhost:      uri.Vhost,
		Heartbeat:  heartbeat,
		Properties: properties,
		SASL:       mechanisms(uri, properties),
		Dial: func(network, _ string) (net.Conn, error) {
			var dialer net.Dialer
			conn, err := dialer.DialContext(ctx, network, uri.host())
			if err != nil {
				return nil, err
			}
			w := &wire{Conn: conn}
			l.wire = w
			context.AfterFunc(ctx, func() {
				if w.idle.Load() == 0 { // not yet established
					w.Close()
				}
			})
			if security == nil {
				l.tap = newTap(w)
				return l.tap, nil
			}
			if l.secured, err = secure(ctx, w, security); err != nil {
				return nil, err
			}
			l.tap = newTap(l.secured)
			return l.tap, nil
		},
	}
	plain := "amqp" + cfg.URL[len(uri.Scheme):] // TLS is in Dial
	conn, err := amqp.DialConfig(plain, config)
	if err != nil {
		if l.wire != nil {
			l.wire.Close()
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("exchange: no answer from the broker at %s: %w", uri, ctx.Err())
		}
		return nil, l.handshakeError(l.secured.heard(err), security)
	}
	l.Connection = conn
	return l, nil
}

// mechanisms are the ways to log in: those that the URL's auth_mechanism names,
// else PLAIN.
func mechanisms(uri endpoint, properties amqp.Table) []amqp.Authentication {
	var list []amqp.Authentication
	add := func(a amqp.Authentication) { list = append(list, &announcing{a, properties}) }
	for _, name := range uri.AuthMechanism {
		switch strings.ToUpper(name) {
		case "PLAIN":
			add(uri.PlainAuth())
		case "AMQPLAIN":
			add(uri.AMQPlainAuth())
		case "EXTERNAL":
			add(&amqp.ExternalAuth{})
		}
	}
	if list == nil {
		add(uri.PlainAuth())
	}
	return list
}

// handshakeError says why DialConfig failed. Only what the broker itself
// replied counts as a refusal.
func (l *link) handshakeError(err error, security *tls.Config) error {
	var reply *amqp.Error
	if unsafe := l.explainTLS(err, security); unsafe != nil {
		return unsafe
	}
	switch {
	case errors.Is(err, amqp.ErrSASL):
		return fmt.Errorf("%w: %s offers none of the login mechanisms of the client: %w", ErrAuth, l.endpoint, err)
	case errors.As(err, &reply) && reply.Server && (reply.Code == amqp.AccessRefused || reply.Code == amqp.NotAllowed):
		return l.refusal(reply)
	case errors.Is(err, amqp.ErrCredentials), errors.Is(err, amqp.ErrVhost):
		// The library's guess at why the connection ended. The broker did not
		// say so, and would have: so it is no reason to stop for good.
		return fmt.Errorf("exchange: connection to %s was lost while logging in", l.endpoint)
	}
	return fmt.Errorf("exchange: cannot connect to %s: %w", l.endpoint, err)
}

// refusal is the error for a reply 403 ACCESS_REFUSED or 530 NOT_ALLOWED.
func (l *link) refusal(reply *amqp.Error) error {
	user, vhost := l.endpoint.Username, l.endpoint.Vhost
	permit := fmt.Sprintf("rabbitmqctl set_permissions -p %s %s '.*' '.*' '.*'", vhost, user)
	next := permit
	switch {
	case reply.Code == amqp.NotAllowed:
		next = fmt.Sprintf("rabbitmqctl add_vhost %s; %s", vhost, permit)
	case l.Connection == nil: // not logged in yet
		next = fmt.Sprintf("check user and password (--amqp-url, --amqp-password-file), or: rabbitmqctl authenticate_user %s", user)
	}
	return fmt.Errorf("%w: user %q, vhost %q at %s: %w; next: %s", ErrAuth, user, vhost, l.endpoint, reply, next)
}

// established ends the time limit of the handshake and begins that of silence.
// It returns the context's error where that came first.
func (l *link) established(ctx context.Context) error {
	idle := 3 * l.Config.Heartbeat / 2
	if idle <= 0 {
		idle = -1 // heartbeats are off in the URL: no limit
	}
	l.wire.idle.Store(int64(idle))
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("exchange: no answer from the broker at %s: %w", l.endpoint, err)
	}
	return nil
}

// close says goodbye where the broker listens, and cuts the socket where it
// does not: within two seconds in any case. Politely is false where the broker
// is known not to read.
func (l *link) close(politely bool) {
	if !politely {
		l.wire.Close()
	}
	cut := time.AfterFunc(closeTimeout+closeTimeout/2, func() { l.wire.Close() })
	defer cut.Stop()
	l.CloseDeadline(time.Now().Add(closeTimeout)) //nolint:errcheck // it is gone either way
	l.wire.Close()
}

// explain is the error of an operation on an open channel: why the broker
// ended it, in the words of ctx where that cut the connection.
func (l *link) explain(ctx context.Context, what string, err error) error {
	var reply *amqp.Error
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("exchange: %s: no answer from the broker at %s: %w", what, l.endpoint, ctx.Err())
	case errors.As(err, &reply) && reply.Server && reply.Code == amqp.AccessRefused:
		return l.refusal(reply)
	}
	return fmt.Errorf("exchange: %s at %s: %w", what, l.endpoint, err)
}
