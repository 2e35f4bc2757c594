package relay

import (
	"fmt"
	"strings"

	"github.com/dustin/go-humanize"
)

// Level is how a relay stands.
type Level string

// The levels.
const (
	OK       Level = "ok"
	Warning  Level = "warning"  // somebody should look at it, today
	Critical Level = "critical" // now: the relay cannot go on, or soon will not be able to
)

// Reason is why the level is not OK.
type Reason struct {
	Level Level  `json:"level"`
	Text  string `json:"text"`
}

// Thresholds are where Status begins to warn.
type Thresholds struct {
	WarnBehind, CriticalBehind int64   // bytes of log; 0: never
	WarnRunway, CriticalRunway float64 // share of the retention that is left; 0: never
}

// judge sets the level and its reasons, the critical ones first.
func (r *Report) judge(t Thresholds) {
	r.Level, r.Reasons = OK, []Reason{}
	for _, level := range []Level{Critical, Warning} {
		for _, found := range r.findings(t) {
			if found.Level == level {
				r.Reasons = append(r.Reasons, found)
			}
		}
	}
	if len(r.Reasons) > 0 {
		r.Level = r.Reasons[0].Level
	}
}

func (r *Report) findings(t Thresholds) (list []Reason) {
	add := func(level Level, format string, args ...any) {
		list = append(list, Reason{level, fmt.Sprintf(format, args...)})
	}
	if r.Problem != "" {
		add(Critical, "the checkpoint cannot be read")
	}
	if bad := r.Relay.bad(); bad != "" {
		add(Critical, "%s", bad)
	}
	if r.Source.Error != "" {
		add(Critical, "the source cannot be asked")
	}
	if r.Source.PositionProblem != "" {
		add(Critical, "the server cannot be followed from the position any more")
	}
	switch {
	case r.Broker.Error == "":
	case r.Broker.Version == "":
		add(Critical, "the broker cannot be asked")
	default:
		add(Critical, "the exchange cannot be used")
	}
	if gone := r.gone(); len(gone) > 0 {
		add(Critical, "%s is not there, and the relay runs; type: %s", abridged(gone), declareAgain)
	}
	if s := r.Source; s.BehindBytes != nil {
		if level := reached(*s.BehindBytes, t.WarnBehind, t.CriticalBehind); level != OK {
			add(level, "%s of log behind", s.bytesBehind())
		}
	}
	if share := r.Source.RunwayShare; share != nil {
		level := OK
		switch {
		case *share < t.CriticalRunway:
			level = Critical
		case *share < t.WarnRunway:
			level = Warning
		}
		if level != OK {
			add(level, "%.0f %% of the runway is left", *share*100)
		}
	}
	if r.Parked > 0 {
		add(Warning, "%d events are parked", r.Parked)
	}
	if e := r.LastError; e != nil && e.OverAt == nil {
		switch {
		case e.ExitCode != 0 && !r.Running:
			add(Critical, "the relay ended with exit code %d and does not run, see last error", e.ExitCode)
		case e.ExitCode != 0:
			add(Warning, "the relay ended with exit code %d, see last error", e.ExitCode)
		default:
			add(Warning, "the relay does not follow, see last error")
		}
	}
	var idle []string
	for _, q := range r.Broker.Queues {
		if q.Found && q.Consumers == 0 {
			idle = append(idle, q.Name)
		}
	}
	if len(idle) > 0 {
		add(Warning, "no consumer on %s", abridged(idle))
	}
	return list
}

// gone are the partitions' queues that are missing while a relay runs, which
// declared them, unless it says that it has not.
func (r *Report) gone() (names []string) {
	if !r.Running || r.Broker.Partitions == 0 || r.Broker.Error != "" {
		return nil
	}
	queues := r.Broker.Queues
	if say := r.Relay; say != nil && say.Error == "" {
		if say.State == string(stateStarting) {
			return nil
		}
		queues = queues[:min(len(queues), say.Partitions)]
	}
	for _, q := range queues {
		if !q.Found && q.Err == nil {
			names = append(names, q.Name)
		}
	}
	return names
}

func reached(n, warn, critical int64) Level {
	switch {
	case critical > 0 && n >= critical:
		return Critical
	case warn > 0 && n >= warn:
		return Warning
	}
	return OK
}

// reasons are those of a level, in one line.
func (r *Report) reasons(of ...Level) string {
	var texts []string
	for _, reason := range r.Reasons {
		for _, level := range of {
			if reason.Level == level {
				texts = append(texts, reason.Text)
			}
		}
	}
	return strings.Join(texts, "; ")
}

// bytesBehind is how much log is behind, where it is known.
func (s *SourceReport) bytesBehind() string {
	text := humanize.Bytes(uint64(max(0, *s.BehindBytes)))
	if s.BehindAtMost {
		return "at most " + text
	}
	return text
}
