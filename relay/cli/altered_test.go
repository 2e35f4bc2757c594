package cli_test

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/checkpoint"
)

// texts are the messages in a queue: type and body.
func (r *rig) texts() (list []string) {
	r.t.Helper()
	for _, m := range r.take(0) {
		list = append(list, m.Type+" "+string(m.Body))
	}
	return list
}

// TestAltered: columns of one type change places while the relay is down, in a
// log that does not name them. The checkpoint's columns hold up to the change,
// and the table's behind it; where neither does, the relay stops, and the
// command that it prints goes on behind the change. Without columns in the
// checkpoint "topic 2" comes as "body 2".
func TestAltered(t *testing.T) {
	t.Parallel()
	r := rigOn(t, database(t), `CREATE TABLE outbox (id INT PRIMARY KEY AUTO_INCREMENT, aggregate_id INT NOT NULL,
		topic VARCHAR(50) NOT NULL, payload VARCHAR(50) NOT NULL, created_at DATETIME NOT NULL DEFAULT '2024-01-01')`)
	if metadata := r.text("SELECT @@GLOBAL.binlog_row_metadata"); metadata != "MINIMAL" {
		t.Fatalf("the test server's binlog_row_metadata is %s, want MINIMAL, its default", metadata)
	}
	row := func(n int) string {
		return fmt.Sprintf("INSERT INTO outbox (aggregate_id, topic, payload) VALUES (7, 'topic %d', 'body %d')", n, n)
	}
	swap := func(place string) string {
		return "ALTER TABLE outbox MODIFY topic VARCHAR(50) NOT NULL AFTER " + place
	}
	want := func(numbers ...int) {
		t.Helper()
		var texts []string
		for _, n := range numbers {
			texts = append(texts, fmt.Sprintf("topic %d body %d", n, n))
		}
		if diff := cmp.Diff(texts, r.texts()); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
	}
	names := func() (list []string) {
		for _, c := range r.state().Columns {
			list = append(list, c.Name)
		}
		return list
	}

	r.begun()
	r.exec(row(1), row(2), swap("payload"), row(3))
	r.relay("--partitions", "1")
	want(1, 2, 3)
	if got := names(); !slices.Equal(got, []string{"id", "aggregate_id", "payload", "topic", "created_at"}) {
		t.Errorf("the checkpoint has the columns %q", got)
	}

	r.exec(row(4), swap("aggregate_id"), row(5), swap("payload"), row(6))
	got := r.run("run", "--partitions", "1")
	got.want(t, 78, swap("aggregate_id"), swap("payload"), "again later")
	got.oneLine(t)
	want(4)
	if state := r.state(); state.Columns != nil || state.Version != 1 {
		t.Errorf("behind the change the checkpoint is %+v", state)
	}
	command := regexp.MustCompile(`relay resume (--from-gtid) '([^']+)' (--yes)`).FindStringSubmatch(got.stderr)
	if command == nil {
		t.Fatalf("no command in %s", got.stderr)
	}
	_, sent := r.resumed(command[1:]...)
	if !slices.Equal(sent, []string{"6"}) {
		t.Errorf("behind the change %q was sent", sent)
	}

	// A checkpoint without columns, as an older relay wrote it.
	r.exec(row(7))
	state := r.state()
	state.Columns = nil
	file, err := checkpoint.Open(r.checkpoint())
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Save(state); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	r.relay("--partitions", "1")
	want(7)
	if got := names(); len(got) != 5 {
		t.Errorf("the checkpoint has the columns %q", got)
	}
}
