package relaytest

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxrelay/relay/schema"
)

// The tables beside the outbox: orders is the business row of each event, notes
// takes the rows of transactions that concern no outbox.
const (
	ordersSQL = `CREATE TABLE orders (
  id           BIGINT AUTO_INCREMENT PRIMARY KEY,
  aggregate_id BIGINT NOT NULL,
  detail       JSON NOT NULL)`
	notesSQL = `CREATE TABLE notes (id BIGINT AUTO_INCREMENT PRIMARY KEY, note VARCHAR(200) NOT NULL)`
)

// settleLimit is how long a commit with an unknown outcome may stay unknown
// before the writer gives up.
const settleLimit = 2 * time.Minute

// Writer is the load: goroutines that commit orders and their outbox rows in
// one transaction, roll some back, some in part to a savepoint, write beside
// the outbox, stamp and delete old outbox rows. It knows the commit order of
// each aggregate, because each belongs to one goroutine.
//
// It rides out a server that is gone for a while. After a commit whose answer
// was lost it asks the table.
type Writer struct {
	// DB is the application's database. Required.
	DB *sql.DB
	// Goroutines that write at the same time. Defaults to 4.
	Goroutines int
	// Aggregates in all, at least one for each goroutine. Defaults to 64.
	Aggregates int
	// Rate is events written per second, in all. Defaults to no limit.
	Rate float64
	// Burst is the number of events committed before Rate applies. Defaults
	// to 0.
	Burst int
	// Topics of which each aggregate has one. Defaults to order.placed.
	Topics []string
	// Seed of the generator: what is written follows from it. Defaults to 0.
	Seed uint64

	tidying   atomic.Bool
	xa        atomic.Bool
	committed atomic.Int64

	mu         sync.Mutex
	byAggr     map[string][]string // guarded by mu, as rolledBack
	rolledBack []string
}

// Schema creates the outbox, orders and notes.
func (w *Writer) Schema(ctx context.Context) error {
	for _, statement := range []string{schema.SQL, ordersSQL, notesSQL} {
		if _, err := w.DB.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("relaytest: create the writer's tables: %w", err)
		}
	}
	return nil
}

// AllowTidying makes the writer stamp and delete old outbox rows from now on.
// Before a relay's backfill has ended it must not: a row that is stamped counts
// as sent by somebody else, and one that is deleted was never seen.
func (w *Writer) AllowTidying() { w.tidying.Store(true) }

// AllowXA makes some of the transactions distributed ones from now on: prepared
// first, then committed or rolled back. A relay that begins to read the log in
// between refuses to go on, on whatever database of the server: use a private
// server, and wait until the relay follows.
func (w *Writer) AllowXA() { w.xa.Store(true) }

// Committed returns the number of events committed so far. Concurrent with Run.
func (w *Writer) Committed() int { return int(w.committed.Load()) }

// Log returns what was committed and what was rolled back so far, as the first
// half of a History. Concurrent with Run.
func (w *Writer) Log() History {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := History{Committed: make(map[string][]string), RolledBack: slices.Clone(w.rolledBack)}
	for aggregate, ids := range maps.All(w.byAggr) {
		h.Committed[aggregate] = slices.Clone(ids)
	}
	return h
}

// Run writes until ctx ends, then returns nil: no transaction is under way, and
// the outcome of each is known. It returns an error when the server refuses
// what it should not. Call it once.
func (w *Writer) Run(ctx context.Context) error {
	if w.Goroutines == 0 {
		w.Goroutines = 4
	}
	if w.Aggregates == 0 {
		w.Aggregates = 64
	}
	w.Aggregates = max(w.Aggregates, w.Goroutines)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	failures := make([]error, w.Goroutines)
	var group sync.WaitGroup
	for i := range w.Goroutines {
		group.Go(func() {
			s := &scribe{Writer: w, planner: newPlanner(w.Seed, i, w.Goroutines, w.Aggregates)}
			if failures[i] = s.run(ctx); failures[i] != nil {
				stop()
			}
		})
	}
	group.Wait()
	return errors.Join(failures...)
}

// record notes the outcome of a transaction.
func (w *Writer) record(p plan, committed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byAggr == nil {
		w.byAggr = make(map[string][]string)
	}
	for _, o := range p.kept() {
		if !committed {
			w.rolledBack = append(w.rolledBack, o.eventID())
			continue
		}
		aggregate := strconv.FormatInt(o.aggregate, 10)
		w.byAggr[aggregate] = append(w.byAggr[aggregate], o.eventID())
	}
	for _, o := range p.undone {
		w.rolledBack = append(w.rolledBack, o.eventID())
	}
	if committed {
		w.committed.Add(int64(len(p.kept())))
	}
}

// scribe is one goroutine of the writer.
type scribe struct {
	*Writer
	planner *planner
	old     [][16]byte // committed rows that are still in the table, oldest first
	created time.Time  // the newest created_at
}

func (s *scribe) run(ctx context.Context) error {
	next := time.Now()
	for ctx.Err() == nil {
		plan := s.planner.next(time.Now())
		if err := s.perform(ctx, plan); err != nil {
			return err
		}
		if err := s.tidy(); err != nil {
			return err
		}
		if s.Rate > 0 && s.Committed() >= s.Burst {
			share := float64(plan.events()) * float64(s.Goroutines) / s.Rate
			next = next.Add(time.Duration(share * float64(time.Second)))
			if behind := time.Since(next); behind > time.Second {
				next = next.Add(behind) // do not make up for an outage in a burst
			}
			if pause(ctx, time.Until(next)) != nil {
				break
			}
		}
	}
	return nil
}

// errUnsettled says that the outcome of a transaction could not be found out.
var errUnsettled = errors.New("a transaction stays unsettled")

// outcome is how a transaction ended.
type outcome int

const (
	rolledBack outcome = iota
	committed
	unknown // COMMIT was sent, and its answer was lost
)

// perform runs one transaction and records its outcome. It returns an error
// that no second try would mend.
func (s *scribe) perform(ctx context.Context, p plan) error {
	run := s.transaction
	if p.xa && s.xa.Load() {
		run = s.distributed
	}
	end, err := run(p)
	if end == unknown && !errors.Is(err, errUnsettled) {
		end, err = s.ask(p)
	}
	if err != nil && !transient(err) {
		return fmt.Errorf("relaytest: write: %w", err)
	}
	s.record(p, end == committed)
	if end == committed {
		for _, o := range p.kept() {
			s.old = append(s.old, o.id)
		}
	}
	if err != nil {
		_ = pause(ctx, 50*time.Millisecond) // the server may be restarting
	}
	return nil
}

// transaction runs p to its end, and says why it was rolled back where p does
// not want that.
func (s *scribe) transaction(p plan) (outcome, error) {
	tx, err := s.DB.Begin()
	if err != nil {
		return rolledBack, err
	}
	if err := s.statements(tx.Exec, p); err != nil {
		_ = tx.Rollback() // the connection's end rolls back as well
		return rolledBack, err
	}
	if p.rollback {
		return rolledBack, tx.Rollback()
	}
	if err := tx.Commit(); err != nil {
		return unknown, err
	}
	return committed, nil
}

// execute is the method of a transaction or a connection.
type execute func(query string, args ...any) (sql.Result, error)

func (s *scribe) statements(run execute, p plan) error {
	if p.note {
		if _, err := run("INSERT INTO notes (note) VALUES (?)", "INSERT INTO outbox"); err != nil {
			return err
		}
	}
	if err := s.insert(run, p.before, p.batch); err != nil {
		return err
	}
	if len(p.undone) > 0 {
		if _, err := run("SAVEPOINT part"); err != nil {
			return err
		}
		if err := s.insert(run, p.undone, p.batch); err != nil {
			return err
		}
		if _, err := run("ROLLBACK TO SAVEPOINT part"); err != nil {
			return err
		}
	}
	return s.insert(run, p.after, p.batch)
}

// insert writes the orders with their outbox rows, in order.
func (s *scribe) insert(run execute, orders []order, batch bool) error {
	size := 1
	if batch {
		size = 4
	}
	for chunk := range slices.Chunk(orders, size) {
		var business, outbox []any
		for _, o := range chunk {
			business = append(business, o.aggregate, o.payload)
			outbox = append(outbox, o.id[:], o.aggregate, s.topic(o.aggregate), o.payload, s.createdAt())
		}
		values := strings.Repeat(", (?, ?)", len(chunk))[2:]
		if _, err := run("INSERT INTO orders (aggregate_id, detail) VALUES "+values, business...); err != nil {
			return err
		}
		values = strings.Repeat(", (?, ?, ?, ?, 'pending', ?)", len(chunk))[2:]
		if _, err := run("INSERT INTO outbox (id, aggregate_id, topic, payload, status, created_at) VALUES "+values, outbox...); err != nil {
			return err
		}
	}
	return nil
}

// topic is that of an aggregate's events.
func (w *Writer) topic(aggregate int64) string {
	if len(w.Topics) == 0 {
		return "order.placed"
	}
	return w.Topics[uint64(aggregate)%uint64(len(w.Topics))]
}

// createdAt returns now, in UTC as DATETIME(6), and never the same time twice:
// a backfill has no other clue to the order within an aggregate.
func (s *scribe) createdAt() string {
	now := time.Now().UTC().Truncate(time.Microsecond)
	if !now.After(s.created) {
		now = s.created.Add(time.Microsecond)
	}
	s.created = now
	return now.Format("2006-01-02 15:04:05.000000")
}

// tidy stamps or deletes the oldest rows now and then, where it may.
func (s *scribe) tidy() error {
	const batch = 8
	if !s.tidying.Load() || len(s.old) < 4*batch || s.planner.random.IntN(10) > 0 {
		return nil
	}
	ids := s.old[:batch]
	statement := "UPDATE outbox SET status = 'published', published_at = UTC_TIMESTAMP(6) WHERE id IN "
	if s.planner.random.IntN(2) == 0 {
		statement, s.old = "DELETE FROM outbox WHERE id IN ", s.old[batch:]
	}
	if _, err := s.DB.Exec(statement+places(batch), binaries(ids)...); err != nil && !transient(err) {
		return fmt.Errorf("relaytest: tidy: %w", err)
	}
	return nil
}

// ask settles a commit of unknown outcome. The locking read waits until a
// transaction that is still under way has ended, on either side.
func (s *scribe) ask(p plan) (outcome, error) {
	ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
	defer cancel()
	kept := p.kept()
	if len(kept) == 0 {
		return committed, nil // there is nothing to tell it by, nor to tell
	}
	ids := make([][16]byte, len(kept))
	for i, o := range kept {
		ids[i] = o.id
	}
	query := "SELECT COUNT(*) FROM outbox WHERE id IN " + places(len(ids)) + " FOR SHARE"
	for {
		var found int
		err := s.DB.QueryRowContext(ctx, query, binaries(ids)...).Scan(&found)
		switch {
		case err == nil && found == 0:
			return rolledBack, nil
		case err == nil && found == len(ids):
			return committed, nil
		case err == nil:
			return unknown, fmt.Errorf("%w: %d of %d rows of one transaction", errUnsettled, found, len(ids))
		case pause(ctx, 100*time.Millisecond) != nil:
			return unknown, fmt.Errorf("%w: %v", errUnsettled, err)
		}
	}
}

// transient reports whether err is worth another try: the connection's, or a
// refusal by the server that is about the moment and not about the statement.
func transient(err error) bool {
	var refusal *mysql.MySQLError
	switch {
	case errors.Is(err, errUnsettled):
		return false
	case !errors.As(err, &refusal):
		return true
	}
	switch refusal.Number {
	case 1205, 1213: // lock wait timeout, deadlock
		return true
	case 1040, 1053, 1077, 1079, 1317, 1927, 3169, 4031: // connections, shutdown, killed, idle
		return true
	}
	return false
}

func places(n int) string { return "(" + strings.Repeat(", ?", n)[2:] + ")" }

func binaries(ids [][16]byte) []any {
	values := make([]any, len(ids))
	for i := range ids {
		values[i] = ids[i][:]
	}
	return values
}
