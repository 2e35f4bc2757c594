package relay

import (
	"context"
	"sync"

	"github.com/outboxrelay/relay/binlog"
)

// feed is what the reader has fetched and the session has not taken yet. While
// the session is busy the reader goes on, up to a bound; so the two wake each
// other once for many transactions.
type feed struct {
	most  int           // transactions and events
	ready chan struct{} // there is something to take
	room  chan struct{} // it was taken

	mu    sync.Mutex
	list  []*binlog.Tx
	size  int   // of list, in transactions and events
	bytes int   // of payloads
	err   error // why nothing follows
}

// feedBytes is how many bytes of payloads a feed holds before the reader waits.
const feedBytes = 256 << 10

func newFeed(most int) *feed {
	return &feed{most: most, ready: make(chan struct{}, 1), room: make(chan struct{}, 1)}
}

// fill fetches from the source until its end or that of the context.
func (f *feed) fill(ctx context.Context, source Source, pulse *pulse) {
	for {
		tx, err := source.Next(ctx)
		pulse.hand(false)
		full := f.put(tx, err)
		if err != nil {
			return
		}
		if full {
			pulse.hand(true)
			select {
			case <-f.room:
			case <-ctx.Done():
				return
			}
			pulse.hand(false)
		}
	}
}

// put adds what the source gave, and tells whether the feed is full.
func (f *feed) put(tx *binlog.Tx, err error) (full bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err = err; err == nil {
		f.list = append(f.list, tx)
		f.size += 1 + len(tx.Events)
		for i := range tx.Events {
			f.bytes += len(tx.Events[i].Payload)
		}
	}
	signal(f.ready)
	return f.size >= f.most || f.bytes >= feedBytes
}

// take hands over all that is there, and why nothing follows it; nil: something
// may.
func (f *feed) take() ([]*binlog.Tx, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := f.list
	f.list, f.size, f.bytes = nil, 0, 0
	signal(f.room)
	return list, f.err
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is not yet seen
	}
}
