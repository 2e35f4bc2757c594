package main

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
)

// A stub is a broker that speaks just enough AMQP 0-9-1 for a publisher: it
// says yes to whatever is declared, keeps nothing, and confirms what is
// published at once, all that one read brought by one acknowledgement for each
// channel. See https://www.rabbitmq.com/amqp-0-9-1-reference.
type stub struct {
	conn net.Conn
	out  []byte // to be written

	published map[uint16]uint64 // by channel
	dirty     []uint16          // channels with something to confirm
}

const (
	stubFrame    = 131072 // bytes of a frame at most
	stubChannels = 2047
	stubBuffer   = 1 << 20
)

// Types of frames, and its last byte.
const (
	frameMethod    = 1
	frameHeartbeat = 8
	frameEnd       = 0xCE
)

// A method is a class and a method of it, as class<<16 | method.
const (
	methodStart   = 10<<16 | 10
	methodStartOk = 10<<16 | 11
	methodTune    = 10<<16 | 30
	methodTuneOk  = 10<<16 | 31
	methodOpen    = 10<<16 | 40
	methodOpenOk  = 10<<16 | 41
	methodClose   = 10<<16 | 50
	methodCloseOk = 10<<16 | 51

	methodChannelOpen    = 20<<16 | 10
	methodChannelOpenOk  = 20<<16 | 11
	methodChannelClose   = 20<<16 | 40
	methodChannelCloseOk = 20<<16 | 41

	methodExchangeDeclare   = 40<<16 | 10
	methodExchangeDeclareOk = 40<<16 | 11
	methodQueueDeclare      = 50<<16 | 10
	methodQueueDeclareOk    = 50<<16 | 11
	methodQueueBind         = 50<<16 | 20
	methodQueueBindOk       = 50<<16 | 21

	methodPublish       = 60<<16 | 40
	methodAck           = 60<<16 | 80
	methodConfirmSelect = 85<<16 | 10
	methodConfirmOk     = 85<<16 | 11
)

// serveStub is a role of this binary: it writes the stub's URL to standard
// output, and serves until it is killed.
func serveStub([]string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("amqp://guest:guest@%s/\n", listener.Addr())
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer conn.Close()
			s := &stub{conn: conn, published: make(map[uint16]uint64)}
			if err := s.serve(); err != nil && !errors.Is(err, io.EOF) {
				fmt.Fprintln(os.Stderr, "bench stub:", err)
			}
		}()
	}
}

// serve answers one connection until its end.
func (s *stub) serve() error {
	var greeting [8]byte
	if _, err := io.ReadFull(s.conn, greeting[:]); err != nil {
		return err
	}
	if !bytes.Equal(greeting[:], []byte("AMQP\x00\x00\x09\x01")) {
		return fmt.Errorf("a client begins with %q", greeting)
	}
	// Version 0.9, server properties, mechanisms, locales.
	start := append([]byte{0, 9}, fieldTable("S", "product", "stub", "S", "version", "0.0.0", "F", "capabilities",
		string(fieldTable("t", "publisher_confirms", "\x01", "t", "consumer_cancel_notify", "\x01", "t", "connection.blocked", "\x01", "t", "basic.nack", "\x01")))...)
	s.send(0, methodStart, append(append(start, long("PLAIN")...), long("en_US")...)...)
	buffer := make([]byte, stubBuffer)
	held := 0
	for {
		if err := s.flush(); err != nil {
			return err
		}
		n, err := s.conn.Read(buffer[held:])
		if err != nil {
			return err
		}
		held += n
		used, err := s.take(buffer[:held])
		if err != nil {
			return errors.Join(err, s.flush())
		}
		held = copy(buffer, buffer[used:held])
	}
}

// flush confirms what was published, and writes all that is to be written.
func (s *stub) flush() error {
	for _, channel := range s.dirty {
		s.send(channel, methodAck, append(binary.BigEndian.AppendUint64(nil, s.published[channel]), 1)...) // multiple
	}
	s.dirty = s.dirty[:0]
	if len(s.out) == 0 {
		return nil
	}
	_, err := s.conn.Write(s.out)
	s.out = s.out[:0]
	return err
}

// take answers the whole frames that are held, and returns their bytes. Of a
// message's content nothing is looked at: its frames are passed over.
func (s *stub) take(held []byte) (used int, err error) {
	for len(held)-used >= 8 {
		frame := held[used:]
		size := int(binary.BigEndian.Uint32(frame[3:]))
		if size > stubFrame {
			return used, fmt.Errorf("a frame has %d bytes, more than %d", size, stubFrame)
		}
		if len(frame) < size+8 {
			break
		}
		if frame[size+7] != frameEnd {
			return used, fmt.Errorf("a frame of %d bytes ends with 0x%x", size, frame[size+7])
		}
		used += size + 8
		switch channel := binary.BigEndian.Uint16(frame[1:]); frame[0] {
		case frameMethod:
			if size < 4 {
				return used, fmt.Errorf("a method has %d bytes", size)
			}
			if err := s.answer(channel, binary.BigEndian.Uint32(frame[7:]), frame[11:size+7]); err != nil {
				return used, err
			}
		case frameHeartbeat: // the client sends one as often as it wants one
			s.out = append(s.out, frameHeartbeat, 0, 0, 0, 0, 0, 0, frameEnd)
		}
	}
	return used, nil
}

// answer does what a method asks for.
func (s *stub) answer(channel uint16, method uint32, arguments []byte) error {
	switch method {
	case methodPublish:
		if s.published[channel]++; len(s.dirty) == 0 || s.dirty[len(s.dirty)-1] != channel {
			s.touch(channel)
		}
	case methodStartOk:
		tune := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint16(nil, stubChannels), stubFrame)
		s.send(0, methodTune, binary.BigEndian.AppendUint16(tune, 60)...)
	case methodTuneOk:
	case methodOpen:
		s.send(0, methodOpenOk, 0)
	case methodClose:
		s.send(0, methodCloseOk)
		return io.EOF
	case methodChannelOpen:
		if channel == 0 || channel > stubChannels {
			return fmt.Errorf("channel %d, and 1 to %d are possible", channel, stubChannels)
		}
		s.published[channel] = 0
		s.send(channel, methodChannelOpenOk, 0, 0, 0, 0)
	case methodChannelClose:
		delete(s.published, channel)
		s.send(channel, methodChannelCloseOk)
	case methodExchangeDeclare:
		s.send(channel, methodExchangeDeclareOk)
	case methodQueueDeclare: // its name, messages, consumers
		if len(arguments) < 3 || len(arguments) < 3+int(arguments[2]) {
			return errors.New("queue.declare without a name")
		}
		s.send(channel, methodQueueDeclareOk, append(bytes.Clone(arguments[2:3+int(arguments[2])]), 0, 0, 0, 0, 0, 0, 0, 0)...)
	case methodQueueBind:
		s.send(channel, methodQueueBindOk)
	case methodConfirmSelect:
		s.send(channel, methodConfirmOk)
	case methodChannelCloseOk, methodCloseOk:
	default:
		return fmt.Errorf("method %d.%d is not known here", method>>16, method&0xffff)
	}
	return nil
}

// touch notes that a channel has something to confirm.
func (s *stub) touch(channel uint16) {
	for _, c := range s.dirty {
		if c == channel {
			return
		}
	}
	s.dirty = append(s.dirty, channel)
}

// send puts a method into what is to be written.
func (s *stub) send(channel uint16, method uint32, arguments ...byte) {
	s.out = append(s.out, frameMethod)
	s.out = binary.BigEndian.AppendUint16(s.out, channel)
	s.out = binary.BigEndian.AppendUint32(s.out, uint32(4+len(arguments)))
	s.out = binary.BigEndian.AppendUint32(s.out, method)
	s.out = append(append(s.out, arguments...), frameEnd)
}

func long(s string) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(s))), s...)
}

// fieldTable is a field table of triples: type, name, value. A value of type S
// is text, of F a table, of t a byte.
func fieldTable(triples ...string) []byte {
	var fields []byte
	for i := 0; i+2 < len(triples); i += 3 {
		kind, name, value := triples[i], triples[i+1], triples[i+2]
		fields = append(append(append(fields, byte(len(name))), name...), kind...)
		if kind == "S" {
			fields = append(fields, long(value)...)
		} else {
			fields = append(fields, value...)
		}
	}
	return long(string(fields))
}
