//go:build faults

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
	// envSoak asks for the memory test's full size: make soak-memory.
	envSoak = "RELAY_TEST_SOAK_MEMORY"
	// memoryLimit is what a relay may take, in KiB.
	memoryLimit = 128 << 10
)

// TestFaultRelayMemory: one transaction of 100,000 rows of 400 bytes, or, asked
// for by the environment, of 1,000,000, plain and compressed. The relay's
// memory stays under 128 MiB. Held whole, the large form takes a gigabyte. The
// compressed one is a single event, which the library reads whole, into a
// buffer that doubles: beyond 32 MB of it, as of rows that hardly compress, the
// limit does not hold.
func TestFaultRelayMemory(t *testing.T) {
	t.Parallel()
	rows, limit := 100_000, 4*patience
	if os.Getenv(envSoak) != "" {
		rows, limit = 1_000_000, 15*time.Minute
	}
	server := relaytest.PrivateMySQL(t)
	for name, setting := range map[string]string{"plain": "OFF", "compressed": "ON"} {
		t.Run(name, func(t *testing.T) {
			r := rigOn(t, databaseOn(t, server), schema.SQL).begun()
			r.bulk(1, rows, 400, "SET SESSION binlog_transaction_compression = "+setting)
			d := r.start("--partitions", "1")
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
			t.Logf("%d rows, %s: peak resident memory %d KiB", rows, name, peak)
			if peak > memoryLimit {
				t.Errorf("the relay took %d KiB, more than %d", peak, memoryLimit)
			}
			r.wantWhole(rows)
		})
	}
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
