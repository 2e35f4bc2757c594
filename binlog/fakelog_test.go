package binlog

import (
	"encoding/binary"
	"hash/crc32"
	"io"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/google/uuid"
	"github.com/klauspost/compress/zstd"

	"github.com/outboxrelay/relay/schema"
)

// fakeLog writes the events of a log as a server does. Its methods append one
// event each and return the log, so that a log reads like a script.
type fakeLog struct {
	events   [][]byte
	checksum bool
	offset   uint32
	flags    uint16 // of the next event
	names    bool   // table maps have column names: binlog_row_metadata=FULL
	metadata bool   // and all else that it says of the columns
	inner    bool   // the events of a compressed transaction: no checksum, no offset
}

// newLog is a log with what stands at the beginning of every stream.
func newLog() *fakeLog { return new(fakeLog).rotate("binlog.000001", 4).format(false) }

// fakeServer commits the transactions of a fakeLog, fakeTime is when.
var fakeServer = uuid.MustParse("11111111-2222-3333-4444-555555555555")

const fakeTime = 1_700_000_000_123_456 // microseconds since 1970

// outboxColumns is the outbox of a fakeLog: what information_schema says of it.
func outboxColumns() []schema.Column {
	return []schema.Column{
		schema.NewColumn("id", "varchar", "varchar(20)", 80, "utf8mb4"),
		schema.NewColumn("aggregate_id", "bigint", "bigint", 0, ""),
		schema.NewColumn("topic", "varchar", "varchar(20)", 80, "utf8mb4"),
		schema.NewColumn("payload", "text", "text", 65535, "utf8mb4"),
		schema.NewColumn("created_at", "datetime", "datetime(6)", 0, ""),
	}
}

func outboxTable(tb testing.TB) *schema.Table {
	tb.Helper()
	table, err := schema.NewTable("shop", "outbox", outboxColumns(), schema.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

// mapped is a column in a table map.
type mapped struct {
	name string
	typ  byte
	meta []byte
}

var outboxMapped = []mapped{
	{"id", typeVarchar, []byte{80, 0}},
	{"aggregate_id", typeLongLong, nil},
	{"topic", typeVarchar, []byte{80, 0}},
	{"payload", typeBlob, []byte{2}},
	{"created_at", typeDatetime2, []byte{6}},
}

// event appends an event of any type.
func (l *fakeLog) event(typ replication.EventType, body []byte) *fakeLog {
	size := headerSize + len(body)
	if l.checksum {
		size += checksumSize
	}
	raw := make([]byte, 0, size)
	raw = le.AppendUint32(raw, 1_700_000_000)
	raw = append(raw, byte(typ))
	raw = le.AppendUint32(raw, 1) // server id
	raw = le.AppendUint32(raw, uint32(size))
	end := uint32(999_999_999) // says nothing about a place in the file
	if !l.inner {
		l.offset += uint32(size)
		end = l.offset
	}
	raw = le.AppendUint32(raw, end)
	raw = le.AppendUint16(raw, l.flags)
	raw = append(raw, body...)
	if l.checksum {
		raw = le.AppendUint32(raw, crc32.ChecksumIEEE(raw))
	}
	l.flags = 0
	l.events = append(l.events, raw)
	return l
}

func (l *fakeLog) rotate(file string, offset uint64) *fakeLog {
	l.event(replication.ROTATE_EVENT, append(le.AppendUint64(nil, offset), file...))
	l.offset = uint32(offset)
	return l
}

// format says whether what follows has checksums. A format description always
// has one itself, and the name of the algorithm before it.
func (l *fakeLog) format(checksum bool) *fakeLog {
	body := make([]byte, 57+42+1)
	body[0] = 4
	if checksum {
		body[len(body)-1] = byte(replication.BINLOG_CHECKSUM_ALG_CRC32)
	}
	l.checksum = true
	l.event(replication.FORMAT_DESCRIPTION_EVENT, body)
	l.checksum = checksum
	return l
}

func (l *fakeLog) gtid(number int64) *fakeLog {
	body := append([]byte{1}, fakeServer[:]...)
	body = le.AppendUint64(body, uint64(number))
	body = append(body, replication.LogicalTimestampTypeCode)
	body = append(body, make([]byte, 16)...) // logical timestamps
	body = append(body, le.AppendUint64(nil, fakeTime)[:7]...)
	body = append(body, 100)               // length of the transaction
	body = le.AppendUint32(body, 9_07_004) // version of the server
	return l.event(replication.GTID_EVENT, body)
}

// tagged is the GTID event that MySQL 8.3 and later write for a GTID with a
// tag: numbered fields (MySQL's PageLibsMysqlSerialization).
func (l *fakeLog) tagged(tag string, number byte) *fakeLog {
	body := []byte{2, 0, 0, 0 << 1, 0, 1 << 1}
	for _, b := range fakeServer {
		body = append(body, b<<1) // each is below 0x80
	}
	body = append(body, 2<<1, number<<2, 3<<1, byte(len(tag))<<1)
	body = append(body, tag...)
	body = append(body, 4<<1, 0, 5<<1, 1<<2, 6<<1)
	body = append(body, le.AppendUint64(nil, fakeTime<<8|0x7f)...)
	return l.event(replication.GTID_TAGGED_LOG_EVENT, body)
}

func (l *fakeLog) query(text string) *fakeLog {
	body := make([]byte, 8)
	body = append(body, 4, 0, 0) // length of the database, error code
	body = append(body, 2, 0, 'v', 'v')
	body = append(body, "shop\x00"...)
	return l.event(replication.QUERY_EVENT, append(body, text...))
}

func (l *fakeLog) begin() *fakeLog { return l.query("BEGIN") }
func (l *fakeLog) xid() *fakeLog   { return l.event(replication.XID_EVENT, make([]byte, 8)) }

func (l *fakeLog) xaPrepare(onePhase bool) *fakeLog {
	body := make([]byte, 13)
	if onePhase {
		body[0] = 1
	}
	return l.event(replication.XA_PREPARE_LOG_EVENT, append(body, "name"...))
}

// The ids of tables in table maps and row events.
const (
	outboxID  = 90
	foreignID = 91
)

// table appends a table map.
func (l *fakeLog) table(id uint64, database, table string, columns []mapped) *fakeLog {
	body := append(le.AppendUint64(nil, id)[:6], 1, 0)
	body = append(append(append(body, byte(len(database))), database...), 0)
	body = append(append(append(body, byte(len(table))), table...), 0)
	body = append(body, byte(len(columns)))
	var meta, names []byte
	for _, c := range columns {
		body = append(body, c.typ)
		meta = append(meta, c.meta...)
		names = append(append(names, byte(len(c.name))), c.name...)
	}
	body = append(append(body, byte(len(meta))), meta...)
	body = append(body, make([]byte, (len(columns)+7)/8)...)
	if l.names {
		body = append(body, replication.TABLE_MAP_OPT_META_SIGNEDNESS, 1, 0)
		if l.metadata {
			body = append(body, replication.TABLE_MAP_OPT_META_DEFAULT_CHARSET, 1, 45)
		}
		body = append(body, replication.TABLE_MAP_OPT_META_COLUMN_NAME, byte(len(names)))
		body = append(body, names...)
	}
	return l.event(replication.TABLE_MAP_EVENT, body)
}

// outbox maps the outbox table.
func (l *fakeLog) outbox() *fakeLog { return l.table(outboxID, "shop", "outbox", outboxMapped) }

// rows appends a row event for a table.
func (l *fakeLog) rows(typ replication.EventType, id uint64, columns int, images ...[]byte) *fakeLog {
	body := append(le.AppendUint64(nil, id)[:6], 1, 0)
	if typ != replication.WRITE_ROWS_EVENTv1 {
		body = append(body, 2, 0) // extra data: none
	}
	body = append(body, byte(columns))
	for range (columns + 7) / 8 {
		body = append(body, 0xff)
	}
	for _, image := range images {
		body = append(body, image...)
	}
	return l.event(typ, body)
}

// outboxRow is a row image of the outbox.
func outboxRow(id, payload string) []byte {
	row := []byte{0, byte(len(id))}
	row = append(row, id...)
	row = le.AppendUint64(row, 7)
	row = append(append(row, 6), "orders"...)
	row = append(le.AppendUint16(row, uint16(len(payload))), payload...)
	return append(row, 0x99, 0xb2, 0x44, 0x31, 0x05, 0x0a, 0x5b, 0xf5) // 2024-01-02 03:04:05.678901
}

// insert maps the outbox and writes one row event with rows of these ids.
func (l *fakeLog) insert(ids ...string) *fakeLog {
	images := make([][]byte, len(ids))
	for i, id := range ids {
		images[i] = outboxRow(id, "body of "+id)
	}
	return l.outbox().rows(replication.WRITE_ROWS_EVENTv2, outboxID, len(outboxMapped), images...)
}

// foreign writes a row of another table.
func (l *fakeLog) foreign() *fakeLog {
	return l.table(foreignID, "shop", "orders", []mapped{{"id", typeLong, nil}}).
		rows(replication.WRITE_ROWS_EVENTv2, foreignID, 1, []byte{0, 1, 2, 3, 4})
}

// compressed writes a transaction's events as one.
func (l *fakeLog) compressed(method byte, inside *fakeLog) *fakeLog {
	var data []byte
	for _, raw := range inside.events {
		data = append(data, raw...)
	}
	if method == replication.ZSTD {
		encoder, err := zstd.NewWriter(nil)
		if err != nil {
			panic(err) // impossible options
		}
		data = encoder.EncodeAll(data, nil)
		encoder.Close()
	}
	return l.event(replication.TRANSACTION_PAYLOAD_EVENT, payloadBody(method, data))
}

// insideLog takes the events of a compressed transaction.
func insideLog() *fakeLog { return &fakeLog{inner: true} }

func payloadBody(method byte, data []byte) []byte {
	body := []byte{replication.OTW_PAYLOAD_COMPRESSION_TYPE_FIELD, 3, 252, method, 0}
	body = append(body, replication.OTW_PAYLOAD_SIZE_FIELD, 9, 254)
	body = le.AppendUint64(body, uint64(len(data)))
	body = append(body, replication.OTW_PAYLOAD_HEADER_END_MARK)
	return append(body, data...)
}

// last gives the last event, for a test to damage.
func (l *fakeLog) last() []byte { return l.events[len(l.events)-1] }

// seal makes the last event's size and checksum right again.
func (l *fakeLog) seal(raw []byte) *fakeLog {
	binary.LittleEndian.PutUint32(raw[9:], uint32(len(raw)))
	if l.checksum {
		at := len(raw) - checksumSize
		le.PutUint32(raw[at:], crc32.ChecksumIEEE(raw[:at]))
	}
	l.events[len(l.events)-1] = raw
	return l
}

// read hands out events one by one, then io.EOF. Each is overwritten by the
// next, so that a test fails if anything of it is kept.
func read(events [][]byte) func() (rawEvent, error) {
	var buffer []byte
	return func() (rawEvent, error) {
		for i := range buffer {
			buffer[i] = 0xa5
		}
		if len(events) == 0 {
			return rawEvent{}, io.EOF
		}
		buffer = append(buffer[:0], events[0]...)
		events = events[1:]
		return rawEvent{bytes: buffer}, nil
	}
}
