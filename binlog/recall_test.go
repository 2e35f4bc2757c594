package binlog_test

import (
	"database/sql"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/binlog"
)

// TestRecallAltered: XA transactions that were prepared before the position, in
// a log that does not name the columns, with a change of the table before them,
// one behind them, and one of other columns that was decided before the change.
// Where the first half that cannot be mapped is not left alone until it is
// committed, the stream ends at the oldest one; where the definition at the
// position is not used, at the change behind it.
func TestRecallAltered(t *testing.T) { onEach(t, testRecallAltered) }

func testRecallAltered(t *testing.T, f flavor) {
	metadata := map[string]string{"mysql": "MINIMAL", "mariadb": "NO_LOG"}[f.name]
	r := newRigOn(t, f.private(t, "--binlog-row-metadata="+metadata), changing)
	xa := func(id string, n int) *sql.Conn {
		conn := r.conn()
		for _, statement := range []string{"XA START '" + id + "'", a(n).sql, "XA END '" + id + "'", "XA PREPARE '" + id + "'"} {
			r.on(conn, statement)
		}
		return conn
	}
	server := r.open()
	begin := r.executed(server)
	const old, kept, undone = "old", "kept", "undone"
	r.on(xa(old, 1), "XA COMMIT '"+old+"'")
	r.exec(swap)
	keeper, undoer := xa(kept, 2), xa(undone, 3)
	behind, from := r.table(server), r.executed(server)
	r.on(undoer, "XA ROLLBACK '"+undone+"'")
	r.on(keeper, "XA COMMIT '"+kept+"'")
	r.exec(first)
	r.exec(a(4).sql)

	stream, err := server.FollowFrom(r.ctx, from, r.table(server), behind)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stream.Close)
	for i, e := range r.events(stream, 2) {
		if want := a([]int{2, 4}[i]).want; e.AggregateID+" "+e.Topic+" "+string(e.Payload) != want {
			t.Errorf("got %s %s %s, want %s", e.AggregateID, e.Topic, e.Payload, want)
		}
	}

	// Which definition there was at the position is not known.
	err = failure(r, r.followFrom(server, from))
	wantError(t, err, binlog.ErrChanged, "again later; to go on behind the change: relay resume --from-gtid '")
	_, rest, _ := strings.Cut(err.Error(), "--from-gtid '")
	set, _, _ := strings.Cut(rest, "'")
	if !parse(r, set).Contains(from) {
		t.Errorf("the command's set %s does not have %s", set, from)
	}
	if e := r.events(r.followFrom(server, parse(r, set)), 1)[0]; e.AggregateID != "4" || e.Topic != "té4" {
		t.Errorf("behind %s: got %+v", set, e)
	}
	if from.Contains(parse(r, set)) || !from.Contains(begin) {
		t.Errorf("the set %s is not behind the change", set)
	}
}
