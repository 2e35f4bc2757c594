package binlog_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/schema"
)

// TestBinlogFilter: an outbox whose database the server leaves out of its log is
// refused, and a filter of others is a hint. Without the requirement all is ok,
// and no event ever comes.
func TestBinlogFilter(t *testing.T) { onEach(t, testBinlogFilter) }

func testBinlogFilter(t *testing.T, f flavor) {
	for option, tests := range map[string][]struct {
		database, fix string
		advice        bool
	}{
		"--binlog-ignore-db": {{"hidden", "take binlog-ignore-db = hidden out of the server's option file, then restart it", false}, {"seen", "take binlog-ignore-db = hidden, binlog-ignore-db = aside out of", true}},
		"--binlog-do-db":     {{"seen", "add binlog-do-db = seen to the server's option file, then restart it", false}, {"hidden", "take binlog-do-db = hidden, binlog-do-db = aside out of", true}},
	} {
		dsn := f.private(t, option+"=hidden", option+"=aside")
		for _, tt := range tests {
			newRigOn(t, dsn, "").exec("CREATE DATABASE " + tt.database)
			r := newRigOn(t, dsn+tt.database, schema.SQL)
			_, list, err := r.open().Check(r.ctx)
			if err != nil {
				t.Fatal(err)
			}
			var got binlog.Requirement
			for _, one := range list {
				if one.Name == "binlog filter" {
					got = one
				}
			}
			if got.OK || got.Advice != tt.advice || !strings.Contains(got.Fix, tt.fix) {
				t.Errorf("%s, in %s: %+v", option, tt.database, got)
			}
			if err := got.Err(); errors.Is(err, binlog.ErrSettings) == tt.advice {
				t.Errorf("%s, in %s: %v", option, tt.database, err)
			}
		}
	}
}
