package exchange

import (
	"bufio"
	"io"
	"net"
	"sync"
	"sync/atomic"
)

// tap is the connection as the client library has it. The channels on which
// events are published are not the library's, whose way costs a dozen
// allocations and a system call for each message: their frames are taken out of
// what is read, and written between its own. The library does everything
// else on the connection: login, TLS, heartbeats, topology, blocking, closing.
//
// The library writes each of its frames with one call of Write, as long as
// it publishes nothing itself.
type tap struct {
	net.Conn // TLS, where there is any
	in       *bufio.Reader
	left     int  // bytes of a frame that are still to be passed to the library
	foreign  bool // what comes is no AMQP: all of it is passed
	own      atomic.Pointer[ownChannels]
	writing  sync.Mutex
}

// ownChannels are those from a number on. Their frames are handed over by the
// goroutine that reads.
type ownChannels struct {
	from  uint16
	frame func(typ byte, channel uint16, payload []byte) error // valid during the call
	idle  func()                                               // nothing more to read is at hand
}

const (
	tapRead   = 64 << 10 // bytes that are read from the connection at a time
	longFrame = 16 << 20 // more than a frame of an own channel has, but for a body
)

func newTap(conn net.Conn) *tap {
	t := &tap{Conn: conn}
	t.in = bufio.NewReaderSize(reading{t}, tapRead)
	return t
}

// reading is the connection's reading side.
type reading struct{ *tap }

func (r reading) Read(b []byte) (int, error) {
	if own := r.own.Load(); own != nil {
		own.idle()
	}
	return r.Conn.Read(b)
}

// Read reads what is the library's.
func (t *tap) Read(b []byte) (int, error) {
	for t.left == 0 && !t.foreign {
		if err := t.next(); err != nil {
			return 0, err
		}
	}
	if t.foreign {
		return t.in.Read(b)
	}
	n, err := t.in.Read(b[:min(len(b), t.left)])
	t.left -= n
	return n, err
}

// next looks at the next frame, and takes it where it is of an own channel.
func (t *tap) next() error {
	head, err := t.in.Peek(frameHead)
	if err != nil {
		if t.left = len(head); t.left > 0 {
			return nil // the library gets what there is, and then the error
		}
		return err
	}
	typ, channel, size := head[0], be.Uint16(head[1:]), int(be.Uint32(head[3:]))
	own := t.own.Load()
	switch {
	case typ != frameMethod && typ != frameHeader && typ != frameBody && typ != frameBeat:
		t.foreign = true
		return nil
	case own == nil || channel < own.from:
		t.left = frameHead + size + 1
		return nil
	case typ == frameBody: // of a message that came back
		_, err = t.in.Discard(frameHead + size + 1)
		return err
	case size > longFrame:
		return errFrame("a frame of %d bytes", size)
	}
	return t.take(own, typ, channel, size)
}

func (t *tap) take(own *ownChannels, typ byte, channel uint16, size int) error {
	whole := frameHead + size + 1
	frame, err := t.in.Peek(min(whole, t.in.Size()))
	if err != nil {
		return err
	}
	if whole > len(frame) {
		frame = make([]byte, whole)
		if _, err := io.ReadFull(t.in, frame); err != nil {
			return err
		}
		whole = 0
	}
	if frame[len(frame)-1] != frameEnd {
		return errFrame("a frame without its end")
	}
	if err := own.frame(typ, channel, frame[frameHead:len(frame)-1]); err != nil {
		return err
	}
	_, err = t.in.Discard(whole)
	return err
}

// Write writes whole frames.
func (t *tap) Write(b []byte) (int, error) {
	t.writing.Lock()
	defer t.writing.Unlock()
	return t.Conn.Write(b)
}
