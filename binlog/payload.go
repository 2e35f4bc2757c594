package binlog

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/klauspost/compress/zstd"
)

// payload reads the events of a compressed transaction one by one (MySQL's
// Transaction_payload_event): never the whole of it, which may be larger than
// memory.
type payload struct {
	reader  io.Reader
	decoder *zstd.Decoder // nil: stored without compression
	buffer  []byte
}

// openPayload begins to read the compressed transaction that an event holds,
// which must stay valid until the last of its events is read.
func openPayload(body []byte, large *large) (*payload, error) {
	s := scanner{rest: body}
	compression := -1
	for !s.bad {
		field := s.packed()
		if field == replication.OTW_PAYLOAD_HEADER_END_MARK {
			break
		}
		value := scanner{rest: s.bytes(s.packed())}
		if field == replication.OTW_PAYLOAD_COMPRESSION_TYPE_FIELD {
			compression = value.packed()
		}
		s.bad = s.bad || value.bad
	}
	if s.bad {
		return nil, fmt.Errorf("%w: compressed transaction", ErrDamaged)
	}
	var data io.Reader = bytes.NewReader(s.rest)
	if large != nil {
		if large.file == nil {
			return nil, fmt.Errorf("%w: compressed transaction that was not kept", ErrDamaged)
		}
		begin := headerSize + int64(len(body)-len(s.rest))
		data = bufio.NewReaderSize(io.NewSectionReader(large.file, begin, large.end-begin), 64<<10)
	}
	buffer := make([]byte, 0, 8<<10) // a row event is no larger as a rule
	switch compression {
	case replication.ZSTD:
		decoder, err := zstd.NewReader(data, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, fmt.Errorf("binlog: compressed transaction: %w", err)
		}
		return &payload{reader: decoder, decoder: decoder, buffer: buffer}, nil
	case replication.NONE:
		return &payload{reader: data, buffer: buffer}, nil
	}
	return nil, fmt.Errorf("%w: a transaction is compressed by method %d, and the relay knows zstd: SET GLOBAL binlog_transaction_compression = OFF", ErrUnreadable, compression)
}

// next returns one event, valid until the next call; io.EOF after the last.
// Of a large one it holds what keep says.
func (p *payload) next(keep func(head []byte) keep) (raw rawEvent, err error) {
	if p.buffer, err = fill(p.buffer[:0], p.reader, headerSize); err != nil {
		if err == io.EOF {
			return rawEvent{}, io.EOF
		}
		return rawEvent{}, p.damaged("", err)
	}
	size := int(le.Uint32(p.buffer[9:]))
	if size < headerSize || size > maxEvent {
		return rawEvent{}, fmt.Errorf("%w: compressed transaction: event of %d bytes", ErrDamaged, size)
	}
	if size > heldEvent {
		return p.nextLarge(size, keep)
	}
	if p.buffer, err = fill(p.buffer, p.reader, size); err != nil {
		return rawEvent{}, p.damaged(fmt.Sprintf("event of %d bytes ends after %d: ", size, len(p.buffer)), err)
	}
	return rawEvent{bytes: p.buffer}, nil
}

func (p *payload) nextLarge(size int, keep func(head []byte) keep) (raw rawEvent, err error) {
	if p.buffer, err = fill(p.buffer, p.reader, headOfLarge); err != nil {
		return rawEvent{}, p.damaged("", err)
	}
	switch keep(p.buffer) {
	case nowhere:
		if _, err := io.CopyN(io.Discard, p.reader, int64(size-len(p.buffer))); err != nil {
			return rawEvent{}, p.damaged("", err)
		}
		return rawEvent{bytes: p.buffer, large: &large{size: int64(size)}}, nil
	case onDisk:
		return rawEvent{}, fmt.Errorf("%w: a compressed transaction in another", ErrDamaged)
	}
	whole, err := fill(bytes.Clone(p.buffer), p.reader, size) // and not longer than it is of use
	if err != nil {
		return rawEvent{}, p.damaged("", err)
	}
	return rawEvent{bytes: whole}, nil
}

// damaged explains why no more events come.
func (p *payload) damaged(what string, err error) error {
	var disk *fs.PathError
	if errors.As(err, &disk) { // of the file that holds it
		return fmt.Errorf("binlog: compressed transaction: %w", err)
	}
	return fmt.Errorf("%w: compressed transaction: %s%w", ErrDamaged, what, err)
}

func (p *payload) close() {
	if p.decoder != nil {
		p.decoder.Close()
	}
}
