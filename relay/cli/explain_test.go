package cli_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

// explained is what explain prints, by the first word of each line.
func (r *rig) explained(code int, args ...string) map[string]string {
	r.t.Helper()
	got := r.run(append([]string{"explain"}, args...)...)
	if got.code != code {
		r.t.Errorf("explain %v ended with %d, want %d:\n%s%s", args, got.code, code, got.stdout, got.stderr)
	}
	if code != 0 {
		got.oneLine(r.t)
	}
	parts := map[string]string{}
	for line := range strings.Lines(got.stdout) {
		name, text, _ := strings.Cut(line, " ")
		parts[name] = strings.TrimSpace(text)
	}
	return parts
}

func (r *rig) wantExplained(got map[string]string, want map[string]string) {
	r.t.Helper()
	for name, text := range want {
		if !strings.Contains(got[name], text) {
			r.t.Errorf("%s: got %q, want %q", name, got[name], text)
		}
	}
}

// TestExplain: an event that the relay has sent, one that it has not, one that is
// parked with the one behind it, one that is pruned, one that no log has, and one
// that is nowhere; beside a relay that runs, and twice at once.
func TestExplain(t *testing.T) { onEach(t, testExplain) }

func testExplain(t *testing.T, on source) {
	r := rigOn(t, on.database(t), schema.SQL, "ALTER TABLE outbox MODIFY payload JSON NULL").begun()
	row := func(n, aggregate int, payload string) string {
		r.exec(fmt.Sprintf("INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'%032x', %d, 'order.placed', %s)", n, aggregate, payload))
		return r.executed()
	}
	row(1, 7, `'{"a": 1}'`)
	row(2, 8, "NULL")
	row(3, 8, "'{}'")
	d := r.start("--partitions", "1", "--on-bad-event", "park")
	d.settled()
	r.wantExplained(r.explained(0, idText(1)), map[string]string{
		"event": idText(1), "row": "in " + r.database() + ".outbox: aggregate 7, order.placed, created 20", "commit": ", ends at ",
		"checkpoint": "behind it: " + r.checkpoint(), "parked": "no", "confirmed": "yes, before 20",
	})
	r.wantExplained(r.explained(0, idText(2)), map[string]string{"row": "payload is NULL", "parked": "payload is NULL; to see", "confirmed": "no: it is parked"})
	d.stop()
	row(4, 7, "'{}'")
	r.exec("UPDATE outbox SET created_at = '2001-01-01' WHERE aggregate_id = 7") // the log is then read from its beginning
	r.wantExplained(r.explained(0, strings.ToUpper(idText(4)), "--table", "outbox"), map[string]string{"checkpoint": "not yet there: ", "confirmed": "not by 20"})
	one := r.startAs("explain", "--", idText(3))
	r.wantExplained(r.explained(0, idText(3)), map[string]string{"parked": "it waits for one before it of its aggregate"})
	if code := one.Wait(); code != 0 {
		t.Errorf("explain beside explain ended with %d:\n%s", code, one.Tail())
	}
	r.relay("--partitions", "1", "--except-topics", "order.*", "--on-bad-event", "park")
	r.wantExplained(r.explained(0, idText(4)), map[string]string{"checkpoint": "does not carry order.placed", "confirmed": "not as far as a stamp tells"})
	r.exec("DELETE FROM outbox WHERE aggregate_id = 7", "UPDATE outbox SET status = 'published', published_at = '2026-02-03 04:05:06' WHERE aggregate_id = 8")
	r.wantExplained(r.explained(0, idText(1)), map[string]string{"row": "not in " + r.database(), "commit": ", ends at "})

	r.exec((&exchange.Inbox{}).Schema(), "INSERT INTO processed_messages VALUES ('"+idText(1)+"', '2026-02-03 04:05:06.7')")
	r.wantExplained(r.explained(0, strings.ToUpper(idText(1)), "--inbox-dsn", r.dsn), map[string]string{"inbox": "processed at 2026-02-03T04:05:06.700000Z, as " + r.database() + ".processed_messages tells"})
	r.wantExplained(r.explained(0, idText(2), "--inbox-table", "processed_messages"), map[string]string{"inbox": "not in " + r.database() + ".processed_messages"})
	r.wantExplained(r.explained(75, idText(2), "--inbox-dsn", "relay:x@tcp(127.0.0.1:1)/billing"), map[string]string{"row": "payload is NULL", "inbox": "not known: "})
	conn, err := r.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range []string{"SET SESSION sql_log_bin = 0", "INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'" + hexID(9) + "', 1, 't', '{}')"} {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	r.wantExplained(r.explained(0, idText(9)), map[string]string{"commit": "sql_log_bin=0", "confirmed": "not known"})
	r.explained(64, idText(10))
	r.explained(64, "x")
	r.explained(64)
	r.explained(64, idText(1), idText(2))
	r.explained(75, idText(1), "--mysql-dsn", "relay:x@tcp(127.0.0.1:1)/shop")
	r.exec("REVOKE REPLICATION SLAVE ON *.* FROM " + r.user)
	r.wantExplained(r.explained(78, idText(3)), map[string]string{"row": "status published, published_at 2026-02-03T04:05:06", "commit": "not known: binlog: privilege missing"})
}

// TestExplainHelpExample: the help's example runs, with another address.
func TestExplainHelpExample(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const id = "7d44a1a0-3c55-4c5b-9f0e-3f2f0f6c1c11"
	r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'" + strings.ReplaceAll(id, "-", "") + "', 1, 't', '{}')")
	_, example, _ := strings.Cut(r.run("explain", "--help").stdout, "relay explain 7d44")
	example, _, _ = strings.Cut("explain 7d44"+example, "OPTIONS")
	example = strings.NewReplacer("\\\n", " ", "relay:pw@tcp(127.0.0.1:3306)/shop", r.dsn).Replace(example)
	command := exec.CommandContext(t.Context(), "sh", "-c", relayBinary(t)+" "+strings.TrimSpace(example))
	command.Dir = t.TempDir()
	out, err := command.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "in "+r.database()+".outbox: aggregate 1") {
		t.Errorf("%s: %v\n%s", example, err, out)
	}
}
