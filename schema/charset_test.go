package schema

import (
	"bytes"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestUTF8(t *testing.T) {
	tests := []struct{ charset, text, want, err string }{
		{"utf8mb4", "ä雪😀", "ä雪😀", ""},
		{"utf8mb4", "", "", ""},
		{"utf8mb3", "ab\xed\xa0\x80", "", "the bytes eda080 at offset 2 of 5 are no character of utf8mb3"}, // half of a surrogate pair
		{"utf8", "\ufffd\xff", "", "the bytes ff at offset 3 of 4"},
		{"ascii", "az\x7f", "az\x7f", ""},
		{"ascii", "ä", "", "the bytes c3a4 at offset 0 of 2 are no character of ascii"},
		{"latin1", "\xe4\x80\x81", "ä€\u0081", ""}, // as the server has it, it is cp1252
		{"latin1", "", "", ""},
		{"ucs2", "\x00a\x96\xea", "a雪", ""},
		{"utf16", "\x00a\xd8\x3d\xde\x00", "a😀", ""},
		{"utf16le", "a\x00\x3d\xd8\x00\xde", "a😀", ""},
		{"utf16", "\x00a\x00", "", "the bytes 00 at offset 2 of 3"},
		{"utf16", "\xd8\x3d", "", "the bytes d83d at offset 0 of 2"},
		{"utf16", "\xd8\x3d\x00a", "", "the bytes d83d0061 at offset 0 of 4"},
		{"utf16", "\xde\x00\xd8\x3d", "", "the bytes de00d83d at offset 0 of 4"},
		{"utf32", "\x00\x00\x00a\x00\x01\xf6\x00", "a😀", ""},
		{"utf32", "\x00\x00\xd8\x3d", "", "are no character of utf32"},
		{"utf32", "\x00\x11\x00\x00", "", "are no character of utf32"},
		{"utf32", "\x00\x00\x00", "", "the bytes 000000 at offset 0 of 3"},
		{"sjis", "a\x82\xa0\xb1", "aあｱ", ""},
		{"gbk", "\xc4\xe3\xba", "", "the bytes ba at offset 2 of 3 are no character of gbk"},
		{"ujis", "\x8f\xb0\xa1\x8e\xb1", "丂ｱ", ""},
		{"gb18030", "\xc4\xe3\x94\x39\xfc\x36\x81\x30\x81\x30\xe3\x32\x9a\x35", "你😀\u0080\U0010ffff", ""},
		{"gb18030", "\xe3\x32\x9a\x36", "", "the bytes e3329a36 at offset 0 of 4"},
		{"gb18030", "\x81\x30\x81", "", "the bytes 813081 at offset 0 of 3"},
		{"big5", "\xa1\x5a", "", "the bytes a15a at offset 0 of 2"}, // which the server prints as U+FFFD
		{"binary", "a", "", `character set "binary" is unknown`},
		{"", "a", "", `character set "" is unknown`},
	}
	for _, tt := range tests {
		got, err := UTF8(tt.charset, []byte(tt.text))
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s %x: got %q, error %v, want %q", tt.charset, tt.text, got, err, tt.err)
			}
			continue
		}
		if string(got) != tt.want || got == nil || err != nil {
			t.Errorf("%s %x: got %q, %v, want %q", tt.charset, tt.text, got, err, tt.want)
		}
	}
}

// TestUTF8Memory: text that is UTF-8 already costs nothing, and any other does
// not change with the event's buffer, which is used again.
func TestUTF8Memory(t *testing.T) {
	for name := range loadCharsets().byName {
		if name == "binary" {
			continue
		}
		text := []byte("\x00\x00\x00a")
		got, err := UTF8(name, text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		before := bytes.Clone(got)
		copy(text, "\x00\x00\x00b")
		if same := !bytes.Equal(got, before); same != isUTF8(name) {
			t.Errorf("%s: got the text itself: %t", name, same)
		}
	}
}

// TestCollationCharset: what no MySQL server of today tells. The ids of MariaDB
// are, on MySQL, its users' own: taken for MariaDB's, their text is sent wrongly.
func TestCollationCharset(t *testing.T) {
	for id, want := range map[int]string{
		0: "", 17: "", 100000: "", 45: "utf8mb4", 8: "latin1", 63: "binary",
		576: "utf8mb3", 608: "utf8mb4", 641: "ucs2", 736: "utf32", // utf8mb3_croatian_ci … of MariaDB
		1032: "latin1", 1070: "utf8mb4", 1248: "utf8mb4", // latin1_swedish_nopad_ci …
		2048: "utf8mb3", 2304: "utf8mb4", 3072: "utf32", 3328: "", // utf8mb3_uca1400_ai_ci …
	} {
		if got := CollationCharset(id, true); got != want {
			t.Errorf("collation %d: got %q, want %q", id, got, want)
		}
		if got := CollationCharset(id, false); id > 500 && got != "" {
			t.Errorf("collation %d on MySQL: got %q", id, got)
		}
	}
}

func BenchmarkUTF8(b *testing.B) {
	text := []byte(strings.Repeat("\xc4\xe3ab", 1000))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		if _, err := UTF8("gbk", text); err != nil {
			b.Fatal(err)
		}
	}
}

// FuzzUTF8: whatever the bytes, text in UTF-8 or an error comes out.
func FuzzUTF8(f *testing.F) {
	names := slices.Sorted(maps.Keys(loadCharsets().byName))
	for i := range names {
		f.Add(i, []byte("\x81\x30\x81\x30 a\xe3\x32\x9a\x35\x8f\xb0\xa1\xd8\x3d\xde\x00"))
	}
	f.Fuzz(func(t *testing.T, i int, text []byte) {
		name := names[uint(i)%uint(len(names))]
		got, err := UTF8(name, text)
		if (got == nil) != (err != nil) || !utf8.Valid(got) || len(got) > 3*len(text) {
			t.Errorf("%s %x: got %q, %v", name, text, got, err)
		}
	})
}

func FuzzParseProperties(f *testing.F) {
	f.Add("#c\n a\\u00e9\\=b = c\\\n d\n!\nk:\\")
	f.Fuzz(func(t *testing.T, text string) {
		properties, err := parseProperties(text)
		if (properties == nil) != (err != nil) {
			t.Errorf("%q: got %v, %v", text, properties, err)
		}
	})
}
