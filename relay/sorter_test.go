package relay

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

// TestSorter: records come in the order of their keys' bytes, those of one key in
// that in which they were added, from memory and from files, which leave nothing
// behind. Seen to fail without the number of the run in Less.
func TestSorter(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	type pair struct{ key, value string }
	for _, n := range []int{0, 1, 100, 5000} {
		for _, memory := range []int{1, 2000, 1 << 20} {
			s := &sorter{memory: memory}
			if n == 5000 && memory == 1 {
				continue // a run for each record
			}
			var want []pair
			for i := range n {
				key := strings.Repeat("same beginning", random.IntN(2)) + string([]byte{byte(random.Uint32()), byte(random.IntN(3))})[:random.IntN(3)]
				want = append(want, pair{key, fmt.Sprint(i)})
				if err := s.add(key, []byte(fmt.Sprint(i))); err != nil {
					t.Fatal(err)
				}
			}
			slices.SortStableFunc(want, func(a, b pair) int { return cmp.Compare(a.key, b.key) })
			var got []pair
			in, err := s.sorted()
			if err != nil {
				t.Fatal(err)
			}
			for {
				key, value, err := in.next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				got = append(got, pair{string(key), string(value)})
			}
			if diff := gocmp.Diff(want, got, gocmp.AllowUnexported(pair{})); diff != "" {
				t.Errorf("%d records in %d bytes (-want +got):\n%s", n, memory, diff)
			}
			if n == 5000 && (len(s.runs) > 1) != (memory < 1<<20) {
				t.Errorf("%d records in %d bytes have %d runs", n, memory, len(s.runs))
			}
			if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
				t.Errorf("files left: %v, %v", left, err)
			}
			s.close()
		}
	}
}

// TestSorterRoom: a directory that takes no file is named, with the way out.
func TestSorterRoom(t *testing.T) {
	t.Setenv("TMPDIR", "/no/such")
	s := &sorter{memory: 1}
	err := errors.Join(s.add("a", nil), s.add("b", nil))
	if ExitCode(err) != ExitUnfit || !strings.Contains(err.Error(), "TMPDIR=") {
		t.Errorf("got %v", err)
	}
}

// TestMerge: each key once, with what both sides have of it.
func TestMerge(t *testing.T) {
	sorterOf := func(keys ...string) *sorter {
		s := &sorter{memory: 1}
		for i, key := range keys {
			if err := s.add(key, []byte{byte('0' + i)}); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(s.close)
		return s
	}
	for _, tt := range []struct {
		left, right []string
		want        string
	}{
		{nil, nil, ""},
		{[]string{"b", "a"}, nil, "a:1/1- b:1/0-"},
		{nil, []string{"", "a"}, ":-1/0 a:-1/1"},
		{[]string{"b", "a", "c", "b"}, []string{"d", "b", "B"}, "B:-1/2 a:1/1- b:2/01/1 c:1/2- d:-1/0"},
	} {
		var got []string
		text := func(s side) string {
			if s.count == 0 {
				return "-"
			}
			return fmt.Sprintf("%d/%s", s.count, s.value)
		}
		err := merge(sorterOf(tt.left...), sorterOf(tt.right...), func(key string, left, right side) error {
			got = append(got, key+":"+text(left)+text(right))
			return nil
		})
		if err != nil || strings.Join(got, " ") != tt.want {
			t.Errorf("merge %q and %q: %q, %v, want %q", tt.left, tt.right, strings.Join(got, " "), err, tt.want)
		}
	}
}

// TestCanonical: JSON texts of one value become one, and of two values two.
func TestCanonical(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		same bool
	}{
		{`{"a": 1, "b": [true, null]}`, `{"b":[true,null],"a":1}`, true},
		{`1.50`, `1.5`, true}, {`1e3`, `1000`, true}, {`1000.0`, `1000`, true}, {`-0`, `0`, true}, {`-0.0`, `0`, true}, {`"\u00e4"`, `"ä"`, true},
		{`{"a": {"x": 1.0}}`, `{"a": {"x": 1}}`, true},
		{`9007199254740993`, `9007199254740992`, false}, {`1`, `"1"`, false}, {`null`, `{}`, false}, {`[1,2]`, `[2,1]`, false}, {`1.5`, `1.25`, false},
	} {
		if a, b := canonical([]byte(tt.a)), canonical([]byte(tt.b)); (string(a) == string(b)) != tt.same {
			t.Errorf("%s is %s, %s is %s: want the same: %v", tt.a, a, tt.b, b, tt.same)
		}
	}
}

// TestPeriod: the window ends before what may be on its way, and begins before
// it ends.
func TestPeriod(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(hour int) time.Time { return time.Date(2026, 3, 1, hour, 0, 0, 0, time.UTC) }
	for name, tt := range map[string]struct {
		order AuditOrder
		want  period
		code  int
	}{
		"window":            {AuditOrder{Window: 2 * time.Hour, Grace: time.Hour}, period{at(9), at(11)}, 0},
		"since":             {AuditOrder{Since: at(3), Grace: time.Hour, Window: 24 * time.Hour}, period{at(3), at(11)}, 0},
		"since and until":   {AuditOrder{Since: at(3), Until: at(4), Grace: time.Hour}, period{at(3), at(4)}, 0},
		"until":             {AuditOrder{Until: at(4), Window: time.Hour}, period{at(3), at(4)}, 0},
		"until now":         {AuditOrder{Until: at(23), Window: time.Hour, Grace: time.Hour}, period{at(10), at(11)}, 0},
		"ends before":       {AuditOrder{Since: at(5), Until: at(4)}, period{}, ExitUsage},
		"nothing":           {AuditOrder{Since: at(5), Until: at(5)}, period{}, ExitUsage},
		"within the grace":  {AuditOrder{Since: at(11), Grace: 2 * time.Hour}, period{}, ExitUsage},
		"begins after now":  {AuditOrder{Since: at(23)}, period{}, ExitUsage},
		"all within grace ": {AuditOrder{Since: at(11), Until: at(12), Grace: time.Hour}, period{}, ExitUsage},
	} {
		got, err := tt.order.period(now)
		if ExitCode(err) != tt.code || err == nil && got != tt.want {
			t.Errorf("%s: got %v, %v, want %v and %d", name, got, err, tt.want, tt.code)
		}
	}
}

// TestShadowNames: what a shadow writes to is never another relay's.
func TestShadowNames(t *testing.T) {
	for path, want := range map[string]string{
		"checkpoint.json": "checkpoint.shadow.json", "/a.b/checkpoint.json": "/a.b/checkpoint.shadow.json",
		"/a.b/checkpoint": "/a.b/checkpoint.shadow", "c.shadow.json": "c.shadow.json", "c.shadow": "c.shadow",
	} {
		if got := ShadowCheckpoint(path); got != want {
			t.Errorf("the shadow of %s is %s, want %s", path, got, want)
		}
	}
	for name, want := range map[string]string{"outbox": "outbox.shadow", "outbox.shadow": "outbox.shadow"} {
		if got := ShadowExchange(name); got != want {
			t.Errorf("the shadow of %s is %s, want %s", name, got, want)
		}
	}
}
