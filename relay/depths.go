package relay

import (
	"context"
	"time"

	"github.com/outboxrelay/relay/exchange"
)

const (
	depthInterval = 5 * time.Second  // between two looks at the queues
	depthLimit    = 4 * time.Second  // for one
	depthRest     = 15 * time.Second // after one that failed
)

// depths are the queues, as the broker last told. They are asked for only while
// somebody looks at the page.
type depths struct {
	list    []exchange.Queue
	at      time.Time // zero: not asked
	problem string    // why they are not known
}

// setQueues notes what the broker told.
func (b *board) setQueues(d depths) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.queues = d
}

// observed is how to ask for the queues; false: it is not known yet.
func (b *board) observed() (exchange.Config, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.login == nil {
		return exchange.Config{}, false
	}
	return *b.login, b.login.Partitions > 0
}

// observe asks for the queues while somebody looks, on one connection that is
// kept meanwhile, until ctx ends.
func (b *board) observe(ctx context.Context, looked func() bool) {
	var observer *exchange.Observer // nil: none is connected
	leave := func() {
		if observer != nil {
			observer.Close()
		}
		observer = nil
	}
	defer leave()
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	var due time.Time
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		cfg, known := b.observed()
		if !looked() {
			leave()
			b.setQueues(depths{})
			due = time.Time{}
			continue
		}
		if !known || time.Now().Before(due) {
			continue
		}
		list, err := ask(ctx, &observer, cfg)
		if err != nil {
			leave()
			b.setQueues(depths{problem: err.Error()})
			due = time.Now().Add(depthRest)
			continue
		}
		b.setQueues(depths{list: list, at: time.Now()})
		due = time.Now().Add(depthInterval)
	}
}

// ask asks once, and connects where there is no observer.
func ask(ctx context.Context, observer **exchange.Observer, cfg exchange.Config) (_ []exchange.Queue, err error) {
	ctx, cancel := context.WithTimeout(ctx, depthLimit)
	defer cancel()
	if *observer == nil {
		o, err := exchange.Observe(ctx, cfg)
		if err != nil {
			return nil, err
		}
		*observer = o
	}
	return (*observer).Queues(ctx)
}
