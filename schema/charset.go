package schema

import (
	_ "embed"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf16"
	"unicode/utf8"
)

// charsetsText is what MySQL makes of every code of its character sets, as
// CONVERT(… USING utf8mb4) tells it. Each set begins with a line of its name
// and the ids of its collations; then come, one a line, runs of codes:
//
//	8140 "丂丄丅"       the characters of 8140, 8141 and 8142
//	81308130 +36 0080  36 codes of four bytes, for the characters from U+0080
//
// utf8mb4, utf8mb3, ascii, ucs2, utf16, utf16le and utf32 have no runs: their
// codes are their characters' numbers. TestCharsets compares it all with the
// server, and writes it with -update.
//
//go:embed charsets.txt
var charsetsText string

// charset is one of MySQL's character sets.
type charset struct {
	name  string
	runs  string // its lines of charsetsText
	codes func() *codes
}

// codes is a set's codes, by their first byte.
type codes struct {
	byFirst [256]code
	fours   []run // the codes of four bytes, in order
}

// code is the character of a code, or the codes that begin with these bytes.
type code struct {
	char rune // -1: none
	next *[256]code
}

// run is a sequence of codes of four bytes for as many characters in sequence.
type run struct {
	first, count uint32 // as fourIndex counts
	char         rune
}

type charsets struct {
	byName      map[string]*charset
	byCollation map[int]*charset
}

var loadCharsets = sync.OnceValue(func() charsets {
	all := charsets{map[string]*charset{}, map[int]*charset{}}
	for section := range strings.SplitSeq(charsetsText, "charset ") {
		head, runs, _ := strings.Cut(section, "\n")
		fields := strings.Fields(head)
		if len(fields) == 0 {
			continue
		}
		c := &charset{name: fields[0], runs: runs}
		c.codes = sync.OnceValue(func() *codes { return parseCodes(c.runs) })
		all.byName[c.name] = c
		for _, id := range fields[1:] {
			n, err := strconv.Atoi(id)
			if err != nil {
				panic("schema: charsets.txt: " + head)
			}
			all.byCollation[n] = c
		}
	}
	all.byName["utf8"] = all.byName["utf8mb3"]
	return all
})

// CollationCharset is the character set of a collation by its id, as a table
// map has it; empty where the id is unknown. MariaDB adds collations of its own
// to sets that both servers have; of those ids MySQL leaves some to its users.
func CollationCharset(id int, mariadb bool) string {
	if c, ok := loadCharsets().byCollation[id]; ok {
		return c.name
	}
	if !mariadb {
		return ""
	}
	switch {
	case 576 <= id && id < 768: // Croatian and others, 32 ids for each
		return []string{"utf8mb3", "utf8mb4", "ucs2", "utf16", "", "utf32"}[(id-576)/32]
	case 1024 < id && id < 1792: // NOPAD: 1024 more than the one with it
		return CollationCharset(id-1024, mariadb)
	case 2048 <= id && id < 2048+5*256: // UCA 14.0.0
		return []string{"utf8mb3", "utf8mb4", "ucs2", "utf16", "utf32"}[(id-2048)/256]
	}
	return ""
}

// convertible tells whether UTF8 knows the set.
func convertible(charset string) bool {
	_, ok := loadCharsets().byName[charset]
	return ok && charset != "binary"
}

// isUTF8 tells whether the set's bytes are UTF-8 as they stand.
func isUTF8(charset string) bool {
	switch charset {
	case "utf8mb4", "utf8mb3", "utf8", "ascii":
		return true
	}
	return false
}

// UTF8 returns text of one of MySQL's character sets in UTF-8: the same bytes
// where they are that already, else in memory of its own. A byte that stands for no character is an error, also where SELECT
// prints a question mark: that is not what was stored.
func UTF8(charset string, text []byte) ([]byte, error) {
	at := -1 // of what is wrong
	var out []byte
	switch charset {
	case "utf8mb4", "utf8mb3", "utf8":
		out = text
		if !utf8.Valid(text) {
			at = len(text) - len(afterValid(text))
		}
	case "ascii":
		out = text
		at = slices.IndexFunc(text, func(b byte) bool { return b >= utf8.RuneSelf })
	case "ucs2", "utf16":
		out, at = fromUTF16(binary.BigEndian, text)
	case "utf16le":
		out, at = fromUTF16(binary.LittleEndian, text)
	case "utf32":
		out, at = fromUTF32(text)
	default:
		c, ok := loadCharsets().byName[charset]
		if !ok || c.runs == "" {
			return nil, fmt.Errorf("character set %q is unknown", charset)
		}
		out, at = c.codes().utf8(text)
	}
	if at >= 0 {
		return nil, fmt.Errorf("the bytes %x at offset %d of %d are no character of %s", text[at:min(at+4, len(text))], at, len(text), charset)
	}
	return out, nil
}

func afterValid(text []byte) []byte {
	for len(text) > 0 {
		r, size := utf8.DecodeRune(text)
		if r == utf8.RuneError && size == 1 {
			break
		}
		text = text[size:]
	}
	return text
}

func fromUTF16(order binary.ByteOrder, text []byte) (out []byte, wrong int) {
	out = make([]byte, 0, len(text)*3/2)
	for i := 0; i < len(text); i += 2 {
		if i+1 >= len(text) {
			return nil, i
		}
		r := rune(order.Uint16(text[i:]))
		if utf16.IsSurrogate(r) {
			if i+3 >= len(text) {
				return nil, i
			}
			if r = utf16.DecodeRune(r, rune(order.Uint16(text[i+2:]))); r == utf8.RuneError {
				return nil, i
			}
			i += 2
		}
		out = utf8.AppendRune(out, r)
	}
	return out, -1
}

func fromUTF32(text []byte) (out []byte, wrong int) {
	out = make([]byte, 0, len(text))
	for i := 0; i < len(text); i += 4 {
		if i+3 >= len(text) {
			return nil, i
		}
		n := binary.BigEndian.Uint32(text[i:])
		if n > utf8.MaxRune || !utf8.ValidRune(rune(n)) {
			return nil, i
		}
		out = utf8.AppendRune(out, rune(n))
	}
	return out, -1
}

// utf8 converts text; wrong is where it cannot, or -1.
func (c *codes) utf8(text []byte) (out []byte, wrong int) {
	out = make([]byte, 0, len(text)*3/2)
	for i := 0; i < len(text); {
		table, size := &c.byFirst, 0
		char := rune(-1)
		for table != nil && i+size < len(text) {
			e := table[text[i+size]]
			char, table = e.char, e.next
			size++
		}
		if char < 0 {
			if char = c.four(text[i:]); char < 0 {
				return nil, i
			}
			size = 4
		}
		out = utf8.AppendRune(out, char)
		i += size
	}
	return out, -1
}

// four is the character of the code of four bytes that text begins with; -1:
// none.
func (c *codes) four(text []byte) rune {
	if len(c.fours) == 0 || len(text) < 4 {
		return -1
	}
	at, ok := fourIndex(text)
	if !ok {
		return -1
	}
	i, found := slices.BinarySearchFunc(c.fours, at, func(r run, at uint32) int { return int(r.first) - int(at) })
	if !found {
		i--
	}
	if i < 0 || at-c.fours[i].first >= c.fours[i].count {
		return -1
	}
	return c.fours[i].char + rune(at-c.fours[i].first)
}

// fourIndex counts gb18030's codes of four bytes: 81 to fe, 30 to 39, twice.
func fourIndex(b []byte) (uint32, bool) {
	for i, low := range [...]byte{0x81, 0x30, 0x81, 0x30} {
		if high := byte(0xfe - i%2*(0xfe-0x39)); b[i] < low || b[i] > high {
			return 0, false
		}
	}
	return ((uint32(b[0]-0x81)*10+uint32(b[1]-0x30))*126+uint32(b[2]-0x81))*10 + uint32(b[3]-0x30), true
}

func newTable256() *[256]code {
	var t [256]code
	for i := range t {
		t[i].char = -1
	}
	return &t
}

// parseCodes reads a set's lines of charsetsText, which TestCharsets has read
// before.
func parseCodes(lines string) *codes {
	c := &codes{byFirst: *newTable256()}
	for line := range strings.Lines(lines) {
		line = strings.TrimSuffix(line, "\n")
		first, rest, _ := strings.Cut(line, " ")
		number, err := strconv.ParseUint(first, 16, 32)
		if err != nil {
			panic("schema: charsets.txt: " + line)
		}
		if strings.HasPrefix(rest, "+") {
			var count uint32
			var char rune
			if _, err := fmt.Sscanf(rest, "+%d %x", &count, &char); err != nil {
				panic("schema: charsets.txt: " + line)
			}
			at, _ := fourIndex(binary.BigEndian.AppendUint32(nil, uint32(number)))
			c.fours = append(c.fours, run{at, count, char})
			continue
		}
		chars, err := strconv.Unquote(rest)
		if err != nil {
			panic("schema: charsets.txt: " + line)
		}
		table := &c.byFirst
		for shift := 4*len(first) - 8; shift > 0; shift -= 8 {
			e := &table[byte(number>>shift)]
			if e.next == nil {
				e.next = newTable256()
			}
			table = e.next
		}
		for _, char := range chars {
			table[byte(number)].char = char
			number++
		}
	}
	return c
}
