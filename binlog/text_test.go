package binlog

import (
	stdcmp "cmp"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/schema"
)

// plainQuery is a statement of an ordinary session in shop.
func plainQuery(text string) query {
	return query{text: text, database: "shop", told: true, client: 255, literals: 255}
}

func showTokens(list []token) string {
	var out []string
	for _, t := range list {
		out = append(out, fmt.Sprintf("%c%q", "wnqh#s"[t.kind], t.text))
	}
	return strings.Join(out, " ")
}

func TestLex(t *testing.T) {
	tests := []struct {
		text, want string
		plain      bool
	}{
		{"", "", true},
		{"INSERT into\tt1 (`a b`)", `w"INSERT" w"into" w"t1" s"(" n"a b" s")"`, true},
		{"a/* x */b -- c\n#d\nc--d", `w"a" w"b" w"c" s"-" s"-" w"d"`, true},
		{"a--\tb", `w"a"`, true},
		{"a --", `w"a"`, true},
		{"/* 'a */ b", `w"b"`, true},
		{"'it''s' 'a\\'b' \"c\"\"d\" `e``f`", `q"it's" q"a'b" q"c\"d" n"e` + "`" + `f"`, true},
		{`'\0\b\n\r\t\Z\\\%\_\x'`, `q"\x00\b\n\r\t\x1a\\\\%\\_x"`, true},
		{"`a\\`b", "n\"a\\\\\" w\"b\"", true},
		{"'-- /* # ' x", `q"-- /* # " w"x"`, true},
		{"x'00fF' X'' 0x123 0xzz x'0' x 'a'", `h"\x00\xff" h"" h"\x01#" w"0xzz" w"x" q"0" w"x" q"a"`, true},
		{"12 1.5 1e5 1a -3", `#"12" #"1" s"." #"5" w"1e5" w"1a" s"-" #"3"`, true},
		{"é.ö$_", `w"é" s"." w"ö$_"`, true},
		{"@v :=1", `s"@" w"v" s":" s"=" #"1"`, true},
		{"INSERT /*!80000 IGNORE */ a", `w"INSERT" w"IGNORE" s"*" s"/" w"a"`, false},
		{"INSERT /*M!100100 a", `w"INSERT" w"a"`, false},
		{"a /*+ hint */ b", `w"a" w"b"`, true},
		{"a 'b", `w"a"`, false},
		{`a 'b\`, `w"a"`, false},
		{"a `b", `w"a"`, false},
		{"a /* b", `w"a"`, false},
	}
	for _, tt := range tests {
		got, plain := lex(tt.text)
		if showTokens(got) != tt.want || plain != tt.plain {
			t.Errorf("%s: got %s %t, want %s %t", tt.text, showTokens(got), plain, tt.want, tt.plain)
		}
	}
	if got, plain := lex(strings.Repeat("a,", maxTokens)); len(got) != maxTokens || plain {
		t.Errorf("got %d tokens of too many, plain %t", len(got), plain)
	}
}

// TestTextIDs: the ids of an INSERT's rows, and what is not told.
func TestTextIDs(t *testing.T) {
	table := func(id schema.Column) *schema.Table {
		columns := outboxColumns()
		columns[0] = id
		table, err := schema.NewTable("shop", "outbox", columns, schema.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return table
	}
	binary := table(schema.NewColumn("id", "binary", "binary(16)", 16, ""))
	varbinary := table(schema.NewColumn("id", "varbinary", "varbinary(16)", 16, ""))
	integer := table(schema.NewColumn("id", "bigint", "bigint", 0, ""))
	text := table(schema.NewColumn("id", "varchar", "varchar(36)", 144, "utf8mb4"))
	uuids := table(schema.NewColumn("id", "uuid", "uuid", 0, ""))
	uuid := "\x6c\xcd\x78\x0c\xba\xba\x10\x26\x95\x64\x5b\x8c\x65\x60\x24\xdb"
	const few = "INSERT INTO outbox (topic, id) VALUES "
	tests := []struct {
		table      *schema.Table
		text, want string // with ! what the statement is called instead
	}{
		{binary, few + "('t', 0x01)", "01000000000000000000000000000000"},
		{binary, "insert low_priority outbox value (x'02', 1, 't', '{\"a\": (1,2)}', NOW(6));", "02000000000000000000000000000000"},
		{binary, few + "('t', x'01'), (CONCAT('a', (SELECT 1)), 'abc')", "01000000000000000000000000000000 61626300000000000000000000000000"},
		{binary, few + `('t', _binary'\0\\')`, "005c0000000000000000000000000000"},
		{binary, few + "('t', UNHEX('6CCD'))", "6ccd0000000000000000000000000000"},
		{binary, few + "('t', UUID_TO_BIN('6ccd780c-baba-1026-9564-5b8c656024db'))", fmt.Sprintf("%x", uuid)},
		{binary, few + "('t', uuid_to_bin('{6CCD780C-baba-1026-9564-5b8c656024db}', 0))", fmt.Sprintf("%x", uuid)},
		{binary, few + "('t', UUID_TO_BIN('6ccd780c-baba-1026-9564-5b8c656024db', 1))", "1026baba6ccd780c95645b8c656024db"},
		{binary, few + "('t', UUID_TO_BIN('6ccd780c-baba-1026-9564-5b8c656024db', 2))", "!no literal"},
		{binary, few + "('t', UUID_TO_BIN(UUID()))", "!no literal"},
		{binary, few + "('t', UUID_TO_BIN(@id))", "!no literal"},
		{binary, few + "('t', UUID_TO_BIN('x'))", "!no literal"},
		{binary, few + "('t', UNHEX('6'))", "!no literal"},
		{binary, few + "('t', UNHEX(REPLACE('6ccd780c-baba-1026-9564-5b8c656024db', '-', '')))", fmt.Sprintf("%x", uuid)},
		{binary, few + "('t', UNHEX(REPLACE('6ccd', 'c', '')))", "!no literal"},
		{binary, few + "('t', UNHEX(REPLACE('6ccd', '-', 'a')))", "!no literal"},
		{binary, few + "('t', UNHEX(REPLACE(UUID(), '-', '')))", "!no literal"},
		{uuids, few + "('t', '6CCD780Cbaba-1026-9564-5b8c656024db')", "!no literal"},
		{uuids, few + "('t', '6CCD780C-baba-1026-9564-5b8c656024db')", "6CCD780C-baba-1026-9564-5b8c656024db"},
		{uuids, few + "('t', '6CCD780Cbaba102695645b8c656024db')", "6CCD780Cbaba102695645b8c656024db"},
		{uuids, few + "('t', UUID())", "!no literal"},
		{binary, few + "('t', NAME_CONST('id', x'01'))", "!no literal"},
		{binary, few + "('t', 0x0000000000000000000000000000000001)", "!no literal"},
		{binary, few + "('t', 'é\\\xf3\\0')", "c3a9f300000000000000000000000000"},
		{binary, few + "('t', _latin1'a')", "!no literal"},
		{binary, few + "('t', 'a' 'b')", "!no literal"},
		{binary, few + "('t', x'01'), ('t', @id)", "!no literal"},
		{binary, few + "('t', DEFAULT)", "!without an id"},
		{binary, "INSERT INTO outbox (topic) VALUES ('t')", "!without an id"},
		{varbinary, few + "('t', x'0100')", "0100"},
		{integer, few + "('t', 7), ('t', -8), ('t', '9'), ('t', 18446744073709551615)", "7 -8 9 18446744073709551615"},
		{integer, few + "('t', 7.5)", "!no literal"},
		{integer, few + "('t', 1e3)", "!no literal"},
		{integer, few + "('t', '7x')", "!no literal"},
		{integer, few + "('t', NULL)", ""},
		{integer, few + "('t', 0)", ""},
		{integer, "INSERT INTO outbox (topic, created_at) VALUES ('t', now(6))", ""},
		{integer, "INSERT INTO outbox (topic) VALUES (f())", "!without an id"},
		{integer, "INSERT INTO outbox (topic) VALUES (shop.now())", "!without an id"},
		{integer, "INSERT INTO outbox (topic) VALUES ('t'), ('u')", "!without an id"},
		{integer, "INSERT INTO outbox () VALUES ()", ""},
		{text, few + "('t', 'a b'), ('t', 007)", "a b 7"},
		{text, few + "('t', x'61')", "!no literal"},
		{text, few + "('t', 'é')", "é"},
		{text, few + "('t', '\xf3')", "!no literal"},
		{text, "INSERT INTO outbox VALUES ('a', 1)", "!table's columns"},
		{text, few + "('a')", "!table's columns"},
		{text, few + "('t', 'a') ON DUPLICATE KEY UPDATE topic = 'x'", "!ON DUPLICATE KEY UPDATE"},
		{text, few + "('t', 'a') AS new ON DUPLICATE KEY UPDATE topic = new.topic", "!ON DUPLICATE KEY UPDATE"},
		{text, few + "('t', 'a') RETURNING id, outbox.*, `topic` AS t", "a"},
		{text, few + "('t', 'a') RETURNING f(id)", "!more behind its VALUES"},
		{text, "SET STATEMENT max_statement_time=5, lock_wait_timeout=(1) FOR ANALYZE FORMAT=JSON " + few + "('t', 'a')", "a"},
		{text, "INSERT IGNORE INTO outbox (id) VALUES ('a')", "!INSERT IGNORE"},
		{text, "REPLACE INTO outbox (id) VALUES ('a')", "!REPLACE"},
		{text, "INSERT INTO outbox SELECT 1", "!INSERT … SELECT"},
		{text, "INSERT INTO outbox (id) SELECT 'a'", "!INSERT … SELECT"},
		{text, "INSERT INTO outbox (SELECT 1)", "!none of columns"},
		{text, "INSERT INTO outbox TABLE t", "!INSERT … SELECT"},
		{text, "INSERT INTO outbox SET id = 'a'", "!INSERT … SET"},
		{text, "INSERT INTO outbox PARTITION (p0) VALUES ('a')", "!INSERT … PARTITION"},
		{text, "INSERT INTO outbox VALUES ROW('a')", "!not of VALUES"},
		{text, "INSERT INTO outbox (id) VALUES ('a'", "!not of VALUES"},
	}
	for _, tt := range tests {
		ins := newText(plainQuery(tt.text)).parseInsert()
		if ins == nil || ins.table != "outbox" || ins.database != "shop" {
			t.Errorf("%s: got %+v", tt.text, ins)
			continue
		}
		ids, fault := ins.ids(tt.table)
		var list []string
		for _, id := range ids {
			if b, ok := id.([]byte); ok {
				id = fmt.Sprintf("%x", b)
			}
			list = append(list, fmt.Sprint(id))
		}
		got := strings.Join(list, " ")
		if part, refused := strings.CutPrefix(tt.want, "!"); refused != (fault != "") || refused && !strings.Contains(fault, part) || !refused && got != tt.want {
			t.Errorf("%s: got %q, fault %q, want %q", tt.text, got, fault, tt.want)
		}
	}
}

// TestTextCharsets: a text that the server converts before it stores it is not
// the stored one, unless it is ASCII.
func TestTextCharsets(t *testing.T) {
	binary := schema.NewColumn("id", "varbinary", "varbinary(16)", 16, "")
	text := schema.NewColumn("id", "varchar", "varchar(16)", 64, "utf8mb4")
	for _, tt := range []struct {
		client, literals int
		raw, utf8        bool
	}{
		{255, 255, true, true}, {45, 46, true, true}, {33, 83, true, true}, {8, 8, true, false},
		{255, 8, false, false}, {33, 45, false, false}, {255, 28, false, false},
	} {
		q := plainQuery("INSERT INTO outbox (id) VALUES ('é')")
		q.client, q.literals = tt.client, tt.literals
		ins := newText(q).parseInsert()
		for column, want := range map[*schema.Column]bool{&binary: tt.raw, &text: tt.utf8} {
			if got := ins.literal(*column, ins.rows[0][0]) != nil; got != want {
				t.Errorf("client %d, literals %d, %s: got %t", tt.client, tt.literals, column.Type, got)
			}
			if ins.literal(*column, []token{{kind: quoted, text: "a"}}) == nil {
				t.Errorf("client %d, literals %d, %s: ASCII is not told", tt.client, tt.literals, column.Type)
			}
		}
	}
}

// TestOrdinary: sessions in which quotes or bytes mean something else are not
// guessed at.
func TestOrdinary(t *testing.T) {
	for _, tt := range []struct {
		q    query
		want bool
	}{
		{query{told: true, client: 255}, true},
		{query{told: true, client: 45, modes: 1 << 21}, true},
		{query{told: true, client: 8}, true},
		{query{client: 255}, false},
		{query{told: true}, false},
		{query{told: true, client: 255, failed: true}, false},
		{query{told: true, client: 255, modes: modeANSIQuotes}, false},
		{query{told: true, client: 255, modes: modeNoBackslashEscapes}, false},
		{query{told: true, client: 28}, false},  // gbk
		{query{told: true, client: 249}, false}, // gb18030
		{query{told: true, client: 13}, false},  // sjis
	} {
		if got := tt.q.ordinary(); got != tt.want {
			t.Errorf("%+v: got %t", tt.q, got)
		}
	}
}

// textQuery writes a statement of an ordinary session.
func (l *fakeLog) textQuery(text string) *fakeLog {
	return l.event(replication.QUERY_EVENT, textBody(text, 0))
}

// load writes a LOAD DATA.
func (l *fakeLog) load(text string) *fakeLog {
	return l.event(replication.EXECUTE_LOAD_QUERY_EVENT, textBody(text, 13))
}

func textBody(text string, extra int) []byte {
	body := append(make([]byte, 8), 4, 0, 0)
	status := append([]byte{statusFlags2, 0, 0, 0, 0, statusSQLMode}, make([]byte, 8)...)
	status = append(status, statusCatalog, 3, 's', 't', 'd', statusAutoIncrement, 1, 0, 1, 0, statusCharset, 255, 0, 255, 0, 255, 0, 5, 3, 'U', 'T', 'C')
	body = append(append(append(body, byte(len(status)), 0), make([]byte, extra)...), status...)
	return append(append(body, "shop\x00"...), text...)
}

// insertID writes the AUTO_INCREMENT value of the next statement.
func (l *fakeLog) insertID(n uint64) *fakeLog {
	return l.event(replication.INTVAR_EVENT, le.AppendUint64([]byte{byte(replication.INSERT_ID)}, n))
}

// TestAssemblerText: rows that a statement inserted are fetched, and stand where
// it stands.
func TestAssemblerText(t *testing.T) {
	const statement = "INSERT INTO outbox (id, topic) VALUES ('x', 't'), ('y', 't')"
	for _, tt := range []struct {
		name, outbox, id, fault string
		log                     *fakeLog
		asked                   string
		want                    []string
		text                    string // of ErrUnreadable
	}{
		{
			name: "between rows", log: newLog().gtid(1).begin().insert("a").textQuery(statement).insert("b").xid(),
			asked: "1 [x y] false", want: []string{"1: a x y b"},
		},
		{
			name: "alone", log: newLog().gtid(1).textQuery(statement).gtid(2).begin().insert("a").xid(),
			asked: "1 [x y] false", want: []string{"1: x y", "2: a"},
		},
		{
			name: "compressed", log: newLog().gtid(1).compressed(replication.ZSTD, insideLog().begin().textQuery(statement).xid()),
			asked: "1 [x y] false", want: []string{"1: x y"},
		},
		{
			name: "rolled back", log: newLog().gtid(1).begin().insert("a").query("SAVEPOINT s").textQuery(statement).query("ROLLBACK TO s").xid(),
			asked: "1 [x y] false", want: []string{"1: a"},
		},
		{
			name: "generated", id: "bigint", log: newLog().gtid(1).begin().insertID(7).textQuery("INSERT INTO outbox (topic) VALUES ('t')").xid(),
			asked: "1 [7] true", want: []string{"1: 7"},
		},
		{
			name: "generated for the statement before", id: "bigint",
			log:  newLog().gtid(1).begin().insertID(7).textQuery("INSERT INTO orders VALUES (1)").textQuery("INSERT INTO outbox (topic) VALUES ('t')"),
			text: "INSERT without an id on shop.outbox",
		},
		{
			name: "fetched in vain", fault: "INSERT of what is gone", log: newLog().gtid(1).begin().textQuery(statement),
			asked: "1 [x y] false", text: "INSERT of what is gone on shop.outbox is in the log as text",
		},
		{
			name: "XA", log: newLog().gtid(1).query("XA START 'a'").textQuery(statement).xaPrepare(false).gtid(2).query("XA COMMIT 'a'"), want: []string{"prepared 1"}, text: "INSERT in an XA transaction on shop.outbox",
		},
		{
			name: "XA, generated", id: "bigint", log: newLog().gtid(1).query("XA START 'a'").insertID(7).textQuery("INSERT INTO outbox (topic) VALUES ('t')").xaPrepare(false).gtid(2).query("XA COMMIT 'a'"), want: []string{"prepared 1"},
			text: "INSERT in an XA transaction on shop.outbox",
		},
		{
			name: "XA, rolled back", log: newLog().gtid(1).query("XA START 'a'").insert("a").textQuery(statement).query("ROLLBACK TO s").insert("b").xaPrepare(false).gtid(2).query("XA ROLLBACK 'a'").gtid(3).begin().insert("c").xid(),
			want: []string{"prepared 1", "2 decides 1:", "3: c"},
		},
		{
			name: "XA, in one phase", log: newLog().gtid(1).query("XA START 'a'").textQuery(statement).insert("b").xaPrepare(true), text: "INSERT in an XA transaction on shop.outbox",
		},
		{
			name: "made as text", log: newLog().gtid(1).query("CREATE TABLE IF NOT EXISTS `shop`.`outbox` SELECT 1"), text: "CREATE TABLE … SELECT on shop.outbox",
		},
		{
			name: "a temporary table", log: newLog().gtid(1).query("CREATE TEMPORARY TABLE outbox (id INT)"), text: "a temporary table with the name of shop.outbox",
		},
		{
			name: "a temporary table of another name, renamed", log: newLog().gtid(1).query("CREATE TEMPORARY TABLE `Ob2` LIKE outbox").gtid(2).query("ALTER TABLE shop.ob2 ADD COLUMN a INT, RENAME TO `outbox`"),
			want: []string{"1:"}, text: "gave a temporary table with the name of shop.outbox",
		},
		{
			name: "no temporary table, renamed", log: newLog().gtid(1).query("CREATE TEMPORARY TABLE ob2 (id INT)").gtid(2).query("ALTER TABLE outbox RENAME COLUMN ob2 TO a").gtid(3).query("DROP TEMPORARY TABLE IF EXISTS ob2").gtid(4).query("RENAME TABLE ob2 TO outbox"),
			want: []string{"1:", "2:", "3:", "4:"},
		},
		{
			name: "made elsewhere", log: newLog().gtid(1).query("CREATE TEMPORARY TABLE shop2.outbox (id INT)").gtid(2).query("CREATE TABLE copy SELECT * FROM outbox"),
			want: []string{"1:", "2:"},
		},
		{
			name: "made with rows behind it", log: newLog().gtid(1).begin().query("CREATE TABLE `outbox` (id INT) START TRANSACTION").insert("a").xid(), want: []string{"1: a"},
		},
		{
			name: "another database", log: newLog().gtid(1).begin().textQuery("INSERT INTO shop2.outbox (id) VALUES ('x')").xid(), want: []string{"1:"},
		},
		{
			name: "other letters", log: newLog().gtid(1).begin().textQuery("INSERT INTO Outbox (id) VALUES ('x')"), text: "INSERT on shop.outbox",
		},
		{
			name: "a name in other bytes", outbox: "ausgänge", log: newLog().gtid(1).begin().query("INSERT INTO ausg\xe4nge VALUES (1)"), text: "INSERT on shop.ausgänge",
		},
		{
			name: "a name in these bytes", outbox: "ausgänge", log: newLog().gtid(1).begin().textQuery("INSERT INTO ausgänge (id) VALUES ('x')").xid(),
			asked: "1 [x] false", want: []string{"1: x"},
		},
		{
			name: "an unknown session", log: newLog().gtid(1).begin().query(statement), text: "INSERT on shop.outbox",
		},
		{
			name: "update and delete", want: []string{"1:"},
			log: newLog().gtid(1).begin().textQuery("UPDATE outbox SET id = 'x'").textQuery("DELETE FROM outbox").textQuery("WITH a AS (SELECT 1) DELETE FROM outbox").xid(),
		},
		{
			name: "update of an unknown session", log: newLog().gtid(1).begin().query("UPDATE outbox SET id = 'x'"), text: "UPDATE on shop.outbox",
		},
		{
			name: "through another table", log: newLog().gtid(1).begin().textQuery("INSERT INTO carts VALUES (1)"),
			text: "INSERT that names shop.carts, through which a trigger, view or routine may write to it, on shop.outbox",
		},
		{
			name: "LOAD DATA through another table", log: newLog().gtid(1).begin().load("LOAD DATA INTO TABLE `carts`"),
			text: "LOAD DATA that names shop.carts,",
		},
		{
			name: "LOAD DATA", log: newLog().gtid(1).begin().load("LOAD DATA INFILE 'outbox' INTO TABLE `outbox`"), text: "LOAD DATA on shop.outbox",
		},
		{
			name: "LOAD DATA elsewhere", log: newLog().gtid(1).begin().load("LOAD DATA INFILE 'x' INTO TABLE `shop2`.`outbox`").xid(), want: []string{"1:"},
		},
		{
			name: "by the dot", log: newLog().gtid(1).begin().textQuery("INSERT INTO .outbox (id) VALUES ('x')").xid(), asked: "1 [x] false", want: []string{"1: x"},
		},
		{
			name: "made of a function", log: newLog().gtid(1).textQuery("CREATE OR REPLACE TEMPORARY TABLE z AS SELECT emit(5)"),
			text: "CREATE TABLE … SELECT that names shop.emit,",
		},
		{
			name: "made of what fires nothing", log: newLog().gtid(1).textQuery("CREATE TABLE z AS SELECT * FROM carts"), want: []string{"1:"},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			a := newAssembler(outboxTable(t))
			if tt.id != "" || tt.outbox != "" {
				columns := outboxColumns()
				if tt.id != "" {
					columns[0] = schema.NewColumn("id", tt.id, tt.id, 0, "")
				}
				table, err := schema.NewTable("shop", stdcmp.Or(tt.outbox, "outbox"), columns, schema.Options{})
				if err != nil {
					t.Fatal(err)
				}
				a = newAssembler(table)
			}
			asked := ""
			a.fetch = func(gtid GTID, _ *insertion, ids []any, generated bool, from schema.Origin) (events []schema.Event, fault string, err error) {
				asked += fmt.Sprintf("%d %v %t", gtid.Number, ids, generated)
				for _, id := range ids {
					events = append(events, schema.Event{ID: fmt.Sprint(id), GTID: from.GTID, CreatedAt: from.CommittedAt, Payload: fmt.Append(nil, "body of ", id)})
				}
				return events, tt.fault, nil
			}
			a.domain = func(GTID) (*reach, error) {
				return newReach("shop", "outbox", []object{{target, "shop", "carts", "INSERT INTO outbox"}, {called, "shop", "emit", "INSERT INTO outbox"}}, nil), nil
			}
			got, err := assemble(a, tt.log)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("transactions (-want +got):\n%s", diff)
			}
			if tt.text != "" {
				wantUnreadable(t, err, tt.text)
			} else if err != nil {
				t.Error(err)
			}
			if asked != tt.asked {
				t.Errorf("asked for %q, want %q", asked, tt.asked)
			}
		})
	}
}

// TestAssemblerTextParts: what a large statement inserted goes out at once, and
// what fails to be fetched, because the server is away, is asked again.
func TestAssemblerTextParts(t *testing.T) {
	a := newAssembler(outboxTable(t))
	away := errors.New("away")
	a.fetch = func(GTID, *insertion, []any, bool, schema.Origin) ([]schema.Event, string, error) {
		return make([]schema.Event, partEvents), "", nil
	}
	log := newLog().gtid(1).begin().textQuery("INSERT INTO outbox (id) VALUES ('x')").xid()
	next := read(log.events)
	part, err := a.next(next)
	if err != nil || part.Last || len(part.Events) != partEvents {
		t.Fatalf("got %+v, %v, want a part", part, err)
	}
	if last, err := a.next(next); err != nil || !last.Last || len(last.Events) != 0 {
		t.Errorf("got %+v, %v, want the end", last, err)
	}
	a = newAssembler(outboxTable(t))
	a.fetch = func(GTID, *insertion, []any, bool, schema.Origin) ([]schema.Event, string, error) {
		return nil, "", away
	}
	if _, err := a.next(read(log.events)); !errors.Is(err, away) {
		t.Errorf("got %v, want %v", err, away)
	}
}

// FuzzText takes any statement apart: it comes to an end, and what it makes of
// the ids does not depend on a comment in front.
func FuzzText(f *testing.F) {
	for _, text := range []string{
		"INSERT INTO outbox (id, topic) VALUES ('a', 't'), ('b', 'it''s')",
		"insert /*!80000 ignore */ into `shop`.`outbox` values (x'01', 0x2, _binary'\\0', UNHEX('00'), UUID_TO_BIN('6ccd780c-baba-1026-9564-5b8c656024db', 1))",
		"REPLACE outbox () VALUES ()", "INSERT INTO outbox SELECT '(", "-- a\n#b\nUPDATE t SET a = \"\\\"\"",
	} {
		f.Add(text)
	}
	table := outboxTable(f)
	f.Fuzz(func(t *testing.T, s string) {
		told := func(s string) string {
			x := newText(plainQuery(s))
			ins := x.parseInsert()
			if ins == nil {
				return fmt.Sprint("none ", x.plain)
			}
			ids, fault := ins.ids(table)
			if fault != "" && len(ids) > 0 {
				t.Errorf("%q: got both %v and %q", s, ids, fault)
			}
			return fmt.Sprint(ins.database, ins.table, ids, fault)
		}
		if got, want := told("/* a 'b */ "+s), told(s); got != want {
			t.Errorf("%q: with a comment in front %q, without %q", s, got, want)
		}
	})
}
