package binlog

import (
	"bytes"
	"errors"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"
)

const unknownMethod = 9

func TestAssemblerCompressed(t *testing.T) {
	transaction := insideLog().begin().foreign().insert("a", "b").xid()
	runAssembler(t, []assemblerTest{
		{
			name: "zstd",
			log:  newLog().gtid(1).compressed(replication.ZSTD, transaction).gtid(2).begin().insert("c").xid(),
			want: []string{"1: a b", "2: c"},
		},
		{
			name: "stored",
			log:  newLog().gtid(1).compressed(replication.NONE, transaction).gtid(2).compressed(replication.NONE, transaction),
			want: []string{"1: a b", "2: a b"},
		},
		{
			name: "checksum outside, none inside",
			log:  newLog().format(true).gtid(1).compressed(replication.ZSTD, transaction).gtid(2).begin().insert("c").xid(),
			want: []string{"1: a b", "2: c"},
		},
		{
			name: "rolled back to a savepoint",
			log: newLog().gtid(1).compressed(replication.ZSTD,
				insideLog().begin().insert("a").query("SAVEPOINT s").insert("b").query("ROLLBACK TO s").xid()),
			want: []string{"1: a"},
		},
		{
			name: "first half of an XA transaction",
			log: newLog().gtid(1).compressed(replication.ZSTD,
				insideLog().query("XA START X'61',X'',1").insert("a").query("XA END X'61',X'',1").xaPrepare(false)).
				gtid(2).query("XA COMMIT X'61',X'',1"),
			want: []string{"prepared 1", "2 decides 1: a"},
		},
		{
			name: "unknown method",
			log:  newLog().gtid(1).compressed(unknownMethod, transaction),
			err:  ErrUnreadable, text: "method 9",
		},
		{
			name: "not compressed at all",
			log:  newLog().gtid(1).event(replication.TRANSACTION_PAYLOAD_EVENT, payloadBody(replication.ZSTD, []byte("not zstd"))),
			err:  ErrDamaged, text: "compressed transaction",
		},
		{
			name: "no end inside",
			log:  newLog().gtid(1).compressed(replication.ZSTD, insideLog().begin().insert("a")).gtid(2).begin().xid(),
			err:  ErrDamaged, text: "has no end",
		},
		{
			name: "nothing inside",
			log:  newLog().gtid(1).compressed(replication.ZSTD, insideLog()).gtid(2).begin().xid(),
			err:  ErrDamaged, text: "has no end",
		},
		{
			name: "inner event of impossible size",
			log: newLog().gtid(1).event(replication.TRANSACTION_PAYLOAD_EVENT,
				payloadBody(replication.NONE, bytes.Repeat([]byte{0xff}, 40))),
			err: ErrDamaged, text: "event of 4294967295 bytes",
		},
	})
}

// TestAssemblerCompressedParts: a large compressed transaction is handed out
// in parts, each before what follows it is unpacked.
func TestAssemblerCompressedParts(t *testing.T) {
	log := newLog().gtid(1).compressed(replication.ZSTD, insideLog().begin().inserts(5000).xid())
	list := parts(t, log)
	events := 0
	for _, tx := range list {
		events += len(tx.Events)
		for _, e := range tx.Events {
			if string(e.Payload) != "body of "+e.ID {
				t.Fatalf("event %s: got payload %q", e.ID, e.Payload)
			}
		}
		if tx.Place.Offset != log.offset {
			t.Errorf("got place %v, want that behind the whole transaction, %d", tx.Place, log.offset)
		}
	}
	if events != 5000 || len(list) != 5 {
		t.Errorf("got %d events in %d parts, want 5000 in 5", events, len(list))
	}
}

// TestAssemblerCompressedCutShort cuts a compressed transaction at every
// place: it is never taken for a whole one.
func TestAssemblerCompressedCutShort(t *testing.T) {
	for _, method := range []byte{replication.ZSTD, replication.NONE} {
		whole := newLog().gtid(1).compressed(method, insideLog().begin().insert("a", "b").xid()).last()
		for n := headerSize; n < len(whole); n++ {
			log := newLog().gtid(1).blocks(1, nil)
			got, err := assemble(newAssembler(outboxTable(t)), log.seal(bytes.Clone(whole[:n])).gtid(2).begin().xid())
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrUnreadable) {
				t.Errorf("method %d, %d of %d bytes: got %q and error %v, want ErrDamaged", method, n, len(whole), got, err)
			}
		}
	}
}

// TestAssemblerDamage turns over one bit of each byte behind the format
// description: with checksums every one is seen.
func TestAssemblerDamage(t *testing.T) {
	log := newLog().format(true)
	first := len(log.events)
	log.gtid(1).begin().insert("a").xid().gtid(2).compressed(replication.ZSTD, insideLog().begin().insert("b").xid())
	for i := first; i < len(log.events); i++ {
		raw := log.events[i]
		for k := range raw {
			raw[k] ^= 1 << (k % 8)
			if got, err := assemble(newAssembler(outboxTable(t)), log); !errors.Is(err, ErrDamaged) {
				t.Errorf("event %d, byte %d: got %q and error %v, want ErrDamaged", i, k, got, err)
			}
			raw[k] ^= 1 << (k % 8)
		}
	}
	if got, err := assemble(newAssembler(outboxTable(t)), log); err != nil || len(got) != 2 {
		t.Errorf("whole: got %q, %v", got, err)
	}
}

func TestSplitEvent(t *testing.T) {
	short := make([]byte, headerSize+2)
	le.PutUint32(short[9:], uint32(len(short)))
	tests := []struct {
		name     string
		raw      []byte
		checksum bool
	}{
		{"empty", nil, false},
		{"half a header", make([]byte, headerSize-1), false},
		{"another size", make([]byte, headerSize), false},
		{"no room for the checksum", short, true},
	}
	for _, tt := range tests {
		if _, _, err := splitEvent(rawEvent{bytes: tt.raw}, tt.checksum); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: got error %v, want %v", tt.name, err, ErrDamaged)
		}
	}
	if _, body, err := splitEvent(rawEvent{bytes: short}, false); err != nil || len(body) != 2 {
		t.Errorf("got body %x, %v, want two bytes", body, err)
	}
	if _, err := hasChecksum(short); !errors.Is(err, ErrDamaged) {
		t.Errorf("short format description: got error %v, want %v", err, ErrDamaged)
	}
}
