package cli_test

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/schema"
)

// parked are the ids in the parked file, in its order.
func (r *rig) parked() (ids []string) {
	r.t.Helper()
	content, err := os.ReadFile(r.checkpoint() + ".parked")
	if err != nil {
		r.t.Fatal(err)
	}
	for line := range strings.Lines(string(content)) {
		var p struct {
			ID string `json:"id"`
		}
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			r.t.Fatal(err)
		}
		ids = append(ids, p.ID)
	}
	return ids
}

// TestPark: rows that make no event, that no message can carry, and that the
// broker does not take are put aside with what follows in their aggregates.
// The others flow. Afterwards replay sends what can be sent. Without parking
// the relay stops on each of them.
func TestPark(t *testing.T) {
	t.Parallel()
	r := rigOn(t, database(t), schema.SQL, "ALTER TABLE outbox MODIFY payload LONGTEXT NULL, ADD headers JSON").begun()
	row := func(n, aggregate int, payload, headers string) {
		r.exec(fmt.Sprintf("INSERT INTO outbox (id, aggregate_id, topic, payload, headers) VALUES (x'%032x', %d, 't', %s, %s)", n, aggregate, payload, headers))
	}
	const fine, none = "'{}'", "NULL"
	row(1, 1, fine, none)
	row(2, 1, none, none)                                       // no payload
	row(3, 1, fine, none)                                       // behind it
	row(4, 2, fine, `JSON_OBJECT(REPEAT('h', 300), 1)`)         // a header's name is too long
	row(5, 3, fine, none)                                       // of another aggregate
	row(6, 4, "CONCAT('[', REPEAT('1,', 8500000), '1]')", none) // over the broker's 16 MiB
	row(7, 4, fine, none)                                       // behind it
	row(8, 5, fine, none)                                       // of another aggregate

	stopped := r.run("run", "--partitions", "1")
	stopped.want(t, 65, idText(2), "payload is NULL", "relay resume --from-gtid '")

	d := r.start("--partitions", "1", "--on-bad-event", "park")
	d.settled()
	if err := d.Kill(); err != nil { // and again, without another trace
		t.Fatal(err)
	}
	d = r.start("--partitions", "1", "--on-bad-event", "park")
	row(9, 4, fine, none)
	row(10, 3, fine, none)
	d.settled()
	d.stop()
	sent := messageIDs(r.take(0))
	slices.Sort(sent)
	if want := []string{idText(1), idText(5), idText(8), idText(10)}; !slices.Equal(slices.Compact(sent), want) {
		t.Errorf("sent %v, want %v", sent, want)
	}
	if got, want := r.parked(), []string{idText(2), idText(3), idText(4), idText(6), idText(7), idText(9)}; !slices.Equal(got, want) {
		t.Errorf("parked %v, want %v", got, want)
	}
	r.run("status", "--partitions", "1").want(t, 0, "6 events wait in")
	r.run("run", "--partitions", "1").want(t, 78, "6 events are parked", "relay replay --parked")

	r.run("replay").want(t, 64, "relay replay --parked")
	r.run("replay", "--parked", "--drop", "none").want(t, 64, "no such event")
	r.run("replay", "--parked", "--dry-run", "--drop", idText(2)).want(t, 0, `"would":"drop"`, `"would":"send"`, `{"would":"keep","id":"`+idText(4)+`"`, "h"+strings.Repeat("h", 200))
	r.run("replay", "--parked", "--drop", idText(2)).want(t, 3, "dropped   "+idText(2), "confirmed "+idText(3), "kept      "+idText(4), "kept      "+idText(6))
	again := r.take(0)
	if got := messageIDs(again); !slices.Equal(got, []string{idText(3)}) || again[0].Headers["replayed"] != true {
		t.Errorf("replay sent %v with headers %v", got, again[0].Headers)
	}
	r.run("replay", "--parked", "--drop", idText(4), "--drop", idText(6)).want(t, 0, "confirmed "+idText(7), "confirmed "+idText(9))
	if got := messageIDs(r.take(0)); !slices.Equal(got, []string{idText(7), idText(9)}) {
		t.Errorf("replay sent %v", got)
	}
	row(11, 4, fine, none)
	if got := messageIDs(r.relayed()); !slices.Equal(got, []string{idText(11)}) {
		t.Errorf("the relay sent %v, want event 11 of the aggregate that was held", got)
	}
}
