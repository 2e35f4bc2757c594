package binlog_test

import (
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const jsonOutbox = "CREATE TABLE outbox (id INT PRIMARY KEY, aggregate_id INT, topic VARCHAR(9), payload JSON, version INT, created_at DATETIME)"

// TestJSONValues: an SQL expression as a JSON column has it, in SELECT, in the
// stream and in a backfill. A renderer that rounds, reorders, escapes or spaces
// in another way fails here; so did one that took decimals of more than 65
// counted digits for damage.
func TestJSONValues(t *testing.T) {
	t.Parallel()
	deep := func(n int, open, inner, shut string) string {
		return strings.Repeat(open, n) + inner + strings.Repeat(shut, n)
	}
	long := strings.Repeat("0123456789abcdef", 4096)
	tests := []struct{ value, want string }{
		{`'{}'`, `{}`}, {`'[]'`, `[]`}, {`'null'`, `null`}, {`'true'`, `true`}, {`'""'`, `""`},
		{`'{"bb":1,"a":[1 ,2],"ab":{},"":null,"b":3,"a":4}'`, `{"": null, "a": 4, "b": 3, "ab": {}, "bb": 1}`},
		{`'[0.1, 0.3, 1e16, 1e15, 1e14, 1e-7, 1e-15, 1e-16, 12345678.5, 1.0, 100.0]'`,
			`[0.1, 0.3, 1e16, 1e15, 100000000000000.0, 0.0000001, 0.000000000000001, 1e-16, 12345678.5, 1.0, 100.0]`},
		{`'[-0.0, 0.0, -0]'`, `[-0.0, 0.0, 0]`},
		{`'[0.30000000000000004, 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, 9007199254740993.0]'`,
			`[0.30000000000000004, 1.7976931348623157e308, 5e-324, 2.2250738585072014e-308, 9.007199254740992e15]`},
		{`'[18446744073709551615, 9223372036854775808, 9223372036854775807, -9223372036854775808, 4294967296, -2147483649, 65536, -32769, 32767]'`,
			`[18446744073709551615, 9223372036854775808, 9223372036854775807, -9223372036854775808, 4294967296, -2147483649, 65536, -32769, 32767]`},
		{`'[18446744073709551616]'`, `[1.8446744073709552e19]`},
		{`JSON_ARRAY(CAST(1.50 AS DECIMAL(10,2)), CAST(-0.001 AS DECIMAL(4,3)), CAST('12345678901234567890123456789012345.123456789012345678901234567891' AS DECIMAL(65,30)), 0.10)`,
			`[1.50, -0.001, 12345678901234567890123456789012345.123456789012345678901234567891, 0.10]`},
		{`JSON_ARRAY(CAST(REPEAT('9', 65) AS DECIMAL(65)), CAST(CONCAT('-', REPEAT('9', 65)) AS DECIMAL(65)), CAST(1e27 AS DECIMAL(65,30)), CAST(0 AS DECIMAL(65,30)))`,
			"[" + strings.Repeat("9", 65) + ", -" + strings.Repeat("9", 65) + ", 1000000000000000000000000000." + strings.Repeat("0", 30) + ", 0." + strings.Repeat("0", 30) + "]"},
		{`JSON_OBJECT('d', DATE'2024-02-29', 't', TIME'-838:59:59', 'u', TIME'01:02:03.4', 's', CAST('2024-01-02 03:04:05' AS DATETIME), 'm', TIMESTAMP'2024-01-02 03:04:05.000006')`,
			`{"d": "2024-02-29", "m": "2024-01-02 03:04:05.000006", "s": "2024-01-02 03:04:05.000000", "t": "-838:59:59.000000", "u": "01:02:03.400000"}`},
		{`JSON_ARRAY(x'00ff10', CAST('a' AS BINARY), CAST('' AS BINARY), b'101', CAST(REPEAT('x', 58) AS BINARY))`,
			`["base64:type15:AP8Q", "base64:type15:YQ==", "base64:type15:", "base64:type15:BQ==", "base64:type15:eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4\neA=="]`},
		{`JSON_ARRAY((SELECT b FROM kinds), (SELECT y FROM kinds), (SELECT blb FROM kinds), (SELECT bin FROM kinds))`,
			`["base64:type16:AQE=", 2024, "base64:type252:/w==", "base64:type254:AQAA"]`},
		{`'["\\u0000\\u0001\\u001f\\b\\f\\n\\r\\t\\"\\\\\\/ \\u007f\\u0080\\u2028 <>&'' é 雪 😀 \\ud83d\\ude00"]'`,
			"[\"\\u0000\\u0001\\u001f\\b\\f\\n\\r\\t\\\"\\\\/ \u007f\u0080\u2028 <>&' é 雪 😀 😀\"]"},
		{"'" + deep(100, "[", "", "]") + "'", deep(100, "[", "", "]")},
		{"'" + deep(99, `{"a":`, "[]", "}") + "'", deep(99, `{"a": `, "[]", "}")},
		{`JSON_OBJECT('k', REPEAT('0123456789abcdef', 4096), 'n', 7, 'o', JSON_ARRAY(1, 70000, REPEAT('y', 70000)))`,
			`{"k": "` + long + `", "n": 7, "o": [1, 70000, "` + strings.Repeat("y", 70000) + `"]}`},
	}
	r := newRig(t, jsonOutbox)
	r.exec("CREATE TABLE kinds (b BIT(9), y YEAR, blb BLOB, bin BINARY(3))")
	r.exec("INSERT INTO kinds VALUES (b'100000001', 2024, x'ff', x'01')")
	server := r.open()
	stream := r.follow(server)
	for i, tt := range tests {
		r.exec(fmt.Sprintf("INSERT INTO outbox VALUES (%d, 1, 't', %s, %d, '2024-01-01')", i, tt.value, i))
	}
	got := r.both(server, stream, len(tests))
	for i, tt := range tests {
		if printed := r.text("SELECT payload FROM outbox WHERE id = ?", i); printed != tt.want {
			t.Errorf("%.200s: SELECT prints %.200s, want %.200s", tt.value, printed, tt.want)
		}
		if diff := cmp.Diff(tt.want, string(got[strconv.Itoa(i)].Payload)); diff != "" {
			t.Errorf("%.200s (-want +got):\n%.2000s", tt.value, diff)
		}
	}
}

// TestJSONLarge: a document of 6 MiB, and one with more members than 16 bits
// count.
func TestJSONLarge(t *testing.T) {
	t.Parallel()
	r := newRig(t, jsonOutbox)
	stream := r.follow(r.open())
	r.exec("INSERT INTO outbox VALUES (1, 1, 't', JSON_OBJECT('k', REPEAT('é', 3 << 20)), 1, '2024-01-01')")
	r.exec(`INSERT INTO outbox SELECT 2, 1, 't', JSON_ARRAYAGG(i), 1, '2024-01-01' FROM (
		WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 1000) SELECT a.i * 1000 + b.i i FROM n a JOIN (
		SELECT * FROM (WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 70) SELECT i FROM n) m) b) c`)
	for i, e := range r.events(stream, 2) {
		if want := r.text("SELECT payload FROM outbox WHERE id = ?", i+1); string(e.Payload) != want || len(want) < 400000 {
			t.Errorf("document %d: got %d bytes, SELECT prints %d", i+1, len(e.Payload), len(want))
		}
	}
}

// TestJSONPartialUpdates: updates that the server logs as a difference
// (binlog_row_value_options=PARTIAL_JSON) are passed over as others are.
func TestJSONPartialUpdates(t *testing.T) {
	t.Parallel()
	for _, compression := range []string{"OFF", "ON"} {
		t.Run("compression "+compression, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, jsonOutbox)
			stream := r.follow(r.open())
			conn := r.conn("SET SESSION binlog_row_value_options = 'PARTIAL_JSON', SESSION binlog_transaction_compression = "+compression, "BEGIN")
			r.on(conn, `INSERT INTO outbox VALUES (1, 1, 't', '{"a": 1, "b": "0123456789"}', 1, '2024-01-01')`)
			r.on(conn, "UPDATE outbox SET payload = JSON_SET(payload, '$.a', 2), version = 2")
			r.on(conn, `INSERT INTO outbox VALUES (2, 1, 't', '{"a": 3}', 3, '2024-01-01')`)
			r.on(conn, "COMMIT")
			r.on(conn, "UPDATE outbox SET payload = JSON_REMOVE(payload, '$.a')")
			r.exec(`INSERT INTO outbox VALUES (3, 1, 't', '{"a": 4}', 4, '2024-01-01')`)
			var got []string
			for _, e := range r.events(stream, 3) {
				got = append(got, string(e.Payload))
			}
			if diff := cmp.Diff([]string{`{"a": 1, "b": "0123456789"}`, `{"a": 3}`, `{"a": 4}`}, got); diff != "" {
				t.Errorf("payloads (-want +got):\n%s", diff)
			}
		})
	}
}

// TestJSONRandom: ten thousand random documents are, in the stream, byte for
// byte what SELECT prints.
func TestJSONRandom(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const documents, batch = 10000, 250
	r := newRig(t, jsonOutbox)
	stream := r.follow(r.open())
	g := jsonMaker{rand.New(rand.NewPCG(seed, 0))}
	for first := 0; first < documents; first += batch {
		rows := make([]string, batch)
		for i := range rows {
			rows[i] = fmt.Sprintf("(%d, 1, 't', %s, 1, '2024-01-01')", first+i, g.document())
		}
		r.exec("INSERT INTO outbox VALUES " + strings.Join(rows, ", "))
	}
	rows, err := r.db.QueryContext(r.ctx, "SELECT payload FROM outbox ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	size := 0
	for i, e := range r.events(stream, documents) {
		var want []byte
		if !rows.Next() {
			t.Fatal(rows.Err())
		}
		if err := rows.Scan(&want); err != nil {
			t.Fatal(err)
		}
		if string(want) != string(e.Payload) || e.ID != strconv.Itoa(i) {
			t.Errorf("document %d, event %s (-select +event):\n%.2000s", i, e.ID, cmp.Diff(string(want), string(e.Payload)))
			return
		}
		size += len(want)
	}
	t.Logf("%d documents of %d bytes in all", documents, size)
}

// jsonMaker makes random documents as SQL expressions.
type jsonMaker struct{ *rand.Rand }

func (g jsonMaker) document() string {
	if g.IntN(3) > 0 { // as text
		return literal(g.text(g.IntN(6)))
	}
	return g.expression(1 + g.IntN(4))
}

// literal is text as an SQL literal that needs no escaping.
func literal(text string) string { return "_utf8mb4 x'" + hex.EncodeToString([]byte(text)) + "'" }

// expression makes a value that can hold what JSON text cannot: decimals,
// times and bytes.
func (g jsonMaker) expression(depth int) string {
	if depth > 0 && g.IntN(3) > 0 {
		var parts []string
		object := g.IntN(2) == 0
		for range g.IntN(6) {
			if object {
				parts = append(parts, literal(g.runes()))
			}
			parts = append(parts, g.expression(depth-1))
		}
		if object {
			return "JSON_OBJECT(" + strings.Join(parts, ", ") + ")"
		}
		return "JSON_ARRAY(" + strings.Join(parts, ", ") + ")"
	}
	date := fmt.Sprintf("%04d-%02d-%02d", g.IntN(10000), 1+g.IntN(12), 1+g.IntN(28))
	clock := fmt.Sprintf("%02d:%02d:%02d.%0*d", g.IntN(24), g.IntN(60), g.IntN(60), 6, g.IntN(1e6))
	digits := strconv.FormatUint(g.Uint64()>>g.IntN(64), 10)[:1] + strings.Repeat(strconv.Itoa(g.IntN(1e9)), g.IntN(4))
	value := ""
	switch g.IntN(7) {
	case 0:
		scale := g.IntN(31)
		value = fmt.Sprintf("CAST(%s%s.%s AS DECIMAL(%d,%d))", []string{"", "-"}[g.IntN(2)], digits, digits, len(digits)+scale+g.IntN(66-len(digits)-scale), scale)
	case 1:
		value = "CAST('" + date + "' AS DATE)"
	case 2:
		value = "CAST('" + date + " " + clock + "' AS DATETIME(" + strconv.Itoa(g.IntN(7)) + "))"
	case 3:
		value = fmt.Sprintf("CAST('%s%d:%s' AS TIME(%d))", []string{"", "-"}[g.IntN(2)], g.IntN(838), clock[3:], g.IntN(7))
	case 4:
		b := make([]byte, g.IntN(130))
		for i := range b {
			b[i] = byte(g.Uint32())
		}
		value = "x'" + hex.EncodeToString(b) + "'"
	case 5:
		value = "CAST(" + strconv.Itoa(1901+g.IntN(255)) + " AS YEAR)"
	default:
		value = "CAST(" + literal(g.text(2)) + " AS JSON)"
	}
	if !strings.HasSuffix(value, "AS JSON)") {
		value = "CAST(" + value + " AS JSON)"
	}
	return value
}

// text makes JSON text.
func (g jsonMaker) text(depth int) string {
	if depth > 0 && g.IntN(4) > 0 {
		n := g.IntN(6)
		if g.IntN(1000) == 0 {
			n = 300
		}
		parts := make([]string, n)
		object := g.IntN(2) == 0
		for i := range parts {
			if object {
				parts[i] = g.quoted() + ":"
			}
			parts[i] += g.text(depth - 1)
		}
		space := []string{",", " ,\n\t"}[g.IntN(2)]
		if object {
			return "{" + strings.Join(parts, space) + "}"
		}
		return "[" + strings.Join(parts, space) + "]"
	}
	sign := []string{"", "-"}[g.IntN(2)]
	switch g.IntN(9) {
	case 0:
		return []string{"null", "true", "false"}[g.IntN(3)]
	case 1: // about the limits of the sizes of integers
		return sign + strconv.FormatUint(uint64(1)<<g.IntN(64)-uint64(g.IntN(2)), 10)
	case 2:
		return sign + strconv.FormatUint(g.Uint64()>>g.IntN(64), 10)
	case 3:
		f := math.Float64frombits(g.Uint64())
		if math.IsNaN(f) || math.IsInf(f, 0) {
			f = 0
		}
		return strconv.FormatFloat(f, 'e', -1, 64)
	case 4: // about where the exponent begins
		return sign + strconv.FormatFloat(g.Float64()*math.Pow10(g.IntN(40)-20), 'e', g.IntN(17), 64)
	case 5:
		return sign + strconv.Itoa(g.IntN(100)) + "." + strconv.Itoa(g.IntN(1000)) + "0"
	default:
		return g.quoted()
	}
}

// quoted is a string, some of its characters written as escapes.
func (g jsonMaker) quoted() string {
	var b strings.Builder
	b.WriteByte('"')
	for _, c := range g.runes() {
		switch {
		case c < 0x20 || c == '"' || c == '\\' || (c < 0xd800 && g.IntN(8) == 0):
			fmt.Fprintf(&b, `\u%04x`, c)
		default:
			b.WriteRune(c)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// runes is a string, of a length at which its length takes one more byte, or
// another.
func (g jsonMaker) runes() string {
	n := g.IntN(8)
	switch g.IntN(60) {
	case 0:
		n = 120 + g.IntN(20)
	case 1:
		if g.IntN(300) == 0 {
			n = 16380 + g.IntN(8)
		}
	}
	var b strings.Builder
	for range n {
		switch g.IntN(5) {
		case 0:
			b.WriteRune(rune(g.IntN(0x20)))
		case 1:
			b.WriteRune(rune(g.IntN(0xd800)))
		case 2:
			b.WriteRune(0x10000 + rune(g.IntN(0x100000)))
		default:
			b.WriteRune(0x20 + rune(g.IntN(0x60)))
		}
	}
	return b.String()
}
