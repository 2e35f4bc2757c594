package main

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
)

func TestPayload(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 10_000 {
		text := payload(random)
		if len(text) != payloadSize || !json.Valid([]byte(text)) || strings.ContainsAny(text, `'\`) {
			t.Fatalf("%d bytes: %s", len(text), text)
		}
	}
}

func TestTransaction(t *testing.T) {
	for rows, inserts := range map[int]int{1: 1, 10: 10, 11: 1, 100: 1, 1000: 10, 1001: 11} {
		w := writer{random: rand.New(rand.NewPCG(1, 2))}
		text := w.transaction(rows)
		if got := strings.Count(text, "INSERT"); got != inserts {
			t.Errorf("%d rows: got %d statements, want %d", rows, got, inserts)
		}
		if got := strings.Count(text, "(0x"); got != rows {
			t.Errorf("got %d rows, want %d", got, rows)
		}
		if !strings.HasPrefix(text, "BEGIN; ") || !strings.HasSuffix(text, "); COMMIT") {
			t.Errorf("%d rows: got %.40s … %s", rows, text, text[len(text)-20:])
		}
	}
}

// Half of the rows of a hot load are of one aggregate.
func TestHot(t *testing.T) {
	w := writer{random: rand.New(rand.NewPCG(1, 2)), hot: true}
	const rows = 10_000
	if got := strings.Count(w.transaction(rows), ",0,'order.placed'"); got < rows*45/100 || got > rows*55/100 {
		t.Errorf("got %d of %d rows", got, rows)
	}
}
