package relaytest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxrelay/relay/checkpoint"
)

const (
	startLimit   = 60 * time.Second // until a relay has declared, and delivered first
	stopLimit    = 90 * time.Second // from SIGTERM to the exit; the relay has a minute to drain
	cleanupLimit = 30 * time.Second
)

// stage is what a demo plays on: a fresh database, a user for the relay, fresh
// names on the broker, a directory for checkpoint and log, the writer, the
// consumers and the relay, a process that comes and goes.
type stage struct {
	config    DemoConfig
	dir       string
	server    string   // root DSN
	broker    string   // URL
	relayURL  string   // of the broker, as the relay is to reach it
	options   []string // of relay run, after those of every play
	name      string   // of database, user and exchange
	relayDSN  string   // with the grants that are documented, and no other
	unsaid    []string // what the relay's log must not have
	queues    []string
	db        *sql.DB
	writer    *Writer
	consumers *Consumers

	fail    context.CancelCauseFunc // ends the play with an error
	mu      sync.Mutex
	relay   *Process      // guarded by mu
	retired chan struct{} // closed when the end of relay is wanted; guarded by mu
}

// newStage sets everything up but starts nothing. The caller closes it, also
// after an error.
func newStage(ctx context.Context, config DemoConfig, fail context.CancelCauseFunc) (*stage, error) {
	s := &stage{config: config, name: freshName(), fail: fail}
	var err error
	if s.server, s.broker = config.MySQL, config.Broker; s.server == "" || s.broker == "" {
		server, broker, err := Addresses()
		if err != nil {
			return s, err
		}
		s.server, s.broker = cmp.Or(s.server, server), cmp.Or(s.broker, broker)
	}
	s.relayURL = s.broker
	if s.dir = config.Dir; s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "relay-demo-"); err != nil {
			return s, err
		}
	}
	s.queues = partitionQueues(s.name, config.Partitions)
	if err := s.setUpMySQL(ctx); err != nil {
		return s, err
	}
	s.writer = &Writer{DB: s.db, Rate: config.Rate, Burst: config.Backlog, Seed: config.Seed}
	if err := s.writer.Schema(ctx); err != nil {
		return s, err
	}
	s.consumers = &Consumers{URL: s.broker, Queues: s.queues, DB: s.db}
	if err := s.consumers.Schema(ctx); err != nil {
		return s, err
	}
	return s, s.setUpUser(ctx)
}

func (s *stage) setUpMySQL(ctx context.Context) error {
	dsn, err := createDatabase(ctx, s.server, s.name)
	if err != nil {
		return err
	}
	s.db, err = sql.Open("mysql", dsn)
	return err
}

// setUpUser makes the relay's own user, with the grants of the README.
func (s *stage) setUpUser(ctx context.Context) error {
	password := rand.Text()
	user := "`" + s.name + "`@'%'"
	err := execOn(ctx, s.server,
		"CREATE USER "+user+" IDENTIFIED BY '"+password+"'",
		"GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO "+user,
		"GRANT SELECT ON `"+s.name+"`.outbox TO "+user)
	if err != nil {
		return fmt.Errorf("relaytest: create the relay's user: %w", err)
	}
	cfg, err := mysql.ParseDSN(s.server)
	if err != nil {
		return err
	}
	cfg.User, cfg.Passwd, cfg.DBName = s.name, password, s.name
	s.unsaid = []string{password, payloadMark}
	s.relayDSN = cfg.FormatDSN()
	return nil
}

func (s *stage) checkpointPath() string { return filepath.Join(s.dir, "checkpoint.json") }
func (s *stage) logPath() string        { return filepath.Join(s.dir, "relay.log") }

// startRelay starts the relay. When it ends though nobody wanted it to, the
// play ends with an error.
func (s *stage) startRelay() error {
	command := Command{
		Binary: s.config.Relay,
		Args: append([]string{"run",
			"--exchange", s.name,
			"--partitions", strconv.Itoa(s.config.Partitions),
			"--checkpoint", s.checkpointPath(),
			"--drain-timeout=1m",
			"--listen="}, s.options...),
		Env:    []string{"RELAY_MYSQL_DSN=" + s.relayDSN, "RELAY_AMQP_URL=" + s.relayURL},
		Stderr: s.logPath(),
	}
	relay, err := command.Start()
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%w: run \"make build\"", err)
	}
	if err != nil {
		return err
	}
	retired := make(chan struct{})
	s.mu.Lock()
	s.relay, s.retired = relay, retired
	s.mu.Unlock()
	go func() {
		select {
		case <-retired:
		case <-relay.Done():
			select {
			case <-retired: // both at once
			default:
				s.fail(fmt.Errorf("the relay ended by itself, exit code %d:\n%s", relay.Wait(), relay.Tail()))
			}
		}
	}()
	return nil
}

// retire takes the relay off the stage, for the caller to end it. Nil: none.
func (s *stage) retire() *Process {
	s.mu.Lock()
	defer s.mu.Unlock()
	relay := s.relay
	if relay != nil {
		close(s.retired)
	}
	s.relay = nil
	return relay
}

// killRelay ends the relay with SIGKILL.
func (s *stage) killRelay() error {
	relay := s.retire()
	if relay == nil {
		return nil
	}
	return relay.Kill()
}

// stopRelay ends the relay with SIGTERM; it must exit 0 in time.
func (s *stage) stopRelay() error {
	relay := s.retire()
	if relay == nil {
		return errors.New("relaytest: no relay to stop")
	}
	if err := terminate(relay); err != nil {
		return err
	}
	if code := relay.Wait(); code != 0 {
		return fmt.Errorf("the relay ended after SIGTERM by %s, want exit code 0:\n%s", relay.cmd.ProcessState, relay.Tail())
	}
	return nil
}

// terminate sends SIGTERM to a relay that is up, and waits for its end.
func terminate(relay *Process) error {
	ctx, cancel := context.WithTimeout(context.Background(), startLimit)
	defer cancel()
	// Before its first word it may not hear the signal yet, and be ended by it.
	if err := poll(ctx, func() bool { return relay.spoke() || relay.ended() }); err != nil {
		return fmt.Errorf("the relay said nothing for %v", startLimit)
	}
	if err := relay.Terminate(); err != nil {
		return err
	}
	select {
	case <-relay.Done():
		return nil
	case <-time.After(stopLimit):
		_ = relay.Kill() // it is going to be an error anyway
		return fmt.Errorf("the relay did not end within %v after SIGTERM:\n%s", stopLimit, relay.Tail())
	}
}

// tail is the end of what the relay has said.
func (s *stage) tail() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.relay == nil {
		return ""
	}
	return s.relay.Tail()
}

// backfilled reports whether the relay has a checkpoint and its initial
// backfill behind it.
func (s *stage) backfilled() bool {
	state, err := checkpoint.Read(s.checkpointPath())
	return err == nil && state.Backfill == nil
}

// declared reports whether the relay has declared its queues.
func (s *stage) declared() bool {
	exist, err := queuesExist(s.broker, s.queues)
	if err != nil {
		s.fail(err)
	}
	return exist
}

// close ends the relay and removes what the stage made, but the directory.
func (s *stage) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), cleanupLimit)
	defer cancel()
	failures := []error{s.killRelay(), s.discreet()}
	if s.db != nil {
		failures = append(failures,
			removeTopology(s.broker, s.name, s.queues),
			execOn(ctx, s.server, "DROP USER IF EXISTS `"+s.name+"`@'%'"),
			dropDatabase(ctx, s.server, s.name),
			s.db.Close())
	}
	return errors.Join(failures...)
}

// discreet looks for what the relay's log must not have: its password, and what
// is in every payload.
func (s *stage) discreet() error {
	log, err := os.ReadFile(s.logPath())
	if errors.Is(err, os.ErrNotExist) {
		return nil // it was not started
	}
	for _, text := range s.unsaid {
		if err == nil && bytes.Contains(log, []byte(text)) {
			err = fmt.Errorf("relaytest: the relay's log %s has %q", s.logPath(), text)
		}
	}
	return err
}
