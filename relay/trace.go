package relay

import "time"

const (
	sampleInterval = time.Second
	traceLength    = 900 // samples: fifteen minutes
	rateSamples    = 5   // that a rate is the mean of
)

// sample is one look at the relay, for the plots.
type sample struct {
	At   int64    `json:"at"`   // in ms since 1970
	Lag  *float64 `json:"lag"`  // in seconds; nil: not known
	Rate *float64 `json:"rate"` // events confirmed a second since the sample before; nil: there is none
}

// trace is the last samples, in a ring.
type trace struct {
	ring      [traceLength]sample
	next, len int
	at        time.Time // of the last
	confirms  int64     // as of the last
}

// add takes a sample. Confirms is the count of all confirmed events.
func (t *trace) add(now time.Time, lag *float64, confirms int64) {
	s := sample{At: now.UnixMilli(), Lag: lag}
	if seconds := now.Sub(t.at).Seconds(); !t.at.IsZero() && seconds > 0 {
		rate := float64(confirms-t.confirms) / seconds
		s.Rate = &rate
	}
	t.at, t.confirms = now, confirms
	t.ring[t.next] = s
	t.next = (t.next + 1) % traceLength
	t.len = min(t.len+1, traceLength)
}

// back is the nth last sample, from 1.
func (t *trace) back(n int) sample { return t.ring[(t.next-n+traceLength)%traceLength] }

// last is the newest sample; the zero sample: there is none.
func (t *trace) last() sample {
	if t.len == 0 {
		return sample{}
	}
	return t.back(1)
}

// all returns the samples, the oldest first.
func (t *trace) all() []sample {
	list := make([]sample, 0, t.len)
	for n := t.len; n > 0; n-- {
		list = append(list, t.back(n))
	}
	return list
}

// rate is the mean of the last few; nil: it is not known.
func (t *trace) rate() *float64 {
	sum, count := 0.0, 0
	for n := 1; n <= min(t.len, rateSamples); n++ {
		if r := t.back(n).Rate; r != nil {
			sum += *r
			count++
		}
	}
	if count == 0 {
		return nil
	}
	mean := sum / float64(count)
	return &mean
}

// sample adds the present to the trace, and notes since when it is as it is.
func (b *board) sample() {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if word, _ := b.phase(); word != b.word {
		b.word, b.since = word, now
	}
	var lag *float64
	if seconds, known := b.knownLag(); known {
		lag = &seconds
	}
	b.trace.add(now, lag, b.confirms.Load())
}

// history is all of the trace.
func (b *board) history() []sample {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.trace.all()
}
