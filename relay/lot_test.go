package relay

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/schema"
)

func bad(id, aggregate, reason string, broken bool) *item {
	e := schema.Event{ID: id, AggregateID: aggregate, Bad: &schema.BadEventError{ID: id, Broken: broken, Reason: reason}}
	return &item{event: e}
}

func good(id, aggregate string) *item {
	return &item{event: schema.Event{ID: id, AggregateID: aggregate}}
}

func mustLot(t *testing.T, checkpoint string) *lot {
	t.Helper()
	l, err := openLot(checkpoint)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

// TestLotHolds: a bad event holds its aggregate back and no other, across a
// new start too; a row whose aggregate is unknown holds none.
func TestLotHolds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	l := mustLot(t, path)
	if l.takes(good("1", "a")) {
		t.Error("an empty lot takes a good event")
	}
	first, behind, blind := bad("2", "a", "too long", false), good("3", "a"), bad("4", "", "no aggregate", true)
	for _, it := range []*item{first, behind, blind} {
		if !l.takes(it) {
			t.Errorf("event %s is not taken", it.event.ID)
		}
	}
	if err := l.add([]*item{first, behind, blind}); err != nil {
		t.Fatal(err)
	}
	for _, l := range []*lot{l, mustLot(t, path)} {
		if l.takes(good("5", "b")) || l.takes(good("6", "")) {
			t.Error("another aggregate is held")
		}
		if !l.takes(good("7", "a")) {
			t.Error("the aggregate is not held")
		}
	}
}

// TestLotCrash: what was cut short was never passed by the position, and comes
// again; what was written whole comes again too, and stands there once.
func TestLotCrash(t *testing.T) {
	path := filepath.Join(t.TempDir(), "checkpoint.json")
	items := []*item{bad("1", "a", "too long", false), good("2", "a")}
	l := mustLot(t, path)
	for _, it := range items {
		l.takes(it)
	}
	if err := l.add(items); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(path + parkedSuffix)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range content {
		if err := os.WriteFile(path+parkedSuffix, content[:cut], 0o640); err != nil {
			t.Fatal(err)
		}
		again := mustLot(t, path)
		for _, it := range items {
			again.takes(it)
		}
		if err := again.add(items); err != nil {
			t.Fatal(err)
		}
		list, _, err := readParked(path + parkedSuffix)
		if err != nil || len(list) != 2 || list[0].ID != "1" || list[1].Behind != "1" {
			t.Fatalf("cut after %d bytes: %+v, %v", cut, list, err)
		}
	}
}

func TestReadParkedDamaged(t *testing.T) {
	path := filepath.Join(t.TempDir(), "parked")
	if err := os.WriteFile(path, []byte("{\"id\": \"1\"}\nnothing\n"), 0o640); err != nil {
		t.Fatal(err)
	}
	if _, _, err := readParked(path); err == nil || ExitCode(err) != ExitUnfit || !strings.Contains(err.Error(), "line 2") {
		t.Errorf("got %v", err)
	}
}
