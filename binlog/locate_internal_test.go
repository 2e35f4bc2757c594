package binlog

import (
	"errors"
	"testing"

	"github.com/google/uuid"
)

// TestPreviousGTIDs reads both forms of the event, and refuses each that is cut
// short. A server with tagged transactions alone has no entry without a tag:
// the library reads that one as the next server's.
func TestPreviousGTIDs(t *testing.T) {
	a, b := uuid.MustParse("0e11fa47-71ca-11e1-9e33-c80aa9429562"), uuid.MustParse("3e11fa47-71ca-11e1-9e33-c80aa9429562")
	entry := func(body []byte, server uuid.UUID, tag string, tagged bool, intervals ...uint64) []byte {
		body = append(body, server[:]...)
		if tagged {
			body = append(append(body, byte(len(tag)<<1)), tag...)
		}
		body = le.AppendUint64(body, uint64(len(intervals)/2))
		for _, n := range intervals {
			body = le.AppendUint64(body, n)
		}
		return body
	}
	plain := entry(entry([]byte{2, 0, 0, 0, 0, 0, 0, 0}, a, "", false, 1, 6, 7, 8), b, "", false, 3, 4)
	tagged := entry(entry(entry([]byte{1, 3, 0, 0, 0, 0, 0, 1}, a, "blue", true, 5, 6), b, "", true, 1, 3), b, "red", true, 1, 2)
	for _, test := range []struct {
		body []byte
		want string
	}{
		{make([]byte, 8), ""},
		{plain, a.String() + ":1-5:7," + b.String() + ":3"},
		{tagged, a.String() + ":blue:5," + b.String() + ":1-2:red:1"},
	} {
		got, err := parsePreviousGTIDs(test.body)
		if err != nil || got.String() != test.want {
			t.Errorf("got %v, want %s: %v", got, test.want, err)
		}
		for n := range test.body {
			if _, err := parsePreviousGTIDs(test.body[:n]); !errors.Is(err, ErrDamaged) {
				t.Errorf("%d of %d bytes: %v", n, len(test.body), err)
			}
		}
	}
}
