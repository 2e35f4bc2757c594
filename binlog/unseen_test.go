package binlog

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// holed is a set of n intervals of one transaction each, and the first ones of
// another server.
func holed(tb testing.TB, n int) *GTIDSet {
	tb.Helper()
	text := strings.Builder{}
	text.WriteString(serverA)
	for i := range n {
		fmt.Fprintf(&text, ":%d", 2*i+1)
	}
	return parseSet(tb, text.String()+","+serverB+":1-5")
}

func mustGTID(tb testing.TB, server string, tag string, number int64) GTID {
	tb.Helper()
	for uuid := range *parseSet(tb, server+":1").set {
		return GTID{Server: uuid, Tag: tag, Number: number}
	}
	panic("none")
}

// TestGTIDSetAtRandom: adding, looking up and subtracting do what they do in a
// set that is a list of numbers; it fails where two intervals that come to touch
// stay two, or one is put in a wrong place.
func TestGTIDSetAtRandom(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 200 {
		set, other := emptySet(), emptySet()
		in, out := map[int64]bool{}, map[int64]bool{}
		for range random.IntN(40) {
			n := random.Int64N(30) + 1
			set.Add(mustGTID(t, serverA, "", n))
			in[n] = true
			if n = random.Int64N(30) + 1; random.IntN(2) == 0 {
				other.Add(mustGTID(t, serverA, "", n))
				out[n] = true
			}
		}
		if again := parseSet(t, set.String()); again.String() != set.String() {
			t.Fatalf("%s is not in its simplest form %s", set, again)
		}
		rest := set.Minus(other)
		for n := int64(1); n < 32; n++ {
			g := mustGTID(t, serverA, "", n)
			if set.Has(g) != in[n] || rest.Has(g) != (in[n] && !out[n]) {
				t.Fatalf("%d: in %s %t, in %s %t, want %t and %t", n, set, set.Has(g), rest, rest.Has(g), in[n], in[n] && !out[n])
			}
		}
		if reference := (*set.set)[mustGTID(t, serverA, "", 1).Server][mysql.Tag{}]; !reference.Normalize().Equal(reference) {
			t.Fatalf("%v is not normal", reference)
		}
	}
}

// TestUnseen: a set is seen when all of it was, in any order, an XA transaction
// with both halves, and whatever was seen besides.
func TestUnseen(t *testing.T) {
	rest := newUnseen(parseSet(t, serverA+":1-3:7"), parseSet(t, serverA+":1-8:blue:1,"+serverB+":1"))
	for _, step := range []struct {
		tx   Tx
		left bool
	}{
		{Tx{GTID: mustGTID(t, serverA, "", 6), Last: true}, true},
		{Tx{GTID: mustGTID(t, serverA, "", 6), Last: true}, true}, // once
		{Tx{GTID: mustGTID(t, serverA, "", 4)}, true},             // a part
		{Tx{GTID: mustGTID(t, serverA, "", 4), Last: true}, true},
		{Tx{GTID: mustGTID(t, serverA, "", 9), Last: true}, true}, // beyond
		{Tx{Prepared: mustGTID(t, serverA, "", 5), Last: true}, true},
		{Tx{GTID: mustGTID(t, serverA, "", 8), Prepared: mustGTID(t, serverA, "", 5), Last: true}, true},
		{Tx{GTID: mustGTID(t, serverB, "", 1), Last: true}, true},
		{Tx{GTID: mustGTID(t, serverA, "blue", 1), Last: true}, false},
	} {
		if rest.cover(&step.tx); rest.any() != step.left || rest.any() == rest.seen.Contains(rest.all) {
			t.Errorf("behind %+v: any is %t, seen %s of %s", step.tx, rest.any(), rest.seen, rest.all)
		}
	}
	maria := newUnseen(parseSet(t, "0-1-3"), parseSet(t, "0-1-5,2-1-1"))
	for i, g := range []GTID{{Domain: 0, ServerID: 1, Number: 6}, {Domain: 2, ServerID: 1, Number: 1}} {
		if maria.cover(&Tx{GTID: g, Last: true}); maria.any() != (i == 0) {
			t.Errorf("behind %s: any is %t", g, maria.any())
		}
	}
}

// BenchmarkUnseen is what a transaction costs who reads the log up to a set.
func BenchmarkUnseen(b *testing.B) {
	for _, intervals := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(intervals), func(b *testing.B) {
			seen := holed(b, intervals)
			next := mustGTID(b, serverB, "", 6)
			all := seen.Clone()
			all.Add(GTID{Server: next.Server, Number: 1 << 40})
			rest := newUnseen(seen, all)
			for b.Loop() {
				if rest.cover(&Tx{GTID: next, Last: true}); !rest.any() {
					b.Fatal("all is seen")
				}
				next.Number++
			}
		})
	}
}
