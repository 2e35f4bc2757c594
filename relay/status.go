package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

// Report is what Status prints.
type Report struct {
	At         time.Time         `json:"at"`
	Level      Level             `json:"level"`
	Reasons    []Reason          `json:"reasons"`
	Running    bool              `json:"running"`           // a relay holds the checkpoint's lock
	Process    int               `json:"process,omitempty"` // its process
	Checkpoint string            `json:"checkpoint"`        // path
	Relay      *RelayReport      `json:"relay,omitempty"`   // absent where none runs or it was not asked
	Problem    string            `json:"problem,omitempty"` // why the checkpoint cannot be read
	State      *checkpoint.State `json:"state,omitempty"`
	Parked     int               `json:"parked"` // events in the parked file
	LastError  *LastError        `json:"last_error,omitempty"`
	Source     SourceReport      `json:"source"`
	Broker     BrokerReport      `json:"broker"`
}

// SourceReport is how the checkpoint stands to the server's history.
type SourceReport struct {
	Address      string `json:"address"`
	Flavor       string `json:"flavor"` // mysql or mariadb
	Table        string `json:"table,omitempty"`
	Layout       string `json:"layout,omitempty"`        // that its columns were taken for
	TableProblem string `json:"table_problem,omitempty"` // why they could not be
	Error        string `json:"error,omitempty"`
	Executed     string `json:"gtid_executed,omitempty"`
	Behind       int64  `json:"transactions_behind"` // executed and not covered by the checkpoint
	Missing      string `json:"behind,omitempty"`    // which

	// BehindBytes is the log from the first transaction on that the checkpoint
	// lacks, or, with BehindAtMost, from the beginning of that one's file. Absent
	// while it is unknown.
	BehindBytes  *int64 `json:"bytes_behind,omitempty"`
	BehindAtMost bool   `json:"bytes_behind_at_most,omitempty"`

	// LagSeconds is now minus committed_at, and 0 when nothing is behind; absent
	// while it is unknown: behind, with no committed_at. RunwaySeconds is the time
	// until the server may purge the place; -1: never; absent while it is unknown.
	LagSeconds    *float64 `json:"lag_seconds,omitempty"`
	RunwaySeconds *float64 `json:"runway_seconds,omitempty"`

	// RunwayShare is how much of the retention is left, in time or bytes, 1 being
	// all; absent where it is unknown or the log is kept for ever.
	RunwayShare      *float64 `json:"runway_share,omitempty"`
	RetentionSeconds float64  `json:"retention_seconds"`          // 0: for ever
	RetentionBytes   int64    `json:"retention_bytes"`            // 0: without limit
	LogBytes         int64    `json:"log_bytes,omitempty"`        // that the server has
	Growth           float64  `json:"bytes_per_second,omitempty"` // of the log, about; absent while it is unknown

	// PreparedXA are the XA transactions that are prepared on the server, of all
	// tables; absent where the user may not ask. HeldXA are those that the
	// position, of MySQL, waits for.
	PreparedXA *int   `json:"prepared_xa,omitempty"`
	HeldXA     string `json:"held_xa,omitempty"`

	PositionProblem string `json:"position_problem,omitempty"`
}

// BrokerReport is what the broker holds.
type BrokerReport struct {
	Address  string `json:"address"`
	Version  string `json:"version,omitempty"`
	Error    string `json:"error,omitempty"`
	Exchange string `json:"exchange"`

	Partitions int              `json:"partitions,omitempty"` // of --partitions
	Queues     []exchange.Queue `json:"queues,omitempty"`     // of --partitions, else those that are bound

	// QueuesProblem is why it is not known which queues are bound: the management
	// API does not answer.
	QueuesProblem string `json:"queues_problem,omitempty"`
}

// StatusOptions are how Status prints, and when it warns.
type StatusOptions struct {
	JSON     bool
	Watch    bool // again and again, until the context ends
	Terminal bool // out is one: what is watched is drawn in place
	Thresholds
}

// Status prints where the relay stands, from the checkpoint file and the
// servers, whether or not one runs. The error wraps ErrDifferences when the
// position cannot be followed any more, or a threshold says that this is near,
// and ErrUnavailable when a server does not answer.
func Status(ctx context.Context, cfg Config, options StatusOptions, out io.Writer) error {
	cfg.setDefaults()
	if _, _, _, err := cfg.Source.Parse(); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	if options.Watch {
		return watch(ctx, cfg, options, out)
	}
	var l lookout
	report, err := l.look(ctx, cfg)
	report.judge(options.Thresholds)
	var printErr error
	if options.JSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		printErr = encoder.Encode(report)
	} else {
		told := err
		if told == nil {
			told = errors.New(report.Source.PositionProblem)
		}
		report.print(out, told)
	}
	switch {
	case printErr != nil:
		return printErr
	case report.Problem != "":
		return err
	case err != nil: // on standard error
		return unavailable(err)
	case report.Source.PositionProblem != "":
		return fmt.Errorf("%w: %s", ErrDifferences, report.Source.PositionProblem)
	case report.Level == Critical:
		return fmt.Errorf("%w: %s", ErrDifferences, report.reasons(Critical))
	}
	return nil
}

// deepInterval is the time between two looks at what costs a server more to
// tell, while it is looked at again and again.
const deepInterval = 10 * time.Second

// lookout looks where a relay stands. It remembers of an earlier look what costs
// a server more to tell.
type lookout struct {
	deep   time.Time     // when it was last asked for; zero: never
	log    binlog.Log    // as of then
	start  *binlog.Start // of what the position lacks; nil: not known
	at     string        // the position of that
	queues exchange.Survey
	silent error // of the management API
}

// look returns what it found also with an error: with Report.Problem that of
// the files, else that of a server.
func (l *lookout) look(ctx context.Context, cfg Config) (Report, error) {
	r := Report{At: time.Now().UTC(), Checkpoint: cfg.Checkpoint, Reasons: []Reason{}}
	position, fileErr := r.readFiles(cfg.Checkpoint)
	if fileErr != nil {
		r.Problem = fileErr.Error()
	}
	if r.Running && cfg.Listen != "" {
		r.Relay = askRelay(ctx, cfg.Listen, cfg.Checkpoint, r.Process)
	}
	deep := l.deep.IsZero() || time.Since(l.deep) >= deepInterval
	if deep {
		l.deep = time.Now()
	}
	sourceErr := l.askSource(ctx, &r, cfg.Source, position, deep)
	brokerErr := l.askBroker(ctx, &r, cfg.Broker, deep)
	return r, cmp.Or(fileErr, sourceErr, brokerErr)
}

// readFiles returns the position; nil where there is none, or none that can be
// read.
func (r *Report) readFiles(path string) (position *binlog.GTIDSet, err error) {
	r.Process, r.Running = checkpoint.Held(path)
	state, err := checkpoint.Read(path)
	if err == nil {
		position, err = binlog.ParseGTIDSet(state.GTIDSet)
	}
	if err == nil {
		r.State = &state
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	real, pathErr := checkpoint.Path(path)
	if pathErr != nil {
		return position, cmp.Or(err, unfit(pathErr))
	}
	r.LastError, _ = readLast(real) // one that cannot be read is not known
	parked, _, parkedErr := readParked(real + parkedSuffix)
	r.Parked = len(parked)
	return position, cmp.Or(err, parkedErr)
}

func (l *lookout) askSource(ctx context.Context, r *Report, cfg binlog.Config, position *binlog.GTIDSet, deep bool) (err error) {
	defer func() {
		if err != nil {
			r.Source.Error = err.Error()
		}
	}()
	if dsn, _, _, err := cfg.Parse(); err == nil {
		r.Source.Address = dsn.Addr
	}
	server, err := binlog.Open(ctx, cfg)
	if err != nil {
		return err
	}
	defer server.Close()
	r.Source.Address, r.Source.Flavor = server.Address(), string(server.Flavor)
	if r.State != nil && r.State.Flavor != r.Source.Flavor {
		return sameOutbox(r.Checkpoint, *r.State, server.Flavor, r.State.Table)
	}
	executed, err := server.Executed(ctx)
	if err != nil {
		return err
	}
	r.Source.Executed = executed.String()
	r.Source.Table = server.TableName()
	switch table, err := server.Table(ctx); {
	case err == nil:
		r.Source.Table, r.Source.Layout = table.String(), string(table.Layout)
	case errors.Is(err, schema.ErrTable), errors.Is(err, binlog.ErrGrant):
		r.Source.TableProblem = err.Error()
	default:
		return err
	}
	if n, known, err := server.Prepared(ctx); err != nil {
		return err
	} else if known {
		r.Source.PreparedXA = &n
	}
	if err := l.askLog(ctx, r, server, deep); err != nil || position == nil {
		return err
	}
	return l.askPlace(ctx, r, server, position, executed, deep)
}

// askLog finds out how much log there is, and how much is kept.
func (l *lookout) askLog(ctx context.Context, r *Report, server *binlog.Server, deep bool) error {
	log, err := server.Log(ctx, deep)
	if err != nil && !binlog.Denied(err) { // then its size is not known
		return err
	}
	if !deep {
		log.Since, log.Age = l.log.Since, l.log.Age
	}
	l.log = log
	r.Source.RetentionSeconds, r.Source.RetentionBytes = log.Retention.Seconds(), log.Limit
	r.Source.LogBytes, r.Source.Growth = log.Bytes, log.Growth()
	return nil
}

// askPlace finds out how the position stands to the server's log.
func (l *lookout) askPlace(ctx context.Context, r *Report, server *binlog.Server, position, executed *binlog.GTIDSet, deep bool) error {
	behind, err := server.Subtract(ctx, executed, position)
	if err != nil {
		return err
	}
	r.Source.place(behind, r.State.CommittedAt)
	held := position.Passed(executed)
	r.Source.HeldXA = held.String()
	switch err := server.CheckPosition(ctx, position); {
	case errors.Is(err, binlog.ErrPurged), errors.Is(err, binlog.ErrDiverged):
		r.Source.PositionProblem = err.Error()
		if errors.Is(err, binlog.ErrPurged) {
			r.Source.RunwaySeconds, r.Source.RunwayShare = new(float64), new(float64)
		}
		return nil
	case err != nil:
		return err
	}
	since := r.State.CommittedAt
	if behind.IsEmpty() {
		r.Source.BehindBytes = new(int64)
	} else {
		created, err := l.seek(ctx, r, server, position, deep)
		if err != nil {
			return err
		}
		if since.IsZero() || !held.IsEmpty() { // the place is before what was last settled
			since = created
		}
	}
	r.Source.runway(since, l.log)
	return nil
}

// seek notes how much log there is behind the position, and returns when the
// file of its place was begun; zero: not known.
func (l *lookout) seek(ctx context.Context, r *Report, server *binlog.Server, position *binlog.GTIDSet, deep bool) (time.Time, error) {
	for {
		fresh := l.start == nil || deep && l.at != position.String()
		if fresh {
			start, err := server.Seek(ctx, position, true)
			if binlog.Denied(err) {
				return time.Time{}, nil
			}
			if err != nil {
				return time.Time{}, err
			}
			l.start, l.at = &start, position.String()
		}
		bytes, err := server.Past(ctx, *l.start)
		switch {
		case errors.Is(err, binlog.ErrPlace) && !fresh: // it was purged, behind a position that has moved
			l.start = nil
			continue
		case binlog.Denied(err):
			return l.start.Created, nil
		case err != nil:
			return time.Time{}, err
		}
		r.Source.BehindBytes, r.Source.BehindAtMost = &bytes, !l.start.Exact || l.at != position.String()
		return l.start.Created, nil
	}
}

// place notes how far behind the checkpoint is.
func (s *SourceReport) place(behind *binlog.GTIDSet, committedAt time.Time) {
	s.Behind, s.Missing = behind.Count(), behind.String()
	lag := 0.0
	if !behind.IsEmpty() {
		if committedAt.IsZero() {
			return
		}
		lag = since(committedAt).Seconds()
	}
	s.LagSeconds = &lag
}

// runway notes how long the server keeps the place. Its file is purged no
// earlier than the retention after at, a time before which nothing is needed,
// or when the log behind it reaches the limit. A zero time: unknown.
func (s *SourceReport) runway(at time.Time, log binlog.Log) {
	left := func(seconds, share float64, timed bool) {
		if share = max(0, share); s.RunwayShare == nil || share < *s.RunwayShare {
			s.RunwayShare = &share
		}
		if seconds = max(0, seconds); timed && (s.RunwaySeconds == nil || seconds < *s.RunwaySeconds) {
			s.RunwaySeconds = &seconds
		}
	}
	if log.Retention > 0 && (s.Behind == 0 || !at.IsZero()) {
		seconds := log.Retention.Seconds()
		if s.Behind > 0 {
			seconds -= since(at).Seconds()
		}
		left(seconds, seconds/log.Retention.Seconds(), true)
	}
	if log.Limit > 0 && s.BehindBytes != nil {
		room, growth := float64(log.Limit-*s.BehindBytes), log.Growth()
		left(room/max(growth, 1e-9), room/float64(log.Limit), growth > 0)
	}
	if log.Retention == 0 && log.Limit == 0 {
		never := -1.0
		s.RunwaySeconds = &never
	}
}

func (l *lookout) askBroker(ctx context.Context, r *Report, cfg exchange.Config, deep bool) error {
	r.Broker.Address, r.Broker.Exchange, r.Broker.Partitions = exchange.Address(cfg.URL), cfg.Exchange, cfg.Partitions
	topology, err := exchange.Inspect(ctx, cfg)
	r.Broker.Version, r.Broker.Queues = topology.Version, topology.Queues
	if err == nil {
		err = topology.ExchangeErr
	}
	if err != nil {
		r.Broker.Error = err.Error()
		return err
	}
	if cfg.Partitions > 0 {
		return nil
	}
	if deep || l.silent == nil {
		l.queues, l.silent = exchange.Ask(ctx, cfg)
	}
	if l.silent != nil {
		r.Broker.QueuesProblem = l.silent.Error()
	}
	var names []string
	for _, q := range l.queues.Queues {
		names = append(names, q.Name)
		r.Broker.Queues = append(r.Broker.Queues, exchange.Queue{Name: q.Name, Found: q.Type != "", Messages: q.Ready, Consumers: q.Consumers})
	}
	if len(names) == 0 {
		return nil
	}
	if fresh, err := exchange.Depths(ctx, cfg, names); err == nil { // what the API tells is some seconds old
		r.Broker.Queues = fresh
	}
	return nil
}
