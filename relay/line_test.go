package relay

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/schema"
)

// TestLineRoundTrip: what comes out of the parked file is what went in, to the
// byte, and each event is one line of JSON. It fails when a JSON payload goes
// through the library, which takes its spaces away.
func TestLineRoundTrip(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC)
	events := []schema.Event{
		{
			ID: "1", AggregateID: "a", AggregateType: "order", EventType: "placed", Topic: "t", Version: "3", Sequence: 7, GTID: "g:1",
			CreatedAt: at, ContentType: "application/json", Payload: []byte(`{"a": "<ü>"}`),
			Headers: map[string]any{"n": int64(1) << 62, "f": 1.5, "s": "x", "b": true, "z": nil},
		},
		{ID: "2", AggregateID: "a", Payload: []byte{0xff, 0}, CreatedAt: at},
	}
	for _, document := range []string{
		`null`, `true`, `-0.0`, `[1, 2.50, {"a":  {}}]`, `"a string"`, `"{\"a\": 1}"`, ``, ` {}`, "{\n}", "{} ", `{"cut":`, "\xff", `18446744073709551615`, "{\"l\": \"\u2028\"}",
	} {
		for _, typ := range []string{"application/json", "text/plain;charset=utf-8"} {
			events = append(events, schema.Event{AggregateID: "a", CreatedAt: at, ContentType: typ, Payload: []byte(document)})
		}
	}
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	l := mustLot(t, path)
	for i := range events {
		events[i].ID = strconv.Itoa(i) // the lot takes each id once
		if _, err := l.add([]*item{carrying(events[i])}); err != nil {
			t.Fatal(err)
		}
	}
	list, _, err := readParked(path + parkedSuffix)
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range list {
		got, err := line.event()
		if err != nil {
			t.Fatal(err)
		}
		want := events[i]
		if len(want.Payload) == 0 {
			want.Payload = []byte{}
		}
		if diff := cmp.Diff(&want, got); diff != "" {
			t.Errorf("event (-want +got):\n%s", diff)
		}
	}
	if len(list) != len(events) {
		t.Errorf("got %d events, want %d", len(list), len(events))
	}
}

// TestLineDocument: a JSON payload stands in the line as JSON.
func TestLineDocument(t *testing.T) {
	var out bytes.Buffer
	e := schema.Event{ID: "1", Payload: []byte(`{"a": [1, 2]}`), ContentType: "application/json"}
	if err := newLine(&e).writeTo(&out); err != nil {
		t.Fatal(err)
	}
	var got struct{ Payload struct{ A []int } }
	if err := json.Unmarshal(out.Bytes(), &got); err != nil || !cmp.Equal(got.Payload.A, []int{1, 2}) {
		t.Errorf("got %v, %v of %s", got, err, out.String())
	}
}

// TestLineBefore: a line that an earlier relay parked, with JSON in a string,
// is still read.
func TestLineBefore(t *testing.T) {
	l, err := readLine([]byte(`{"id":"1","aggregate_id":"a","content_type":"application/json","payload":"{\"a\": 1}"}`))
	if err != nil {
		t.Fatal(err)
	}
	if e, err := l.event(); err != nil || string(e.Payload) != `{"a": 1}` {
		t.Errorf("got %q, %v", e.Payload, err)
	}
}
