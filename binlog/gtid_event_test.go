package binlog

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/outboxrelay/relay/schema"
)

// libraryGTID is what the library makes of a GTID event's body.
func libraryGTID(h header, body []byte) (gtid GTID, committed time.Time, err error) {
	defer func() {
		if recover() != nil { // it trusts lengths
			err = ErrDamaged
		}
	}()
	var event replication.GTIDEvent
	if h.typ == replication.GTID_TAGGED_LOG_EVENT {
		var tagged replication.GtidTaggedLogEvent
		err = tagged.Decode(body)
		event = tagged.GTIDEvent
	} else {
		err = event.Decode(body)
	}
	if err != nil {
		return GTID{}, time.Time{}, err
	}
	gtid = GTID{Tag: event.Tag.String(), Number: event.GNO}
	if copy(gtid.Server[:], event.SID) != len(gtid.Server) || gtid.Number <= 0 {
		return GTID{}, time.Time{}, ErrDamaged
	}
	if committed = event.OriginalCommitTime(); committed.IsZero() {
		committed = time.Unix(int64(h.timestamp), 0)
	}
	return gtid, committed.UTC(), nil
}

// sameGTID wants what the library reads, where it can read the event.
func sameGTID(t *testing.T, h header, body []byte, fuzzed bool) {
	t.Helper()
	want, at, err := libraryGTID(h, slices.Clip(body)) // which reads on to the capacity
	before := bytes.Clone(body)
	got, committed, gotErr := parseGTID(h, body, new(schema.Texts))
	if !bytes.Equal(body, before) {
		t.Error("body changed")
	}
	if gotErr != nil && !errors.Is(gotErr, ErrDamaged) {
		t.Errorf("got error %v, want %v", gotErr, ErrDamaged)
	}
	lenient := h.typ == replication.GTID_TAGGED_LOG_EVENT && gotErr != nil && fuzzed
	if err == nil && !lenient && (gotErr != nil || got != want || !committed.Equal(at)) {
		t.Errorf("of %x: got %s of %s, %v, want %s of %s", body, got, committed, gotErr, want, at)
	}
	if gotErr == nil && (got.Number <= 0 || got.IsZero()) {
		t.Errorf("of %x: got %s", body, got)
	}
}

// gtidEvents are those of the captured logs.
func gtidEvents(tb testing.TB) (list [][]byte) {
	tb.Helper()
	files, err := filepath.Glob("../testdata/binlog/*.bin")
	if err != nil || len(files) < 4 {
		tb.Fatal(files, err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		for _, event := range cut(data[len(logMagic):]) {
			switch replication.EventType(event[4]) {
			case replication.GTID_EVENT, replication.GTID_TAGGED_LOG_EVENT, replication.MARIADB_GTID_EVENT:
				list = append(list, event)
			}
		}
	}
	return list
}

// TestGTIDEvents compares the GTID events of the captured logs with what the
// library reads.
func TestGTIDEvents(t *testing.T) {
	seen := map[replication.EventType]int{}
	events := gtidEvents(t)
	for _, log := range []*fakeLog{insideLog().tagged("blue", 5), insideLog().taggedLong("green", 1<<40), insideLog().gtid(1 << 40)} {
		events = append(events, append(log.last(), 0, 0, 0, 0))
	}
	for _, event := range events {
		h := header{timestamp: le.Uint32(event), typ: replication.EventType(event[4]), server: le.Uint32(event[5:])}
		body := event[headerSize : len(event)-checksumSize]
		if seen[h.typ]++; h.typ != replication.MARIADB_GTID_EVENT {
			sameGTID(t, h, body, false)
			continue
		}
		var want replication.MariadbGTIDEvent
		if err := want.Decode(body); err != nil {
			t.Fatal(err)
		}
		var got group
		if err := got.openMariaDB(h, body); err != nil {
			t.Fatal(err)
		}
		if g := (GTID{Domain: want.GTID.DomainID, ServerID: h.server, Number: int64(want.GTID.SequenceNumber)}); got.tx.GTID != g || got.open == want.IsStandalone() {
			t.Errorf("got %s, open %t, want %s, standalone %t", got.tx.GTID, got.open, g, want.IsStandalone())
		}
	}
	for _, typ := range []replication.EventType{replication.GTID_EVENT, replication.GTID_TAGGED_LOG_EVENT, replication.MARIADB_GTID_EVENT} {
		if seen[typ] == 0 {
			t.Errorf("no %s", typ)
		}
	}
}

// TestGTIDEventFields: what the library does not read, or reads in another way.
func TestGTIDEventFields(t *testing.T) {
	tagged := header{typ: replication.GTID_TAGGED_LOG_EVENT, timestamp: 1}
	ticket := insideLog().tagged("blue", 5).last()[headerSize:] // group replication adds a field behind those that are known
	ticket = append(ticket, 11<<1, 1)
	if g, at, err := parseGTID(tagged, ticket, new(schema.Texts)); err != nil || g.Number != 5 || at.UnixMicro() != fakeTime {
		t.Errorf("got %s of %s, %v", g, at, err)
	}
	long := insideLog().tagged("blue", 5).last()[headerSize:]
	number := 6 + 16 + 1
	long = append(append(bytes.Clone(long[:number]), 0xff, 0, 0, 0, 0, 0, 0, 0, 1), long[number+1:]...) // nine bytes
	if g, _, err := parseGTID(tagged, long, new(schema.Texts)); err != nil || g.Number != 1<<55 {
		t.Errorf("got %s, %v, want the number %d", g, err, int64(1)<<55)
	}
	moved := insideLog().gtid(5).last()[headerSize:]
	moved[25+17+6] |= 0x80 // the original time follows
	moved = append(moved[:25+17+7], 1, 0, 0, 0, 0, 0, 0)
	if _, at, err := parseGTID(header{typ: replication.GTID_EVENT}, moved, nil); err != nil || at.UnixMicro() != 1 {
		t.Errorf("got %s, %v, want the original time", at, err)
	}
	for n := range ticket[:40] {
		if g, _, err := parseGTID(tagged, ticket[:n], new(schema.Texts)); n < 24 && !errors.Is(err, ErrDamaged) {
			t.Errorf("of %d bytes: got %s, %v", n, g, err)
		}
	}
}

// FuzzGTIDEvent compares any bytes with what the library reads, where both can:
// it reads numbers of nine bytes without the last, and bytes of a UUID that no
// server writes so.
func FuzzGTIDEvent(f *testing.F) {
	for _, event := range append(gtidEvents(f), insideLog().taggedLong("a", 1<<50).last()) {
		f.Add(event[4] == byte(replication.GTID_TAGGED_LOG_EVENT), event[headerSize:])
	}
	f.Fuzz(func(t *testing.T, tagged bool, body []byte) {
		h := header{typ: replication.GTID_EVENT, timestamp: 7}
		if tagged {
			h.typ = replication.GTID_TAGGED_LOG_EVENT
			if bytes.IndexByte(body, 0xff) >= 0 {
				return
			}
		}
		sameGTID(t, h, body, true)
	})
}
