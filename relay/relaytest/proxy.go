package relaytest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// Direction is one of the two ways through a Proxy.
type Direction int

// The directions.
const (
	Up   Direction = iota // from the relay to the server
	Down                  // from the server to the relay
)

// Proxy is a TCP proxy in front of a server that fails on demand: it stalls
// either direction, cuts after a byte, refuses connections, or leads to
// another server. It knows nothing of the protocol. Its methods may be called
// by many goroutines.
type Proxy struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex
	changed *sync.Cond // on mu
	target  string
	refuse  bool
	closed  bool
	stalled [2]bool
	quota   [2]int64 // bytes to let through before everything is cut; -1: no limit
	passed  [2]int64 // bytes let through
	watch   [2]func([]byte)
	links   map[*proxyLink]bool
	cuts    int // so far
}

// proxyLink is one connection through the proxy.
type proxyLink struct{ ends [2]net.Conn }

// reset ends the link without a FIN: both sides see a reset, as from a machine
// that is gone.
func (l *proxyLink) reset() {
	for _, end := range l.ends {
		if tcp, ok := end.(*net.TCPConn); ok {
			tcp.SetLinger(0) //nolint:errcheck // it is being torn down
		}
		end.Close()
	}
}

// close ends a link whose sides have both said that they are done: what they
// sent still arrives.
func (l *proxyLink) close() {
	for _, end := range l.ends {
		end.Close()
	}
}

// NewProxy listens on loopback and forwards to target, a host:port, until the
// test ends.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	p, err := StartProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// StartProxy is NewProxy for what is no test. The caller closes it.
func StartProxy(target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{listener: listener, target: target, quota: [2]int64{-1, -1}, links: map[*proxyLink]bool{}}
	p.changed = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	return p, nil
}

// Addr is the host:port to connect to.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Stall stops forwarding in a direction and keeps the connections open: the
// link is half-open, or dead when both are stalled.
func (p *Proxy) Stall(d Direction) { p.set(func() { p.stalled[d] = true }) }

// Flow ends the stall of a direction.
func (p *Proxy) Flow(d Direction) { p.set(func() { p.stalled[d] = false }) }

// Refuse closes every connection as soon as it is made, until Accept.
func (p *Proxy) Refuse() { p.set(func() { p.refuse = true }) }

// Accept ends Refuse.
func (p *Proxy) Accept() { p.set(func() { p.refuse = false }) }

// Retarget leads new connections to another server.
func (p *Proxy) Retarget(target string) { p.set(func() { p.target = target }) }

// CutAfter resets every connection once n more bytes, at least one, have passed
// in a direction, over all connections. Any cut before that takes it back.
func (p *Proxy) CutAfter(d Direction, n int64) { p.set(func() { p.quota[d] = max(n, 1) }) }

// Passed is the number of bytes that have passed in a direction, or are about
// to.
func (p *Proxy) Passed(d Direction) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.passed[d]
}

// Watch calls f with all bytes of a direction, before they are passed on. It
// must not keep them, nor call the proxy.
func (p *Proxy) Watch(d Direction, f func([]byte)) { p.set(func() { p.watch[d] = f }) }

// Cut resets every connection.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cut()
}

func (p *Proxy) cut() {
	for link := range p.links {
		link.reset()
		delete(p.links, link)
	}
	p.quota = [2]int64{-1, -1}
	p.cuts++
	p.changed.Broadcast()
}

// Close ends the proxy and all its connections.
func (p *Proxy) Close() {
	p.listener.Close()
	p.mu.Lock()
	p.closed = true
	p.cut()
	p.mu.Unlock()
	p.wg.Wait()
}

func (p *Proxy) set(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	p.changed.Broadcast()
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.wg.Go(func() { p.serve(client) })
	}
}

func (p *Proxy) serve(client net.Conn) {
	p.mu.Lock()
	target, refuse, cuts := p.target, p.refuse || p.closed, p.cuts
	p.mu.Unlock()
	if refuse {
		(&proxyLink{[2]net.Conn{client, client}}).reset()
		return
	}
	server, err := net.DialTimeout("tcp", target, 5*time.Second)
	if err != nil {
		(&proxyLink{[2]net.Conn{client, client}}).reset()
		return
	}
	link := &proxyLink{[2]net.Conn{client, server}}
	p.mu.Lock()
	if p.cuts > cuts { // it would outlive a cut
		p.mu.Unlock()
		link.reset()
		return
	}
	p.links[link] = true
	p.mu.Unlock()
	var pumps sync.WaitGroup
	pumps.Go(func() { p.pump(link, Up, server, client) })
	pumps.Go(func() { p.pump(link, Down, client, server) })
	pumps.Wait()
	link.close()
	p.mu.Lock()
	delete(p.links, link)
	p.mu.Unlock()
}

// pump forwards one direction of a link. The end of what one side sends is
// passed on as such.
func (p *Proxy) pump(link *proxyLink, d Direction, to io.Writer, from io.Reader) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		for rest := buffer[:n]; len(rest) > 0; {
			allowed, ok := p.allow(link, d, len(rest))
			if !ok {
				return
			}
			p.look(d, rest[:allowed])
			if _, err := to.Write(rest[:allowed]); err != nil {
				link.reset()
				return
			}
			rest = rest[allowed:]
			if p.spent(d) {
				p.Cut()
				return
			}
		}
		if err != nil {
			if tcp, ok := to.(*net.TCPConn); ok && err == io.EOF {
				tcp.CloseWrite() //nolint:errcheck // the peer may be gone
			} else {
				link.reset()
			}
			return
		}
	}
}

// allow waits while the direction is stalled, or another link is passing on the
// last byte before a cut, and tells how many of n bytes may pass; false when the
// link is gone.
func (p *Proxy) allow(link *proxyLink, d Direction, n int) (int, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for (p.stalled[d] || p.quota[d] == 0) && p.links[link] {
		p.changed.Wait()
	}
	if !p.links[link] {
		return 0, false
	}
	if p.quota[d] > 0 {
		n = int(min(int64(n), p.quota[d]))
		p.quota[d] -= int64(n)
	}
	p.passed[d] += int64(n)
	return n, true
}

// spent tells whether the direction's quota is used up.
func (p *Proxy) spent(d Direction) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.quota[d] == 0
}

func (p *Proxy) look(d Direction, b []byte) {
	p.mu.Lock()
	f := p.watch[d]
	p.mu.Unlock()
	if f != nil {
		f(b)
	}
}
