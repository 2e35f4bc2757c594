package cli_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
