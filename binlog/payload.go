package binlog

import (
	"bytes"
	"fmt"
	"io"

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

// maxEvent bounds the size of one event: the largest max_allowed_packet, and
// what a row event adds to it.
const maxEvent = 1<<30 + 1<<20

func openPayload(body []byte) (*payload, error) {
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
	switch compression {
	case replication.ZSTD:
		decoder, err := zstd.NewReader(bytes.NewReader(s.rest), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, fmt.Errorf("binlog: compressed transaction: %w", err)
		}
		return &payload{reader: decoder, decoder: decoder}, nil
	case replication.NONE:
		return &payload{reader: bytes.NewReader(s.rest)}, nil
	}
	return nil, fmt.Errorf("%w: a transaction is compressed by method %d, and the relay knows zstd: SET GLOBAL binlog_transaction_compression = OFF", ErrUnreadable, compression)
}

// next returns one event, valid until the next call; io.EOF after the last.
func (p *payload) next() ([]byte, error) {
	p.buffer = append(p.buffer[:0], make([]byte, headerSize)...)
	if _, err := io.ReadFull(p.reader, p.buffer); err != nil {
		if err == io.EOF {
			return nil, io.EOF
		}
		return nil, fmt.Errorf("%w: compressed transaction: %w", ErrDamaged, err)
	}
	size := int64(le.Uint32(p.buffer[9:]))
	if size < headerSize || size > maxEvent {
		return nil, fmt.Errorf("%w: compressed transaction: event of %d bytes", ErrDamaged, size)
	}
	rest := bytes.NewBuffer(p.buffer)
	if n, err := io.CopyN(rest, p.reader, size-headerSize); err != nil {
		return nil, fmt.Errorf("%w: compressed transaction: event of %d bytes ends after %d: %w", ErrDamaged, size, n+headerSize, err)
	}
	p.buffer = rest.Bytes()
	return p.buffer, nil
}

func (p *payload) close() {
	if p.decoder != nil {
		p.decoder.Close()
	}
}
