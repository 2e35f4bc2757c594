package cli_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

const (
	// envSoak asks for the memory test's full size: make soak.
	envSoak = "RELAY_TEST_SOAK"
	// memoryLimit is what a relay may take, in KiB.
	memoryLimit = 128 << 10
)

// TestFaultRelayMemory: one transaction of 10,000 rows of 8,000 bytes, or, asked
// for by the environment, of 1,000,000 of 400: plain, compressed, and compressed
// where that hardly makes it smaller, so that a single event of half the size
// comes. The relay's memory stays under 128 MiB; of the large rows it has a
// small window, since that is held whole. Held whole, the large form takes
// a gigabyte; with the compressed event alone held whole, in a buffer that
// doubles, the last took over 400 MiB.
func TestFaultRelayMemory(t *testing.T) {
	t.Parallel()
	rows, bytes, window, limit := 10_000, 8_000, 512, 2*patience
	if os.Getenv(envSoak) != "" {
		rows, bytes, window, limit = 1_000_000, 400, 4096, 15*time.Minute
	}
	easy := fmt.Sprintf("RPAD(LEFT(SHA2(n, 256), 32), %d, '-')", bytes)
	server := relaytest.PrivateMySQL(t)
	for _, tt := range []struct{ name, note, compression string }{
		{"plain", easy, "OFF"},
		{"compressed", easy, "ON"},
		{"compressed to a half", hardNote(bytes), "ON"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			r := rigOn(t, databaseOn(t, server), schema.SQL).begun()
			before := r.logSize()
			r.bulkOf(1, rows, tt.note, "SET SESSION binlog_transaction_compression = "+tt.compression)
			written := r.logSize() - before
			d := r.start("--partitions", "1", "--window", strconv.Itoa(window))
			relaytest.Wait(t, limit, "all is settled", func() bool {
				select {
				case <-d.Done():
					t.Fatalf("the relay ended with %d:\n%s", d.Wait(), d.Tail())
				default:
				}
				state := r.state()
				return state.Sequence == int64(rows) && state.Partial == nil
			})
			peak := peakMemory(t, d.pid())
			d.stop()
			t.Logf("%d rows, %s, %d bytes of log: peak resident memory %d KiB", rows, tt.name, written, peak)
			if peak > memoryLimit {
				t.Errorf("the relay took %d KiB, more than %d", peak, memoryLimit)
			}
			r.wantWhole(rows)
		})
	}
}

// hardNote is an expression for a note that compression makes half as large.
func hardNote(bytes int) string {
	const part = 400
	return "CONCAT(''" + strings.Repeat(fmt.Sprintf(", HEX(RANDOM_BYTES(%d))", part/2), bytes/part) + ")"
}

// logSize is the number of bytes in all of the server's log files.
func (r *rig) logSize() (sum int64) {
	r.t.Helper()
	rows, err := r.db.Query("SHOW BINARY LOGS")
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name, encrypted string
		var size int64
		if err := rows.Scan(&name, &size, &encrypted); err != nil {
			r.t.Fatal(err)
		}
		sum += size
	}
	if err := rows.Err(); err != nil {
		r.t.Fatal(err)
	}
	return sum
}

// peakMemory is the most that a process has had resident, in KiB.
func peakMemory(t testing.TB, pid int) int {
	t.Helper()
	for line := range strings.Lines(string(mustRead(t, fmt.Sprintf("/proc/%d/status", pid)))) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(text), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return kib
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// wantWhole takes partition 0 and wants the events from 1 to last in it, each
// once and under its number, without holding them.
func (r *rig) wantWhole(last int) {
	r.t.Helper()
	came := make([]bool, last+1)
	err := r.onBroker(func(channel *amqp.Channel) error {
		deliveries, err := channel.Consume(r.queue(0), "", true, true, false, false, nil)
		if err != nil {
			return err
		}
		for n := 0; n < last; n++ {
			select {
			case m := <-deliveries:
				number, _ := m.Headers["sequence"].(int64)
				if number < 1 || number > int64(last) || came[number] || m.MessageId != idText(int(number)) {
					return fmt.Errorf("event %s came with sequence %d, of %d, again: %t", m.MessageId, number, last, number >= 1 && number <= int64(last) && came[number])
				}
				came[number] = true
			case <-time.After(patience):
				return fmt.Errorf("%d of %d events came", n, last)
			}
		}
		return nil
	})
	if err != nil {
		r.t.Fatal(err)
	}
}
