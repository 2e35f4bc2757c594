package binlog

import (
	"testing"
)

// TestSeries: sets that name each of MariaDB's transactions, and what is left of
// them behind others and behind a position. It fails when a single one stands
// for those before it, as in a position.
func TestSeries(t *testing.T) {
	for _, tt := range []struct {
		text, want string
		count      int64
	}{
		{"0-1-42", "0-1-42", 1},
		{"0-1-1..42", "0-1-1..42", 42},
		{" 5-3-1,\n0-1-7..9,0-2-8 , 0-1-1..5", "0-1-1..5,0-1-7..9,0-2-8,5-3-1", 10},
		{"0-1-1..5,0-1-4..7,0-1-8", "0-1-1..8", 8},
		{"10-1-1,2-1-1", "2-1-1,10-1-1", 2},
		{serverA + ":1-5:7", serverA + ":1-5:7", 6},
		{"", "", 0},
	} {
		set, err := ParseTransactions(tt.text)
		if err != nil || set.String() != tt.want || set.Count() != tt.count || set.IsEmpty() != (tt.count == 0) {
			t.Errorf("%q: got %s of %d, %v, want %s of %d", tt.text, set, set.Count(), err, tt.want, tt.count)
		}
	}
	for _, text := range []string{"0-1", "0-1-5..", "0-1-5..4", "0-1-5..x", "0-1-..5", "0-0-5", "0-1-5,", "0-1-5..9223372036854775807", "0-1-9223372036854775807", "0-1-5," + serverA + ":1"} {
		if set, err := ParseTransactions(text); err == nil {
			t.Errorf("%q: got %q, want an error", text, set)
		}
	}
	parse := func(text string) *GTIDSet {
		set, err := ParseTransactions(text)
		if err != nil {
			t.Fatal(err)
		}
		return set
	}
	for _, tt := range []struct{ from, away, position, rest string }{
		{"0-1-1..9", "0-1-5", "", "0-1-1..4,0-1-6..9"},
		{"0-1-1..9", "0-2-5", "", "0-1-1..9"},
		{"0-1-1..9,5-1-3", "", "0-2-7", "0-1-8..9,5-1-3"},
		{"0-1-3,0-2-4..6", "0-1-3", "0-2-4", "0-2-5..6"},
		{"0-1-3", "0-1-1..9", "", ""},
	} {
		position, err := ParseGTIDSet(tt.position)
		if err != nil {
			t.Fatal(err)
		}
		from, rest := parse(tt.from), parse(tt.from).Minus(parse(tt.away)).Minus(position)
		if rest.String() != tt.rest || from.String() != tt.from || !from.Contains(rest) || rest.Contains(from) != (tt.rest == tt.from) {
			t.Errorf("%s without %s and %s: got %s, want %s", from, tt.away, position, rest, tt.rest)
		}
	}
	set := parse("0-1-3..5")
	for text, want := range map[string]bool{"0-1-2": false, "0-1-3": true, "0-1-5": true, "0-1-6": false, "0-2-4": false, "1-1-4": false} {
		one := parse(text)
		for o, i := range one.series {
			if g := (GTID{Domain: o.domain, ServerID: o.server, Number: i[0].Start}); set.Has(g) != want || set.Contains(one) != want {
				t.Errorf("%s in %s: got %t, %t, want %t", g, set, set.Has(g), set.Contains(one), want)
			}
		}
	}
}
