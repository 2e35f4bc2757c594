package cli_test

import (
	"fmt"
	"strings"
	"testing"
)

// TestTooLarge: a message over the broker's limit ends the relay with 65 and
// its id, and only its. With the command that is printed the relay goes on
// behind it, and all that was around it arrives. Seen to fail
// with endError's case of PreconditionFailed taken out: the relay tries for
// ever.
func TestTooLarge(t *testing.T) {
	t.Parallel()
	f := newRig(t).try(2)
	stop := f.load()
	f.flows()
	stop()
	const large = 1 << 40
	f.exec(fmt.Sprintf("INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'%s', 1, 't', JSON_QUOTE(REPEAT('x', 17 << 20)))", hexID(large)))
	f.wantCode(65)
	f.ended(idText(large), "max_message_size")
	f.writes(40)
	f.resumeAsTold()
	f.resumed(1)
}

// TestTooLong: what AMQP cannot carry ends the relay with 65 and the event's
// id before it is sent, and the events around it arrive; all but an aggregate
// id, which is hashed to make the routing key. Seen to fail without
// newPublishing's look at lengths: each costs the connection, again and again.
func TestTooLong(t *testing.T) {
	t.Parallel()
	const ddl = `CREATE TABLE outbox (id VARCHAR(300) PRIMARY KEY, aggregate_id VARCHAR(400) NOT NULL, topic VARCHAR(120) NOT NULL,
		payload JSON NOT NULL, headers JSON, created_at DATETIME(6) NOT NULL DEFAULT (UTC_TIMESTAMP(6)))`
	long := strings.Repeat("k", 300)
	for name, row := range map[string]struct{ id, headers string }{
		"message id":  {long, `{}`},
		"header name": {"bad", `{"` + long + `":1}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := rigOn(t, database(t), ddl).try(2)
			f.texts = true
			stop := f.load()
			f.flows()
			stop() // an event behind the bad one would have another sequence in the next run
			if _, err := f.db.Exec("INSERT INTO outbox (id, aggregate_id, topic, payload, headers) VALUES (?, 'a', 't', '{}', ?)", row.id, row.headers); err != nil {
				t.Fatal(err)
			}
			f.wantCode(65)
			f.ended(row.id, "300 bytes")
			f.writes(40)
			f.resumeAsTold()
			f.resumed(0)
		})
	}
	t.Run("routing key", func(t *testing.T) {
		t.Parallel()
		f := rigOn(t, database(t), ddl).try(2)
		f.texts, f.prefix = true, long
		stop := f.load()
		f.flows()
		stop()
		f.judge(toll{})
		if f.came(0) == 0 || f.came(1) == 0 {
			t.Errorf("%d and %d events in the queues: the keys are not spread", f.came(0), f.came(1))
		}
	})
}

// ended wants the relay's last words to be one line about the event.
func (f *trial) ended(id, why string) {
	f.t.Helper()
	text := f.daemon.text()
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := lines[len(lines)-1]
	if !strings.HasPrefix(last, "relay: ") || !strings.Contains(last, id) || !strings.Contains(last, why) || strings.Count(text, id) != strings.Count(last, id) {
		f.t.Errorf("the last line does not say that event %s is no message, %s:\n%s", id, why, f.Tail())
	}
}

// resumeAsTold types what the relay's last words say, and starts the relay.
func (f *trial) resumeAsTold() {
	f.t.Helper()
	_, told, ok := strings.Cut(f.daemon.text(), "relay resume --from-gtid '")
	set, _, closed := strings.Cut(told, "' --yes")
	if !ok || !closed {
		f.t.Fatalf("no command to go on with in\n%s", f.Tail())
	}
	f.begin("resume", "--from-gtid", set, "--yes")
}
