package binlog

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/google/uuid"
)

// dump is a replica's connection, over which the server sends its log. The
// library connects; what comes is read here, since the library reads ahead and
// holds every event whole, in a buffer that doubles.
type dump struct {
	server  *Server
	conn    net.Conn
	id      uint32 // of the connection, on the server
	packets packets
	// keep tells by its first bytes where an event that is larger than
	// heldEvent is put.
	keep func(head []byte) keep

	buffer      []byte    // an event that comes in more than one read
	spool       *os.File  // its file; nil: it has none
	due         time.Time // when waiting for the next event ends with errDue; zero: never
	interrupted atomic.Bool
}

// errDue: what was read is to be handed out before the next event is waited for.
var errDue = errors.New("binlog: nothing came for a moment")

// request makes a server send its log.
type request struct {
	id      uint32   // of the replica that asks
	before  []string // statements that are to be executed first
	command []byte
}

// openDump connects as a replica that is sent signs of life at every beat, and
// asks the server to send its log.
func (s *Server) openDump(ctx context.Context, beat time.Duration, ask request) (*dump, error) {
	stop := func() bool { return true }
	defer func() { stop() }()
	dial := func(dialCtx context.Context, _, _ string) (net.Conn, error) {
		conn, err := s.dial(dialCtx)
		if err == nil {
			stop = context.AfterFunc(ctx, func() { conn.Close() })
		}
		return conn, err
	}
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := client.ConnectWithDialer(dialCtx, s.dsn.Net, s.dsn.Addr, s.dsn.User, s.dsn.Passwd, "", dial, func(c *client.Conn) error {
		c.SetTLSConfig(s.replicaTLS())
		c.SetAttributes(map[string]string{"_client_role": "binary_log_listener"})
		c.ReadTimeout = readTimeout
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := s.beginDump(conn, beat, ask); err != nil {
		conn.Close()
		return nil, err
	}
	d := &dump{server: s, conn: conn.Conn.Conn, id: conn.GetConnectionID(), buffer: make([]byte, 0, headOfLarge)}
	d.packets = newPackets(d)
	d.packets.number = conn.Sequence
	return d, nil
}

// beginDump says who the replica is and what it understands, as a MySQL
// replica does (MySQL's rpl_replica.cc), and sends the command. Its UUID is a
// fresh one: a server ends the dump of a replica whose UUID comes again.
// NONE is how a client that knows checksums wants the events in front of the
// first format description; the others come as they stand in the log. When the
// address has moved meanwhile, the position was not checked against the server
// that would send.
func (s *Server) beginDump(conn *client.Conn, beat time.Duration, ask request) error {
	if s.identity != "" {
		result, err := conn.Execute(s.dialect.identify())
		if err != nil {
			return err
		}
		if is, err := result.GetString(0, 0); err != nil || is != s.identity {
			return fmt.Errorf("the address led to server %s and now leads to %s", s.identity, is)
		}
	}
	id := uuid.NewString()
	_, err := conn.Execute(fmt.Sprintf("SET @master_binlog_checksum = 'NONE', @source_binlog_checksum = 'NONE', "+
		"@master_heartbeat_period = %d, @source_heartbeat_period = %d, @slave_uuid = '%s', @replica_uuid = '%s'", beat, beat, id, id))
	if err != nil {
		return err
	}
	for _, statement := range ask.before {
		if _, err := conn.Execute(statement); err != nil {
			return err
		}
	}
	if err := send(conn, registerCommand(ask.id)); err != nil {
		return err
	}
	if _, err := conn.ReadOKPacket(); err != nil {
		return err
	}
	return send(conn, ask.command)
}

// send sends a command, which the library wants behind room for a header.
func send(conn *client.Conn, command []byte) error {
	conn.ResetSequence()
	return conn.WritePacket(append(make([]byte, 4), command...))
}

// registerCommand makes SHOW REPLICAS list the relay by its host.
func registerCommand(serverID uint32) []byte {
	host, _ := os.Hostname()
	host = host[:min(len(host), 255)]
	data := le.AppendUint32([]byte{mysql.COM_REGISTER_SLAVE}, serverID)
	data = append(append(data, byte(len(host))), host...)
	data = append(data, 0, 0)                // user and password, which it would list
	return append(data, make([]byte, 10)...) // port, rank, source's id
}

// dumpFile is the command for the log from the beginning of a file on.
func dumpFile(serverID uint32, file string) []byte {
	data := le.AppendUint32([]byte{mysql.COM_BINLOG_DUMP}, 4) // offset
	data = le.AppendUint16(data, 0)
	data = le.AppendUint32(data, serverID)
	return append(data, file...)
}

// Read reads from the connection, within the time in which the server gives a
// sign of life, or until it is due.
func (d *dump) Read(b []byte) (int, error) {
	limit := d.due
	if limit.IsZero() {
		limit = time.Now().Add(readTimeout)
	}
	_ = d.conn.SetReadDeadline(limit) // a connection that is closed says so when it is read
	if d.interrupted.Load() {         // if it is later, its deadline comes behind this one
		return 0, os.ErrDeadlineExceeded
	}
	n, err := d.conn.Read(b)
	if n == 0 && !d.due.IsZero() && errors.Is(err, os.ErrDeadlineExceeded) && !d.interrupted.Load() {
		return 0, errDue
	}
	return n, err
}

// interrupt makes the reading end; any goroutine may call it.
func (d *dump) interrupt() {
	d.interrupted.Store(true)
	_ = d.conn.SetReadDeadline(time.Unix(1, 0))
}

// ready tells whether the next event is there, without waiting for it.
func (d *dump) ready() bool { return d.packets.ready() }

// event waits for the next event, which is valid until the next call; up to due,
// unless it is a large one that has begun to come.
func (d *dump) event() (rawEvent, error) {
	d.dropSpool()
	packet, err := d.packets.whole()
	if err != nil {
		return rawEvent{}, err
	}
	if n := len(packet); n > headerSize && packet[0] == mysql.OK_HEADER && int(le.Uint32(packet[1+9:])) == n-1 {
		d.packets.take(packet)
		return rawEvent{bytes: packet[1:]}, nil
	}
	d.due = time.Time{}
	return d.eventInReads()
}

// eventInReads reads an event that is larger than the buffer, and all that is no
// event as it should be.
func (d *dump) eventInReads() (rawEvent, error) {
	if err := d.packets.next(); err != nil {
		return rawEvent{}, err
	}
	if err := d.begin(); err != nil {
		return rawEvent{}, err
	}
	raw, err := d.read()
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return rawEvent{}, d.explain(err)
	}
	end, linkErr := d.packets.ended()
	switch {
	case linkErr != nil:
		return rawEvent{}, linkErr
	case err == nil && end:
		return raw, nil
	case err == nil || end:
		return rawEvent{}, fmt.Errorf("%w: an event is not as long as it says; it begins with %x", ErrDamaged, d.buffer[:min(len(d.buffer), headerSize)])
	}
	return rawEvent{}, err
}

// explain tells failures of the spool's file from those of the connection.
func (d *dump) explain(err error) error {
	var disk *fs.PathError
	if errors.As(err, &disk) {
		return explainSpool(d.server.cfg.Spool, err)
	}
	return err
}

// begin reads a packet's first byte, and all of one that is no event.
func (d *dump) begin() error {
	var err error
	if d.buffer, err = fill(d.buffer[:0], &d.packets, 1); err != nil && err != io.EOF {
		return err
	}
	if len(d.buffer) == 1 && d.buffer[0] == mysql.OK_HEADER {
		return nil
	}
	const most = 4096 // more than the longest message has
	text, err := io.ReadAll(io.LimitReader(&d.packets, most))
	switch {
	case err != nil:
		return err
	case len(d.buffer) == 0:
		return errors.New("an empty packet")
	case d.buffer[0] == mysql.EOF_HEADER:
		return errors.New("the server has ended its log's stream")
	case d.buffer[0] == mysql.ERR_HEADER:
		return refusal(text)
	}
	return fmt.Errorf("a packet that begins with %#x", d.buffer[0])
}

// refusal reads an error packet behind its first byte: a number, with a # a
// state of five bytes, and a text.
func refusal(packet []byte) error {
	s := scanner{rest: packet}
	e := &mysql.MyError{Code: uint16(s.uint16())}
	if len(s.rest) > 0 && s.rest[0] == '#' {
		s.bytes(1)
		e.State = string(s.bytes(5))
	}
	if s.bad {
		return errors.New("an error packet that is cut short")
	}
	e.Message = string(s.rest)
	return e
}

// read reads the event that the packet holds.
func (d *dump) read() (raw rawEvent, err error) {
	if d.buffer, err = fill(d.buffer[:0], &d.packets, headerSize); err != nil {
		return rawEvent{}, err
	}
	size := int(le.Uint32(d.buffer[9:]))
	if size < headerSize || size > maxEvent {
		return rawEvent{}, fmt.Errorf("%w: %s of %d bytes", ErrDamaged, replication.EventType(d.buffer[4]), size)
	}
	if size <= heldEvent {
		d.buffer, err = fill(d.buffer, &d.packets, size)
		return rawEvent{bytes: d.buffer}, err
	}
	if d.buffer, err = fill(d.buffer, &d.packets, headOfLarge); err != nil {
		return rawEvent{}, err
	}
	to := io.Writer(io.Discard)
	switch d.keep(d.buffer) {
	case inMemory: // and not longer than it is of use
		whole, err := fill(append([]byte(nil), d.buffer...), &d.packets, size)
		return rawEvent{bytes: whole}, err
	case onDisk:
		if d.spool, err = createSpool(d.server.cfg.Spool); err != nil {
			return rawEvent{}, err
		}
		to = d.spool
	}
	return d.readLarge(size, to)
}

// readLarge passes an event on, of which the first bytes are in the buffer.
func (d *dump) readLarge(size int, to io.Writer) (rawEvent, error) {
	l := &large{size: int64(size)}
	if d.spool != nil {
		l.file = d.spool
	}
	sum := crc32.NewIEEE()
	both := io.MultiWriter(sum, to)
	if _, err := both.Write(d.buffer); err != nil {
		return rawEvent{}, err
	}
	if _, err := io.CopyN(both, &d.packets, int64(size-len(d.buffer)-checksumSize)); err != nil {
		return rawEvent{}, err
	}
	l.sum = sum.Sum32()
	if _, err := io.ReadFull(&d.packets, l.tail[:]); err != nil {
		return rawEvent{}, err
	}
	_, err := to.Write(l.tail[:])
	return rawEvent{bytes: d.buffer, large: l}, err
}

func (d *dump) dropSpool() {
	if d.spool != nil {
		d.spool.Close()
		d.spool = nil
	}
}

// close ends the connection. An idle server would notice only at its next
// sign of life, so it is told, if that can be done within partingTime.
func (d *dump) close() {
	ctx, cancel := context.WithTimeout(context.Background(), partingTime)
	defer cancel()
	d.server.kill(ctx, d.id)
	d.conn.Close()
	d.dropSpool()
}

// kill ends a connection on the server, if it is still there; and not the one
// that has its number on the server to which the address has moved.
func (s *Server) kill(ctx context.Context, id uint32) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return
	}
	defer conn.Close()
	if s.identity != "" {
		var is string
		if err := conn.QueryRowContext(ctx, s.dialect.identify()).Scan(&is); err != nil || is != s.identity {
			return
		}
	}
	_, _ = conn.ExecContext(ctx, "KILL ?", id) // it may have ended
}
