package exchange

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/schema"
)

// method is the class and method id of an AMQP 0-9-1 method, as in
// https://www.rabbitmq.com/amqp-0-9-1-reference.
type method struct{ class, id uint16 }

var (
	methodStart     = method{10, 10}
	methodStartOk   = method{10, 11}
	methodOpen      = method{10, 40}
	methodConnClose = method{10, 50}
	methodBlocked   = method{10, 60}
	methodUnblocked = method{10, 61}
	methodDeclare   = method{40, 10}
	methodPublish   = method{60, 40}
	methodAck       = method{60, 80}
	methodNack      = method{60, 120}
)

// fakeBroker is a scripted broker for what a real one does not do on demand.
type fakeBroker struct {
	t    testing.TB
	conn net.Conn
	in   *bufio.Reader
	// on overrides the usual answer to a method; false ends the script.
	on map[method]func(channel uint16) bool
}

// startBroker serves one connection with script and returns the broker's URL.
func startBroker(t testing.TB, script func(b *fakeBroker)) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		b := &fakeBroker{t: t, conn: conn, in: bufio.NewReader(conn), on: map[method]func(uint16) bool{}}
		script(b)
	}()
	t.Cleanup(func() { listener.Close(); <-done })
	return "amqp://guest:guest@" + listener.Addr().String() + "/"
}

func (b *fakeBroker) send(channel uint16, m method, args ...byte) {
	frame := []byte{1}
	frame = binary.BigEndian.AppendUint16(frame, channel)
	frame = binary.BigEndian.AppendUint32(frame, uint32(4+len(args)))
	frame = binary.BigEndian.AppendUint16(frame, m.class)
	frame = binary.BigEndian.AppendUint16(frame, m.id)
	frame = append(append(frame, args...), 0xCE)
	b.conn.Write(frame) //nolint:errcheck // the client may be gone
}

func short(s string) []byte { return append([]byte{byte(len(s))}, s...) }

func long(s string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...)
}

// serve answers until the script's end or the client's. Publishing is counted
// and not answered.
func (b *fakeBroker) serve() {
	if _, err := io.ReadFull(b.in, make([]byte, 8)); err != nil {
		return
	}
	b.send(0, methodStart, append(append([]byte{0, 9, 0, 0, 0, 0}, long("PLAIN")...), long("en_US")...)...)
	for {
		var head [7]byte
		if _, err := io.ReadFull(b.in, head[:]); err != nil {
			return
		}
		body := make([]byte, binary.BigEndian.Uint32(head[3:])+1)
		if _, err := io.ReadFull(b.in, body); err != nil {
			return
		}
		if head[0] != 1 { // content and heartbeats
			continue
		}
		channel := binary.BigEndian.Uint16(head[1:])
		m := method{binary.BigEndian.Uint16(body), binary.BigEndian.Uint16(body[2:])}
		if f := b.on[m]; f != nil {
			if !f(channel) {
				return
			}
			continue
		}
		b.answer(channel, m)
	}
}

func (b *fakeBroker) answer(channel uint16, m method) {
	switch m {
	case methodStartOk: // tune: 100 channels, frames of 128 KiB, heartbeat 10 s
		b.send(0, method{10, 30}, 0, 100, 0, 2, 0, 0, 0, 10)
	case method{10, 31}, methodPublish:
	case methodOpen:
		b.send(0, method{10, 41}, 0)
	case method{20, 10}: // channel.open
		b.send(channel, method{20, 11}, 0, 0, 0, 0)
	default: // x and x-ok are neighbours
		b.send(channel, method{m.class, m.id + 1})
	}
}

// sendReturn sends basic.return of the event, with an empty body.
func (b *fakeBroker) sendReturn(channel uint16, ev *schema.Event) {
	args := binary.BigEndian.AppendUint16(nil, 312)
	for _, s := range []string{"NO_ROUTE", "outbox", "key"} {
		args = append(args, short(s)...)
	}
	b.send(channel, method{60, 50}, args...)
	table := binary.BigEndian.AppendUint64(append(short("sequence"), 'l'), uint64(ev.Sequence))
	table = append(append(table, short("gtid")...), 'S')
	table = append(binary.BigEndian.AppendUint32(table, uint32(len(ev.GTID))), ev.GTID...)
	header := []byte{0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0x80} // the flags of headers and message_id
	header = append(binary.BigEndian.AppendUint32(header, uint32(len(table))), table...)
	header = append(header, short(ev.ID)...)
	frame := binary.BigEndian.AppendUint16([]byte{2}, channel)
	frame = binary.BigEndian.AppendUint32(frame, uint32(len(header)))
	b.conn.Write(append(append(frame, header...), 0xCE)) //nolint:errcheck // the client may be gone
}

func tagged(tag uint64, flags byte) []byte {
	return append(binary.BigEndian.AppendUint64(nil, tag), flags)
}

func events(n int) []*schema.Event {
	list := make([]*schema.Event, n)
	for i := range list {
		list[i] = fullEvent()
		list[i].ID = string(rune('a' + i))
	}
	return list
}

func mustDial(t *testing.T, url string) *Publisher {
	t.Helper()
	p, err := Dial(t.Context(), Config{URL: url, Exchange: "outbox"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// receive waits for n receipts.
func receive(t *testing.T, p *Publisher, n int) (list []Receipt) {
	t.Helper()
	for len(list) < n {
		select {
		case some, ok := <-p.Receipts():
			if !ok {
				t.Fatalf("receipts closed after %d: %v", len(list), p.Err())
			}
			list = append(list, some...)
		case <-time.After(10 * time.Second):
			t.Fatalf("%d receipts after 10 s, want %d", len(list), n)
		}
	}
	return list
}

// A nack that comes out of order, and then an acknowledgement of all up to a
// later message: the nacked one stays refused.
func TestNackIsNotOverwritten(t *testing.T) {
	url := startBroker(t, func(b *fakeBroker) {
		count := 0
		b.on[methodPublish] = func(channel uint16) bool {
			if count++; count == 5 {
				b.send(channel, methodNack, tagged(3, 0)...)
				b.send(channel, methodAck, tagged(5, 1)...) // multiple
			}
			return true
		}
		b.serve()
	})
	p := mustDial(t, url)
	for _, ev := range events(5) {
		p.Publish(ev)
	}
	for _, r := range receive(t, p, 5) {
		if refused := errors.Is(r.Err, ErrNacked); refused != (r.Event.ID == "c") {
			t.Errorf("%s: got %v", r.Event.ID, r.Err)
		}
	}
}

// The connection is cut with five events in flight, of which the broker has
// confirmed the first two, has returned the third, and has acknowledged the
// fifth out of order.
func TestConnectionLost(t *testing.T) {
	url := startBroker(t, func(b *fakeBroker) {
		count := 0
		b.on[methodPublish] = func(channel uint16) bool {
			if count++; count < 5 {
				return true
			}
			b.send(channel, methodAck, tagged(2, 1)...)
			b.sendReturn(channel, events(3)[2])
			b.send(channel, methodAck, tagged(3, 0)...)
			b.send(channel, methodAck, tagged(5, 0)...)
			return false
		}
		b.serve()
	})
	p := mustDial(t, url)
	for _, ev := range events(5) {
		p.Publish(ev)
	}
	var got []string
	for list := range p.Receipts() {
		for _, r := range list {
			var ret *ReturnError
			switch {
			case r.Err == nil:
				got = append(got, r.Event.ID)
			case errors.As(r.Err, &ret):
				got = append(got, r.Event.ID+" returned")
			default:
				t.Error(r.Err)
			}
		}
	}
	if diff := cmp.Diff([]string{"a", "b", "c returned", "e"}, got); diff != "" {
		t.Errorf("receipts (-want +got):\n%s", diff)
	}
	if err := p.Err(); err == nil || errors.Is(err, ErrClosed) || errors.Is(err, ErrAuth) {
		t.Errorf("Err: got %v", err)
	}
}

func TestBlocked(t *testing.T) {
	published := make(chan struct{}, 8)
	wire := make(chan *fakeBroker, 1)
	url := startBroker(t, func(b *fakeBroker) {
		tag := uint64(0)
		b.on[methodPublish] = func(channel uint16) bool {
			published <- struct{}{}
			tag++
			b.send(channel, methodAck, tagged(tag, 0)...)
			return true
		}
		wire <- b
		b.serve()
	})
	p := mustDial(t, url)
	b := <-wire
	b.send(0, methodBlocked, short("low on memory")...)
	eventually(t, "blocked", func() bool { _, blocked := p.Blocked(); return blocked })
	if reason, _ := p.Blocked(); reason != "low on memory" {
		t.Errorf("reason: got %q", reason)
	}
	p.Publish(events(1)[0])
	select {
	case <-published:
		t.Fatal("published while blocked")
	case <-time.After(100 * time.Millisecond):
	}
	b.send(0, methodUnblocked)
	if r := receive(t, p, 1)[0]; r.Err != nil {
		t.Error(r.Err)
	}
	b.send(0, methodBlocked, short("low on disk")...)
	eventually(t, "blocked again", func() bool { _, blocked := p.Blocked(); return blocked })
	p.Publish(events(1)[0])
	start := time.Now()
	p.Close()
	if took := time.Since(start); took > time.Second {
		t.Errorf("Close took %v while blocked", took)
	}
	if _, ok := <-p.Receipts(); ok {
		t.Error("receipt of an event that was never sent")
	}
	if err := p.Err(); !errors.Is(err, ErrClosed) {
		t.Errorf("Err: got %v, want ErrClosed", err)
	}
}

// A broker that neither reads nor answers, with a write that hangs.
func TestCloseWhileWriteHangs(t *testing.T) {
	before := runtime.NumGoroutine()
	reached, release := make(chan struct{}), make(chan struct{})
	url := startBroker(t, func(b *fakeBroker) {
		b.on[methodPublish] = func(uint16) bool { close(reached); <-release; return false }
		b.serve()
	})
	p, err := Dial(t.Context(), Config{URL: url, Exchange: "outbox"})
	if err != nil {
		t.Fatal(err)
	}
	for _, ev := range events(8) {
		ev.Payload = make([]byte, 8<<20)
		p.Publish(ev)
	}
	<-reached
	eventually(t, "write hangs", func() bool {
		if p.link.tap.writing.TryLock() {
			p.link.tap.writing.Unlock()
			return false
		}
		return true
	})
	start := time.Now()
	p.Close()
	if took := time.Since(start); took > 2*time.Second {
		t.Errorf("Close took %v", took)
	}
	for r := range p.Receipts() {
		t.Errorf("false receipt: %v", r)
	}
	close(release)
	eventually(t, "goroutines are gone", func() bool { return runtime.NumGoroutine() <= before+1 }) // the fake broker's listener
}

// A broker that does not read, as under an alarm, keeps the connection for as
// long as it sends heartbeats; once it is silent the connection is given up,
// although a write hangs.
func TestSilenceWhileWriteHangs(t *testing.T) {
	silent := make(chan struct{})
	release := make(chan struct{})
	url := startBroker(t, func(b *fakeBroker) {
		b.on[methodPublish] = func(uint16) bool {
			for range 15 { // 3 s, where 1.5 s of silence are too long
				b.conn.Write([]byte{8, 0, 0, 0, 0, 0, 0, 0xCE}) //nolint:errcheck // seen below
				time.Sleep(200 * time.Millisecond)
			}
			close(silent)
			<-release
			return false
		}
		b.serve()
	})
	defer close(release)
	p := mustDial(t, url+"?heartbeat=1")
	for _, ev := range events(4) {
		ev.Payload = make([]byte, 8<<20)
		p.Publish(ev)
	}
	select {
	case <-p.Receipts():
		t.Fatalf("lost in spite of heartbeats: %v", p.Err())
	case <-silent:
	}
	select {
	case _, ok := <-p.Receipts():
		if ok || p.Err() == nil {
			t.Errorf("got a receipt, or no error: %v", p.Err())
		}
	case <-time.After(10 * time.Second):
		t.Error("still not lost after 10 s of silence")
	}
}

func TestHandshakeFailures(t *testing.T) {
	closing := func(code uint16, text string) []byte {
		return append(append(binary.BigEndian.AppendUint16(nil, code), short(text)...), 0, 0, 0, 0)
	}
	tests := map[string]struct {
		script func(b *fakeBroker)
		want   error // nil: transient
		text   string
	}{
		"cut before login": {func(b *fakeBroker) { b.on[methodStartOk] = func(uint16) bool { return false } }, nil, "lost while logging in"},
		"cut before vhost": {func(b *fakeBroker) { b.on[methodOpen] = func(uint16) bool { return false } }, nil, "lost while logging in"},
		"refused": {func(b *fakeBroker) {
			b.on[methodStartOk] = func(uint16) bool {
				b.send(0, methodConnClose, closing(403, "ACCESS_REFUSED")...)
				return true
			}
		}, ErrAuth, "--amqp-password-file"},
		"plugin is off": {func(b *fakeBroker) {
			declared := 0
			b.on[methodDeclare] = func(channel uint16) bool {
				if declared++; declared == 1 { // passive
					b.send(channel, method{40, 11})
				} else {
					b.send(0, methodConnClose, closing(503, "COMMAND_INVALID - unknown exchange type 'x-consistent-hash'")...)
				}
				return true
			}
		}, ErrExchange, "rabbitmq-plugins enable rabbitmq_consistent_hash_exchange"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			url := startBroker(t, func(b *fakeBroker) { tt.script(b); b.serve() })
			_, err := Dial(t.Context(), Config{URL: url, Exchange: "outbox"})
			if err == nil || !strings.Contains(err.Error(), tt.text) {
				t.Fatalf("got %v, want %q in it", err, tt.text)
			}
			for _, sentinel := range []error{ErrAuth, ErrExchange, ErrQueue, ErrURL, ErrTLS} {
				if got, want := errors.Is(err, sentinel), sentinel == tt.want; got != want {
					t.Errorf("%v: is %v: got %v, want %v", err, sentinel, got, want)
				}
			}
		})
	}
}

func TestDialEndsWithContext(t *testing.T) {
	url := startBroker(t, func(b *fakeBroker) { io.Copy(io.Discard, b.conn) }) //nolint:errcheck // silent
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	_, err := Dial(ctx, Config{URL: url, Exchange: "outbox"})
	if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 2*time.Second {
		t.Errorf("got %v after %v", err, time.Since(start))
	}
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("after 10 s still not: %s", what)
		}
	}
}

// A broker that lets a connection have three channels: one is the library's.
func TestFewChannels(t *testing.T) {
	opened := make(chan uint16, 16)
	url := startBroker(t, func(b *fakeBroker) {
		b.on[methodStartOk] = func(uint16) bool {
			b.send(0, method{10, 30}, 0, 3, 0, 2, 0, 0, 0, 10)
			return true
		}
		b.on[method{85, 10}] = func(channel uint16) bool {
			opened <- channel
			b.send(channel, method{85, 11})
			return true
		}
		tag := uint64(0)
		b.on[methodPublish] = func(channel uint16) bool {
			tag++
			b.send(channel, methodAck, tagged(tag, 0)...)
			return true
		}
		b.serve()
	})
	p, err := Dial(t.Context(), Config{URL: url, Exchange: "outbox", Channels: 8})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if got := []uint16{<-opened, <-opened}; !cmp.Equal(got, []uint16{3, 2}) || len(opened) > 0 {
		t.Errorf("opened channels %d and %d more, want 3 and 2", got, len(opened))
	}
	p.Publish(events(2)...)
	for _, r := range receive(t, p, 2) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	}
}
