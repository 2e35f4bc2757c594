package binlog

import "testing"

// TestLogFilter: binlog_ignore_db counts only where there is no binlog_do_db.
func TestLogFilter(t *testing.T) {
	for _, tt := range []struct {
		filter logFilter
		want   bool // shop is left out
	}{
		{logFilter{}, false},
		{logFilter{except: []string{"shop"}}, true},
		{logFilter{except: []string{"other", "shop"}}, true},
		{logFilter{except: []string{"other"}}, false},
		{logFilter{only: []string{"shop"}}, false},
		{logFilter{only: []string{"other"}}, true},
		{logFilter{only: []string{"shop"}, except: []string{"shop"}}, false},
	} {
		if got := tt.filter.excludes("shop"); got != tt.want {
			t.Errorf("%s: leaves shop out %v, want %v", tt.filter, got, tt.want)
		}
	}
}
