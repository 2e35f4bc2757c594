package relay

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
)

// TestWayOut: the end of a refusal is a command that is right where the relay
// stands. Without the look at what is settled, that of MariaDB skips events that
// were not sent; in a backfill, resume would skip the rest of the table.
func TestWayOut(t *testing.T) {
	const server = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	gtid := func(text string) binlog.GTID {
		var g binlog.GTID
		if n, _ := fmt.Sscanf(text, "%d-%d-%d", &g.Domain, &g.ServerID, &g.Number); n == 3 {
			return g
		}
		g.Server = [16]byte{0x3e, 0x11, 0xfa, 0x47, 0x71, 0xca, 0x11, 0xe1, 0x9e, 0x33, 0xc8, 0x0a, 0xa9, 0x42, 0x95, 0x62}
		fmt.Sscan(text, &g.Number)
		return g
	}
	for _, tt := range []struct {
		name, set, gtid, prepared string
		backfill, early           bool
		want                      string
	}{
		{name: "no checkpoint", gtid: "9", want: "begins behind it: relay run"},
		{name: "in a backfill", set: server + ":1-7", gtid: "9", backfill: true, want: "mv PATH PATH.old; relay run"},
		{name: "MySQL", set: server + ":1-8", gtid: "9", early: true, want: "skips, " + server + ":9, are dealt with: relay resume --from-gtid '" + server + ":1-9' --yes"},
		{name: "events before it are not sent", set: server + ":1-7", gtid: "9", early: true, want: "--from-gtid '" + server + ":1-7:9' --yes"},
		{name: "XA", set: server + ":1-4:6-8", gtid: "9", prepared: "5", want: "skips, " + server + ":9 and its XA PREPARE " + server + ":5, are dealt with: relay resume --from-gtid '" + server + ":1-9' --yes"},
		{name: "MariaDB", set: "0-1-7,5-2-3", gtid: "0-1-9", want: "skips, 0-1-9, are dealt with: relay resume --from-gtid '0-1-9,5-2-3' --yes"},
		{name: "MariaDB, events before it are not sent", set: "0-1-7", gtid: "0-1-9", early: true, want: "start again until they are: relay run"},
		{name: "MariaDB, a number that comes again", set: "0-1-9", gtid: "0-1-8", want: "gtid_binlog_pos tells is above that: relay resume --yes --from-gtid with what it tells, which skips all up to it"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "checkpoint.json")
			file, err := checkpoint.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer file.Close()
			if tt.set != "" {
				state := checkpoint.State{Flavor: "mysql", GTIDSet: tt.set, ServerUUID: server, Table: "shop.outbox"}
				if strings.Count(tt.gtid, "-") == 2 {
					state.Flavor, state.ServerUUID = "mariadb", ""
				}
				if tt.backfill {
					state.Backfill = &checkpoint.Backfill{Until: `["1"]`}
				}
				if err := file.Save(state); err != nil {
					t.Fatal(err)
				}
			}
			r := &Relay{file: file, early: tt.early}
			stuck := &binlog.TxError{GTID: gtid(tt.gtid), Err: binlog.ErrUnreadable}
			if tt.prepared != "" {
				stuck.Prepared = gtid(tt.prepared)
			}
			got := strings.ReplaceAll(r.wayOut(fmt.Errorf("session: %w", stuck)).Error(), path, "PATH")
			if !strings.HasSuffix(got, tt.want) {
				t.Errorf("got  %s\nwant … %s", got, tt.want)
			}
		})
	}
}
