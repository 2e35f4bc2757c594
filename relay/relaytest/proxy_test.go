package relaytest

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

const (
	proxyLimit = 10 * time.Second
	quiet      = 50 * time.Millisecond // in which what is held up does not come
)

// backend is a server that hands its connections to the test.
type backend struct {
	addr  string
	conns chan net.Conn
}

func newBackend(t *testing.T) *backend {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	b := &backend{listener.Addr().String(), make(chan net.Conn, 8)}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			b.conns <- conn
		}
	}()
	return b
}

// link makes a connection through the proxy, and returns both its ends.
func (b *backend) link(t *testing.T, p *Proxy) (client, server net.Conn) {
	t.Helper()
	client, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	select {
	case server = <-b.conns:
	case <-time.After(proxyLimit):
		t.Fatal("the proxy does not connect to its target")
	}
	t.Cleanup(func() { server.Close() })
	for _, conn := range []net.Conn{client, server} {
		if err := conn.SetDeadline(time.Now().Add(proxyLimit)); err != nil {
			t.Fatal(err)
		}
	}
	return client, server
}

// carry sends text from one end and wants it at the other.
func carry(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(from, text); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(to, got); err != nil || string(got) != text {
		t.Fatalf("%q arrives as %q: %v", text, got, err)
	}
}

// wantQuiet wants nothing to arrive for a moment.
func wantQuiet(t *testing.T, conn net.Conn) {
	t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(quiet)) // Read tells
	n, err := conn.Read(make([]byte, 1))
	if n != 0 || !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("%d bytes come through a stall: %v", n, err)
	}
	_ = conn.SetReadDeadline(time.Now().Add(proxyLimit)) // as above
}

// wantReset wants the connection to break, and not just to end.
func wantReset(t *testing.T, name string, conn net.Conn) {
	t.Helper()
	if _, err := io.Copy(io.Discard, conn); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%s: got %v, want a reset", name, err)
	}
}

// TestProxyPasses fails when close resets a link whose both ends are done: the
// last bytes are then lost now and then.
func TestProxyPasses(t *testing.T) {
	b := newBackend(t)
	p := NewProxy(t, b.addr)
	client, server := b.link(t, p)
	carry(t, client, server, "ping")
	carry(t, server, client, "pong")
	long := bytes.Repeat([]byte("0123456789"), 100_000)
	go func() {
		_, _ = server.Write(long) // the reader tells
		server.Close()
	}()
	_ = client.(*net.TCPConn).CloseWrite() // so that both ends are done
	if got, err := io.ReadAll(client); err != nil || !bytes.Equal(got, long) {
		t.Errorf("%d of %d bytes arrive: %v", len(got), len(long), err)
	}
	if up, down := p.Passed(Up), p.Passed(Down); up != 4 || down != int64(4+len(long)) {
		t.Errorf("passed %d bytes up and %d down", up, down)
	}
}

// TestProxyStalls fails when Stall holds up the other direction, or none.
func TestProxyStalls(t *testing.T) {
	b := newBackend(t)
	p := NewProxy(t, b.addr)
	client, server := b.link(t, p)
	ends := [2][2]net.Conn{Up: {client, server}, Down: {server, client}}
	for _, d := range []Direction{Up, Down} {
		from, to := ends[d][0], ends[d][1]
		p.Stall(d)
		if _, err := io.WriteString(from, "held"); err != nil {
			t.Fatal(err)
		}
		carry(t, to, from, "the other way")
		wantQuiet(t, to)
		p.Flow(d)
		carry(t, from, to, "")
		got := make([]byte, 4)
		if _, err := io.ReadFull(to, got); err != nil || string(got) != "held" {
			t.Fatalf("after the stall %q arrives: %v", got, err)
		}
	}
}

// TestProxyCuts fails when Cut leaves an end open, or closes it politely; a
// stall must not keep it from that. It failed, now and then, when a connection
// that was being made outlived the cut.
func TestProxyCuts(t *testing.T) {
	b := newBackend(t)
	p := NewProxy(t, b.addr)
	first, firstServer := b.link(t, p)
	second, secondServer := b.link(t, p)
	p.Stall(Up)
	if _, err := io.WriteString(first, "held"); err != nil {
		t.Fatal(err)
	}
	p.Cut()
	for name, conn := range map[string]net.Conn{
		"first client": first, "first server": firstServer, "second client": second, "second server": secondServer,
	} {
		wantReset(t, name, conn)
	}
	p.Flow(Up)
	client, server := b.link(t, p)
	carry(t, client, server, "again")
}

// TestProxyCutsAfter cuts two busy links after a number of bytes that they
// share. It failed when the one could take a byte while the other was passing on
// the last one: the quota went below zero, and nothing was cut.
func TestProxyCutsAfter(t *testing.T) {
	b := newBackend(t)
	p := NewProxy(t, b.addr)
	var seen atomic.Int64
	p.Watch(Up, func(bytes []byte) { seen.Add(int64(len(bytes))) })
	for _, n := range []int64{1, 7, 40_000} {
		seen.Store(0)
		before := p.Passed(Up)
		first, firstServer := b.link(t, p)
		second, secondServer := b.link(t, p)
		p.CutAfter(Up, n)
		var group sync.WaitGroup
		for client, server := range map[net.Conn]net.Conn{first: firstServer, second: secondServer} {
			group.Go(func() { _, _ = io.Copy(io.Discard, server) }) // the client's end tells
			group.Go(func() {
				for {
					if _, err := client.Write(make([]byte, 1000)); err != nil {
						if errors.Is(err, os.ErrDeadlineExceeded) {
							t.Errorf("after %d bytes nothing is cut", n)
						}
						return
					}
				}
			})
		}
		group.Wait()
		if got := seen.Load(); got != n {
			t.Errorf("%d bytes were passed on, want %d", got, n)
		}
		if got := p.Passed(Up) - before; got != n {
			t.Errorf("%d bytes are counted, want %d", got, n)
		}
	}
	client, server := b.link(t, p)
	carry(t, client, server, "the quota is used up")
}

// TestProxyRefuses fails when Refuse lets a connection live, or touches an old
// one, or outlives Accept.
func TestProxyRefuses(t *testing.T) {
	b := newBackend(t)
	p := NewProxy(t, b.addr)
	old, oldServer := b.link(t, p)
	p.Refuse()
	carry(t, old, oldServer, "still there")
	refused, err := net.Dial("tcp", p.Addr())
	if err == nil {
		wantReset(t, "refused", refused)
		refused.Close()
	}
	p.Accept()
	client, server := b.link(t, p)
	carry(t, client, server, "welcome")
}

// TestProxyRetargets fails when a new connection still goes to the old server.
func TestProxyRetargets(t *testing.T) {
	first, second := newBackend(t), newBackend(t)
	p := NewProxy(t, first.addr)
	client, server := first.link(t, p)
	p.Retarget(second.addr)
	carry(t, client, server, "the old one stays")
	client, server = second.link(t, p)
	carry(t, client, server, "the new one moves")
}

// TestProxyCloses fails by its deadline when Close waits for a link that is
// stalled.
func TestProxyCloses(t *testing.T) {
	b := newBackend(t)
	p, err := StartProxy(b.addr)
	if err != nil {
		t.Fatal(err)
	}
	client, _ := b.link(t, p)
	p.Stall(Up)
	if _, err := io.WriteString(client, "held"); err != nil {
		t.Fatal(err)
	}
	closed := make(chan struct{})
	go func() { p.Close(); close(closed) }()
	select {
	case <-closed:
	case <-time.After(proxyLimit):
		t.Fatal("Close does not return")
	}
	wantReset(t, "client", client)
}
