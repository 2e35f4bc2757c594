package relay

import (
	"context"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/rs/zerolog"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

// patience bounds every wait of these tests.
const patience = 10 * time.Second

// fakeSource hands out what the test puts in.
type fakeSource struct {
	out chan fetched
}

// fetched is what a Source gives.
type fetched struct {
	tx  *binlog.Tx
	err error
}

func (f *fakeSource) Next(ctx context.Context) (*binlog.Tx, error) {
	select {
	case got := <-f.out:
		return got.tx, got.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (f *fakeSource) Close() {}

// fakeBroker keeps what is published until the test decides on it.
type fakeBroker struct {
	receipts chan []exchange.Receipt

	mu     sync.Mutex
	flying []*schema.Event // published and not decided
	sent   []string        // ids, as they were published
	most   int             // of flying
	err    error
	auto   bool // confirm everything at once
}

func newFakeBroker() *fakeBroker {
	return &fakeBroker{receipts: make(chan []exchange.Receipt, 1<<16)}
}

func (f *fakeBroker) Publish(events ...*schema.Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ev := range events {
		f.sent = append(f.sent, ev.ID)
		if f.auto {
			f.receipts <- []exchange.Receipt{{Event: ev}}
			continue
		}
		f.flying = append(f.flying, ev)
		f.most = max(f.most, len(f.flying))
	}
}

func (f *fakeBroker) Receipts() <-chan []exchange.Receipt { return f.receipts }
func (f *fakeBroker) Blocked() (string, bool)             { return "", false }

func (f *fakeBroker) Err() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

// decide gives the oldest event in flight its receipt.
func (f *fakeBroker) decide(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.receipts <- []exchange.Receipt{{Event: f.flying[0], Err: err}}
	f.flying = f.flying[1:]
}

// refuseAll nacks what is in flight.
func (f *fakeBroker) refuseAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ev := range f.flying {
		f.receipts <- []exchange.Receipt{{Event: ev, Err: exchange.ErrNacked}}
	}
	f.flying = nil
}

// confirmAll confirms what is in flight, and from now on everything at once.
func (f *fakeBroker) confirmAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ev := range f.flying {
		f.receipts <- []exchange.Receipt{{Event: ev}}
	}
	f.flying, f.auto = nil, true
}

// breakDown is the end of the connection.
func (f *fakeBroker) breakDown(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
	close(f.receipts)
}

func (f *fakeBroker) published() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.sent)
}

// trial is a session on fakes.
type trial struct {
	t      *testing.T
	source *fakeSource
	broker *fakeBroker
	file   *checkpoint.File
	board  *board
	stop   context.CancelFunc // as SIGTERM
	ended  chan error
}

type trialConfig struct {
	window int
	order  Order
	drain  time.Duration
	state  checkpoint.State
	owner  bool // of the queues
	wants  wants
	mark   func(ctx context.Context, ids []string) error
	lot    bool // bad events are parked
}

// begin runs a session from the state, or from transaction 10.
func begin(t *testing.T, c trialConfig) *trial {
	t.Helper()
	if c.window == 0 {
		c.window = 100
	}
	if c.order == "" {
		c.order = Strict
	}
	if c.drain == 0 {
		c.drain = patience
	}
	if c.state.Table == "" {
		c.state = start(10, 0)
	}
	file, err := checkpoint.Open(filepath.Join(t.TempDir(), "checkpoint.json"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	if err := file.Save(c.state); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	tr := &trial{
		t: t, source: &fakeSource{out: make(chan fetched)}, broker: newFakeBroker(), file: file,
		board: newBoard(), stop: stop, ended: make(chan error, 1),
	}
	s := &session{
		ledger: mustLedger(t, c.state), lanes: newLanes(c.order), file: file, source: tr.source, broker: tr.broker,
		window: c.window, declares: c.owner, drain: c.drain, board: tr.board, log: zerolog.Nop(),
		wants: c.wants, stamping: stamping{mark: c.mark},
	}
	s.ledger.stamps = c.mark != nil
	if c.lot {
		if s.lot, err = openLot(file.Path(), c.state); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.lot.close)
	}
	go func() { tr.ended <- s.run(ctx) }()
	t.Cleanup(func() {
		stop()
		tr.broker.confirmAll()
	})
	return tr
}

// give hands transactions to the session.
func (tr *trial) give(list ...*binlog.Tx) {
	tr.t.Helper()
	for _, tx := range list {
		tr.hand(fetched{tx: tx})
	}
}

func (tr *trial) hand(f fetched) {
	tr.t.Helper()
	select {
	case tr.source.out <- f:
	case <-time.After(patience):
		tr.t.Fatal("the session does not read")
	}
}

// until waits for a condition.
func (tr *trial) until(what string, condition func() bool) {
	tr.t.Helper()
	for deadline := time.Now().Add(patience); !condition(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			tr.t.Fatalf("waited %s in vain until %s", patience, what)
		}
	}
}

// wantSent waits until so many events were published, and compares them.
func (tr *trial) wantSent(want ...string) {
	tr.t.Helper()
	tr.until("enough is published", func() bool { return len(tr.broker.published()) >= len(want) })
	if got := tr.broker.published(); !slices.Equal(got, want) {
		tr.t.Fatalf("published %v, want %v", got, want)
	}
}

// end waits for the session's end.
func (tr *trial) end() error {
	tr.t.Helper()
	select {
	case err := <-tr.ended:
		return err
	case <-time.After(patience):
		tr.t.Fatal("the session does not end")
		return nil
	}
}

// wantSaved compares what stands on disk.
func (tr *trial) wantSaved(want progress) {
	tr.t.Helper()
	state, err := checkpoint.Read(tr.file.Path())
	if err != nil {
		tr.t.Fatal(err)
	}
	if diff := cmp.Diff(want, progressOf(state)); diff != "" {
		tr.t.Errorf("saved (-want +got):\n%s", diff)
	}
}

// following is what the session last showed.
func (tr *trial) following() bool {
	tr.board.mu.Lock()
	defer tr.board.mu.Unlock()
	return tr.board.now.following
}

// metrics gathers the figures by name, labels left out; of a histogram, its
// count.
func (tr *trial) metrics() map[string]float64 {
	tr.t.Helper()
	families, err := tr.board.registry.Gather()
	if err != nil {
		tr.t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			values[family.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

// carrying is an item on its way.
func carrying(e schema.Event) *item { return &item{event: &e} }
