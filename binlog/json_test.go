package binlog

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// jsonDocuments reads the pairs of binary document and text that MySQL 9.7 gave
// for each other: in the row event of an insert, and to SELECT.
func jsonDocuments(tb testing.TB) (docs [][]byte, texts []string) {
	tb.Helper()
	file, err := os.ReadFile("../testdata/json/documents.txt")
	if err != nil {
		tb.Fatal(err)
	}
	for line := range strings.Lines(string(file)) {
		binary, text, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		doc, err := hex.DecodeString(binary)
		if err != nil {
			tb.Fatalf("%.40s: %v", line, err)
		}
		docs, texts = append(docs, doc), append(texts, text)
	}
	return docs, texts
}

func TestAppendJSONDocuments(t *testing.T) {
	docs, texts := jsonDocuments(t)
	if len(docs) < 60 {
		t.Fatalf("got %d documents, want 60 and more", len(docs))
	}
	for i, doc := range docs {
		got, err := appendJSON([]byte("before "), doc)
		if err != nil {
			t.Errorf("%x: %v", doc, err)
		} else if diff := cmp.Diff("before "+texts[i], string(got)); diff != "" {
			t.Errorf("%x (-want +got):\n%s", doc, diff)
		}
	}
}

func TestAppendJSON(t *testing.T) {
	long := strings.Repeat("x", 70000) // length 0xf0 0xa2 0x04
	tests := []struct {
		name string
		doc  string
		want string
	}{
		{"empty", "", "null"},
		{"long string", "\x0c\xf0\xa2\x04" + long, `"` + long + `"`},
		{
			"large array, inlined and not",
			"\x03\x04\x00\x00\x00\x92\x11\x01\x00" + // four elements
				"\x0c\x1c\x00\x00\x00" + "\x07\x70\x11\x01\x00" + "\x05\xff\xff\x00\x00" + "\x04\x01\x00\x00\x00" +
				"\xf0\xa2\x04" + long + strings.Repeat("\x00", 3),
			`["` + long + `", 70000, -1, true]`,
		},
		{
			"large object",
			"\x01\x01\x00\x00\x00\x15\x00\x00\x00" + "\x13\x00\x00\x00\x02\x00" + "\x08\xff\xff\xff\xff" + "kk",
			`{"kk": 4294967295}`,
		},
		{"deepest", string(nestedJSON(100)), strings.Repeat("[", 100) + strings.Repeat("]", 100)},
		{"room between values", "\x02\x01\x00\x0b\x00\x0c\x08\x00" + "\x00" + "\x01y" + "\x00", `["y"]`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := appendJSON(nil, []byte(tt.doc))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, string(got)); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

// nestedJSON returns depth arrays inside each other.
func nestedJSON(depth int) []byte {
	doc := []byte{jsonSmallArray, 0, 0, 4, 0}
	for range depth - 1 {
		size := 7 + len(doc) - 1
		head := []byte{jsonSmallArray, 1, 0, byte(size), byte(size >> 8), jsonSmallArray, 7, 0}
		doc = append(head, doc[1:]...)
	}
	return doc
}

func TestAppendJSONDamaged(t *testing.T) {
	tests := []struct {
		name string
		doc  string
		want string // in the error
	}{
		{"type", "\x0d\x00", "unknown type 13 at offset 1 of 2"},
		{"scalar", "\x09\x00\x00", "cut short at offset 1 of 3"},
		{"literal", "\x04\x03", "impossible value of type 4"},
		{"inlined literal", "\x02\x01\x00\x07\x00\x04\x03\x00", "impossible inlined value of type 4 at offset 5"},
		{"infinity", "\x0b\x00\x00\x00\x00\x00\x00\xf0\x7f", "impossible value of type 11"},
		{"string", "\x0c\x02a", "cut short at offset 2"},
		{"string without length", "\x0c", "cut short at offset 1"},
		{"endless length", "\x0c\x80\x80\x80\x80\x80\x80", "more than five bytes"},
		{"enormous length", "\x0c\xff\xff\xff\xff\x7f", "cut short"},
		{"container header", "\x02\x00\x00\x04", "cut short at offset 1"},
		{"container size", "\x02\x00\x00\x05\x00", "larger than its place"},
		{"container size too small", "\x02\x00\x00\x03\x00", "larger than its place"},
		{"count", "\x02\x02\x00\x07\x00\x05\x00\x00", "more elements"},
		{"enormous count", "\x03\xff\xff\xff\xff\x08\x00\x00\x00", "more elements"},
		{"offset behind", "\x02\x01\x00\x07\x00\x0c\xff\xff", "offset 65535 outside"},
		{"offset in the header", "\x02\x01\x00\x07\x00\x02\x00\x00", "offset 0 outside"},
		{"key offset", "\x00\x01\x00\x0b\x00\x00\x00\x00\x00\x05\x00\x00", "offset 0 outside"},
		{"key length", "\x00\x01\x00\x0b\x00\x0b\x00\x01\x00\x05\x00\x00", "cut short"},
		{"shared value", "\x02\x02\x00\x0c\x00\x0c\x0a\x00\x0c\x0a\x00\x01a", "values overlap"},
		{"nested too deep", string(nestedJSON(101)), "nested too deep"},
		{"opaque without type", "\x0f", "cut short at offset 1"},
		{"decimal without precision", "\x0f\xf6\x01\x01", "decimal cut short"},
		{"decimal of no precision", "\x0f\xf6\x02\x00\x00", "impossible decimal"},
		{"decimal size", "\x0f\xf6\x04\x01\x00\x80\x80", "impossible decimal"},
		{"decimal digit", "\x0f\xf6\x03\x01\x00\x8a", "impossible decimal"},
		{"date size", "\x0f\x0a\x01\x00", "impossible date or time"},
		{"minute 63", "\x0f\x0b\x08\x00\x00\x00\xc0\x0f\x00\x00\x00", "impossible date or time"},
		{"hour 31", "\x0f\x0c\x08\x00\x00\x00\x00\xf0\x01\x00\x00", "impossible date or time"},
		{"hour 839", "\x0f\x0b\x08\x00\x00\x00\x00\x70\x34\x00\x00", "impossible date or time"},
		{"negative datetime", "\x0f\x0c\x08\xff\xff\xff\xff\xff\xff\xff\xff", "impossible date or time"},
		{"least time", "\x0f\x0b\x08\x00\x00\x00\x00\x00\x00\x00\x80", "impossible date or time"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := appendJSON([]byte("before"), []byte(tt.doc))
			if !errors.Is(err, errJSON) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got error %v, want errJSON with %q", err, tt.want)
			}
			if string(got) != "before" {
				t.Errorf("got text %q, want none", got)
			}
		})
	}
}

// TestAppendJSONCutShort cuts every captured document at every place.
func TestAppendJSONCutShort(t *testing.T) {
	docs, _ := jsonDocuments(t)
	for _, doc := range docs {
		for n := 1; n < len(doc); n++ {
			if text, err := appendJSON(nil, doc[:n]); err == nil && !json.Valid(text) {
				t.Errorf("%x: got %q", doc[:n], text)
			}
		}
	}
}

// TestAppendJSONBomb renders a document of which each of 40 levels holds the
// next one ten times.
func TestAppendJSONBomb(t *testing.T) {
	doc := []byte{jsonSmallArray}
	const levels, fanout, size = 40, 10, 4 + 3*10
	for level := range levels {
		left := (levels - level) * size
		doc = append(doc, fanout, 0, byte(left), byte(left>>8))
		for range fanout {
			doc = append(doc, jsonSmallArray, size, 0)
		}
	}
	if _, err := appendJSON(nil, doc); !errors.Is(err, errJSON) {
		t.Errorf("got error %v, want %v", err, errJSON)
	}
}

func TestAppendJSONDouble(t *testing.T) {
	tests := []struct {
		value float64
		want  string
	}{
		{0, "0.0"},
		{math.Copysign(0, -1), "-0.0"},
		{3, "3.0"},
		{-0.1, "-0.1"},
		{123.456, "123.456"},
		{1e14, "100000000000000.0"},
		{999999999999999, "999999999999999.0"},
		{1e15, "1e15"},
		{-1234567890123456, "-1.234567890123456e15"},
		{1234567890123456.8, "1234567890123456.8"},
		{1e-15, "0.000000000000001"},
		{1.5e-15, "0.0000000000000015"},
		{9.5e-16, "9.5e-16"},
		{5e-324, "5e-324"},
		{math.MaxFloat64, "1.7976931348623157e308"},
	}
	for _, tt := range tests {
		if got := string(appendJSONDouble(nil, tt.value)); got != tt.want {
			t.Errorf("%g: got %s, want %s", tt.value, got, tt.want)
		}
	}
}

func TestAppendJSONAllocations(t *testing.T) {
	docs, _ := jsonDocuments(t)
	dst := make([]byte, 0, 1<<16)
	got := testing.AllocsPerRun(10, func() {
		for _, doc := range docs {
			if _, err := appendJSON(dst, doc); err != nil {
				t.Error(err)
			}
		}
	})
	if got != 0 {
		t.Errorf("got %v allocations, want 0", got)
	}
}

func FuzzAppendJSON(f *testing.F) {
	docs, _ := jsonDocuments(f)
	for _, doc := range docs {
		f.Add(doc)
	}
	f.Add(nestedJSON(5))
	f.Fuzz(func(t *testing.T, doc []byte) {
		before := bytes.Clone(doc)
		text, err := appendJSON([]byte("x"), doc)
		if !bytes.Equal(doc, before) {
			t.Error("document changed")
		}
		if err != nil {
			if !errors.Is(err, errJSON) || string(text) != "x" {
				t.Errorf("got %q, %v", text, err)
			}
			return
		}
		if limit := 8*len(doc) + 32; len(text) > limit {
			t.Errorf("got %d bytes from %d, want at most %d", len(text), len(doc), limit)
		}
		if !json.Valid(text[1:]) {
			t.Errorf("got %q, which is not JSON", text[1:])
		}
	})
}

func BenchmarkAppendJSON(b *testing.B) {
	docs, _ := jsonDocuments(b)
	var dst []byte
	size := 0
	for _, doc := range docs {
		size += len(doc)
	}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	for b.Loop() {
		for _, doc := range docs {
			dst, _ = appendJSON(dst[:0], doc)
		}
	}
}
