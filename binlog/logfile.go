package binlog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/klauspost/compress/zstd"
)

// logReader reads the events of one log file on disk, which may be compressed
// with gzip or zstd as a whole.
type logReader struct {
	path   string
	offset int64 // in the file as the server wrote it, behind the last event
	limit  int64 // offset where it is to end; 0: at its end
	inUse  bool  // the server had not closed it: its last event may be half of one
	packed bool  // the file is compressed
	// keep tells by its first bytes where an event that is larger than heldEvent
	// is to be put. Defaults to memory.
	keep func(head []byte) keep

	file    *os.File
	info    fs.FileInfo
	content io.Reader
	release func()
	buffer  bytes.Buffer
}

const (
	logMagic       = "\xfebin"
	encryptedMagic = "\xfdbin"
	indexMagic     = "\xfe\xfe\x0c\x01"
	gzipMagic      = "\x1f\x8b"
	zstdMagic      = "\x28\xb5\x2f\xfd"
)

func openLog(path string) (*logReader, error) {
	r := &logReader{path: path, offset: int64(len(logMagic)), release: func() {}}
	info, err := os.Stat(path)
	if err == nil && !info.Mode().IsRegular() { // it is read twice
		err = errors.New("it is no regular file")
	}
	if err == nil {
		r.file, err = os.Open(path)
	}
	if err == nil {
		r.info, err = r.file.Stat()
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w; give the path of a file that mysqlbinlog --raw wrote, or of a copy of the server's", ErrFiles, path, err)
	}
	if err := r.open(); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// open reads up to the first event.
func (r *logReader) open() error {
	buffered := bufio.NewReaderSize(r.file, 64<<10)
	r.content = buffered
	head, _ := buffered.Peek(len(zstdMagic))
	switch {
	case bytes.HasPrefix(head, []byte(gzipMagic)):
		unpacked, err := gzip.NewReader(buffered)
		if err != nil {
			return r.unpackable(err)
		}
		r.content, r.packed = unpacked, true
	case bytes.HasPrefix(head, []byte(zstdMagic)):
		unpacked, err := zstd.NewReader(buffered, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		if err != nil {
			return r.unpackable(err)
		}
		r.content, r.packed, r.release = unpacked, true, unpacked.Close
	}
	magic := make([]byte, len(logMagic))
	n, err := io.ReadFull(r.content, magic)
	switch {
	case string(magic[:n]) == encryptedMagic:
		return r.encrypted("binlog_encryption", "mysqlbinlog")
	case err != nil && r.packed:
		return r.unpackable(err)
	case string(magic) == indexMagic:
		return fmt.Errorf("%w: %s is MariaDB's index of GTIDs in a binlog file; leave the .idx files out: --from-binlog %s", ErrFiles, r.path, strings.TrimRight(strings.TrimSuffix(r.path, ".idx"), "0123456789")+"*[0-9]")
	case err != nil || string(magic) != logMagic:
		return fmt.Errorf("%w: %s is no binlog file of MySQL or MariaDB: it begins with %q; such a file begins with %q, and one that another program than gzip or zstd has packed must be unpacked first", ErrFiles, r.path, magic[:n], logMagic)
	}
	return nil
}

// event returns the next event, valid until the next call; io.EOF at the end.
func (r *logReader) event() (raw rawEvent, err error) {
	if r.limit > 0 && r.offset >= r.limit {
		return rawEvent{}, io.EOF
	}
	if r.buffer.Reset(); r.buffer.Cap() > heldEvent {
		r.buffer = bytes.Buffer{}
	}
	if err := r.fill(headerSize); err != nil {
		if err == io.EOF && r.buffer.Len() == 0 && r.limit == 0 {
			return rawEvent{}, io.EOF
		}
		return rawEvent{}, r.cut(headerSize, err)
	}
	head := r.buffer.Bytes()
	size := int64(le.Uint32(head[9:]))
	if size < headerSize || size > maxEvent {
		if bytes.HasPrefix(head, []byte(logMagic)) && replication.EventType(head[len(logMagic)+4]) == replication.FORMAT_DESCRIPTION_EVENT {
			return rawEvent{}, fmt.Errorf("%w: %s holds another one, which begins at offset %d; give each as a file of its own", ErrFiles, r.path, r.offset)
		}
		return rawEvent{}, r.damaged(fmt.Errorf("an event of %d bytes", size))
	}
	if replication.EventType(head[4]) == replication.FORMAT_DESCRIPTION_EVENT {
		r.inUse = le.Uint16(head[17:])&replication.LOG_EVENT_BINLOG_IN_USE_F != 0
	}
	if raw, err = r.rest(size); err != nil {
		return rawEvent{}, r.cut(size, err)
	}
	r.offset += size
	return raw, nil
}

// rest reads the event whose header is in the buffer.
func (r *logReader) rest(size int64) (rawEvent, error) {
	where := inMemory
	if size > heldEvent && r.keep != nil {
		if err := r.fill(headOfLarge); err != nil {
			return rawEvent{}, err
		}
		where = r.keep(r.buffer.Bytes())
	}
	if where == inMemory || where == onDisk && r.packed {
		err := r.fill(size)
		return rawEvent{bytes: r.buffer.Bytes()}, err
	}
	l := &large{size: size}
	if where == onDisk {
		l.file = io.NewSectionReader(r.file, r.offset, size)
	}
	sum := crc32.NewIEEE()
	sum.Write(r.buffer.Bytes())
	if _, err := io.CopyN(sum, r.content, size-headOfLarge-checksumSize); err != nil {
		return rawEvent{}, err
	}
	l.sum = sum.Sum32()
	if _, err := io.ReadFull(r.content, l.tail[:]); err != nil {
		return rawEvent{}, io.EOF
	}
	return rawEvent{bytes: r.buffer.Bytes(), large: l}, nil
}

// fill reads until the buffer holds so many bytes. It grows only with what
// there is to read.
func (r *logReader) fill(size int64) error {
	_, err := io.CopyN(&r.buffer, r.content, size-int64(r.buffer.Len()))
	return err
}

// cut is the end inside of an event.
func (r *logReader) cut(size int64, err error) error {
	switch {
	case err != io.EOF && r.packed:
		return r.unpackable(err)
	case err != io.EOF:
		return r.damaged(err)
	}
	switch {
	case r.limit > 0:
		return r.damaged(fmt.Errorf("it was longer a moment ago, with whole transactions up to %d", r.limit))
	case r.inUse:
		return io.EOF
	}
	return r.damaged(fmt.Errorf("the file ends inside of an event of %d bytes", size))
}

// unpackable is the end inside of a packed file.
func (r *logReader) unpackable(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		err = errors.New("it ends too early")
	}
	return r.damaged(fmt.Errorf("the packed file cannot be unpacked: %w", err))
}

func (r *logReader) damaged(err error) error {
	return fmt.Errorf("%w: %s at offset %d: %w; copy it again", ErrDamaged, r.path, r.offset, err)
}

func (r *logReader) close() {
	r.release()
	if r.file != nil {
		r.file.Close()
	}
}

// logHead is what a log file's first events tell.
type logHead struct {
	flavor   Flavor
	previous *GTIDSet // what was committed before it
	reached  domains  // of MariaDB: the position that this is
}

// head reads the events with which every file begins.
func (r *logReader) head() (logHead, error) {
	first, err := r.event()
	if err == io.EOF {
		return logHead{}, r.damaged(errors.New("the file has no events"))
	}
	if err != nil {
		return logHead{}, err
	}
	checksum, err := r.format(first.bytes)
	if err != nil {
		return logHead{}, err
	}
	second, err := r.event()
	if err != nil && err != io.EOF {
		return logHead{}, err
	}
	var typ replication.EventType
	if err == nil {
		typ = replication.EventType(second.bytes[4])
	}
	if typ == replication.MARIADB_START_ENCRYPTION_EVENT {
		// What its server sends has this event as well, and is plain behind it.
		writer := bytes.Clone(second.bytes[5:9])
		if second, err = r.event(); err != nil && err != io.EOF {
			return logHead{}, err
		}
		if typ = 0; err == nil {
			typ = replication.EventType(second.bytes[4])
			if typ != replication.MARIADB_GTID_LIST_EVENT || !bytes.Equal(second.bytes[5:9], writer) {
				return logHead{}, r.encrypted("encrypt_binlog", "mariadb-binlog")
			}
		}
	}
	switch typ {
	case replication.PREVIOUS_GTIDS_EVENT, replication.MARIADB_GTID_LIST_EVENT:
	default:
		return logHead{}, fmt.Errorf("%w: %s does not begin with the GTIDs before it; the relay reads files of MySQL 5.7 and later that were written with gtid_mode=ON, and of MariaDB 10.6 and later", ErrFiles, r.path)
	}
	var h logHead
	_, body, err := splitEvent(second, checksum)
	if err == nil {
		h, err = readHead(typ, body)
	}
	if err != nil {
		return logHead{}, r.damaged(err)
	}
	return h, nil
}

// format looks at the format description event, and tells whether the events
// behind it end in a checksum.
func (r *logReader) format(raw []byte) (checksum bool, err error) {
	if typ := replication.EventType(raw[4]); typ != replication.FORMAT_DESCRIPTION_EVENT {
		return false, r.damaged(fmt.Errorf("the first event is %s, want a format description", typ))
	}
	s := scanner{rest: raw[headerSize:]}
	if format := s.uint16(); s.bad || format != 4 {
		return false, fmt.Errorf("%w: %s is of binlog format %d, and the relay reads 4, that of MySQL 5.0 and later", ErrFiles, r.path, format)
	}
	if checksum, err = hasChecksum(raw); err == nil {
		err = checkFormat(raw, checksum)
	}
	if err != nil {
		return false, r.damaged(err)
	}
	if le.Uint16(raw[17:])&replication.LOG_EVENT_RELAY_LOG_F != 0 {
		return false, fmt.Errorf("%w: %s is a relay log, in which a replica keeps what it was sent; give the binlog files of the server that sent it, or the replica's own, if it logs what it applies", ErrFiles, r.path)
	}
	return checksum, nil
}

// readHead reads what a file's second event says of the transactions before it.
func readHead(typ replication.EventType, body []byte) (h logHead, err error) {
	if typ == replication.PREVIOUS_GTIDS_EVENT {
		h.flavor = MySQL
		h.previous, err = parsePreviousGTIDs(body)
		return h, err
	}
	h = logHead{MariaDB, emptySet(), domains{}}
	list, err := listGTIDs(body)
	for _, g := range list {
		h.previous.reach(g)
		h.reached[g.Domain] = run{last: g.Number, server: g.ServerID}
	}
	return h, err
}

// encrypted refuses a file that only its server can read.
func (r *logReader) encrypted(setting, tool string) error {
	return fmt.Errorf("%w: %s is encrypted (%s=ON), and only its server can read it; fetch a plain copy with: %s --read-from-remote-server --raw %s", ErrFiles, r.path, setting, tool, filepath.Base(r.path))
}

// checkFormat checks a format description's own checksum, which was made
// before the server marked the file as in use. Without checksums it can be
// zero.
func checkFormat(raw []byte, checksum bool) error {
	end := len(raw) - checksumSize
	head := bytes.Clone(raw[:end])
	head[17] &^= byte(replication.LOG_EVENT_BINLOG_IN_USE_F)
	if sum := le.Uint32(raw[end:]); sum != crc32.ChecksumIEEE(head) && (checksum || sum != 0) {
		return errors.New("the format description has a wrong checksum")
	}
	return nil
}
