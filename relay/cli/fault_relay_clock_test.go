package cli_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// sane wants every figure of the metrics to be a number of what there is: none
// is negative.
func sane(t testing.TB, address string) {
	t.Helper()
	_, body := get(address, "/metrics")
	figures := 0
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "relay_") {
			continue
		}
		text := line[strings.LastIndexByte(line, ' ')+1:]
		if value, err := strconv.ParseFloat(text, 64); err != nil || value < 0 {
			t.Errorf("a figure that cannot be: %s", line)
		}
		figures++
	}
	if figures < 10 {
		t.Errorf("there are %d figures in\n%s", figures, body)
	}
}

// TestFaultRelayClockSetBack: the clock was decades ahead when the checkpoint
// was saved, and has been set right. The relay goes on, and no figure is
// negative, neither while it follows nor while it cannot.
func TestFaultRelayClockSetBack(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	r.insert(r.db, 1, 3)
	r.relay("--partitions", "1")
	text := mustRead(t, r.checkpoint())
	text = forged(t, text, line(t, text, "saved_at"), "  \"saved_at\": \"2099-01-01T00:00:00Z\",\n")
	if err := os.WriteFile(r.checkpoint(), text, 0o600); err != nil {
		t.Fatal(err)
	}
	p := r.toSource()
	p.Refuse()
	address := freeAddress(t)
	d := r.start("--partitions", "1", "--listen", address)
	d.until("it has tried", func() bool { return d.ended() > 0 })
	sane(t, address)
	p.Accept()
	r.insert(r.db, 4, 6)
	d.settled()
	sane(t, address)
	d.stop()
	if at := r.state().SavedAt; at.Year() == 2099 {
		t.Errorf("the checkpoint was saved at %s", at)
	}
	r.wantEvents(r.take(0), 1, 6)
}

// TestFaultRelayServerAhead: the server's clock is decades ahead of the
// relay's, and is then set right, so that later transactions have the earlier
// times. The order is that of the log, and no figure is negative.
func TestFaultRelayServerAhead(t *testing.T) {
	t.Parallel()
	r := rigOn(t, databaseOn(t, relaytest.PrivateMySQL(t)), schema.SQL).begun() // where nobody else commits
	p := r.toSource()
	address := freeAddress(t)
	d := r.start("--partitions", "1", "--listen", address)
	conn, err := r.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(t.Context(), "SET original_commit_timestamp = 4070908800000000"); err != nil {
		t.Fatal(err)
	}
	r.insert(conn, 1, 3)
	d.settled()
	if at := r.state().CommittedAt; at.Year() != 2099 {
		t.Errorf("the transaction was committed at %s: that proves nothing", at)
	}
	sane(t, address)
	ended := d.ended()
	p.away()
	d.until("it has tried", func() bool { return d.ended() >= ended+2 })
	sane(t, address)
	p.Accept()
	d.settled()
	r.insert(r.db, 4, 6)
	d.settled()
	sane(t, address)
	d.stop()
	r.wantEvents(r.take(0), 1, 6)
}

// TestFaultRelaySessionClock: sessions on the server whose clocks say 2037 and
// 1999. Their events' headers say so, too, and nobody may believe them.
func TestFaultRelaySessionClock(t *testing.T) {
	t.Parallel()
	r := newRig(t).begun()
	address := freeAddress(t)
	d := r.start("--partitions", "1", "--listen", address)
	conn, err := r.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for i, year := range []int{2037, 1999} {
		if _, err := conn.ExecContext(t.Context(), fmt.Sprintf("SET TIMESTAMP = UNIX_TIMESTAMP('%d-01-01')", year)); err != nil {
			t.Fatal(err)
		}
		r.insert(conn, i*5+1, i*5+5)
		d.settled()
		sane(t, address)
		if at := r.state().CommittedAt; at.Year() == year {
			t.Errorf("the transaction was committed at %s", at)
		}
	}
	d.stop()
	r.wantEvents(r.take(0), 1, 10)
}
