package binlog

import (
	"bytes"
	"context"
	"errors"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	driver "github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"
)

// wire is what a server sends: packets, in parts.
type wire struct {
	data   []byte
	number byte
}

func newWire() *wire { return &wire{number: 1} }

func (w *wire) packet(body ...byte) *wire {
	for {
		part := body[:min(len(body), maxPart)]
		body = body[len(part):]
		w.data = append(le.AppendUint32(w.data, uint32(len(part)))[:len(w.data)+3], w.number)
		w.data = append(w.data, part...)
		w.number++
		if len(part) < maxPart {
			return w
		}
	}
}

func (w *wire) events(events ...[]byte) *wire {
	for _, raw := range events {
		w.packet(append([]byte{mysql.OK_HEADER}, raw...)...)
	}
	return w
}

// replay is a connection over which nothing comes but these bytes.
type replay struct {
	net.Conn
	sent *bytes.Reader
}

func (r replay) Read(b []byte) (int, error)    { return r.sent.Read(b) }
func (replay) SetReadDeadline(time.Time) error { return nil }

// fakeStream is a stream of what a server sends before it hangs up.
func fakeStream(tb testing.TB, w *wire) *Stream {
	tb.Helper()
	server := &Server{cfg: Config{Spool: tb.TempDir()}, dsn: &driver.Config{Addr: "fake"}, dialect: mySQL{}}
	d := &dump{server: server, conn: replay{sent: bytes.NewReader(w.data)}, buffer: make([]byte, 0, headOfLarge)}
	d.packets = newPackets(d)
	d.packets.number = 1
	a := newAssembler(outboxTable(tb))
	d.keep = a.keep
	tb.Cleanup(func() {
		d.dropSpool()
		a.close()
	})
	return &Stream{dump: d, assembler: a, server: server}
}

// eventOf is an event of so many bytes, most of them random.
func eventOf(typ replication.EventType, size int) []byte {
	body := make([]byte, size-headerSize)
	rand.NewChaCha8([32]byte{}).Read(body)
	return new(fakeLog).event(typ, body).last()
}

// TestDumpPackets: events around the lengths at which packets come in parts,
// and an event is no longer held in memory, each between two small ones. Those
// that are not to be held are in a file, or nowhere, and the directory stays
// empty. It fails when a part is taken for a packet, or a packet of exactly one
// part's length for one that has ended.
func TestDumpPackets(t *testing.T) {
	t.Parallel()
	const packet = maxPart - 1 // bytes of an event that fills one part
	small := eventOf(replication.XID_EVENT, 27)
	for _, size := range []int{headerSize, packetsRead - 6, packetsRead - 5, packetsRead - 4, packetsRead, heldEvent, heldEvent + 1, packet - 1, packet, packet + 1, packet + 2, 2*packet + 1, 2*packet + 2} {
		for typ, kept := range map[replication.EventType]keep{
			replication.QUERY_EVENT:               inMemory,
			replication.TRANSACTION_PAYLOAD_EVENT: onDisk,
			replication.WRITE_ROWS_EVENTv2:        nowhere,
		} {
			event := eventOf(typ, size)
			st := fakeStream(t, newWire().events(small, event, small))
			for i, want := range [][]byte{small, event, small} {
				raw, err := st.dump.event()
				if err != nil {
					t.Fatalf("%s of %d bytes, event %d: %v", typ, size, i, err)
				}
				whole := raw.bytes
				if len(want) > heldEvent && kept != inMemory {
					l := raw.large
					if l == nil || l.size != int64(size) || l.sum != crc32.ChecksumIEEE(want[:size-4]) || !bytes.Equal(l.tail[:], want[size-4:]) || (l.file != nil) != (kept == onDisk) {
						t.Fatalf("%s of %d bytes: got %+v", typ, size, l)
					}
					if want = want[:headOfLarge]; kept == onDisk {
						want = event
						if whole, err = io.ReadAll(io.NewSectionReader(l.file, 0, 1<<40)); err != nil {
							t.Fatal(err)
						}
					}
				} else if raw.large != nil {
					t.Fatalf("%s of %d bytes: not held", typ, size)
				}
				if !bytes.Equal(whole, want) {
					t.Fatalf("%s of %d bytes, event %d: got %d other bytes", typ, size, i, len(whole))
				}
			}
			if names, err := os.ReadDir(st.server.cfg.Spool); err != nil || len(names) > 0 {
				t.Errorf("%s of %d bytes: left %v, %v", typ, size, names, err)
			}
			if _, err := st.dump.event(); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s of %d bytes: ended with %v", typ, size, err)
			}
		}
	}
}

// TestDumpRefused: what comes instead of an event. The error packet's number
// and text tell the causes apart, so they must be whole.
func TestDumpRefused(t *testing.T) {
	event := eventOf(replication.XID_EVENT, 27)
	longer, shorter := bytes.Clone(event), bytes.Clone(event)
	longer[9]++
	shorter[9]--
	huge := bytes.Clone(event)
	huge[12] = 0x7f
	refused := append([]byte{mysql.ERR_HEADER, 0xd4, 0x04}, "#HY000the master has purged required binary logs"...)
	tests := []struct {
		name string
		wire *wire
		is   error
		text string
	}{
		{"an error", newWire().events(event).packet(refused...).events(event), ErrPurged, "the master has purged required binary logs"},
		{"an error without a state", newWire().events(event).packet(append([]byte{mysql.ERR_HEADER, 0xd4, 0x04}, "purged required binary logs"...)...), ErrPurged, ": purged required"},
		{"an error behind an event of two parts", newWire().events(event, eventOf(replication.ROWS_QUERY_EVENT, maxPart+5)).packet(refused...), ErrPurged, "the master has"},
		{"half an error", newWire().events(event).packet(mysql.ERR_HEADER, 0xd4), nil, "cut short"},
		{"the end", newWire().events(event).packet(mysql.EOF_HEADER, 0, 0, 2, 0), nil, "has ended"},
		{"nothing", newWire().events(event).packet(), nil, "an empty packet"},
		{"something else", newWire().events(event).packet(7, 1, 2), nil, "begins with 0x7"},
		{"a packet too many", &wire{data: newWire().events(event).data, number: 9}, nil, "packet 9 came where 2 was due"},
		{"an event that says more", newWire().events(event, longer, event), ErrDamaged, "not as long"},
		{"an event that says less", newWire().events(event, shorter, event), ErrDamaged, "not as long"},
		{"an impossible size", newWire().events(event, huge, event), ErrDamaged, "XIDEvent of 21"},
		{"no header", newWire().events(event, event[:3], event), ErrDamaged, "not as long"},
		{"no event", newWire().events(event, nil, event), ErrDamaged, "not as long"},
	}
	for _, tt := range tests {
		if tt.wire.number == 9 {
			tt.wire.events(event)
		}
		st := fakeStream(t, tt.wire)
		var err error
		n := 0
		for ; err == nil; n++ {
			_, err = st.event(t.Context())
		}
		if tt.is != nil && !errors.Is(err, tt.is) || tt.is == nil && (errors.Is(err, ErrDamaged) || errors.Is(err, io.ErrUnexpectedEOF)) || !strings.Contains(err.Error(), tt.text) || n < 2 {
			t.Errorf("%s: after %d events got %v, want %v with %q", tt.name, n-1, err, tt.is, tt.text)
		}
	}
}

// TestDumpCut: a connection that ends at any byte is a link that broke, and
// never a damaged event, which would stop the relay for good.
func TestDumpCut(t *testing.T) {
	event := eventOf(replication.XID_EVENT, 27)
	whole := newWire().events(event, event).data
	large := newWire().events(event, eventOf(replication.QUERY_EVENT, maxPart-1)).data
	cut := [][]byte{large[:len(large)-1], large[:len(large)-4], large[:len(large)-5], large[:100], large[:7<<20]}
	for n := range whole {
		cut = append(cut, whole[:n])
	}
	for _, data := range cut {
		st := fakeStream(t, &wire{data: data})
		var err error
		for err == nil {
			_, err = st.event(t.Context())
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, ErrDamaged) {
			t.Errorf("after %d bytes got %v", len(data), err)
		}
	}
}

// TestDumpInterrupted: an interruption ends a reading that has begun, and one
// that begins after it, whose own deadline must not count.
func TestDumpInterrupted(t *testing.T) {
	st := fakeStream(t, newWire().events(eventOf(replication.XID_EVENT, 27)))
	st.dump.interrupt()
	if _, err := st.dump.event(); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want %v", err, os.ErrDeadlineExceeded)
	}
	ours, theirs := net.Pipe()
	defer theirs.Close()
	st = fakeStream(t, newWire())
	st.dump.conn = ours
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = theirs.Write([]byte{1}) // it returns when it is read
		cancel()
	}()
	if _, err := st.Next(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
}

// FuzzDump reads any bytes as what a server sends. It comes to an end, without
// a panic and without more memory than has come.
func FuzzDump(f *testing.F) {
	f.Add(newWire().events(newLog().gtid(1).begin().insert("a").xid().events...).data)
	f.Add(newWire().events(eventOf(replication.XID_EVENT, 27)).packet(mysql.ERR_HEADER, 0xd4, 0x04, '#').data)
	f.Add([]byte{0xff, 0xff, 0xff, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		st := gatherStream(t, &wire{data: data})
		for range len(data) + 1 {
			if _, err := st.Next(t.Context()); err != nil {
				return
			}
		}
		t.Error("no end")
	})
}

const randomRow = 60_000 // bytes

// randomPayloads are of text that compression leaves three quarters of.
func randomPayloads(n int) (list []string) {
	random := rand.NewChaCha8([32]byte{1})
	for range n {
		payload := make([]byte, randomRow)
		random.Read(payload)
		for i := range payload {
			payload[i] = '0' + payload[i]&0x3f
		}
		list = append(list, string(payload))
	}
	return list
}

// randomRows writes n outbox rows of them, in one event or in many.
func (l *fakeLog) randomRows(n int, oneEvent bool) *fakeLog {
	var images [][]byte
	for _, payload := range randomPayloads(n) {
		images = append(images, outboxRow("r", payload))
	}
	l.outbox()
	for len(images) > 0 {
		k := 1
		if oneEvent {
			k = len(images)
		}
		l.rows(replication.WRITE_ROWS_EVENTv2, outboxID, len(outboxMapped), images[:k]...)
		images = images[k:]
	}
	return l
}

// foreignLarge writes a row of another table that is larger than what is held.
func (l *fakeLog) foreignLarge() *fakeLog {
	return l.table(foreignID, "shop", "orders", []mapped{{"id", typeLong, nil}}).
		rows(replication.WRITE_ROWS_EVENTv2, foreignID, 1, make([]byte, heldEvent))
}

// drain reads all of a stream, and gives the payloads of each transaction.
func drain(t *testing.T, st *Stream) (payloads [][]string, err error) {
	t.Helper()
	var open []string
	for {
		tx, err := st.Next(t.Context())
		if err != nil {
			if len(open) > 0 {
				payloads = append(payloads, open)
			}
			return payloads, err
		}
		for _, e := range tx.Events {
			open = append(open, string(e.Payload))
		}
		if tx.Last {
			payloads, open = append(payloads, open), nil
		}
	}
}

// TestStreamSpooled: a compressed transaction that goes by way of a file is
// read as one in memory is, and so are large events in it and beside it. It
// fails when the file's place where the data begins or ends is wrong by one.
func TestStreamSpooled(t *testing.T) {
	const rows = heldEvent/randomRow + 2
	for _, checksum := range []bool{false, true} {
		for _, method := range []byte{replication.ZSTD, replication.NONE} {
			st := fakeStream(t, newWire().events(newLog().format(checksum).
				gtid(1).compressed(method, insideLog().begin().randomRows(rows, false).foreignLarge().randomRows(rows, true).insert("z").xid()).
				gtid(2).begin().foreignLarge().randomRows(rows, true).xid().
				gtid(3).compressed(method, insideLog().begin().insert("b").xid()).events...))
			got, err := drain(t, st)
			if !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("method %d, checksum %t: %v", method, checksum, err)
			}
			once := randomPayloads(rows)
			want := [][]string{append(append(slices.Clone(once), once...), "body of z"), once, {"body of b"}}
			if !cmp.Equal(want, got) {
				t.Errorf("method %d, checksum %t: got %d transactions with other payloads", method, checksum, len(got))
			}
		}
	}
}

// TestStreamSpooledDamage turns over a bit of a compressed transaction that
// goes by way of a file: none of its rows is handed out. It fails when the
// checksum is looked at behind the rows, or not at all: the data is not
// compressed, so that it can be read up to the damage and behind it.
func TestStreamSpooledDamage(t *testing.T) {
	log := newLog().format(true).gtid(1).begin().insert("a").xid().
		gtid(2).compressed(replication.NONE, insideLog().begin().randomRows(200, false).xid())
	raw := log.last()
	for _, at := range []int{6, headerSize + 12, headOfLarge, len(raw) / 2, len(raw) - checksumSize - 1, len(raw) - checksumSize, len(raw) - 1} {
		raw[at] ^= 0x10
		got, err := drain(t, fakeStream(t, newWire().events(log.events...)))
		if !errors.Is(err, ErrDamaged) || len(got) != 1 {
			t.Errorf("byte %d: got %d transactions and %v, want the first and %v", at, len(got), err, ErrDamaged)
		}
		raw[at] ^= 0x10
	}
}

// TestStreamSpoolDirectory: a directory that takes no file makes the relay
// unfit, and the message says which.
func TestStreamSpoolDirectory(t *testing.T) {
	st := fakeStream(t, newWire().events(newLog().gtid(1).compressed(replication.NONE, insideLog().begin().randomRows(100, false).xid()).events...))
	st.server.cfg.Spool = filepath.Join(t.TempDir(), "absent")
	_, err := st.Next(t.Context())
	if !errors.Is(err, ErrSpool) || !strings.Contains(err.Error(), st.server.cfg.Spool) || !strings.Contains(err.Error(), "--checkpoint") {
		t.Errorf("got %v", err)
	}
}
