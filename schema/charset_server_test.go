package schema_test

import (
	"database/sql"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/outboxrelay/relay/relay/relaytest"
	"github.com/outboxrelay/relay/schema"
)

var update = flag.Bool("update", false, "write charsets.txt from the server")

// ranges are all codes that a character set could have: lengths in bytes, and
// the first bytes of the longer ones.
var ranges = map[string][]string{
	"big5": {"two"}, "cp932": {"two"}, "euckr": {"two"}, "gb2312": {"two"}, "gbk": {"two"}, "sjis": {"two"},
	"eucjpms": {"two", "8f"}, "ujis": {"two", "8f"}, "gb18030": {"two", "four"},
}

// queries are for one range: the codes in hex and their characters, where
// they have one. CONVERT prints a question mark for a code without.
var queries = map[string]string{
	"one": `SELECT LPAD(HEX(i), 2, '0') h FROM n WHERE i < 256`,
	"two": `SELECT LPAD(HEX(i), 4, '0') h FROM n WHERE i >= 0x8000`,
	"8f":  `SELECT CONCAT('8F', LPAD(HEX(i), 4, '0')) h FROM n WHERE i >= 0x8000`,
	"four": `SELECT CONCAT(HEX(0x81 + i DIV 12600), HEX(0x30 + i DIV 1260 MOD 10), HEX(0x81 + i DIV 10 MOD 126), HEX(0x30 + i MOD 10)) h
		FROM (SELECT n.i + 65536 * m.i i FROM n JOIN m WHERE m.i < 25) codes WHERE i < 126 * 10 * 126 * 10 AND (i < 50400 OR i MOD @step = 0)`,
}

// server is a connection with a table n of the numbers to 65535.
func server(t *testing.T, dsn string) *sql.Conn {
	t.Helper()
	conn, err := relaytest.DB(t, dsn).Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	for _, s := range []string{
		"SET NAMES utf8mb4", "SET SESSION sql_mode = ''", "CREATE TEMPORARY TABLE n (i INT PRIMARY KEY)",
		`INSERT INTO n SELECT a.d + b.d * 16 + c.d * 256 + e.d * 4096 FROM (` + digits + `) a, (` + digits + `) b, (` + digits + `) c, (` + digits + `) e`,
		map[bool]string{true: "SET @step = 1", false: "SET @step = 61"}[*update], // all of gb18030's 1.6 million codes take long
		"CREATE TEMPORARY TABLE m SELECT * FROM n",                               // a temporary table is opened once in a query
	} {
		if _, err := conn.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return conn
}

var digits = func() string {
	list := []string{"SELECT 0 d"}
	for i := 1; i < 16; i++ {
		list = append(list, "SELECT "+strconv.Itoa(i))
	}
	return strings.Join(list, " UNION ALL ")
}()

// mapped is a code with its character.
type mapped struct {
	code string // in hex
	char string // empty: none
}

// ask asks the server for all codes of a set. For a code that has no character
// it prints a question mark, and in big5 also U+FFFD.
func ask(t *testing.T, conn *sql.Conn, charset string) (list []mapped) {
	t.Helper()
	short := map[string]bool{} // codes of one byte
	for _, name := range append([]string{"one"}, ranges[charset]...) {
		rows, err := conn.QueryContext(t.Context(), "SELECT h, CONVERT(CONVERT(UNHEX(h) USING "+charset+") USING utf8mb4) FROM ("+queries[name]+") q ORDER BY h")
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		for rows.Next() {
			var code string
			var char sql.NullString
			if err := rows.Scan(&code, &char); err != nil {
				t.Fatal(err)
			}
			m := mapped{code: strings.ToLower(code), char: char.String}
			switch r := []rune(m.char); {
			case len(m.code) > 2 && short[m.code[:2]]:
				continue
			case len(r) > 1, len(r) == 1 && r[0] == '?' && m.code != "3f", len(r) == 1 && r[0] == utf8.RuneError && m.code != "8431a437":
				m.char = ""
			}
			list = append(list, m)
			short[m.code] = m.char != ""
		}
		if err := rows.Err(); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// TestCharsets: every code of every character set is what the server makes of
// it, and what is no character to the server is an error. Collations are known
// by the server's ids for them; MariaDB has several hundred of its own.
func TestCharsets(t *testing.T) {
	t.Run("mysql", func(t *testing.T) { testCharsets(t, relaytest.MySQL(t), "collations") })
	t.Run("mariadb", func(t *testing.T) {
		testCharsets(t, relaytest.MariaDB(t), "collation_character_set_applicability")
	})
}

// testCharsets reads collations and their ids from a table of information_schema.
func testCharsets(t *testing.T, dsn, table string) {
	conn := server(t, dsn)
	if _, err := conn.ExecContext(t.Context(), "SET SESSION group_concat_max_len = 100000"); err != nil {
		t.Fatal(err)
	}
	rows, err := conn.QueryContext(t.Context(), "SELECT character_set_name, GROUP_CONCAT(id ORDER BY id SEPARATOR ' ') FROM information_schema."+table+" WHERE id IS NOT NULL AND character_set_name IS NOT NULL GROUP BY 1 ORDER BY 1")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	collations := map[string]string{}
	var names []string
	for rows.Next() {
		var name, ids string
		if err := rows.Scan(&name, &ids); err != nil {
			t.Fatal(err)
		}
		names, collations[name] = append(names, name), ids
	}
	if len(names) < 40 {
		t.Fatalf("the server has the character sets %q", names)
	}
	if *update && table == "collations" {
		writeCharsets(t, conn, names, collations)
		return
	}
	for _, name := range names {
		for id := range strings.FieldsSeq(collations[name]) {
			n, err := strconv.Atoi(id)
			if err != nil {
				t.Fatal(err)
			}
			if got := schema.CollationCharset(n, table != "collations"); got != name {
				t.Errorf("collation %d is of %q, want %s", n, got, name)
			}
		}
		if byNumber(name) {
			continue
		}
		wrong, seen := 0, 0
		for _, m := range ask(t, conn, name) {
			code, err := hex.DecodeString(m.code)
			if err != nil {
				t.Fatal(err)
			}
			got, err := schema.UTF8(name, code)
			if m.char != "" {
				seen++
			}
			if string(got) != m.char || (err == nil) != (m.char != "") {
				if wrong++; wrong < 5 {
					t.Errorf("%s %s: got %q, %v, want %q", name, m.code, got, err, m.char)
				}
			}
		}
		if wrong > 0 || seen < 120 {
			t.Errorf("%s: %d codes of %d are wrong", name, wrong, seen)
		}
	}
}

// byNumber are the sets whose codes are the characters' numbers, and binary.
func byNumber(name string) bool {
	return slices.Contains([]string{"ascii", "binary", "ucs2", "utf16", "utf16le", "utf32", "utf8mb3", "utf8mb4"}, name)
}

func writeCharsets(t *testing.T, conn *sql.Conn, names []string, collations map[string]string) {
	t.Helper()
	var out strings.Builder
	for _, name := range names {
		fmt.Fprintf(&out, "charset %s %s\n", name, collations[name])
		if byNumber(name) {
			continue
		}
		list := slices.DeleteFunc(ask(t, conn, name), func(m mapped) bool { return m.char == "" })
		for i := 0; i < len(list); {
			first := list[i]
			n := 1
			if len(first.code) == 8 {
				for i+n < len(list) && four(list[i+n].code) == four(first.code)+n && []rune(list[i+n].char)[0] == []rune(first.char)[0]+rune(n) {
					n++
				}
				fmt.Fprintf(&out, "%s +%d %04x\n", first.code, n, []rune(first.char)[0])
			} else {
				chars := first.char
				for i+n < len(list) && number(list[i+n].code) == number(first.code)+n && list[i+n].code[:len(first.code)-2] == first.code[:len(first.code)-2] && len(list[i+n].code) == len(first.code) {
					chars += list[i+n].char
					n++
				}
				fmt.Fprintf(&out, "%s %s\n", first.code, strconv.Quote(chars))
			}
			i += n
		}
	}
	if err := os.WriteFile("charsets.txt", []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
}

func number(code string) int {
	n, _ := strconv.ParseUint(code, 16, 32)
	return int(n)
}

// four counts the codes of four bytes.
func four(code string) int {
	n := number(code)
	return ((n>>24-0x81)*10+n>>16&0xff-0x30)*1260 + (n>>8&0xff-0x81)*10 + n&0xff - 0x30
}
