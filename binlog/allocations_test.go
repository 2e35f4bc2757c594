package binlog

import (
	"errors"
	"io"
	"testing"
)

// TestOwnAllocations: what an event of ours costs, from the connection to the Tx.
// Of a transaction these are its GTID's text, the Tx and its list of events; of a
// row event its payloads; of an event its id and aggregate id, in one.
func TestOwnAllocations(t *testing.T) {
	for _, tt := range []struct {
		rows, transactions int
		most               float64 // allocations for an event
	}{
		{1, 200, 5},
		{10, 100, 1.4},
		{1000, 3, 1.05},
	} {
		log := ownLoads(tt.rows).log(2 * tt.transactions)
		w := newWire().events(log.events...)
		count := func() float64 {
			st := gatherStream(t, &wire{data: w.data})
			st.assembler.decoder.table = seedTable(t)
			events := 0
			got := testing.AllocsPerRun(1, func() { // which reads half of the log before it counts
				for n := 0; n < tt.transactions; {
					tx, err := st.Next(t.Context())
					if errors.Is(err, io.ErrUnexpectedEOF) {
						return
					}
					if err != nil {
						t.Fatal(err)
					}
					if events += len(tx.Events); tx.Last {
						n++
					}
				}
			})
			if events != 2*tt.rows*tt.transactions {
				t.Fatalf("got %d events, want %d", events, 2*tt.rows*tt.transactions)
			}
			return got
		}
		// The count is the whole process's: what else allocates meanwhile is not in
		// the least of several.
		got := min(count(), count(), count())
		// The watch on the context takes three for each time that the connection is
		// read.
		got -= 3 * float64(len(w.data)/packetsRead+1) / 2
		if got /= float64(tt.rows * tt.transactions); got > tt.most {
			t.Errorf("transactions of %d: %.3f allocations for an event, want %.3f at most", tt.rows, got, tt.most)
		}
	}
}
