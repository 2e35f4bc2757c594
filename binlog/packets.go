package binlog

import (
	"bufio"
	"fmt"
	"io"
)

// packets reads MySQL's packets. A packet comes in parts of up to 16 MiB, each
// behind a header of four bytes: its length and a number that counts parts. A
// part of exactly the largest length is followed by another, if need be an
// empty one.
type packets struct {
	from   *bufio.Reader
	number byte // of the next part
	left   int  // bytes of the part that are still to be read
	more   bool // another part follows
	lent   int  // bytes of the buffer that whole has lent out
}

const (
	maxPart     = 1<<24 - 1
	packetsRead = 128 << 10 // bytes that are read from the connection at a time, at most
)

func newPackets(from io.Reader) packets {
	return packets{from: bufio.NewReaderSize(from, packetsRead)}
}

// next goes to the next packet; the one before must have been read to its end.
func (p *packets) next() error {
	p.giveBack()
	head, err := p.from.Peek(4)
	if err != nil {
		return short(err)
	}
	if head[3] != p.number {
		return fmt.Errorf("packet %d came where %d was due", head[3], p.number)
	}
	p.number++
	p.left = length(head)
	p.more = p.left == maxPart
	_, err = p.from.Discard(4)
	return err
}

// ready tells whether the next packet is in the buffer as a whole, so that it
// can be had without reading.
func (p *packets) ready() bool {
	p.giveBack()
	if p.from.Buffered() < 4 {
		return false
	}
	head, _ := p.from.Peek(4)
	return p.from.Buffered() >= 4+length(head)
}

// whole is the next packet where it stands in the buffer, valid until the next
// call of any method; nil where it is larger than the buffer, or comes in parts.
// After an error nothing is lost of what has come.
func (p *packets) whole() ([]byte, error) {
	p.giveBack()
	head, err := p.from.Peek(4)
	if err != nil {
		return nil, short(err)
	}
	n := length(head)
	if n == maxPart || 4+n > p.from.Size() || head[3] != p.number {
		return nil, nil
	}
	packet, err := p.from.Peek(4 + n)
	if err != nil {
		return nil, short(err)
	}
	return packet[4:], nil
}

// take goes behind the packet that whole has returned, which stays valid.
func (p *packets) take(packet []byte) {
	p.number++
	p.lent = 4 + len(packet)
}

// giveBack lets go of what was lent out.
func (p *packets) giveBack() {
	if p.lent > 0 {
		_, _ = p.from.Discard(p.lent) // it is in the buffer
		p.lent = 0
	}
}

// length is that of a part, by its header.
func length(head []byte) int { return int(head[0]) | int(head[1])<<8 | int(head[2])<<16 }

// ended tells whether the packet has been read to its end.
func (p *packets) ended() (bool, error) {
	for p.left == 0 && p.more {
		if err := p.next(); err != nil {
			return false, err
		}
	}
	return p.left == 0, nil
}

// Read reads from the packet; io.EOF at its end.
func (p *packets) Read(b []byte) (int, error) {
	end, err := p.ended()
	if err != nil {
		return 0, err
	}
	if end {
		return 0, io.EOF
	}
	n, err := p.from.Read(b[:min(len(b), p.left)])
	p.left -= n
	return n, short(err)
}

// short makes the end of the input one that came too early: io.EOF is a
// packet's.
func short(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// fill reads from r until buffer has size bytes. It takes little more memory
// than has come, should the size be wrong.
func fill(buffer []byte, r io.Reader, size int) ([]byte, error) {
	for len(buffer) < size {
		have := len(buffer)
		if have == cap(buffer) {
			grown := make([]byte, have, min(max(2*have, 64<<10), size))
			copy(grown, buffer)
			buffer = grown
		}
		n, err := io.ReadFull(r, buffer[have:min(cap(buffer), size)])
		buffer = buffer[:have+n]
		if err != nil {
			return buffer, err
		}
	}
	return buffer, nil
}
