package relay

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/exchange"
)

// TestJudge: each reason, its level, and that a threshold is reached at itself
// and not just before. The critical ones come first.
func TestJudge(t *testing.T) {
	now := time.Now()
	gb := func(n float64) *int64 { b := int64(n * 1e9); return &b }
	share := func(s float64) *float64 { return &s }
	defaults := Thresholds{WarnBehind: 2e9, CriticalBehind: 10e9, WarnRunway: 0.5, CriticalRunway: 0.1}
	for name, test := range map[string]struct {
		report     Report
		thresholds Thresholds
		want       []Reason
	}{
		"nothing known":  {Report{}, defaults, nil},
		"all is well":    {Report{Source: SourceReport{BehindBytes: gb(0), RunwayShare: share(1)}, Broker: BrokerReport{Queues: []exchange.Queue{{Name: "q.0", Found: true, Consumers: 1}, {Name: "q.1"}}}}, defaults, nil},
		"just under 2":   {Report{Source: SourceReport{BehindBytes: gb(1.999999999)}}, defaults, nil},
		"2":              {Report{Source: SourceReport{BehindBytes: gb(2)}}, defaults, []Reason{{Warning, "2.0 GB of log behind"}}},
		"just under 10":  {Report{Source: SourceReport{BehindBytes: gb(9.999999999)}}, defaults, []Reason{{Warning, "10 GB of log behind"}}},
		"10":             {Report{Source: SourceReport{BehindBytes: gb(10), BehindAtMost: true}}, defaults, []Reason{{Critical, "at most 10 GB of log behind"}}},
		"never":          {Report{Source: SourceReport{BehindBytes: gb(1e6), RunwayShare: share(0)}}, Thresholds{}, nil},
		"half":           {Report{Source: SourceReport{RunwayShare: share(0.5)}}, defaults, nil},
		"under half":     {Report{Source: SourceReport{RunwayShare: share(0.499)}}, defaults, []Reason{{Warning, "50 % of the runway is left"}}},
		"a tenth":        {Report{Source: SourceReport{RunwayShare: share(0.1)}}, defaults, []Reason{{Warning, "10 % of the runway is left"}}},
		"under a tenth":  {Report{Source: SourceReport{RunwayShare: share(0.05)}}, defaults, []Reason{{Critical, "5 % of the runway is left"}}},
		"parked":         {Report{Parked: 3}, defaults, []Reason{{Warning, "3 events are parked"}}},
		"retrying":       {Report{LastError: &LastError{}}, defaults, []Reason{{Warning, "the relay does not follow, see last error"}}},
		"ended":          {Report{LastError: &LastError{ExitCode: 78}}, defaults, []Reason{{Critical, "the relay ended with exit code 78 and does not run, see last error"}}},
		"begun again":    {Report{Running: true, LastError: &LastError{ExitCode: 78}}, defaults, []Reason{{Warning, "the relay ended with exit code 78, see last error"}}},
		"blocked":        {Report{Running: true, Relay: &RelayReport{State: "blocked", Tone: "bad", Reason: "An\nalarm.", Next: "look"}}, defaults, []Reason{{Critical, "the relay is blocked: An alarm. Type: look"}}},
		"queue gone":     {Report{Running: true, Broker: BrokerReport{Partitions: 2, Queues: []exchange.Queue{{Name: "q.0", Found: true, Consumers: 1}, {Name: "q.1"}}}}, defaults, []Reason{{Critical, "q.1 is not there, and the relay runs; type: systemctl restart relay # which declares it again"}}},
		"queue of none":  {Report{Running: true, Relay: &RelayReport{State: "following", Partitions: 1}, Broker: BrokerReport{Partitions: 3, Queues: []exchange.Queue{{Name: "q.0"}, {Name: "q.1"}}}}, defaults, []Reason{{Critical, "q.0 is not there, and the relay runs; type: systemctl restart relay # which declares it again"}}},
		"starting":       {Report{Running: true, Relay: &RelayReport{State: "starting", Partitions: 1}, Broker: BrokerReport{Partitions: 1, Queues: []exchange.Queue{{Name: "q.0"}}}}, defaults, nil},
		"queue not yet":  {Report{Broker: BrokerReport{Partitions: 1, Queues: []exchange.Queue{{Name: "q.0"}}}}, defaults, nil},
		"catching up":    {Report{Running: true, Relay: &RelayReport{State: "catching up", Tone: "busy"}}, defaults, nil},
		"does not say":   {Report{Running: true, Relay: &RelayReport{Error: "refused"}}, defaults, nil},
		"over":           {Report{LastError: &LastError{ExitCode: 78, OverAt: &now}}, defaults, nil},
		"idle queues":    {Report{Broker: BrokerReport{Queues: []exchange.Queue{{Name: "q.0", Found: true}, {Name: "q.1", Found: true, Consumers: 1}, {Name: "q.2", Found: true}}}}, defaults, []Reason{{Warning, "no consumer on q.0, q.2"}}},
		"no position":    {Report{Source: SourceReport{PositionProblem: "purged"}}, defaults, []Reason{{Critical, "the server cannot be followed from the position any more"}}},
		"critical first": {Report{Parked: 1, Source: SourceReport{Error: "away"}, Broker: BrokerReport{Error: "away"}}, defaults, []Reason{{Critical, "the source cannot be asked"}, {Critical, "the broker cannot be asked"}, {Warning, "1 events are parked"}}},
		"no exchange":    {Report{Broker: BrokerReport{Error: "no exchange", Version: "4.3.6"}}, defaults, []Reason{{Critical, "the exchange cannot be used"}}},
		"no checkpoint":  {Report{Problem: "corrupt", Parked: 1}, defaults, []Reason{{Critical, "the checkpoint cannot be read"}, {Warning, "1 events are parked"}}},
	} {
		test.report.judge(test.thresholds)
		if diff := cmp.Diff(append([]Reason{}, test.want...), test.report.Reasons); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		level := OK
		if len(test.want) > 0 {
			level = test.want[0].Level
		}
		if test.report.Level != level {
			t.Errorf("%s: %s, want %s", name, test.report.Level, level)
		}
	}
}

// TestRunway: by time, by size, and by the smaller of both.
func TestRunway(t *testing.T) {
	const hour = time.Hour
	log := func(retention time.Duration, limit int64) binlog.Log {
		return binlog.Log{Retention: retention, Limit: limit, Bytes: 3600_000, Age: hour} // 1000 bytes a second
	}
	young := log(0, 100_000)
	young.Age = time.Minute
	for name, test := range map[string]struct {
		behind  int64 // transactions
		bytes   int64 // -1: not known
		age     time.Duration
		log     binlog.Log
		seconds float64 // NaN: not known
		share   float64
	}{
		"by time":              {3, 5000, hour, log(4*hour, 0), 3 * 3600, 0.75},
		"nothing behind":       {0, 0, 0, log(4*hour, 0), 4 * 3600, 1},
		"used up":              {3, 5000, 5 * hour, log(4*hour, 0), 0, 0},
		"by size":              {3, 25_000, hour, log(0, 100_000), 75, 0.75},
		"beyond the size":      {3, 250_000, hour, log(0, 100_000), 0, 0},
		"size, bytes unknown":  {3, -1, hour, log(0, 100_000), math.NaN(), math.NaN()},
		"size, growth unknown": {3, 25_000, hour, young, math.NaN(), 0.75},
		"both, the time":       {3, 25_000, 3 * hour, log(4*hour, 100_000_000), 3600, 0.25},
		"both, the size":       {3, 25_000, hour, log(4*hour, 100_000), 75, 0.75},
		"for ever":             {3, 25_000, hour, log(0, 0), -1, math.NaN()},
	} {
		s := SourceReport{Behind: test.behind}
		if test.bytes >= 0 {
			s.BehindBytes = &test.bytes
		}
		s.runway(time.Now().Add(-test.age), test.log)
		for what, pair := range map[string][2]float64{"seconds": {test.seconds, value(s.RunwaySeconds)}, "share": {test.share, value(s.RunwayShare)}} {
			want, got := pair[0], pair[1]
			if math.IsNaN(want) != math.IsNaN(got) || math.Abs(want-got) > 5 || what == "share" && math.Abs(want-got) > 0.01 {
				t.Errorf("%s: %s %v, want %v", name, what, got, want)
			}
		}
	}
}

func value(f *float64) float64 {
	if f == nil {
		return math.NaN()
	}
	return *f
}

// TestDraw: watched on a terminal, a report covers the one before, also where it
// has fewer or shorter lines; elsewhere it stands below it, and as JSON it is one
// line.
func TestDraw(t *testing.T) {
	r := Report{At: time.Date(2026, 11, 30, 21, 0, 0, 0, time.UTC), Level: OK, Reasons: []Reason{}, Problem: "none\nof it"}
	draw := func(o StatusOptions, first bool) string {
		var out bytes.Buffer
		if err := o.draw(&r, first, &out); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if first := draw(StatusOptions{Terminal: true}, true); !strings.HasPrefix(first, "\x1b[2J\x1b[H") {
		t.Errorf("the first is %q", first)
	}
	next := draw(StatusOptions{Terminal: true}, false)
	if !strings.HasPrefix(next, "\x1b[Htime         2026-11-30 21:00:00 UTC\x1b[K\n") || !strings.Contains(next, "none of it\x1b[K\n") || !strings.HasSuffix(next, "\x1b[K\n\x1b[J") {
		t.Errorf("the next is %q", next)
	}
	if plain := draw(StatusOptions{}, false); strings.Contains(plain, "\x1b") || !strings.Contains(plain, "none of it\n") || !strings.HasSuffix(plain, "\n\n") {
		t.Errorf("to a file: %q", plain)
	}
	line := draw(StatusOptions{JSON: true, Terminal: true}, true)
	var back Report
	if err := json.Unmarshal([]byte(line), &back); err != nil || strings.Count(line, "\n") != 1 || back.Problem != r.Problem {
		t.Errorf("as JSON: %v in %q", err, line)
	}
}
