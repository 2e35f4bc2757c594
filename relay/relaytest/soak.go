package relaytest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
)

const (
	// recoverLimit is how long the relay may take to have caught up after a
	// round. Its longest wait between two sessions is 22 seconds.
	recoverLimit = 75 * time.Second
	// soakWindow is the relay's window: small, so that the bound on duplicates
	// says something.
	soakWindow = 512
	// soakLag is how far behind, in seconds, a relay has caught up: the load
	// goes on.
	soakLag = 1
)

// SoakConfig says how a soak is to be.
type SoakConfig struct {
	// Relay is the path of the relay's binary. Required.
	Relay string
	// Seed of what is written and of the faults. Defaults to 0.
	Seed uint64
	// Duration of the rounds. Defaults to 20 minutes.
	Duration time.Duration
	// Longest is the longest time for which a link is stalled. Defaults to 20s.
	Longest time.Duration
	// Rate is events written per second. Defaults to 300.
	Rate float64
}

// soak is a demo with servers of its own between two proxies, and faults
// instead of kills.
type soak struct {
	*demo
	config     SoakConfig
	dir        string
	mysqld     *server
	rabbit     *server
	links      [2]*Proxy // to MySQL, to the broker
	deck       *deck
	monitor    *monitor
	brokerAway atomic.Bool // in this round
	stuck      error       // why the relay did not catch up: the last round; what came is judged

	mu     sync.Mutex
	round  int            // guarded by mu, as what follows
	now    []string       // names of the round's faults
	struck map[string]int // by name
	breaks int            // faults that can have ended a session
}

func (s *soak) mysqlServer() *server  { return s.mysqld }
func (s *soak) brokerServer() *server { return s.rabbit }
func (s *soak) mysqlLink() *Proxy     { return s.links[0] }
func (s *soak) brokerLink() *Proxy    { return s.links[1] }

// Soak plays the main job on servers of its own, through rounds of faults: of
// the relay, of MySQL, of the broker and of the links to both, one or two at a
// time. After each round the relay must catch up by itself. Then all is judged
// as in Demo. Progress goes to out.
//
// In the last third the relay itself is left alone, so that one process lives
// through many faults, and what it leaks is seen.
//
// The error says what kept the soak from its end: then the relay's log is kept,
// and the servers' logs. Without one, SoakReport.OK tells whether the promises
// were kept.
func Soak(ctx context.Context, config SoakConfig, out io.Writer) (report SoakReport, err error) {
	if config.Duration == 0 {
		config.Duration = 20 * time.Minute
	}
	if config.Longest == 0 {
		config.Longest = 20 * time.Second
	}
	if config.Rate == 0 {
		config.Rate = 300
	}
	dir, err := os.MkdirTemp("", "relay-soak-")
	if err != nil {
		return report, err
	}
	s := &soak{
		config: config, dir: dir, struck: map[string]int{},
		deck: &deck{random: rand.New(rand.NewPCG(config.Seed, 1<<33))},
	}
	play, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	if err = s.serve(play); err == nil {
		report.Verdict, err = s.play(play, fail, out)
	}
	if cause := context.Cause(play); cause != nil {
		err = cause // not what followed from it
	}
	s.account(&report)
	if err = errors.Join(s.stuck, err); err != nil {
		err = fmt.Errorf("round %d (%s), seed %d: %w", s.round, strings.Join(s.now, " and "), config.Seed, err)
	}
	return report, errors.Join(err, s.leave(ctx.Err() == nil && (err != nil || !report.OK())))
}

// serve starts the two servers, and the proxies in front of them.
func (s *soak) serve(ctx context.Context) error {
	var err error
	// The servers are killed, the machine is not: what the system has been given
	// survives, and the disk is left in peace.
	if s.mysqld, err = newServer(kindMySQL, filepath.Join(s.dir, "mysqld"), "--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2", "--log-error-verbosity=3"); err != nil {
		return err
	}
	if s.rabbit, err = newServer(kindBroker, filepath.Join(s.dir, "rabbitmq")); err != nil {
		return err
	}
	for i, server := range []*server{s.mysqld, s.rabbit} {
		if s.links[i], err = StartProxy(server.addr()); err != nil {
			return err
		}
	}
	failures := make(chan error, 2)
	go func() { failures <- s.rabbit.start(ctx) }()
	failures <- s.mysqld.start(ctx)
	return errors.Join(<-failures, <-failures)
}

// play is the whole job, from the first row to the verdict.
func (s *soak) play(ctx context.Context, fail context.CancelCauseFunc, out io.Writer) (Verdict, error) {
	stage, err := newStage(ctx, DemoConfig{
		Relay: s.config.Relay, Seed: s.config.Seed, Duration: s.config.Duration, Rate: s.config.Rate, Dir: s.dir,
		MySQL: s.mysqld.url(), Broker: s.rabbit.url(), XA: true, Backlog: 1, Partitions: 4,
	}, fail)
	s.demo = &demo{stage: stage, screen: newScreen(out), begun: time.Now(), act: s.rounds, news: s.news}
	if err != nil {
		return Verdict{}, err
	}
	if err := s.route(); err != nil {
		return Verdict{}, err
	}
	// A quorum queue drops a message that came back twenty times: consumers
	// whose database is away would lose theirs within seconds.
	if err := s.rabbit.policy(ctx, "all", ".*", `{"delivery-limit":-1}`, 0); err != nil {
		return Verdict{}, err
	}
	return s.demo.play(ctx)
}

// route leads the relay through the proxies, and lets it be watched.
func (s *soak) route() error {
	cfg, err := mysql.ParseDSN(s.relayDSN)
	if err != nil {
		return err
	}
	cfg.Addr = s.mysqlLink().Addr()
	port, err := findPort()
	if err != nil {
		return err
	}
	address := fmt.Sprintf("127.0.0.1:%d", port)
	s.relayDSN, s.relayURL = cfg.FormatDSN(), urlAt(kindBroker, s.brokerLink().Addr())
	s.options = []string{"--listen=" + address, fmt.Sprintf("--window=%d", soakWindow), "--drain-timeout=5s"}
	s.monitor = newMonitor(address)
	return nil
}

// leave ends all that the soak started, and removes it; but not the logs of
// one that failed.
func (s *soak) leave(failed bool) error {
	var failures []error
	if s.demo != nil {
		failures = append(failures, s.killRelay())
		if s.db != nil {
			failures = append(failures, s.db.Close())
		}
	}
	for _, link := range s.links {
		if link != nil {
			link.Close()
		}
	}
	for _, server := range []*server{s.mysqld, s.rabbit} {
		if server != nil {
			failures = append(failures, server.end(syscall.SIGKILL), os.RemoveAll(server.dir))
		}
	}
	if failed {
		return errors.Join(append(failures, fmt.Errorf("the logs of the relay and the servers are kept: %s", s.dir))...)
	}
	return errors.Join(append(failures, os.RemoveAll(s.dir))...)
}

// rounds goes on with faults until the time is over.
func (s *soak) rounds(ctx context.Context) error {
	if err := s.await(ctx, startLimit, "the first event is delivered", func() bool { return s.consumers.Delivered() > 0 }); err != nil {
		return err
	}
	watching, stop := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		s.monitor.run(watching)
	}()
	defer func() {
		stop()
		<-watched
	}()
	start := time.Now()
	for round := 1; time.Since(start) < s.config.Duration && s.stuck == nil; round++ {
		var spared group
		if time.Since(start) > s.config.Duration*2/3 {
			spared = ofRelay
		}
		if err := s.strikeRound(ctx, round, s.deck.deal(spared)); err != nil {
			return err
		}
	}
	return nil
}

// strikeRound strikes with the faults of a round at the same time, and waits
// until the relay has caught up.
func (s *soak) strikeRound(ctx context.Context, round int, hand []*fault) error {
	s.mu.Lock()
	s.round, s.now = round, nil
	away := false
	for _, f := range hand {
		s.now = append(s.now, f.name)
		s.struck[f.name]++
		if f.breaks {
			s.breaks++
		}
		away = away || f.group == ofBroker || f.group == ofBrokerLink
	}
	s.mu.Unlock()
	s.brokerAway.Store(away)
	failures := make([]error, len(hand))
	var group sync.WaitGroup
	for i, f := range hand {
		random := rand.New(rand.NewPCG(s.config.Seed, uint64(round)<<8|uint64(i)))
		group.Go(func() { failures[i] = f.strike(s, ctx, random) })
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		return err
	}
	committed := s.writer.Committed()
	if err := s.await(ctx, recoverLimit, "the relay has caught up", func() bool { return s.caughtUp(committed) }); err != nil {
		if ctx.Err() != nil {
			return err
		}
		s.stuck = err
		return nil
	}
	s.monitor.mark()
	return nil
}

// caughtUp reports whether the relay is at work, has nothing left but what is
// being written now, and as many events have come as had been committed when the
// round's faults were over. Which ones, the verdict tells.
func (s *soak) caughtUp(committed int) bool {
	if s.consumers.Delivered() < committed || !s.monitor.ready() {
		return false
	}
	metrics := s.monitor.read()
	return metrics != nil && metrics["relay_lag_seconds"] < soakLag
}

// confirmed is the relay's own count; 0 when it does not answer.
func (s *soak) confirmed() float64 { return s.monitor.read()["relay_events_confirmed_total"] }

// news is for the line of progress.
func (s *soak) news() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	faults := 0
	for _, n := range s.struck {
		faults += n
	}
	return fmt.Sprintf("round %d  faults %d  %s", s.round, faults, strings.Join(s.now, " and "))
}
