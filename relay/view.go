package relay

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/outboxrelay/relay/exchange"
)

// tolerated is the lag up to which a relay counts as following.
const tolerated = 5 * time.Second

// state is what a relay does, in a word.
type state string

const (
	stateStarting    state = "starting"
	stateFollowing   state = "following"
	stateCatchingUp  state = "catching up"
	stateBackfilling state = "backfilling"
	stateBlocked     state = "blocked" // the broker takes no events, or not all
	stateWaiting     state = "waiting" // between sessions
	stateStalled     state = "stalled" // a loop does not move
	stateStopping    state = "stopping"
	stateStopped     state = "stopped"
)

// tone is how good that is: good, busy or bad.
func (s state) tone() string {
	switch s {
	case stateFollowing:
		return "good"
	case stateBlocked, stateWaiting, stateStalled, stateStopped:
		return "bad"
	}
	return "busy"
}

// view is a relay as it is seen from outside at one time. It holds no secret
// and nothing of an event but its id. What is nil is not known.
type view struct {
	Now    time.Time `json:"now"`
	State  state     `json:"state"`
	Tone   string    `json:"tone"` // good, busy, bad
	Since  time.Time `json:"since"`
	Reason string    `json:"reason"`         // sentences
	Next   string    `json:"next,omitempty"` // to be typed

	Lag       *float64 `json:"lag_seconds"`
	Rate      *float64 `json:"confirmed_per_second"`       // over the last few seconds
	Confirmed int64    `json:"confirmed"`                  // since the relay was started
	Behind    *int64   `json:"lag_bytes"`                  // of log
	Runway    *float64 `json:"runway_seconds"`             // -1: the log is kept for ever
	Sample    sample   `json:"sample"`                     // the last one of the trace
	Interval  float64  `json:"interval_seconds,omitempty"` // between polls; absent: the relay follows the log

	GTIDSet       string     `json:"gtid_set"`
	Sequence      int64      `json:"sequence"`
	LogFile       string     `json:"log_file,omitempty"`
	LogOffset     uint32     `json:"log_offset,omitempty"`
	Checkpoint    string     `json:"checkpoint"` // path
	CheckpointAge *float64   `json:"checkpoint_age_seconds"`
	CommittedAt   *time.Time `json:"committed_at"` // of the newest settled transaction

	InFlight   int              `json:"in_flight"`
	Window     int              `json:"window"`
	Exchange   string           `json:"exchange"`
	Partitions int              `json:"partitions"` // 0: the relay does not know the queues
	Queues     []exchange.Queue `json:"queues"`
	QueuesAt   *time.Time       `json:"queues_at"`                // when the broker was asked
	QueuesErr  string           `json:"queues_problem,omitempty"` // why it did not answer

	Troubles []trouble `json:"troubles"` // the newest first
	Parked   int64     `json:"parked"`

	Version  string    `json:"version"`
	Started  time.Time `json:"started"`
	Table    string    `json:"table"`
	Layout   string    `json:"layout,omitempty"`
	Product  string    `json:"product,omitempty"`
	Source   string    `json:"source"` // address
	SourceUp bool      `json:"source_connected"`
	Broker   string    `json:"broker"` // address
	BrokerUp bool      `json:"broker_connected"`
}

// view looks at the board.
func (b *board) view() view {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	word, reason := b.phase()
	v := view{
		Now: now, State: word, Tone: word.tone(), Since: cmp.Or(b.since, b.about.started),
		Confirmed: b.confirms.Load(), Rate: b.trace.rate(), Sample: b.trace.last(),
		GTIDSet: b.kept.GTIDSet, Sequence: b.kept.Sequence, LogFile: b.now.place.File, LogOffset: b.now.place.Offset,
		Checkpoint: b.about.checkpoint,
		InFlight:   b.now.inFlight, Window: b.about.window, Exchange: b.about.exchange, Partitions: b.about.partitions,
		Queues: b.queues.list, QueuesErr: b.queues.problem,
		Troubles: b.troubles.newest(),
		Version:  b.about.version, Started: b.about.started,
		Table: b.about.table, Layout: b.about.layout, Product: b.about.product,
		Source: b.about.source, SourceUp: b.source, Broker: b.about.broker, BrokerUp: b.broker,
	}
	if word != b.word { // since the last sample
		v.Since = now
	}
	if lag, known := b.knownLag(); known {
		v.Lag = &lag
	}
	if b.measures {
		behind := b.behind
		v.Behind = &behind
	}
	if runway, known := b.knownRunway(); known {
		v.Runway = &runway
	}
	if at := b.kept.SavedAt; !at.IsZero() {
		age := since(at).Seconds()
		v.CheckpointAge = &age
	}
	v.Interval = b.about.interval.Seconds()
	if at := b.now.newest; !at.IsZero() && v.Interval == 0 {
		v.CommittedAt = &at
	}
	if at := b.queues.at; !at.IsZero() {
		v.QueuesAt = &at
	}
	if b.kept.Parked != nil {
		v.Parked = b.kept.Parked.Events
	}
	v.Reason, v.Next = b.explain(word, reason)
	if v.Parked > 0 && v.Tone == "good" {
		v.Tone, v.Next = "busy", "relay replay --parked --dry-run"
		v.Reason += fmt.Sprintf(" But %d events are parked, and what follows them in their aggregates waits.", v.Parked)
	}
	return v
}

// phase is the relay's state, and why it does not relay, with the lock held.
func (b *board) phase() (word state, reason string) {
	switch {
	case b.ended:
		return stateStopped, b.fault
	case b.stalled != "":
		return stateStalled, b.stalled
	case b.stopping:
		return stateStopping, cmp.Or(b.trouble, "stopping")
	case b.trouble != "":
		return stateWaiting, b.trouble
	case !b.source:
		return stateStarting, "not yet following MySQL"
	case !b.broker:
		return stateStarting, "not yet connected to RabbitMQ"
	case b.now.ending:
		return stateWaiting, "the session ends: what is in flight is being settled"
	case b.now.reason != "":
		return stateBlocked, b.now.reason
	case !b.now.following:
		return stateStarting, "not yet publishing"
	case b.kept.Backfill != nil:
		return stateBackfilling, ""
	case b.lag() > tolerated.Seconds():
		return stateCatchingUp, ""
	}
	return stateFollowing, ""
}

// explain says what the state means, and what to type, if anything; with the
// lock held.
func (b *board) explain(word state, reason string) (text, next string) {
	a := &b.about
	switch word {
	case stateFollowing:
		text = "What is committed to " + a.table + " is published at once."
		if a.interval > 0 {
			text = "What is committed to " + a.table + " is published at the next poll, " + a.interval.String() + " after the last."
		}
	case stateCatchingUp:
		if a.interval > 0 {
			text = fmt.Sprintf("The oldest pending row was created %s ago; what is pending is being sent.", since(b.now.newest).Round(time.Second))
			break
		}
		text = fmt.Sprintf("The newest settled transaction was committed %s ago; the rest is being sent.", since(b.now.newest).Round(time.Second))
	case stateBackfilling:
		f := b.kept.Backfill
		text = fmt.Sprintf("The rows that were in %s at the first start are being sent, up to %s; the log follows.", a.table, f.Until)
		if f.After != "" {
			text = fmt.Sprintf("The rows that were in %s at the first start are being sent: it is at %s of %s; the log follows.", a.table, f.After, f.Until)
		}
	case stateBlocked:
		text = sentence(reason) + " Nothing is lost: what is not confirmed is sent again."
		if next = cmp.Or(b.now.next, "rabbitmqctl list_queues name messages policy"); b.now.blocked {
			text, next = sentence(reason)+" It goes on by itself when the alarm is over.", "rabbitmq-diagnostics alarms"
		}
	case stateWaiting:
		text, next = "The last session ended; another one is tried by itself. "+sentence(reason), "relay check"
		if a.interval > 0 { // what that looks at is not what polling needs
			next = ""
		}
	case stateStalled:
		text, next = sentence(reason)+" Under systemd its watchdog starts the relay again.", "systemctl restart relay"
	case stateStarting:
		text = "Connecting to " + cmp.Or(a.product, "the database server") + " at " + a.source + "."
		if b.source {
			text = "Connecting to RabbitMQ at " + a.broker + "."
		}
	case stateStopping:
		text = fmt.Sprintf("It was told to stop: %d events in flight are being settled.", b.now.inFlight)
		if b.trouble != "" {
			text += " " + sentence(reason)
		}
	case stateStopped:
		if text = "It was told to stop, and all that was in flight is settled."; reason != "" {
			text = sentence(reason)
		}
		next = "relay " + b.command()
	}
	return text, next
}

// sentence makes one of an error's text.
func sentence(text string) string { return text + "." }

// knownLag is lag, where it is known.
func (b *board) knownLag() (seconds float64, known bool) {
	caughtUp := b.now.caughtUp && b.now.following
	return b.lag(), caughtUp || !b.now.newest.IsZero()
}

// knownRunway is runway, where it is known; -1: for ever.
func (b *board) knownRunway() (seconds float64, known bool) {
	switch lag, known := b.knownLag(); {
	case !b.asked:
		return 0, false
	case b.retention == 0:
		return -1, true
	case !known:
		return 0, false
	default:
		return math.Max(0, b.retention.Seconds()-lag), true
	}
}
