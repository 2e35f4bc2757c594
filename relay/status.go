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
	Checkpoint string            `json:"checkpoint"` // path
	State      *checkpoint.State `json:"state,omitempty"`
	Parked     int               `json:"parked"` // events in the parked file
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
	// LagSeconds is now minus committed_at, and 0 when nothing is behind.
	// RunwaySeconds is the time until the server may purge the place; -1: never.
	// Both are absent while they are unknown: behind, with no committed_at.
	LagSeconds      *float64 `json:"lag_seconds,omitempty"`
	RunwaySeconds   *float64 `json:"runway_seconds,omitempty"`
	PositionProblem string   `json:"position_problem,omitempty"`
}

// BrokerReport is what the broker holds.
type BrokerReport struct {
	Address  string           `json:"address"`
	Error    string           `json:"error,omitempty"`
	Exchange string           `json:"exchange"`
	Queues   []exchange.Queue `json:"queues,omitempty"`
}

// Status prints where the relay stands, from the checkpoint file and the
// servers, whether or not one runs. The error wraps ErrDifferences when the
// position cannot be followed any more, and ErrUnavailable when a server does
// not answer.
func Status(ctx context.Context, cfg Config, asJSON bool, out io.Writer) error {
	cfg.setDefaults()
	if _, _, _, err := cfg.Source.Parse(); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	report := Report{Checkpoint: cfg.Checkpoint}
	position, err := report.readCheckpoint(cfg.Checkpoint)
	if err != nil {
		return err
	}
	path, err := checkpoint.Path(cfg.Checkpoint)
	if err != nil {
		return unfit(err)
	}
	parked, _, err := readParked(path + parkedSuffix)
	if err != nil {
		return err
	}
	report.Parked = len(parked)
	sourceErr := report.askSource(ctx, cfg.Source, position)
	brokerErr := report.askBroker(ctx, cfg.Broker)
	told := cmp.Or(sourceErr, brokerErr) // on standard error
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(report)
	} else {
		report.print(out, told)
	}
	switch {
	case err != nil:
		return err
	case told != nil:
		return unavailable(told)
	case report.Source.PositionProblem != "":
		return fmt.Errorf("%w: %s", ErrDifferences, report.Source.PositionProblem)
	}
	return nil
}

// readCheckpoint returns the position; nil where there is no checkpoint yet.
func (r *Report) readCheckpoint(path string) (*binlog.GTIDSet, error) {
	state, err := checkpoint.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	r.State = &state
	return binlog.ParseGTIDSet(state.GTIDSet)
}

func (r *Report) askSource(ctx context.Context, cfg binlog.Config, position *binlog.GTIDSet) (err error) {
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
	if position == nil {
		return nil
	}
	behind, err := server.Subtract(ctx, executed, position)
	if err != nil {
		return err
	}
	retention, err := server.Retention(ctx)
	if err != nil {
		return err
	}
	r.Source.place(behind, r.State.CommittedAt, retention)
	err = server.CheckPosition(ctx, position)
	if errors.Is(err, binlog.ErrPurged) || errors.Is(err, binlog.ErrDiverged) {
		r.Source.PositionProblem = err.Error()
		return nil
	}
	return err
}

// place notes how far behind the checkpoint is. A retention of 0 is for ever.
func (s *SourceReport) place(behind *binlog.GTIDSet, committedAt time.Time, retention time.Duration) {
	s.Behind, s.Missing = behind.Count(), behind.String()
	known, lag, runway := true, 0.0, -1.0
	if !behind.IsEmpty() {
		known, lag = !committedAt.IsZero(), since(committedAt).Seconds()
	}
	if retention > 0 {
		runway = max(0, retention.Seconds()-lag)
	}
	if known {
		s.LagSeconds = &lag
	}
	if known || retention == 0 {
		s.RunwaySeconds = &runway
	}
}

func (r *Report) askBroker(ctx context.Context, cfg exchange.Config) error {
	r.Broker.Address, r.Broker.Exchange = exchange.Address(cfg.URL), cfg.Exchange
	topology, err := exchange.Inspect(ctx, cfg)
	if err == nil {
		err = topology.ExchangeErr
	}
	if err != nil {
		r.Broker.Error = err.Error()
		return err
	}
	r.Broker.Queues = topology.Queues
	return nil
}

// print leaves out the error that is told elsewhere.
func (r *Report) print(out io.Writer, told error) {
	trouble := func(text, address string) string {
		if told != nil && text == told.Error() {
			return "at " + address + ": see the last line"
		}
		return text
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	if s := r.State; s != nil {
		line("checkpoint", "%s, saved %s ago", r.Checkpoint, time.Since(s.SavedAt).Round(time.Second))
		line("table", "%s", s.Table)
		line("position", "%s", s.GTIDSet)
		line("sequence", "%d", s.Sequence)
		if s.Partial != nil {
			line("partial", "%d events of %s", s.Partial.Events, s.Partial.GTID)
		}
		if s.Backfill != nil {
			line("backfill", "at %s of %s", s.Backfill.After, s.Backfill.Until)
		}
	} else {
		line("checkpoint", "%s: none yet", r.Checkpoint)
	}
	if r.Parked > 0 {
		line("parked", "%d events wait in %s: relay replay --parked --dry-run", r.Parked, r.Checkpoint+parkedSuffix)
	}
	if r.Source.Error != "" {
		line("source", "%s", trouble(r.Source.Error, r.Source.Address))
	} else {
		line("source", "%s at %s, executed %s", binlog.Flavor(r.Source.Flavor).Product(), r.Source.Address, r.Source.Executed)
		if r.Source.TableProblem != "" {
			line("layout", "%s", r.Source.TableProblem)
		} else {
			line("layout", "%s, of %s", r.Source.Layout, r.Source.Table)
		}
	}
	if r.State != nil && r.Source.Error == "" {
		if lag := r.Source.LagSeconds; lag != nil {
			line("behind", "%d transactions, %.1f s", r.Source.Behind, *lag)
		} else {
			line("behind", "%d transactions, for an unknown time: none was settled yet", r.Source.Behind)
		}
		switch runway := r.Source.RunwaySeconds; {
		case runway == nil:
			line("runway", "unknown")
		case *runway < 0:
			line("runway", "the server keeps its log for ever")
		default:
			line("runway", "%s until the server may purge the place", time.Duration(*runway*float64(time.Second)).Round(time.Second))
		}
	}
	if r.Broker.Error != "" {
		line("broker", "%s", trouble(r.Broker.Error, r.Broker.Address))
	} else {
		line("broker", "RabbitMQ at %s, exchange %s", r.Broker.Address, r.Broker.Exchange)
	}
	for _, q := range r.Broker.Queues {
		line("queue", "%s: %d messages ready, %d consumers", q.Name, q.Messages, q.Consumers)
	}
}
