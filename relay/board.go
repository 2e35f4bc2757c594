package relay

import (
	"cmp"
	"errors"
	"io/fs"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

// board is what the outside sees of a running relay: its metrics and whether
// it is ready. Its methods may be called by many goroutines.
type board struct {
	registry *prometheus.Registry

	published, confirmed, returned, nacked, transactions, parked prometheus.Counter
	pruned, pruneErrors                                          prometheus.Counter
	reconnects                                                   *prometheus.CounterVec
	latency                                                      prometheus.Histogram

	confirms atomic.Int64 // as confirmed, for who reads it each second

	mu        sync.Mutex
	about     about
	now       snapshot
	kept      checkpoint.State // as last saved
	source    bool             // connected
	broker    bool
	trouble   string // why the last session ended; empty: one is running
	stopping  bool   // the relay was told to
	ended     bool   // and it has, or by itself
	fault     string // that it ended with
	stalled   string // what does not move; empty: nothing
	troubles  troubles
	measures  bool  // the running session has measured
	behind    int64 // bytes of log, as last measured
	retention time.Duration
	asked     bool // retention was
	trace     trace
	word      state // as of the last sample
	since     time.Time
	queues    depths
	login     *exchange.Config // that the broker accepted last; nil: none yet
}

// about is what does not change in a session.
type about struct {
	source, product, table, layout string
	broker, exchange, checkpoint   string
	version                        string
	partitions, window             int
	interval                       time.Duration // between polls; 0: the relay follows the log
	started                        time.Time
}

// snapshot is one look at a session.
type snapshot struct {
	following bool
	ending    bool   // settles what is in flight
	blocked   bool   // by the broker
	reason    string // why it is not ready although it follows
	next      string // what to type about that; empty: what helps against refusals
	inFlight  int
	caughtUp  bool
	newest    time.Time // commit time of the newest settled transaction; of a poller, when the oldest pending row was created
	place     binlog.Place
}

// newBoard makes the metrics.
func newBoard() *board {
	b := &board{registry: prometheus.NewRegistry(), about: about{started: time.Now(), version: Version()}}
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
		b.registry.MustRegister(c)
		return c
	}
	gauge := func(name, help string, value func(*board) float64) {
		b.registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 {
			b.mu.Lock()
			defer b.mu.Unlock()
			return value(b)
		}))
	}
	b.published = counter("relay_events_published_total", "Events sent to the broker, those sent again included.")
	b.confirmed = counter("relay_events_confirmed_total", "Events that the broker confirmed and routed to a queue.")
	b.returned = counter("relay_events_returned_total", "Events that the broker routed to no queue.")
	b.nacked = counter("relay_events_nacked_total", "Events that the broker refused.")
	b.parked = counter("relay_events_parked_total", "Events put aside into the parked file, bad ones and those behind them.")
	b.pruned = counter("relay_pruned_rows_total", "Old rows deleted from the outbox, with --prune-after.")
	b.pruneErrors = counter("relay_prune_errors_total", "Walks over the outbox for old rows that ended with an error.")
	b.transactions = counter("relay_transactions_total", "Transactions read from the log, those without outbox rows included.")
	b.reconnects = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "relay_reconnects_total", Help: "Sessions begun again, by the side that failed."}, []string{"side"})
	b.latency = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "relay_publish_seconds",
		Help:    "From commit on the server, or with relay poll from created_at, to confirm, by the clocks of both machines.",
		Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	})
	b.registry.MustRegister(b.reconnects, b.latency, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	for _, side := range []string{"source", "broker"} {
		b.reconnects.WithLabelValues(side)
	}
	gauge("relay_events_in_flight", "Events admitted and not yet confirmed.", func(b *board) float64 { return float64(b.now.inFlight) })
	gauge("relay_window_events", "Events that may be in flight.", func(b *board) float64 { return float64(b.about.window) })
	gauge("relay_lag_seconds", "Now minus the commit time of the newest settled transaction, or with relay poll minus created_at of the oldest pending row; 0 when caught up.", (*board).lag)
	gauge("relay_lag_bytes", "Log written on the server past the relay's place, in bytes.", func(b *board) float64 { return float64(b.behind) })
	gauge("relay_binlog_retention_seconds", "Time for which the server keeps its log; +Inf: for ever.", func(b *board) float64 {
		if b.retention == 0 {
			return math.Inf(1)
		}
		return b.retention.Seconds()
	})
	gauge("relay_binlog_runway_seconds", "Time until the server may purge the relay's place; +Inf where it keeps its log for ever.", (*board).runway)
	gauge("relay_checkpoint_age_seconds", "Time since the checkpoint was saved. It is saved when it has moved.", func(b *board) float64 {
		if at := b.kept.SavedAt; !at.IsZero() {
			return since(at).Seconds()
		}
		return 0
	})
	gauge("relay_source_connected", "1 while the relay is connected to MySQL, or it is not MySQL that keeps it from relaying.", func(b *board) float64 { return number(b.source) })
	gauge("relay_broker_connected", "1 while the relay is connected to RabbitMQ, or it is not RabbitMQ that keeps it from relaying.", func(b *board) float64 { return number(b.broker) })
	gauge("relay_broker_blocked", "1 while RabbitMQ blocks publishing.", func(b *board) float64 { return number(b.now.blocked) })
	gauge("relay_parked_events", "Events that wait in the parked file.", func(b *board) float64 {
		if b.kept.Parked == nil {
			return 0
		}
		return float64(b.kept.Parked.Events)
	})
	gauge("relay_ready", "1 while the relay follows and publishes, as /readyz.", func(b *board) float64 { return number(b.relays()) })
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "relay_build_info", Help: "Always 1.", ConstLabels: prometheus.Labels{"version": Version()}})
	info.Set(1)
	b.registry.MustRegister(info)
	return b
}

func number(yes bool) float64 {
	if yes {
		return 1
	}
	return 0
}

// since is how long ago t was; 0 where a clock says that it is to come.
func since(t time.Time) time.Duration { return max(0, time.Since(t)) }

func (b *board) lag() float64 {
	if b.now.newest.IsZero() || (b.now.caughtUp && b.trouble == "") {
		return 0
	}
	return since(b.now.newest).Seconds()
}

func (b *board) lagSeconds() float64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.lag()
}

// runway counts from the newest settled transaction: its file can be purged
// no earlier than the retention after it.
func (b *board) runway() float64 {
	if b.retention == 0 || b.now.newest.IsZero() {
		return math.Inf(1)
	}
	if b.now.caughtUp && b.trouble == "" {
		return b.retention.Seconds()
	}
	return (b.retention - since(b.now.newest)).Seconds()
}

// transaction counts what was read.
func (b *board) transaction(tx *binlog.Tx) { b.transactions.Add(float64(tx.Count())) }

func (b *board) confirm(it *item, now time.Time) {
	b.confirmed.Inc()
	b.confirms.Add(1)
	switch {
	case it.tx == nil: // polled: the table does not tell when it was committed
		b.latency.Observe(max(0, now.Sub(it.event.CreatedAt)).Seconds())
	case !it.tx.GTID.IsZero():
		b.latency.Observe(max(0, now.Sub(it.tx.CommittedAt)).Seconds())
	}
}

func (b *board) refuse(why error) {
	var returned *exchange.ReturnError
	if errors.As(why, &returned) {
		b.returned.Inc()
	} else {
		b.nacked.Inc()
	}
}

func (b *board) show(now snapshot) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = now
	if b.trouble == "" && now.following {
		b.troubles.show(now.reason, time.Now())
	}
}

// connected notes how far a session has come.
func (b *board) connected(source, broker bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.source, b.broker = source, broker
	b.now.following, b.now.ending, b.now.reason = false, false, ""
	if source && broker {
		b.trouble = ""
	}
}

// lost counts a session that an error ended, by the side that it came from. The
// other side counts as connected: it is not what has to be mended. Of a disk that
// takes nothing neither is.
func (b *board) lost(side string, err error) {
	b.reconnects.WithLabelValues(side).Inc()
	b.mu.Lock()
	defer b.mu.Unlock()
	var disk *fs.PathError
	switch {
	case errors.As(err, &disk):
	case side == "source":
		b.source = false
	default:
		b.broker = false
	}
}

// failed notes the end of a session.
func (b *board) failed(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.trouble, b.measures = err.Error(), false
	b.now.following, b.now.reason, b.now.blocked = false, "", false
	b.troubles.add(b.trouble, time.Now())
}

// stop notes that the relay was told to stop.
func (b *board) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stopping = true
}

// stall notes what does not move; empty: all does.
func (b *board) stall(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.stalled = what
}

// lives tells whether the relay gets on, and if not, what does not.
func (b *board) lives() (what string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.stalled, b.stalled == ""
}

// end notes that the relay ends, with an error or nil.
func (b *board) end(err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ended = true; err != nil {
		b.fault = err.Error()
		b.troubles.add(b.fault, time.Now())
	}
}

// describe notes what the relay is to do.
func (b *board) describe(cfg Config, state checkpoint.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	a := &b.about
	if dsn, _, _, err := cfg.Source.Parse(); err == nil {
		a.source = dsn.Addr
	}
	a.table, a.broker, a.exchange = cmp.Or(state.Table, cfg.Source.Table), exchange.Address(cfg.Broker.URL), cfg.Broker.Exchange
	a.partitions, a.window, a.checkpoint = cfg.Broker.Partitions, cfg.Window, cfg.Checkpoint
	b.kept = state
}

// polls notes that the relay asks the table, and how often.
func (b *board) polls(interval time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.about.interval = interval
}

// command is the one that the relay runs by.
func (b *board) command() string {
	if b.about.interval > 0 {
		return "poll"
	}
	return "run"
}

// met notes which server has answered, and the table on it.
func (b *board) met(server *binlog.Server, table *schema.Table) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.about.source, b.about.product = server.Address(), server.Flavor.Product()
	b.about.table, b.about.layout = table.String(), string(table.Layout)
}

// accepted notes how the broker let the relay in.
func (b *board) accepted(cfg exchange.Config) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.login = &cfg
}

// saved notes the checkpoint that stands on disk.
func (b *board) saved(state checkpoint.State) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kept = state
}

// measured notes what the server said of its log.
func (b *board) measured(behind int64, retention time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.behind, b.retention, b.asked, b.measures = behind, retention, true, true
}

// place is where the running session stands in the log.
func (b *board) place() binlog.Place {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now.place
}

// ready tells whether the relay follows and publishes, and if not, why.
func (b *board) ready() (reason string, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.relays() {
		if b.about.interval > 0 {
			return "polling and publishing", true
		}
		return "following and publishing", true
	}
	_, reason = b.phase()
	return reason, false
}

// relays is ready with the lock held.
func (b *board) relays() bool {
	word, _ := b.phase()
	return word == stateFollowing || word == stateCatchingUp || word == stateBackfilling
}
