package schema

import (
	"fmt"
	"strconv"
	"strings"
)

// parseProperties reads text in the format of java.util.Properties, as
// Properties.store writes it: lines of key=value, comments that begin with #
// or !, escapes with a backslash.
func parseProperties(text string) (map[string]string, error) {
	properties := map[string]string{}
	text = strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text)
	for text != "" {
		var line string
		line, text, _ = strings.Cut(text, "\n")
		line = strings.TrimLeft(line, " \t\f")
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		for escapesEnd(line) { // the next line belongs to it
			var next string
			next, text, _ = strings.Cut(text, "\n")
			line = line[:len(line)-1] + strings.TrimLeft(next, " \t\f")
		}
		end := keyEnd(line)
		value := strings.TrimLeft(line[end:], " \t\f")
		if value != "" && (value[0] == '=' || value[0] == ':') {
			value = strings.TrimLeft(value[1:], " \t\f")
		}
		key, err := unescapeProperty(line[:end])
		if err != nil {
			return nil, err
		}
		if properties[key], err = unescapeProperty(value); err != nil {
			return nil, err
		}
	}
	return properties, nil
}

// escapesEnd tells whether the line ends in a backslash that no other escapes.
func escapesEnd(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

// keyEnd is where the key at the start of a line ends.
func keyEnd(line string) int {
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '\\':
			i++
		case '=', ':', ' ', '\t', '\f':
			return i
		}
	}
	return len(line)
}

func unescapeProperty(text string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			if text[i] != '\\' {
				out.WriteByte(text[i])
			}
			continue
		}
		i++
		switch c := text[i]; c {
		case 't':
			out.WriteByte('\t')
		case 'n':
			out.WriteByte('\n')
		case 'r':
			out.WriteByte('\r')
		case 'f':
			out.WriteByte('\f')
		case 'u':
			digits := text[i+1 : min(i+5, len(text))]
			n, err := strconv.ParseUint(digits, 16, 16)
			if err != nil || len(digits) < 4 {
				return "", fmt.Errorf(`\u%s is no escape of four hex digits`, digits)
			}
			out.WriteRune(rune(n))
			i += 4
		default:
			out.WriteByte(c)
		}
	}
	return out.String(), nil
}
