package cli_test

import (
	"net/url"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// proxy stands between the relay and a server.
type proxy struct{ *relaytest.Proxy }

// away takes the server away: connections are cut, and no other is let in.
func (p proxy) away() {
	p.Refuse()
	p.Cut()
}

// freeze holds everything up; the connections stay.
func (p proxy) freeze() {
	p.Stall(relaytest.Up)
	p.Stall(relaytest.Down)
}

// toBroker makes the relay reach the broker by a proxy.
func (r *rig) toBroker() proxy {
	r.t.Helper()
	u, err := url.Parse(r.amqp)
	if err != nil {
		r.t.Fatal(err)
	}
	p := proxy{relaytest.NewProxy(r.t, u.Host)}
	u.Host = p.Addr()
	r.flags = append(r.flags, "--amqp-url="+u.String())
	return p
}

// toSource makes the relay reach MySQL by a proxy.
func (r *rig) toSource() proxy {
	r.t.Helper()
	cfg := mustDSN(r.t, r.dsn)
	p := proxy{relaytest.NewProxy(r.t, cfg.Addr)}
	cfg.Addr = p.Addr()
	r.dsn = cfg.FormatDSN()
	return p
}
