package cli_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// TestAuditRepublish: rows with integer ids are sent again in the order of these,
// whatever their times say; one that cannot be sent is told, and holds back what
// is behind it in its aggregate, and nothing else.
func TestAuditRepublish(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inbox()
	r.exec("DROP TABLE outbox", "CREATE TABLE outbox (id BIGINT PRIMARY KEY, aggregate_id INT, topic VARCHAR(9), payload JSON, headers JSON, created_at DATETIME(6))")
	r.begun()
	bad := `'{"` + strings.Repeat("h", 256) + `": 1}'`
	var rows []string
	for n, row := range []struct {
		id, aggregate int
		headers       string
	}{{-5, 1, "NULL"}, {2, 1, "NULL"}, {10, 1, "NULL"}, {3, 2, "NULL"}, {4, 2, bad}, {5, 2, "NULL"}, {6, 3, "NULL"}} {
		rows = append(rows, fmt.Sprintf("INSERT INTO outbox VALUES (%d, %d, 't', '{}', %s, UTC_TIMESTAMP(6) - INTERVAL %d MINUTE)", row.id, row.aggregate, row.headers, n+1))
	}
	r.unlogged(rows...)
	got := r.run("audit", "--grace", "0s", "--republish")
	if s := got.wantFoundUnordered(t, 65, "missing -5", "missing 2", "missing 10", "missing 3", "missing 4", "missing 5", "missing 6", "bad 4"); s.Republished != 5 || s.Bad != 1 {
		t.Errorf("got %+v", s)
	}
	got.want(t, 65, `id="4"`)
	got.oneLine(t)
	order := map[string][]string{}
	for _, d := range r.take(0) {
		order[d.RoutingKey] = append(order[d.RoutingKey], d.MessageId)
	}
	if diff := cmp.Diff(map[string][]string{"1": {"-5", "2", "10"}, "2": {"3"}, "3": {"6"}}, order); diff != "" {
		t.Errorf("sent again (-want +got):\n%s", diff)
	}
	r.dropTopology()
	r.declare("x-consistent-hash", false)
	got = r.run("audit", "--grace", "0s", "--republish")
	got.want(t, 75, "no queue is bound", "0 of 7 are confirmed")
	got.oneLine(t)
}

// TestAuditRepublishKilled: killed while it sends again, and typed again, it
// leaves nothing out, and of no aggregate the first deliveries out of order.
func TestAuditRepublishKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	r.inbox()
	var rows []string
	const last = 200
	for n := 1; n <= last; n++ {
		rows = append(rows, fmt.Sprintf("(x'%s', %d, 't', '{}', UTC_TIMESTAMP(6) - INTERVAL 1 MINUTE)", hexID(n), n%2))
	}
	r.unlogged("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES " + strings.Join(rows, ", "))
	broker := r.toBroker()
	direct := r.flags
	sent := make(chan struct{})
	var stalled sync.Once
	var frames int
	broker.Watch(relaytest.Up, func(b []byte) {
		if frames += bytes.Count(b, []byte("replayed")); frames > last/4 {
			stalled.Do(func() { broker.Stall(relaytest.Down); close(sent) })
		}
	})
	d := r.startAs("audit", "--grace", "0s", "--republish")
	select {
	case <-sent:
	case <-time.After(patience):
		t.Fatal("nothing is sent")
	}
	d.killed()
	broker.Cut()
	broker.Flow(relaytest.Down)
	r.flags = direct[:0]
	first := messageIDs(r.take(0))
	r.process("UTC_TIMESTAMP(6)", first...)
	if len(first) == 0 || len(first) == last {
		t.Fatalf("%d of %d came before the end", len(first), last)
	}
	if s := r.run("audit", "--grace", "0s", "--republish"); s.code != 3 {
		t.Fatalf("%d: %s", s.code, s.stderr)
	}
	// What was in flight may have come twice, the first time even behind the kill.
	seen, behind := map[string]bool{}, map[byte]string{}
	for _, id := range append(first, messageIDs(r.take(0))...) {
		if seen[id] {
			continue
		}
		seen[id] = true
		if parity := id[len(id)-1] & 1; id <= behind[parity] {
			t.Errorf("%s came behind %s", id, behind[parity])
		} else {
			behind[parity] = id
		}
		if !slices.Contains(first, id) {
			r.process("UTC_TIMESTAMP(6)", id)
		}
	}
	r.run("audit", "--grace", "0s").wantFound(t, 0)
}
