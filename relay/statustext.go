package relay

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/outboxrelay/relay/binlog"
)

// print leaves out the error that is told elsewhere.
func (r *Report) print(out io.Writer, told error) {
	trouble := func(text, address string) string {
		if told != nil && text == told.Error() {
			return "at " + address + ": see the last line"
		}
		return oneLine(text)
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	state := string(r.Level)
	if len(r.Reasons) > 0 {
		state += ": " + r.reasons(Critical, Warning)
	}
	line("state", "%s", state)
	switch {
	case !r.Running:
		line("relay", "does not run here")
	case r.Process > 0:
		line("relay", "runs, process %d", r.Process)
	default:
		line("relay", "runs")
	}
	if say := r.Relay; say != nil && say.Error != "" {
		line("says", "not known: --listen %s: %s", say.Address, oneLine(say.Error))
	} else if say != nil {
		line("says", "%s", say.says())
	}
	r.printCheckpoint(line)
	if r.Source.Error != "" {
		line("source", "%s", trouble(r.Source.Error, r.Source.Address))
	} else {
		r.printSource(line, trouble)
	}
	if r.Broker.Error != "" {
		line("broker", "%s", trouble(r.Broker.Error, r.Broker.Address))
	} else {
		line("broker", "RabbitMQ %s at %s, exchange %s", r.Broker.Version, r.Broker.Address, r.Broker.Exchange)
	}
	for _, q := range r.Broker.Queues {
		if q.Found {
			line("queue", "%s: %d messages ready, %d consumers", q.Name, q.Messages, q.Consumers)
		} else {
			line("queue", "%s: not there", q.Name)
		}
	}
	if r.Broker.QueuesProblem != "" {
		line("queues", "not known: %s", oneLine(r.Broker.QueuesProblem))
	}
}

type lineFunc = func(name, format string, args ...any)

func (r *Report) printCheckpoint(line lineFunc) {
	if r.Problem != "" {
		line("checkpoint", "%s", oneLine(r.Problem))
	}
	if s := r.State; s != nil {
		line("checkpoint", "%s, saved %s ago", r.Checkpoint, binlog.Span(since(s.SavedAt)))
		line("table", "%s", s.Table)
		line("position", "%s", s.GTIDSet)
		line("sequence", "%d", s.Sequence)
		if topics, err := topicsOf(s.Topics); err == nil && !topics.All() {
			line("topics", "%s", topics)
		}
		if s.Partial != nil {
			line("partial", "%d events of %s", s.Partial.Events, s.Partial.GTID)
		}
		if s.Backfill != nil {
			line("backfill", "at %s of %s", s.Backfill.After, s.Backfill.Until)
		}
	} else if r.Problem == "" {
		line("checkpoint", "%s: none yet", r.Checkpoint)
	}
	if r.Parked > 0 {
		line("parked", "%d events wait in %s: relay replay --parked --dry-run", r.Parked, r.Checkpoint+parkedSuffix)
	}
	if e := r.LastError; e != nil {
		what := "tried again"
		if e.ExitCode != 0 {
			what = fmt.Sprintf("exit code %d", e.ExitCode)
		}
		if e.OverAt != nil {
			what += ", over since " + clockTime(*e.OverAt)
		} else {
			what += ", not over"
		}
		line("last error", "%s, %s ago, %s: %s", clockTime(e.At), binlog.Span(since(e.At)), what, oneLine(e.Error))
	}
}

func (r *Report) printSource(line lineFunc, trouble func(text, address string) string) {
	s := r.Source
	line("source", "%s at %s, executed %s", binlog.Flavor(s.Flavor).Product(), s.Address, s.Executed)
	if s.TableProblem != "" {
		line("layout", "%s", s.TableProblem)
	} else {
		line("layout", "%s, of %s", s.Layout, s.Table)
	}
	if r.State == nil {
		return
	}
	bytes := ""
	if s.BehindBytes != nil {
		bytes = ", " + s.bytesBehind() + " of log"
	}
	if lag := s.LagSeconds; lag != nil {
		line("behind", "%d transactions, %.1f s%s", s.Behind, *lag, bytes)
	} else {
		line("behind", "%d transactions, for an unknown time: none was settled yet%s", s.Behind, bytes)
	}
	line("runway", "%s", s.runwayText())
	xa := "not known how many are prepared: to ask, the user needs XA_RECOVER_ADMIN"
	if s.PreparedXA != nil {
		xa = fmt.Sprintf("%d prepared on the server, of all tables", *s.PreparedXA)
	}
	if s.HeldXA != "" {
		xa += "; the position waits for " + s.HeldXA
	}
	line("xa", "%s", xa)
	if s.PositionProblem != "" {
		line("position", "%s", trouble(s.PositionProblem, s.Address))
	}
}

func (s *SourceReport) runwayText() string {
	var parts []string
	switch runway := s.RunwaySeconds; {
	case runway != nil && *runway < 0:
		return "the server keeps its log for ever"
	case runway != nil:
		parts = append(parts, binlog.Span(time.Duration(*runway*float64(time.Second)))+" until the server may purge the place")
	case s.RunwayShare == nil:
		return "unknown"
	}
	if s.RunwayShare != nil {
		parts = append(parts, fmt.Sprintf("%.0f %% of what it keeps", *s.RunwayShare*100))
	}
	if s.RetentionBytes > 0 {
		parts = append(parts, "up to "+humanize.Bytes(uint64(s.RetentionBytes)))
	}
	return strings.Join(parts, ", ")
}

func clockTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 MST") }

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }
