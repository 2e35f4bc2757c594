package binlog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/outboxrelay/relay/schema"
)

// seedColumns is the outbox of the seed table, as relay schema sql prints it.
func seedColumns() []schema.Column {
	return []schema.Column{
		schema.NewColumn("id", "binary", "binary(16)", 16, ""),
		schema.NewColumn("aggregate_id", "bigint", "bigint", 0, ""),
		schema.NewColumn("topic", "varchar", "varchar(120)", 480, "utf8mb4"),
		schema.NewColumn("payload", "json", "json", 0, ""),
		schema.NewColumn("status", "enum", "enum('pending','published')", 36, "utf8mb4"),
		schema.NewColumn("created_at", "datetime", "datetime(6)", 0, ""),
		schema.NewColumn("published_at", "datetime", "datetime(6)", 0, ""),
	}
}

var seedMapped = []mapped{
	{"id", typeString, []byte{typeString, 16}},
	{"aggregate_id", typeLongLong, nil},
	{"topic", typeVarchar, []byte{0xe0, 1}},
	{"payload", typeJSON, []byte{4}},
	{"status", typeString, []byte{typeEnum, 1}},
	{"created_at", typeDatetime2, []byte{6}},
	{"published_at", typeDatetime2, []byte{6}},
}

func seedTable(tb testing.TB) *schema.Table {
	tb.Helper()
	table, err := schema.NewTable("shop", "outbox", seedColumns(), schema.Options{})
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

// seedRow is a row image of the seed table: about 300 bytes, most of them JSON.
func seedRow(n int) []byte {
	row := []byte{1 << 6, 16} // published_at is NULL
	row = append(row, bytes.Repeat([]byte{byte(n) | 1}, 16)...)
	row = le.AppendUint64(row, uint64(n%5000))
	row = append(le.AppendUint16(row, 6), "orders"...)
	doc := smallObject([]member{
		{"id", jsonString, jsonText(fmt.Sprintf("order-%d", n))}, {"sku", jsonString, jsonText("ABC-1234567890")},
		{"note", jsonString, jsonText(string(bytes.Repeat([]byte("a plain text without anything in it. "), 4)))},
		{"total", jsonInt32, []byte{1, 2, 3, 0}}, {"address", jsonString, jsonText("1 Some Street, 12345 Some Town")},
	})
	row = append(le.AppendUint32(row, uint32(len(doc))), doc...)
	return append(row, 1, 0x99, 0xb2, 0x44, 0x31, 0x05, 0x0a, 0x5b, 0xf5)
}

type member struct {
	key  string
	typ  byte
	data []byte
}

// jsonText is a short JSON string.
func jsonText(s string) []byte {
	if len(s) > 127 {
		return append([]byte{byte(len(s)) | 0x80, byte(len(s) >> 7)}, s...)
	}
	return append([]byte{byte(len(s))}, s...)
}

// smallObject is a binary JSON document of one object.
func smallObject(members []member) []byte {
	n := len(members)
	at := 4 + n*4 + n*3
	var keys, entries, values []byte
	for _, m := range members {
		keys = le.AppendUint16(le.AppendUint16(keys, uint16(at)), uint16(len(m.key)))
		at += len(m.key)
	}
	for _, m := range members {
		entries = le.AppendUint16(append(entries, m.typ), uint16(at))
		at += len(m.data)
		values = append(values, m.data...)
	}
	doc := append([]byte{jsonSmallObject}, le.AppendUint16(le.AppendUint16(nil, uint16(n)), uint16(at))...)
	doc = append(append(doc, keys...), entries...)
	for _, m := range members {
		doc = append(doc, m.key...)
	}
	return append(doc, values...)
}

// seeds writes a transaction's row events of the seed table, as many rows in
// each as a server puts there.
func (l *fakeLog) seeds(n int) *fakeLog {
	l.table(outboxID, "shop", "outbox", seedMapped)
	for at := 0; at < n; {
		var images [][]byte
		for size := 0; at < n && size < 8000; at++ {
			images = append(images, seedRow(at))
			size += len(images[len(images)-1])
		}
		l.rows(replication.WRITE_ROWS_EVENTv2, outboxID, len(seedMapped), images...)
	}
	return l
}

// others writes a transaction of three foreign tables, of about 1,000 bytes.
func (l *fakeLog) others() *fakeLog {
	columns := []mapped{{"id", typeLongLong, nil}, {"name", typeVarchar, []byte{0, 1}}}
	row := append(make([]byte, 10), bytes.Repeat([]byte("x"), 200)...)
	row[9] = 200
	return l.table(foreignID, "shop", "orders", columns).rows(replication.WRITE_ROWS_EVENTv2, foreignID, 2, row).
		table(foreignID+1, "shop", "lines", columns).rows(replication.WRITE_ROWS_EVENTv2, foreignID+1, 2, row, row).
		table(foreignID+2, "shop", "stock", columns).rows(replication.UPDATE_ROWS_EVENTv2, foreignID+2, 2, row, row)
}

// load is a log with n transactions like each other.
type load struct {
	name  string
	write func(l *fakeLog, n int64)
}

var foreignLoads = []load{
	{"mysql", func(l *fakeLog, n int64) { l.gtid(n).begin().others().xid() }},
	{"tagged", func(l *fakeLog, n int64) { l.taggedLong("blue", n).begin().others().xid() }},
	{"mariadb", func(l *fakeLog, n int64) { l.maria(uint64(n), 0).others().xid() }},
}

// taggedLong is tagged with a number of any size.
func (l *fakeLog) taggedLong(tag string, n int64) *fakeLog {
	l.tagged(tag, 1)
	raw := l.last()
	at := headerSize + 6 + 16 + 1
	wide := le.AppendUint64(nil, uint64(n)<<9|0x7f) // eight bytes, and a sign
	raw = append(append(bytes.Clone(raw[:at]), wide...), raw[at+1:]...)
	return l.seal(raw)
}

func (x load) log(n int) *fakeLog {
	l := (&fakeLog{}).rotate("binlog.000001", 4).format(true)
	for i := range n {
		x.write(l, int64(i+1))
	}
	return l
}

func ownLoads(rows int) load {
	return load{fmt.Sprintf("own-%d", rows), func(l *fakeLog, n int64) { l.gtid(n).begin().seeds(rows).xid() }}
}

func (l *fakeLog) size() (n int64) {
	for _, raw := range l.events {
		n += int64(len(raw))
	}
	return n
}

// inPlace hands events out without a copy.
func inPlace(events [][]byte) func() (rawEvent, error) {
	return func() (rawEvent, error) {
		if len(events) == 0 {
			return rawEvent{}, io.EOF
		}
		raw := rawEvent{bytes: events[0]}
		events = events[1:]
		return raw, nil
	}
}

func BenchmarkAssembler(b *testing.B) {
	for _, x := range append([]load{ownLoads(1), ownLoads(10), ownLoads(1000)}, foreignLoads...) {
		b.Run(x.name, func(b *testing.B) {
			n := 1000
			if x.name == "own-1000" {
				n = 10
			}
			log := x.log(n)
			b.SetBytes(log.size())
			b.ReportAllocs()
			events, transactions, began := 0, 0, cpu()
			for b.Loop() {
				a := newAssembler(seedTable(b))
				a.gather = func(*group) {}
				next := inPlace(log.events)
				for {
					tx, err := a.next(next)
					if err == io.EOF {
						break
					}
					if err != nil {
						b.Fatal(err)
					}
					transactions++
					events += len(tx.Events)
				}
			}
			perUnit(b, began, events, int64(n*b.N))
		})
	}
}

// perUnit reports what an event, or where there are none a transaction, costs in
// processor time, which other programs disturb less than the clock's.
func perUnit(b *testing.B, began time.Duration, events int, transactions int64) {
	spent := float64((cpu() - began).Nanoseconds())
	if events > 0 {
		b.ReportMetric(spent/float64(events), "cpu-ns/event")
	} else {
		b.ReportMetric(spent/float64(transactions), "cpu-ns/tx")
	}
}

// cpu is the processor time that the process has taken.
func cpu() time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		panic(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func BenchmarkStream(b *testing.B) {
	for _, x := range append([]load{ownLoads(1), ownLoads(1000)}, foreignLoads...) {
		b.Run(x.name, func(b *testing.B) {
			n := 20000
			if x.name == "own-1000" {
				n = 20
			}
			w := newWire().events(x.log(n).events...)
			b.SetBytes(int64(len(w.data)))
			b.ReportAllocs()
			ctx, cancel := context.WithCancel(b.Context())
			defer cancel()
			events, began := 0, cpu()
			for b.Loop() {
				st := gatherStream(b, w)
				st.assembler.decoder.table = seedTable(b)
				for {
					tx, err := st.Next(ctx)
					if errors.Is(err, io.ErrUnexpectedEOF) {
						break
					}
					if err != nil {
						b.Fatal(err)
					}
					events += len(tx.Events)
				}
			}
			perUnit(b, began, events, int64(n*b.N))
		})
	}
}

func BenchmarkPackets(b *testing.B) {
	for _, size := range []int{31, 300, 8 << 10} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			w := newWire()
			event := eventOf(replication.QUERY_EVENT, size)
			for range 8 << 20 / size {
				w.events(event)
			}
			b.SetBytes(int64(len(w.data)))
			b.ReportAllocs()
			for b.Loop() {
				st := fakeStream(b, w)
				for {
					if _, err := st.dump.event(); err != nil {
						break
					}
				}
			}
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{1, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			l := insideLog().table(outboxID, "shop", "outbox", seedMapped)
			d := decoder{table: seedTable(b)}
			img, err := d.mapTable(l.last()[headerSize:])
			if err != nil {
				b.Fatal(err)
			}
			var images [][]byte
			for i := range n {
				images = append(images, seedRow(i))
			}
			body := l.rows(replication.WRITE_ROWS_EVENTv2, outboxID, len(seedMapped), images...).last()[headerSize+8:]
			from := schema.Origin{GTID: "11111111-2222-3333-4444-555555555555:7"}
			b.SetBytes(int64(len(body)))
			b.ReportAllocs()
			began := cpu()
			for b.Loop() {
				events, err := d.rows(nil, img, 2, body, from)
				if err != nil || len(events) != n || events[0].Bad != nil {
					b.Fatal(err, len(events), events[0].Bad)
				}
			}
			perUnit(b, began, b.N*n, 0)
		})
	}
}

// scattered is a set of n intervals.
func scattered(n int) *GTIDSet {
	set := emptySet()
	for i := range n {
		set.Add(GTID{Server: fakeServer, Number: int64(2*i + 1)})
	}
	return set
}

func BenchmarkGTIDSetAdd(b *testing.B) {
	for _, n := range []int{1, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			set := scattered(n)
			g := GTID{Server: fakeServer, Number: int64(2 * n)}
			b.ReportAllocs()
			for b.Loop() {
				set.Add(g)
				g.Number++
			}
		})
	}
	b.Run("mariadb", func(b *testing.B) {
		set := emptySet()
		g := GTID{ServerID: 1, Number: 1}
		b.ReportAllocs()
		for b.Loop() {
			set.Add(g)
			g.Number++
		}
	})
}

func BenchmarkGTIDSetString(b *testing.B) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			set := scattered(n)
			b.SetBytes(int64(len(set.String())))
			b.ReportAllocs()
			for b.Loop() {
				_ = set.String()
			}
		})
	}
}
