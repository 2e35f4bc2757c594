package exchange

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/schema"
)

// TestTap: of what comes, each side gets its own frames, whole and in order,
// however they are cut on their way.
func TestTap(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 1))
	var all, library []byte
	type own struct {
		typ     byte
		channel uint16
		payload []byte
	}
	var want, got []own
	for range 1000 {
		channel, typ := uint16(random.IntN(4)), []byte{frameMethod, frameHeader, frameBody}[random.IntN(3)]
		size := []int{0, 1, 12, 300, 9000, tapRead - frameHead - 1, tapRead, 100_000}[min(random.IntN(40), 7)]
		frame, at := beginFrame(nil, typ, channel)
		frame = endFrame(append(frame, bytes.Repeat([]byte{byte(random.Uint32())}, size)...), at)
		all = append(all, frame...)
		switch {
		case channel < 2:
			library = append(library, frame...)
		case typ != frameBody:
			want = append(want, own{typ, channel, frame[frameHead : frameHead+size]})
		}
	}
	client, server := net.Pipe()
	go func() {
		for len(all) > 0 {
			n := min(len(all), 1+random.IntN(3*tapRead))
			server.Write(all[:n]) //nolint:errcheck // what is missing is seen below
			all = all[n:]
		}
		server.Close()
	}()
	tap, idle := newTap(client), 0
	tap.own.Store(&ownChannels{from: 2, idle: func() { idle++ }, frame: func(typ byte, channel uint16, payload []byte) error {
		got = append(got, own{typ, channel, slices.Clone(payload)})
		return nil
	}})
	passed, err := io.ReadAll(tap)
	if err != nil || !bytes.Equal(passed, library) {
		t.Errorf("the library got %d bytes (%v), want %d", len(passed), err, len(library))
	}
	same := func(a, b own) bool {
		return a.typ == b.typ && a.channel == b.channel && bytes.Equal(a.payload, b.payload)
	}
	if !slices.EqualFunc(want, got, same) {
		t.Errorf("%d own frames came, want %d, or they are others", len(got), len(want))
	}
	if idle == 0 {
		t.Error("it was never told that nothing is at hand")
	}
}

// TestTapForeign: what is no AMQP goes to the library as it is, up to its end.
func TestTapForeign(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"AMQP\x00\x00\x09\x01", "HTTP/1.1 400 Bad Request\r\n\r\n", "\x15\x03\x03\x00\x02\x02\x28", "\x01\x00", ""} {
		client, server := net.Pipe()
		go func() {
			io.WriteString(server, text) //nolint:errcheck // seen below
			server.Close()
		}()
		if got, err := io.ReadAll(newTap(client)); err != nil || string(got) != text {
			t.Errorf("got %q, %v, want %q", got, err, text)
		}
	}
}

// TestTapRefuses what no broker sends on a channel of the publisher's.
func TestTapRefuses(t *testing.T) {
	t.Parallel()
	long, at := beginFrame(nil, frameMethod, 7)
	long = endFrame(append(long, make([]byte, longFrame+1)...), at)
	torn := appendMethod(nil, 7, basicAck)
	torn[len(torn)-1] = 0
	for name, wire := range map[string][]byte{"frame of": long, "without its end": torn} {
		client, server := net.Pipe()
		go server.Write(wire) //nolint:errcheck // the tap does not read all
		tap := newTap(client)
		tap.own.Store(&ownChannels{from: 7, idle: func() {}, frame: func(byte, uint16, []byte) error { return nil }})
		if _, err := tap.Read(make([]byte, 10)); err == nil || !bytes.Contains([]byte(err.Error()), []byte(name)) {
			t.Errorf("got %v, want %q in it", err, name)
		}
		server.Close()
	}
}

func answer(tag uint64, multiple byte) frameReader {
	return frameReader{rest: append(be.AppendUint64(nil, tag), multiple)}
}

// TestChannelAnswers: one at a time, out of order, many at once, all.
func TestChannelAnswers(t *testing.T) {
	t.Parallel()
	list := events(8)
	c := newChannel(1)
	c.flights = append(c.flights, list...)
	var got []string
	yield := func(r Receipt) {
		if errors.Is(r.Err, ErrNacked) {
			r.Event.ID += "!"
		}
		got = append(got, r.Event.ID)
	}
	for _, step := range []struct {
		tag      uint64
		multiple byte
		acked    bool
		want     []string
	}{
		{3, 0, true, []string{"c"}},
		{3, 0, true, nil},
		{2, 0, false, []string{"b!"}},
		{4, 1, true, []string{"a", "d"}},
		{4, 1, true, nil},
		{2, 0, true, nil},
		{6, 1, false, []string{"e!", "f!"}},
		{0, 1, true, []string{"g", "h"}},
		{0, 1, true, nil},
	} {
		got = nil
		if err := c.answer(answer(step.tag, step.multiple), step.acked, yield); err != nil {
			t.Fatalf("%+v: %v", step, err)
		}
		if diff := cmp.Diff(step.want, got); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", step, diff)
		}
	}
	for _, tag := range []uint64{0, 9} {
		if err := c.answer(answer(tag, 0), true, yield); err == nil {
			t.Errorf("an answer for message %d of 8 is taken", tag)
		}
	}
	if err := c.answer(frameReader{rest: []byte{1}}, true, yield); err == nil {
		t.Error("half an answer is taken")
	}
}

// TestPublishAllocates: the way of an event to the socket and that of its answer
// back cost no allocation each, beyond the lists of receipts.
func TestPublishAllocates(t *testing.T) {
	const n = 1000
	list := make([]*schema.Event, n)
	for i := range list {
		list[i] = benchEvent()
	}
	p := &Publisher{channels: []*channel{newChannel(1)}, receipts: make(chan []Receipt, 1), limit: new(Limit), message: message{exchange: "outbox", frameMax: 131072}}
	var buffer []byte
	tag := uint64(0)
	allocs := testing.AllocsPerRun(20, func() {
		for left := list; len(left) > 0; {
			var sent int
			buffer, sent = p.frames(buffer[:0], left)
			left = left[sent:]
		}
		tag += n
		payload := append(be.AppendUint32(nil, basicAck), be.AppendUint64(nil, tag)...)
		if err := p.frame(frameMethod, 1, append(payload, 1)); err != nil {
			t.Fatal(err)
		}
		p.deliver()
		<-p.receipts
	})
	if limit := 40.0; allocs > limit {
		t.Errorf("%d events cost %g allocations, want %g at most", n, allocs, limit)
	}
}

func FuzzFrame(f *testing.F) {
	f.Add(byte(frameMethod), append(be.AppendUint32(nil, basicAck), 0, 0, 0, 0, 0, 0, 0, 1, 1))
	f.Add(byte(frameMethod), append(be.AppendUint32(nil, basicReturn), 1, 0x38, 2, 'n', 'o', 1, 'x', 1, 'k'))
	f.Add(byte(frameHeader), []byte{0, 60, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x20, 0x80, 0, 0, 0, 4, 1, 'a', 't', 1, 1, 'b'})
	f.Fuzz(func(t *testing.T, typ byte, payload []byte) {
		p := &Publisher{channels: []*channel{newChannel(1)}, receipts: make(chan []Receipt, 1), refusal: make(chan *amqp.Error, 1), ready: make(chan struct{})}
		p.channels[0].flights = events(3)
		p.channels[0].coming = new(ReturnError)
		if err := p.frame(typ, 1, payload); err == nil && len(p.settled) > 3 {
			t.Errorf("%d receipts of 3 events", len(p.settled))
		}
	})
}
