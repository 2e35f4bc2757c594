package binlog

import (
	"encoding/hex"
	"strings"
)

// token is a word of a statement, by MySQL's lexical rules (its manual, chapter
// "Language Structure") for sessions without ANSI_QUOTES and
// NO_BACKSLASH_ESCAPES, in a character set in which no byte below 0x80 is a
// part of a longer character.
type token struct {
	kind tokenKind
	text string // a word or number as it is written, else what it stands for
}

type tokenKind int

const (
	word   tokenKind = iota // keyword or name
	name                    // in backquotes
	quoted                  // text in ' or "
	hexed                   // bytes as x'…' or 0x…
	number                  // of digits alone
	sign                    // one other character
)

// is tells whether the token is this keyword.
func (t token) is(keyword string) bool { return t.kind == word && strings.EqualFold(t.text, keyword) }

// names tells whether the token can be a name.
func (t token) names() bool { return t.kind == word || t.kind == name }

// maxTokens bounds what a statement takes in memory, beside its text.
const maxTokens = 1 << 19

// lex takes a statement apart, and drops its comments. What stands in /*! */
// some servers read and some do not: its tokens are returned, and plain is
// false, as it is for what has no end or too many tokens.
func lex(text string) (tokens []token, plain bool) {
	plain = true
	for i := 0; i < len(text); {
		if len(tokens) == maxTokens {
			return tokens, false
		}
		rest := text[i:]
		switch c := rest[0]; {
		case c <= ' ':
			i++
		case c == '#', strings.HasPrefix(rest, "--") && (len(rest) == 2 || rest[2] <= ' '):
			i += through(rest, "\n")
		case strings.HasPrefix(rest, "/*!"), strings.HasPrefix(rest, "/*M!"):
			plain = false
			i += strings.IndexByte(rest, '!') + 1
			for i < len(text) && isDigit(text[i]) {
				i++
			}
		case strings.HasPrefix(rest, "/*"):
			end := strings.Index(rest[2:], "*/")
			if end < 0 {
				return tokens, false
			}
			i += end + 4
		case c == '\'', c == '"', c == '`':
			value, n := unquote(rest)
			if n == 0 {
				return tokens, false
			}
			kind := quoted
			if c == '`' {
				kind = name
			}
			tokens = append(tokens, token{kind: kind, text: value})
			i += n
		case isWord(c):
			t, n := lexWord(rest)
			tokens = append(tokens, t)
			i += n
		default:
			tokens = append(tokens, token{kind: sign, text: rest[:1]})
			i++
		}
	}
	return tokens, plain
}

// lexWord reads what begins with a letter or digit, and its length.
func lexWord(text string) (t token, n int) {
	digits := true
	for n < len(text) && isWord(text[n]) {
		digits = digits && isDigit(text[n])
		n++
	}
	t = token{kind: word, text: text[:n]}
	switch {
	case digits:
		t.kind = number
	case n == 1 && text[0]|0x20 == 'x' && strings.HasPrefix(text[1:], "'"):
		if body, _, closed := strings.Cut(text[2:], "'"); closed {
			if b, err := hex.DecodeString(body); err == nil {
				return token{kind: hexed, text: string(b)}, len(body) + 3
			}
		}
	case strings.HasPrefix(text, "0x") && n > 2:
		body := text[2:n]
		if len(body)%2 > 0 {
			body = "0" + body
		}
		if b, err := hex.DecodeString(body); err == nil {
			t = token{kind: hexed, text: string(b)}
		}
	}
	return t, n
}

// escapes are what stands for another character behind a backslash.
var escapes = map[byte]string{
	'0': "\x00", 'b': "\b", 'n': "\n", 'r': "\r", 't': "\t", 'Z': "\x1a", '%': `\%`, '_': `\_`,
}

// unquote reads what stands in quotes, and how long it is with them; 0 when it
// has no end.
func unquote(text string) (value string, n int) {
	quote := text[0]
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == quote && i+1 < len(text) && text[i+1] == quote:
			b.WriteByte(c)
			i++
		case c == quote:
			return b.String(), i + 1
		case c == '\\' && quote != '`':
			if i++; i == len(text) {
				return "", 0
			}
			if other, ok := escapes[text[i]]; ok {
				b.WriteString(other)
			} else {
				b.WriteByte(text[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", 0
}

// through is how long a text is up to the end of the first mark in it.
func through(text, mark string) int {
	if at := strings.Index(text, mark); at >= 0 {
		return at + len(mark)
	}
	return len(text)
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isWord(c byte) bool {
	return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || c == '$' || c >= 0x80
}
