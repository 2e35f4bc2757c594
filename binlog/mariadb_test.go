package binlog

import (
	"bytes"
	"compress/zlib"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"
)

// maria writes a GTID event of domain 0 and server 1, as MariaDB does.
func (l *fakeLog) maria(number uint64, flags byte, more ...byte) *fakeLog {
	body := le.AppendUint64(nil, number)
	body = append(le.AppendUint32(body, 0), flags)
	body = append(body, more...)
	for len(body) < 19 {
		body = append(body, 0)
	}
	return l.event(replication.MARIADB_GTID_EVENT, body)
}

// xidA is the XA id 'a' as a GTID event has it, textA as statements have it.
var xidA = []byte{1, 0, 0, 0, 1, 0, 'a'}

const textA = "X'61',X'',1"

// at gives the last event a time of its own, in seconds.
func (l *fakeLog) at(seconds uint32) *fakeLog {
	le.PutUint32(l.last(), seconds)
	return l
}

// deflated is data as log_bin_compress writes it.
func deflated(data []byte) []byte {
	out := bytes.NewBuffer([]byte{0x82, byte(len(data) >> 8), byte(len(data))})
	w := zlib.NewWriter(out)
	w.Write(data) //nolint:errcheck // to memory
	w.Close()
	return out.Bytes()
}

// deflate compresses the last event behind its first keep bytes.
func (l *fakeLog) deflate(typ replication.EventType, keep int) *fakeLog {
	raw := l.last()
	keep += headerSize
	raw = append(bytes.Clone(raw[:keep]), deflated(raw[keep:])...)
	raw[4] = byte(typ)
	return l.seal(raw)
}

// rowsHead and queryHead are what compression leaves of those events.
const (
	rowsHead  = 6 + 2 + 1 + 1 // table id, flags, columns, bitmap
	queryHead = 8 + 3 + 2 + 2 + 5
)

func (l *fakeLog) insertV1(ids ...string) *fakeLog {
	images := make([][]byte, len(ids))
	for i, id := range ids {
		images[i] = outboxRow(id, "body of "+id)
	}
	return l.outbox().rows(replication.WRITE_ROWS_EVENTv1, outboxID, len(outboxMapped), images...)
}

// TestAssemblerMariaDB: MariaDB's groups. Without the GTID's flags a group has
// no beginning, and its first statement is taken for its end.
func TestAssemblerMariaDB(t *testing.T) {
	runAssembler(t, []assemblerTest{
		{
			name: "no BEGIN",
			log:  newLog().maria(1, 4).insertV1("a").insertV1("b").xid().maria(2, 4).insertV1("c").query("COMMIT"),
			want: []string{"1: a b", "2: c"},
		},
		{
			name: "a commit id behind the flags",
			log:  newLog().maria(1, 4|mariaGroupCommit, make([]byte, 8)...).insertV1("a").xid(),
			want: []string{"1: a"},
		},
		{
			name: "a statement alone, and one within",
			log:  newLog().maria(1, 32|mariaStandalone).query("CREATE TABLE t (i INT)").maria(2, 32).query("CREATE TABLE u (i INT)").insertV1("a").xid(),
			want: []string{"1:", "2: a"},
		},
		{
			name: "rolled back, and to a savepoint",
			log: newLog().maria(1, 0).insertV1("a").query("ROLLBACK").
				maria(2, 0).insertV1("b").query("SAVEPOINT `s`").insertV1("c").query("ROLLBACK TO `s`").xid(),
			want: []string{"1:", "2: b"},
		},
		{
			name: "what says nothing of inserts",
			log: newLog().event(replication.MARIADB_GTID_LIST_EVENT, make([]byte, 4)).event(replication.MARIADB_BINLOG_CHECKPOINT_EVENT, []byte("\x01\x00\x00\x00b")).
				maria(1, 0).event(replication.MARIADB_ANNOTATE_ROWS_EVENT, []byte("INSERT INTO outbox")).insertV1("a").xid(),
			want: []string{"1: a"},
		},
		{
			name: "compressed",
			log: newLog().maria(1, mariaStandalone).query("CREATE TABLE t (i INT)").deflate(replication.MARIADB_QUERY_COMPRESSED_EVENT, queryHead).
				maria(2, 0).insertV1("a", "b").deflate(replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1, rowsHead).xid(),
			want: []string{"1:", "2: a b"},
		},
		{
			name: "text, compressed",
			log:  newLog().maria(1, 0).query("INSERT INTO outbox VALUES (1)").deflate(replication.MARIADB_QUERY_COMPRESSED_EVENT, queryHead),
			err:  ErrUnreadable, text: "transaction 0-1-1 in binlog.000001",
		},
		{
			name: "XA: the first half is a transaction of its own",
			log: newLog().maria(1, mariaPreparedXA, xidA...).insertV1("a").query("XA END "+textA).xaPrepare(false).
				maria(2, 0).insertV1("b").xid().
				maria(3, mariaStandalone|mariaCompletedXA, xidA...).query("XA COMMIT " + textA),
			want: []string{"1:", "2: b", "3: a"},
		},
		{
			name: "XA rolled back",
			log: newLog().maria(1, mariaPreparedXA, xidA...).insertV1("a").query("XA END "+textA).xaPrepare(false).
				maria(2, mariaStandalone|mariaCompletedXA, xidA...).query("XA ROLLBACK " + textA),
			want: []string{"1:", "2:"},
		},
		{
			name: "XA committed, prepared out of sight",
			log:  newLog().maria(2, mariaStandalone|mariaCompletedXA, xidA...).query("XA COMMIT " + textA),
			err:  ErrUnreadable, text: "whose XA PREPARE is no longer in the log",
		},
		{
			name: "torn",
			log:  newLog().maria(1, 0).insertV1("a").maria(2, 0),
			err:  ErrTorn,
		},
		{
			name: "out of order",
			log:  newLog().maria(5, 0).insertV1("a").xid().maria(5, 0).insertV1("b").xid(),
			want: []string{"5: a"},
			err:  ErrUnreadable, text: "its number is not above 5",
		},
		{
			name: "no number",
			log:  newLog().maria(0, 0),
			err:  ErrDamaged,
		},
	})
}

// TestAssemblerMariaDBTime: the commit time is that of the group's last event,
// as it is on a replica too, and an offset that is not told is counted.
func TestAssemblerMariaDBTime(t *testing.T) {
	log := newLog().maria(1, 0).at(1_700_000_010)
	start := log.offset
	for _, part := range []*fakeLog{insideLog().outbox().at(1_700_000_007), insideLog().event(replication.ROWS_QUERY_EVENT, nil).at(1_700_000_008)} {
		raw := part.last()
		le.PutUint32(raw[13:], 0) // no end
		log.events = append(log.events, raw)
		start += uint32(len(raw))
	}
	a := newAssembler(outboxTable(t))
	if _, err := assemble(a, log); err != nil || a.place.Offset != start {
		t.Fatalf("got place %d, %v, want %d", a.place.Offset, err, start)
	}
	tx, err := a.next(read(insideLog().xid().at(1_700_000_013).events))
	if want := time.Unix(1_700_000_013, 0).UTC(); err != nil || !tx.CommittedAt.Equal(want) || tx.CommittedAt.Location() != time.UTC {
		t.Errorf("committed at %s, %v, want %s", tx.CommittedAt, err, want)
	}
}

// TestAssemblerMariaDBDamage: each event of a log, cut short at every place,
// makes no panic, and one that is compressed is refused.
func TestAssemblerMariaDBDamage(t *testing.T) {
	whole := newLog().maria(1, mariaPreparedXA|mariaGroupCommit, append(make([]byte, 8), xidA...)...).
		insertV1("a").deflate(replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1, rowsHead).query("XA END "+textA).xaPrepare(false).
		maria(2, mariaStandalone).query("XA COMMIT "+textA).deflate(replication.MARIADB_QUERY_COMPRESSED_EVENT, queryHead)
	if got, err := assemble(newAssembler(outboxTable(t)), whole); err != nil || len(got) != 2 {
		t.Fatalf("whole: got %q, %v", got, err)
	}
	for i, raw := range whole.events[2:] {
		typ := replication.EventType(raw[4])
		for n := headerSize; n < len(raw); n++ {
			short := bytes.Clone(raw[:n])
			le.PutUint32(short[9:], uint32(n))
			log := &fakeLog{events: slices.Clone(whole.events)}
			log.events[i+2] = short
			_, err := assemble(newAssembler(outboxTable(t)), log)
			if (compressedRows(typ) || typ == replication.MARIADB_QUERY_COMPRESSED_EVENT) && !errors.Is(err, ErrDamaged) {
				t.Errorf("%s cut to %d of %d bytes: %v", typ, n, len(raw), err)
			}
		}
	}
	for _, data := range [][]byte{nil, {0x81}, {0x84, 0xff, 0xff, 0xff, 0xff, 'x'}, {0x01, 5, 'x'}, append([]byte{0x81, 9}, deflated([]byte("short"))[3:]...), append([]byte{0x81, 2}, deflated([]byte("long"))[3:]...)} {
		if out, err := inflate(data); !errors.Is(err, ErrDamaged) {
			t.Errorf("%x: got %q, %v", data, out, err)
		}
	}
}

// TestGTIDList: the newest of each domain, which comes last.
func TestGTIDList(t *testing.T) {
	body := le.AppendUint32(nil, 3|1<<28)
	for _, g := range []GTID{{Domain: 0, ServerID: 2, Number: 7}, {Domain: 0, ServerID: 1, Number: 9}, {Domain: 5, ServerID: 1, Number: 3}} {
		body = le.AppendUint64(le.AppendUint32(le.AppendUint32(body, g.Domain), g.ServerID), uint64(g.Number))
	}
	set, err := parseGTIDList(body)
	if err != nil || set.String() != "0-1-9,5-1-3" {
		t.Errorf("got %s, %v", set, err)
	}
	for n := range body {
		if _, err := parseGTIDList(body[:n]); !errors.Is(err, ErrDamaged) {
			t.Errorf("%d bytes of it: %v", n, err)
		}
	}
}

// TestDomains: positions, and what lies between two of them.
func TestDomains(t *testing.T) {
	for text, want := range map[string]string{"0-1-5": "0-1-5", "0-1-5,\n1-2-7 ": "0-1-5,1-2-7", "10-1-1,2-1-1": "2-1-1,10-1-1", "0-1-5,0-2-9,0-1-7": "0-2-9", "0-4294967295-9223372036854775807": "0-4294967295-9223372036854775807"} {
		set, err := ParseGTIDSet(text)
		if err != nil || set.String() != want || set.Flavor() != MariaDB || set.IsEmpty() {
			t.Errorf("%q: got %s, %v, want %s", text, set, err, want)
		}
	}
	for _, text := range []string{"0-1", "0-1-", "0-0-5", "0-1-0", "0-1-5-6", "0-1-x", "0-1-9223372036854775808", "4294967296-1-1", "0-1-5,", "-0-1-5", "0-1-5," + serverA + ":1"} {
		if set, err := ParseGTIDSet(text); err == nil {
			t.Errorf("%q: got %q, want an error", text, set)
		}
	}
	server := &Server{dialect: mariaDB{}}
	for _, tt := range []struct {
		a, b, rest, union string
		count             int64
		contains          bool // a in b
	}{
		{"0-1-5", "", "0-1-5", "0-1-5", 5, false},
		{"", "0-1-5", "", "0-1-5", 0, true},
		{"0-1-5", "0-1-5", "", "0-1-5", 0, true},
		{"0-1-5", "0-2-7", "", "0-2-7", 0, true},
		{"0-1-9", "0-2-7", "0-1-8..9", "0-1-9", 2, false},
		{"0-1-8", "0-2-7", "0-1-8", "0-1-8", 1, false},
		{"0-1-9,3-1-4", "0-2-7,2-1-1", "0-1-8..9,3-1-4", "0-1-9,2-1-1,3-1-4", 6, false},
	} {
		a, b := parseSet(t, tt.a), parseSet(t, tt.b)
		rest, err := server.Subtract(t.Context(), a, b)
		if err != nil || rest.String() != tt.rest || rest.Count() != tt.count || b.Contains(a) != tt.contains || rest.IsEmpty() != tt.contains {
			t.Errorf("%q without %q: got %q of %d, contains %t, %v", tt.a, tt.b, rest, rest.Count(), b.Contains(a), err)
		}
		if got := a.Union(b).String(); got != tt.union {
			t.Errorf("%q and %q: got %q, want %q", tt.a, tt.b, got, tt.union)
		}
		if got := b.Union(rest); !got.Contains(a) || !got.Contains(b) {
			t.Errorf("%q with the rest %q is %q", tt.b, tt.rest, got)
		}
		if a.String() != tt.a || b.String() != tt.b {
			t.Errorf("changed to %s and %s", a, b)
		}
	}
	set := parseSet(t, "")
	for _, g := range []GTID{{Domain: 1, ServerID: 1, Number: 4}, {ServerID: 2, Number: 9}, {Domain: 1, ServerID: 7, Number: 5}, {ServerID: 3, Number: 8}} {
		set.Add(g)
	}
	if set.String() != "0-2-9,1-7-5" {
		t.Errorf("got %s", set)
	}
}

// TestMariaDBNeeds: a replica that logs only its own transactions is refused,
// since what it applies would never be sent.
func TestMariaDBNeeds(t *testing.T) {
	for applied, want := range map[string]bool{"": false, "0-1-5": true} {
		got := slices.ContainsFunc(mariaDB{}.needs(map[string]string{"gtid_slave_pos": applied}), func(s setting) bool {
			return s.variable == "log_slave_updates" && s.want == "ON" && !s.advice
		})
		if got != want {
			t.Errorf("gtid_slave_pos %q: log_slave_updates is needed: %t, want %t", applied, got, want)
		}
	}
}
