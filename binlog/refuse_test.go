package binlog_test

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

func wantError(tb testing.TB, err, want error, text string) {
	tb.Helper()
	if !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), text) {
		tb.Errorf("got error %v, want %v with %q", err, want, text)
	}
}

// testAltered: the table changes while the relay follows, and while it is
// away; the log has the columns' names (binlog_row_metadata=FULL).
func testAltered(r *rig) {
	server := r.open()
	stream := r.follow(server)
	index := "ALTER TABLE outbox ADD KEY ((CAST(payload->'$.of' AS CHAR(10))))" // a hidden column
	if r.mariadb() {
		index = "ALTER TABLE outbox ADD v INT AS (aggregate_id + 1) VIRTUAL, ADD KEY (v)"
	}
	steps := []string{
		"DO 0",
		"ALTER TABLE outbox MODIFY payload JSON NOT NULL FIRST, MODIFY topic VARCHAR(200) NOT NULL AFTER status",
		"ALTER TABLE outbox ADD note INT NOT NULL DEFAULT 5 FIRST, ADD headers JSON DEFAULT ('{\"a\": 1}')",
		index,
		"ALTER TABLE outbox DROP note, DROP headers, MODIFY id VARBINARY(16) NOT NULL AFTER topic",
	}
	for i, step := range steps {
		r.exec(step)
		id := newID()
		r.insert(id, fmt.Sprintf(`{"of": "%d"}`, i))
		want := schema.Event{
			ID: uuid.UUID(id).String(), AggregateID: "7", Topic: "orders", Payload: fmt.Appendf(nil, `{"of": "%d"}`, i), ContentType: "application/json",
		}
		switch i {
		case 2, 3:
			want.Headers = map[string]any{"a": int64(1)}
		case 4:
			want.ID = hex.EncodeToString(id)
		}
		got := r.events(stream, 1)[0]
		want.GTID, want.CreatedAt = got.GTID, got.CreatedAt
		if diff := cmp.Diff(want, got); diff != "" {
			r.Errorf("%s (-want +got):\n%s", step, diff)
		}
	}

	away := func(ddl string, text func([]byte) string) {
		r.Helper()
		from := r.executed(server)
		id := append(newID()[:10], 1, 2, 3, 4, 5, 6)
		r.insert(id, `{"of": "x"}`)
		r.exec(ddl)
		if e := r.events(r.followFrom(server, from), 1)[0]; e.ID != text(id) || e.AggregateID != "7" || e.Headers["a"] != nil || e.Bad != nil {
			r.Errorf("before %s: got %+v, want id %s", ddl, e, text(id))
		}
	}
	away("ALTER TABLE outbox ADD headers JSON DEFAULT ('{\"a\": 1}')", hex.EncodeToString)
	r.exec("ALTER TABLE outbox DROP headers")
	away("ALTER TABLE outbox MODIFY id BINARY(16) NOT NULL", hex.EncodeToString)
	away("ALTER TABLE outbox MODIFY id BINARY(20) NOT NULL", func(id []byte) string { return uuid.UUID(id).String() })
	away("ALTER TABLE outbox MODIFY aggregate_id VARCHAR(20) NOT NULL", func(id []byte) string { return hex.EncodeToString(append(id, 0, 0, 0, 0)) })

	stream = r.follow(server)
	r.exec("ALTER TABLE outbox RENAME COLUMN topic TO subject")
	r.exec("INSERT INTO outbox (id, aggregate_id, subject, payload) VALUES (0x01, 1, 't', '{}')")
	wantNext(r, stream, schema.ErrTable, "lacks the column topic")
}

// testTextRows: what a session writes as text stops the stream when it is
// about the outbox.
func testTextRows(r *rig) {
	r.exec("CREATE TABLE outbox_archive LIKE outbox")
	server := r.open()
	stream := r.follow(server)
	conn := r.conn("SET SESSION binlog_format = STATEMENT", "SET SESSION sql_log_bin = ON")
	const insert = " (id, aggregate_id, topic, payload) VALUES (0x01, 1, 't', '{}')"
	r.on(conn, "INSERT INTO outbox_archive"+insert)
	r.insert(newID(), "{}")
	if got := r.events(stream, 1); len(got) != 1 {
		r.Errorf("got %d events, want 1", len(got))
	}
	r.on(conn, "/* app */ insert ignore into\n`outbox`"+insert)
	wantNext(r, stream, binlog.ErrUnreadable, "INSERT IGNORE on ")
}

// testPurged: history that is gone, and history that never was.
func testPurged(r *rig) {
	server := r.open()
	r.insert(newID(), "{}")
	before := r.executed(server)
	r.insert(newID(), "{}")
	r.exec("FLUSH BINARY LOGS")
	r.insert(newID(), "{}")
	last := r.executed(server)
	ok := func(position *binlog.GTIDSet) {
		r.Helper()
		if err := server.CheckPosition(r.ctx, position); err != nil {
			r.Errorf("position %s: %v", position, err)
		}
	}
	refused := func(position *binlog.GTIDSet, want error, text string) {
		r.Helper()
		wantError(r, server.CheckPosition(r.ctx, position), want, text)
		stream, err := server.Follow(r.ctx, position, r.table(server))
		if err != nil {
			wantError(r, err, want, "relay ")
			return
		}
		defer stream.Close()
		wantNext(r, stream, want, "relay ")
	}
	ok(parse(r, ""))
	ok(before)
	ok(last)
	relaytest.Wait(r, limit, "the log is purged, which a reader of it holds up", func() bool {
		r.exec("PURGE BINARY LOGS TO '" + r.boundary("").file + "'")
		return len(r.logFiles()) == 1
	})
	purged, err := server.Purged(r.ctx)
	if err != nil || purged.IsEmpty() {
		r.Fatalf("purged %s, %v", purged, err)
	}
	gap, err := server.Subtract(r.ctx, purged, before)
	if err != nil || gap.Count() < 1 {
		r.Fatalf("gap %s, %v", gap, err)
	}
	ok(last)
	refused(before, binlog.ErrPurged, fmt.Sprintf("the server no longer has %d transactions that were not relayed: %s; ", gap.Count(), gap))
	refused(parse(r, ""), binlog.ErrPurged, "relay resume --from-gtid")

	ahead := last.Clone()
	if r.mariadb() {
		var n int // in domain 0; other tests have used another as well
		if _, err := fmt.Sscanf(last.String(), "0-1-%d", &n); err != nil {
			r.Fatal(err)
		}
		refused(last.Union(parse(r, "0-1-1000000")), binlog.ErrDiverged, fmt.Sprintf("itself numbered and no longer has: 0-1-%d..1000000;", n+1))
		refused(parse(r, strings.Replace(last.String(), "0-1-", "0-7-", 1)), binlog.ErrDiverged, fmt.Sprintf("1 transactions were relayed that this server (%s) never executed: 0-7-%d;", server.Address(), n))
		wantError(r, server.CheckPosition(r.ctx, parse(r, last.String()+",9-1-3")), binlog.ErrDiverged, "itself numbered and no longer has: 9-1-3;")
		wantError(r, server.CheckPosition(r.ctx, parse(r, "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee:1-3")), binlog.ErrDiverged, "is a position of MySQL, and the server")
		return
	}
	wantError(r, server.CheckPosition(r.ctx, parse(r, "0-1-3")), binlog.ErrDiverged, "is a position of MariaDB, and the server")
	g := parse(r, server.UUID+":1-1000000")
	refused(g, binlog.ErrDiverged, "itself numbered and no longer has: "+server.UUID+":")
	foreign := parse(r, last.String()+",aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee:blue:1-3")
	wantError(r, server.CheckPosition(r.ctx, foreign), binlog.ErrDiverged, "3 transactions were relayed that this server ("+server.UUID+") never executed: aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee:blue:1-3")
	if last.String() != ahead.String() {
		r.Errorf("the position changed from %s to %s", ahead, last)
	}
}

// unmet lists the requirements that are not met.
func unmet(r *rig, server *binlog.Server) (list []binlog.Requirement) {
	r.Helper()
	_, all, err := server.Check(r.ctx)
	if err != nil {
		r.Fatal(err)
	}
	return slices.DeleteFunc(all, func(q binlog.Requirement) bool { return q.OK })
}

func names(list []binlog.Requirement) string {
	var out []string
	for _, q := range list {
		out = append(out, q.Name)
	}
	return strings.Join(out, ", ")
}

// TestCheckSettings: the statements that a check prints make the server fit,
// and keep it so over a restart.
func TestCheckSettings(t *testing.T) {
	t.Parallel()
	dsn := relaytest.PrivateMySQL(t, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--binlog-row-image=MINIMAL", "--binlog-format=MIXED")
	r := newRigOn(t, dsn, strings.Replace(schema.SQL, "InnoDB", "MyISAM", 1))
	server := r.open()
	list := unmet(r, server)
	if got, want := names(list), "gtid_mode, binlog_format, binlog_row_image, binlog_row_metadata, engine"; got != want {
		t.Errorf("unmet: got %s, want %s", got, want)
	}
	for _, q := range list {
		if q.Advice != (q.Err() == nil) || (!q.Advice && !strings.HasSuffix(q.Err().Error(), "; type: "+q.Fix)) {
			t.Errorf("%s: advice %t, error %v", q.Name, q.Advice, q.Err())
		}
		if q.Name != "engine" && !q.Advice {
			wantError(t, q.Err(), binlog.ErrSettings, q.Name+": need "+q.Need+", found "+q.Found)
		}
		for _, statement := range strings.Split(q.Fix, ";") {
			r.exec(statement)
		}
	}
	if got := names(unmet(r, server)); got != "" {
		t.Errorf("still unmet: %s", got)
	}
	kept := r.text("SELECT GROUP_CONCAT(variable_name ORDER BY variable_name) FROM performance_schema.persisted_variables")
	if want := "binlog_format,binlog_row_image,binlog_row_metadata,enforce_gtid_consistency,gtid_mode"; kept != want {
		t.Errorf("persisted: got %s, want %s", kept, want)
	}
}

// TestCheckLogOff: a server without a log.
func TestCheckLogOff(t *testing.T) { onEach(t, testCheckLogOff) }

func testCheckLogOff(t *testing.T, on flavor) {
	r := newRigOn(t, on.private(t, "--skip-log-bin"), schema.SQL)
	list := unmet(r, r.open())
	i := slices.IndexFunc(list, func(q binlog.Requirement) bool { return q.Name == "log_bin" })
	if i < 0 {
		t.Fatalf("unmet: %s", names(list))
	}
	wantError(t, list[i].Err(), binlog.ErrSettings, "log_bin: need ON, found OFF; type: "+
		r.pick("remove skip-log-bin and disable-log-bin from", "log_bin = binlog in")+" the server's option file, then restart it")
}
