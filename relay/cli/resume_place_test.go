package cli_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

// end is the place at which the server's log ends now, as FILE:POS.
func (r *rig) end() string {
	r.t.Helper()
	var place string
	r.eachLog(func(name, size string) bool { place = name + ":" + size; return true })
	return place
}

// TestResumeFromPlace goes on from places in the log and from times, on a
// server of its own, in whose log nobody else writes. It fails when a group at
// the place is taken to be before it, or one before it to be behind.
func TestResumeFromPlace(t *testing.T) { onEach(t, testResumeFromPlace) }

func testResumeFromPlace(t *testing.T, on source) {
	server := on.private(t)
	r := rigOn(t, databaseOn(t, server), schema.SQL).begun()
	var places, sets, times []string
	for n := 1; n <= 4; n++ {
		places, sets = append(places, r.end()), append(sets, r.executed())
		r.insert(r.db, n, n)
		if second := r.text("SELECT NOW()"); r.mariadb() { // whose log has whole seconds
			relaytest.Wait(t, patience, "the server's clock goes on", func() bool { return r.text("SELECT NOW()") != second })
		}
		times = append(times, r.text("SELECT DATE_FORMAT(UTC_TIMESTAMP(6), '%Y-%m-%dT%H:%i:%s.%fZ')"))
		if n == 2 {
			r.exec("FLUSH BINARY LOGS")
		}
	}
	if got := messageIDs(r.relayed()); len(got) != 4 {
		t.Fatalf("got %v", got)
	}

	t.Run("every place", func(t *testing.T) {
		for i, place := range places {
			r.run("resume", "--from-file", place, "--dry-run").want(t, 0, "resume from  "+sets[i]+"\n", "sent again   "+fmt.Sprint(4-i)+" transactions")
		}
	})
	t.Run("file", func(t *testing.T) {
		if _, ids := r.resumed("--from-file", places[2]); !slices.Equal(ids, []string{idText(3), idText(4)}) {
			t.Errorf("sent %v, want events 3 and 4", ids)
		}
	})
	t.Run("time", func(t *testing.T) {
		r.run("resume", "--from-time", times[2], "--dry-run").want(t, 0, "resume from  "+sets[3]+"\n", "place        "+places[3])
		if _, ids := r.resumed("--from-time", times[0]); !slices.Equal(ids, []string{idText(2), idText(3), idText(4)}) {
			t.Errorf("sent %v, want events 2, 3 and 4", ids)
		}
		r.run("resume", "--from-time", times[3], "--dry-run").want(t, 0, "sent again   0 transactions", "skipped      0 transactions")
	})
	t.Run("skips", func(t *testing.T) {
		r.insert(r.db, 5, 5)
		behind := r.end()
		r.run("resume", "--from-file", behind).want(t, 78, "--from-file "+behind+" skips 1 transactions", "--yes")
		r.insert(r.db, 6, 6)
		if _, ids := r.resumed("--from-file", behind, "--yes"); !slices.Equal(ids, []string{idText(6)}) {
			t.Errorf("sent %v, want event 6 alone", ids)
		}
	})
	t.Run("refused", func(t *testing.T) {
		file, _, _ := strings.Cut(places[1], ":")
		ago := time.Now().Add(-1000 * time.Hour).UTC().Format(time.RFC3339)
		r.refuse(t, []refusal{
			{"inside", []string{"resume", "--from-file", strings.TrimSuffix(places[1], ":"+strings.Split(places[1], ":")[1]) + ":" + plusOne(places[1])}, nil, 78, []string{"is inside of transaction", "--from-file " + places[1] + " "}},
			{"no such file", []string{"resume", "--from-file", "binlog.900000:4"}, nil, 78, []string{`no log file "binlog.900000"`, file}},
			{"beyond", []string{"resume", "--from-file", file + ":99999999"}, nil, 78, []string{"beyond the end", file + ":"}},
			{"future", []string{"resume", "--from-time", "2999-01-02T15:04:05Z"}, nil, 78, []string{"in the future", "clock says"}},
			{"too early", []string{"resume", "--from-time", ago}, nil, 78, []string{"in the server's oldest log file", "relay resume --from-gtid '"}},
		})
	})
	t.Run("undecided", func(t *testing.T) {
		conn, err := r.db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		xa := func(statement string) {
			if _, err := conn.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
		xa("XA START 'u'")
		r.insert(conn, 7, 7)
		xa("XA END 'u'")
		before := r.executed()
		xa("XA PREPARE 'u'")
		if r.mariadb() { // whose positions have what is only prepared
			before = r.executed()
		}
		same := r.end()
		r.run("resume", "--from-file", same, "--dry-run").want(t, 0, "resume from  "+before+"\n")
		r.exec("FLUSH BINARY LOGS")
		r.insert(r.db, 8, 8)
		later := r.end()
		xa("XA COMMIT 'u'")
		for _, place := range []string{same, later} {
			if _, ids := r.resumed("--from-file", place, "--yes"); !slices.Contains(ids, idText(7)) {
				t.Errorf("from %s: sent %v, and not what was prepared before and committed behind", place, ids)
			}
		}
	})
}

// plusOne is a place's offset and one.
func plusOne(place string) string {
	var offset int
	fmt.Sscan(place[strings.LastIndexByte(place, ':')+1:], &offset)
	return fmt.Sprint(offset + 1)
}

// TestResumeUsage: exactly one way, in its form.
func TestResumeUsage(t *testing.T) {
	t.Parallel()
	r := &rig{t: t, dsn: "relay:" + secret + "@tcp(127.0.0.1:1)/shop", amqp: "amqp://relay:" + "hunter2" + "@127.0.0.1:1/", exchange: "x", dir: t.TempDir()}
	r.refuse(t, []refusal{
		{"none", []string{"resume", "--yes"}, nil, 64, []string{"--from-gtid is missing", "--from-time", "--from-file", "--undo", "--gap", "relay status"}},
		{"two", []string{"resume", "--undo", "--gap", "backfill"}, nil, 64, []string{"--undo and --gap exclude each other"}},
		{"two places", []string{"resume", "--from-gtid", "", "--from-file", "a:4"}, nil, 64, []string{"--from-gtid and --from-file exclude"}},
		{"no time", []string{"resume", "--from-time", "yesterday"}, nil, 64, []string{`"yesterday"`, "2026-01-02T15:04:05Z"}},
		{"no place", []string{"resume", "--from-file", "binlog.000001"}, nil, 64, []string{`"binlog.000001"`, "FILE:POS"}},
		{"no offset", []string{"resume", "--from-file", ":4"}, nil, 64, []string{`":4"`, "FILE:POS"}},
		{"other gap", []string{"resume", "--gap", "skip"}, nil, 64, []string{`--gap "skip"`, "--gap backfill"}},
	})
}
