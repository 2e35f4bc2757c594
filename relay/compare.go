package relay

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxrelay/relay/exchange"
)

// byHeader begins a --by that names a header.
const byHeader = "header:"

// identifier gives what a message is known by on both sides; empty: it has
// nothing that it could be.
func identifier(by string) (func(*exchange.Message) string, error) {
	name, header := strings.CutPrefix(by, byHeader)
	switch {
	case by == "message_id" || by == "":
		return func(m *exchange.Message) string { return m.ID }, nil
	case header && name != "":
		return func(m *exchange.Message) string {
			text, _ := m.Header(name)
			return text
		}, nil
	}
	return nil, fmt.Errorf("%w: --by %q is neither message_id nor header:NAME; type: --by header:event_id, if that is the header that both publishers set", ErrUsage, by)
}

// difference is one between two messages, or one that only one side has.
type difference struct {
	Kind  string     `json:"kind"` // only_shadow, only_legacy, different, duplicate
	ID    string     `json:"id"`
	At    *time.Time `json:"at,omitempty"`
	Side  string     `json:"side,omitempty"`  // of a duplicate: shadow, legacy
	Times int        `json:"times,omitempty"` // that it came
	In    []string   `json:"in,omitempty"`    // body, type, routing_key
}

// hour counts the messages of one; as the last line of a comparison, of all.
type hour struct {
	Kind       string     `json:"kind"` // hour, summary
	Hour       *time.Time `json:"hour,omitempty"`
	Shadow     string     `json:"shadow,omitempty"`
	Legacy     string     `json:"legacy,omitempty"`
	Since      *time.Time `json:"since,omitempty"`
	Until      *time.Time `json:"until,omitempty"`
	Both       int64      `json:"both"`
	OnlyShadow int64      `json:"only_shadow"`
	OnlyLegacy int64      `json:"only_legacy"`
	Different  int64      `json:"different"`
	Duplicates int64      `json:"duplicates"` // deliveries too many, on either side
}

func (h *hour) add(other *hour) {
	h.Both += other.Both
	h.OnlyShadow += other.OnlyShadow
	h.OnlyLegacy += other.OnlyLegacy
	h.Different += other.Different
	h.Duplicates += other.Duplicates
}

// compare compares what two publishers have sent, each into queues of its own,
// and prints each difference, the counts by hour, and those of all.
func compare(ctx context.Context, cfg Config, order AuditOrder, out io.Writer) error {
	by, err := identifier(order.By)
	if err != nil {
		return err
	}
	if err := order.distinct(); err != nil {
		return err
	}
	p, err := order.period(time.Now())
	if err != nil {
		return err
	}
	c := &comparison{period: p, report: newReport(out), hours: map[int64]*hour{}}
	defer c.shadow.close()
	defer c.legacy.close()
	err = c.run(ctx, cfg.Broker, order, by)
	if ctx.Err() != nil {
		return fmt.Errorf("%w: stopped before the end of the audit", ErrUnavailable)
	}
	if err != nil {
		return unavailable(err)
	}
	return c.end(order)
}

// distinct refuses a queue that would be compared with itself.
func (o AuditOrder) distinct() error {
	for _, name := range o.Against {
		if slices.Contains(o.Queues, name) {
			return fmt.Errorf("%w: queue %s is on both sides, and a queue does not differ from itself; --audit-queue has what the relay sends, --against-queue what another publisher does; type: --audit-queue %s --against-queue legacy.q",
				ErrUsage, name, o.Queues[0])
		}
	}
	return nil
}

// comparison is one of two sides: the shadow's, and the legacy's, which is the
// publisher's that it is to take over from.
type comparison struct {
	period         period
	shadow, legacy sorter
	named, unnamed [2]int64 // messages of the window of both sides, with an id and without
	report         *report
	hours          map[int64]*hour // by when they begin, in seconds since 1970
}

func (c *comparison) run(ctx context.Context, broker exchange.Config, order AuditOrder, by func(*exchange.Message) string) error {
	shadow, err := openQueues(ctx, broker, order.Queues)
	if err != nil {
		return err
	}
	defer shadow.close()
	legacy, err := openQueues(ctx, broker, order.Against)
	if err != nil {
		return err
	}
	defer legacy.close()
	for i, s := range []struct {
		from queues
		into *sorter
		kind string
	}{{shadow, &c.shadow, "only_shadow"}, {legacy, &c.legacy, "only_legacy"}} {
		var first time.Time
		err := s.from.read(ctx, c.period, func(m *exchange.Message) error {
			if id := by(m); id != "" {
				return s.into.add(id, digestOf(m).encode())
			}
			if m.At.IsZero() || c.period.has(m.At) {
				if c.unnamed[i]++; c.unnamed[i] == 1 {
					first = m.At
				}
				if h := c.hour(m.At); i == 0 {
					h.OnlyShadow++
				} else {
					h.OnlyLegacy++
				}
			}
			return nil
		})
		if err == nil && c.unnamed[i] > 0 { // none is known to be any of the other's
			err = c.report.line(difference{Kind: s.kind, At: known(first), Times: int(c.unnamed[i])})
		}
		if err == nil {
			err = s.into.finish()
		}
		if err != nil {
			return err
		}
	}
	return merge(&c.shadow, &c.legacy, c.look)
}

// look takes in what both sides have of an id. The hour is that of the shadow's
// message, where it has one: the other publisher may mean another time.
func (c *comparison) look(id string, shadow, legacy side) error {
	var a, b digest
	at := time.Time{}
	if legacy.count > 0 {
		b = decodeDigest(legacy.value)
		at = b.at
	}
	if shadow.count > 0 {
		if a = decodeDigest(shadow.value); !a.at.IsZero() {
			at = a.at
		}
	}
	if !at.IsZero() && !c.period.has(at) {
		return nil
	}
	h := c.hour(at)
	c.named[0] += int64(shadow.count)
	c.named[1] += int64(legacy.count)
	for name, s := range map[string]side{"shadow": shadow, "legacy": legacy} {
		if s.count > 1 {
			h.Duplicates += int64(s.count - 1)
			if err := c.report.line(difference{Kind: "duplicate", ID: id, At: known(at), Side: name, Times: s.count}); err != nil {
				return err
			}
		}
	}
	switch {
	case legacy.count == 0:
		h.OnlyShadow++
		return c.report.line(difference{Kind: "only_shadow", ID: id, At: known(at)})
	case shadow.count == 0:
		h.OnlyLegacy++
		return c.report.line(difference{Kind: "only_legacy", ID: id, At: known(at)})
	}
	h.Both++
	if in := a.differs(b); len(in) > 0 {
		h.Different++
		return c.report.line(difference{Kind: "different", ID: id, At: known(at), In: in})
	}
	return nil
}

// hour is that of a time; of none, one without a beginning.
func (c *comparison) hour(at time.Time) *hour {
	begins := int64(math.MinInt64)
	if !at.IsZero() {
		begins = at.Truncate(time.Hour).Unix()
	}
	h := c.hours[begins]
	if h == nil {
		h = &hour{Kind: "hour"}
		if !at.IsZero() {
			begin := at.UTC().Truncate(time.Hour)
			h.Hour = &begin
		}
		c.hours[begins] = h
	}
	return h
}

// end prints the hours and their sum.
func (c *comparison) end(order AuditOrder) error {
	since, until := c.period.since.UTC(), c.period.until.UTC()
	sum := hour{Kind: "summary", Shadow: strings.Join(order.Queues, ", "), Legacy: strings.Join(order.Against, ", "), Since: &since, Until: &until}
	var begins []int64
	for begin := range c.hours {
		begins = append(begins, begin)
	}
	slices.Sort(begins)
	for _, begin := range begins {
		sum.add(c.hours[begin])
		if err := c.report.line(c.hours[begin]); err != nil {
			return err
		}
	}
	if err := c.report.line(sum); err != nil {
		return err
	}
	if err := c.report.out.Flush(); err != nil {
		return fmt.Errorf("relay: audit: %w", err)
	}
	switch {
	case sum.OnlyShadow+sum.OnlyLegacy+sum.Both == 0:
		return fmt.Errorf("%w: nothing was compared: neither %s nor %s has a message from %s to %s; type a window in which both publishers ran: --window 672h, or --since T; or look whether both get messages: rabbitmqctl list_bindings",
			ErrDifferences, sum.Shadow, sum.Legacy, since.Format(time.RFC3339), until.Format(time.RFC3339))
	case sum.OnlyShadow+sum.OnlyLegacy+sum.Different == 0:
		return nil
	}
	next := "; the lines above say which"
	for i, name := range []string{sum.Shadow, sum.Legacy} {
		if c.named[i] == 0 && c.unnamed[i] > 0 {
			next += fmt.Sprintf("; none of the %d messages of %s has a %s, so nothing could be compared: type --by with what both publishers set", c.unnamed[i], name, cmp.Or(order.By, "message_id"))
		}
	}
	return fmt.Errorf("%w: of the messages from %s to %s, %d are in %s alone, %d in %s alone, and %d of %d are in both and differ%s",
		ErrDifferences, since.Format(time.RFC3339), until.Format(time.RFC3339), sum.OnlyShadow, sum.Shadow, sum.OnlyLegacy, sum.Legacy, sum.Different, sum.Both, next)
}

// digest is what two messages are compared by: sums of what they hold.
type digest struct {
	at             time.Time
	typ, key, body [16]byte
	value          [16]byte // of a body that is JSON: of its value, however it is written
}

func digestOf(m *exchange.Message) digest {
	p := digest{at: m.At, typ: sum([]byte(m.Type)), key: sum([]byte(m.RoutingKey)), body: sum(m.Body)}
	if p.value = p.body; json.Valid(m.Body) {
		p.value = sum(canonical(m.Body))
	}
	return p
}

func sum(b []byte) (short [16]byte) {
	long := sha256.Sum256(b)
	copy(short[:], long[:])
	return short
}

func (p digest) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 72), uint64(micros(p.at)))
	return slices.Concat(b, p.typ[:], p.key[:], p.body[:], p.value[:])
}

func decodeDigest(b []byte) (p digest) {
	p.at = timeOf(int64(binary.BigEndian.Uint64(b)))
	for i, part := range []*[16]byte{&p.typ, &p.key, &p.body, &p.value} {
		copy(part[:], b[8+16*i:])
	}
	return p
}

// differs tells in what.
func (p digest) differs(other digest) (in []string) {
	if p.body != other.body && p.value != other.value {
		in = append(in, "body")
	}
	if p.typ != other.typ {
		in = append(in, "type")
	}
	if p.key != other.key {
		in = append(in, "routing_key")
	}
	return in
}

// canonical is JSON with sorted names, without spaces, and each number written
// in one way.
func canonical(text []byte) []byte {
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return text
	}
	out, err := json.Marshal(numbered(value))
	if err != nil {
		return text
	}
	return out
}

// numbered is a JSON value whose numbers are written in one way: 1.50 as 1.5,
// 1e3 and 1000.0 as 1000. An integer keeps its digits, however many.
func numbered(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name := range v {
			v[name] = numbered(v[name])
		}
	case []any:
		for i := range v {
			v[i] = numbered(v[i])
		}
	case json.Number:
		if !strings.ContainsAny(string(v), ".eE") {
			if v == "-0" {
				return json.Number("0")
			}
			return v
		}
		f, err := v.Float64()
		switch {
		case err != nil:
			return v
		case f == math.Trunc(f) && math.Abs(f) < 1<<53:
			return json.Number(strconv.FormatInt(int64(f), 10))
		}
		return json.Number(strconv.FormatFloat(f, 'g', -1, 64))
	}
	return value
}
