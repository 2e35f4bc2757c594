package cli_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/relay/relaytest"
)

// found is what the tests look at of a line of an audit.
type found struct {
	Kind        string   `json:"kind"`
	ID          string   `json:"id"`
	AggregateID string   `json:"aggregate_id"`
	Times       int      `json:"times"`
	Side        string   `json:"side"`
	In          []string `json:"in"`
	CreatedAt   string   `json:"created_at"`

	Hour        string `json:"hour"`
	Rows        int    `json:"rows"`
	Messages    int    `json:"messages"`
	Missing     int    `json:"missing"`
	Unknown     int    `json:"unknown"`
	Duplicates  int    `json:"duplicates"`
	Undated     int    `json:"undated"`
	Republished int    `json:"republished"`
	Bad         int    `json:"bad"`
	Both        int    `json:"both"`
	OnlyShadow  int    `json:"only_shadow"`
	OnlyLegacy  int    `json:"only_legacy"`
	Different   int    `json:"different"`
}

// findings are the lines in short, and the last one.
func findings(t testing.TB, got result) (lines string, summary found) {
	t.Helper()
	var list []string
	for line := range strings.Lines(got.stdout) {
		summary = found{}
		if err := json.Unmarshal([]byte(line), &summary); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		text := summary.Kind + " " + strings.TrimPrefix(summary.ID, "00000000-0000-0000-0000-")
		if len(summary.In) > 0 {
			text += " " + strings.Join(summary.In, "+")
		}
		if summary.Times > 1 {
			text += fmt.Sprintf(" %s*%d", summary.Side, summary.Times)
		}
		list = append(list, text)
	}
	if summary.Kind != "summary" {
		t.Fatalf("the last line is no summary:\n%s%s", got.stdout, got.stderr)
	}
	return strings.Join(list[:len(list)-1], "\n"), summary
}

// wantFound compares a command's lines and exit code.
func (got result) wantFound(t testing.TB, code int, lines ...string) found {
	t.Helper()
	got.want(t, code)
	text, summary := findings(t, got)
	if diff := cmp.Diff(strings.Join(lines, "\n"), text); diff != "" {
		t.Errorf("findings (-want +got):\n%s%s", diff, got.stderr)
	}
	return summary
}

// inbox makes the table of consumers.
func (r *rig) inbox() {
	r.t.Helper()
	r.exec((&exchange.Inbox{}).Schema())
}

// process puts ids into it, as processed at some time in SQL.
func (r *rig) process(at string, ids ...string) {
	r.t.Helper()
	for _, id := range ids {
		r.exec(fmt.Sprintf("INSERT INTO processed_messages VALUES (x'%x', %s)", id, at))
	}
}

// unlogged writes events that are in no log.
func (r *rig) unlogged(statements ...string) {
	r.t.Helper()
	conn, err := r.db.Conn(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	defer conn.Close()
	for _, statement := range append(append([]string{"SET SESSION sql_log_bin = 0"}, statements...), "SET SESSION sql_log_bin = 1") {
		if _, err := conn.ExecContext(r.t.Context(), statement); err != nil {
			r.t.Fatalf("%s: %v", statement, err)
		}
	}
}

func unloggedRow(n, aggregate int, ago string) string {
	return fmt.Sprintf("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (x'%032x', %d, 'order.placed', '{\"n\": %d}', UTC_TIMESTAMP(6) - INTERVAL %s)", n, aggregate, n, ago)
}

// TestAuditInbox: an outbox whose events are all processed is clean. Rows that
// no log has are found, and sent again in the order of their aggregate; then it
// is clean again. What is in the grace, or was processed at an odd time, is no
// difference, and what nobody wrote is one.
func TestAuditInbox(t *testing.T) { onEach(t, testAuditInbox) }

func testAuditInbox(t *testing.T, on source) {
	r := on.rig(t).begun()
	r.inbox()
	r.insert(r.db, 1, 10)
	textfile := filepath.Join(r.dir, "relay.prom")
	audit := func(args ...string) result {
		t.Helper()
		got := r.run(append([]string{"audit", "--grace", "0s", "--textfile", textfile}, args...)...)
		noSecret(t, string(mustRead(t, textfile)))
		return got
	}
	r.process("UTC_TIMESTAMP(6)", messageIDs(r.relayed())...)
	if s := audit().wantFound(t, 0); s.Rows != 10 || s.Messages != 10 {
		t.Errorf("got %+v", s)
	}

	// 12 was written before 11; 14 is older than the window, 15 newer.
	r.unlogged(unloggedRow(11, 7, "1 MINUTE"), unloggedRow(12, 7, "2 MINUTE"), unloggedRow(13, 8, "3 MINUTE"),
		unloggedRow(14, 8, "25 HOUR"), unloggedRow(15, 8, "-10 SECOND"), unloggedRow(16, 9, "3 MINUTE"))
	r.process("'2001-01-01'", idText(16))
	r.process("UTC_TIMESTAMP(6)", idText(14), "phantom")
	r.process("'2001-01-01'", "long gone")
	s := audit().wantFound(t, 3, "missing 00000000000b", "missing 00000000000c", "missing 00000000000d", "unknown phantom")
	if s.Rows != 14 || s.Missing != 3 || s.Unknown != 1 {
		t.Errorf("got %+v", s)
	}
	text := string(mustRead(t, textfile))
	for _, want := range []string{"relay_audit_missing{", "} 3\n", "relay_audit_unknown{", `outbox="` + r.database() + `.outbox"`, `against="inbox ` + r.database() + `.processed_messages"`, "relay_audit_success_timestamp_seconds{"} {
		if !strings.Contains(text, want) {
			t.Errorf("the textfile has no %s:\n%s", want, text)
		}
	}
	r.run("audit").wantFound(t, 0) // all of that is in the grace
	r.exec("DELETE FROM processed_messages WHERE message_id = 'phantom'")

	s = audit("--republish").wantFound(t, 3, "missing 00000000000b", "missing 00000000000c", "missing 00000000000d")
	if s.Republished != 3 {
		t.Errorf("got %+v", s)
	}
	sent := r.take(0)
	order := map[string][]string{}
	for _, d := range sent {
		order[d.RoutingKey] = append(order[d.RoutingKey], d.MessageId)
		_, gtid := d.Headers["gtid"]
		_, sequence := d.Headers["sequence"]
		if d.Headers["replayed"] != true || gtid || sequence || d.Type != "order.placed" || d.ContentType != "application/json" || d.AppId != "relay" {
			t.Errorf("message %s has %+v", d.MessageId, d)
		}
	}
	if diff := cmp.Diff(map[string][]string{"7": {idText(12), idText(11)}, "8": {idText(13)}}, order); diff != "" {
		t.Errorf("sent again (-want +got):\n%s", diff)
	}
	r.process("UTC_TIMESTAMP(6)", messageIDs(sent)...)
	audit().wantFound(t, 0)
}

// TestAuditIDs: ids of every kind are the same in the table and in the inbox,
// and only those: not what a collation or a number takes for the same.
func TestAuditIDs(t *testing.T) { onEach(t, testAuditIDs) }

func testAuditIDs(t *testing.T, on source) {
	r := on.rig(t)
	r.inbox()
	for kind, tt := range map[string]struct{ ids, texts, near []string }{
		"BINARY(16)":                       {[]string{"x'00'", "x'ff00'", "x'0123456789abcdef0123456789abcdef'"}, []string{"00000000-0000-0000-0000-000000000000", "ff000000-0000-0000-0000-000000000000", "01234567-89ab-cdef-0123-456789abcdef"}, []string{"FF000000-0000-0000-0000-000000000000", "ff00"}},
		"BINARY(20)":                       {[]string{"x'01'"}, []string{"01" + strings.Repeat("0", 38)}, []string{"01"}},
		"VARBINARY(16)":                    {[]string{"x'01'", "x'0100'", "x'ff'"}, []string{"01", "0100", "ff"}, []string{"FF"}},
		"CHAR(36) CHARACTER SET utf8mb4":   {[]string{"'b'", "'B1'", "'ä'"}, []string{"b", "B1", "ä"}, []string{"B", "b1", "a", "b "}},
		"VARCHAR(40) CHARACTER SET latin1": {[]string{"'ö'", "'z'"}, []string{"ö", "z"}, []string{"o", "Z", "\xf6"}},
		"BIGINT UNSIGNED":                  {[]string{"18446744073709551615", "9007199254740993", "9007199254740992", "2", "10"}, []string{"18446744073709551615", "9007199254740993", "9007199254740992", "2", "10"}, []string{"9007199254740991", "02", "x", "18446744073709551616"}},
		"INT":                              {[]string{"-2147483648", "0", "5"}, []string{"-2147483648", "0", "5"}, []string{"abc", "-0"}},
	} {
		r.exec("DROP TABLE outbox", "DELETE FROM processed_messages",
			"CREATE TABLE outbox (id "+kind+" PRIMARY KEY, aggregate_id BIGINT, topic VARCHAR(9), payload JSON, created_at DATETIME(6))")
		for _, id := range tt.ids {
			r.exec("INSERT INTO outbox VALUES (" + id + ", 1, 't', '{}', UTC_TIMESTAMP(6))")
		}
		r.process("UTC_TIMESTAMP(6)", tt.texts...)
		r.run("audit", "--grace", "0s").wantFound(t, 0)
		r.process("UTC_TIMESTAMP(6)", tt.near...)
		r.exec(fmt.Sprintf("DELETE FROM processed_messages WHERE message_id = x'%x'", tt.texts[0]))
		got := r.run("audit", "--grace", "0s")
		got.want(t, 3)
		lines, s := findings(t, got)
		if s.Missing != 1 || s.Unknown != len(tt.near) || !strings.Contains(lines, "missing "+strings.TrimPrefix(tt.texts[0], "00000000-0000-0000-0000-")) {
			t.Errorf("%s: missing %d, unknown %d, want 1 and %d:\n%s", kind, s.Missing, s.Unknown, len(tt.near), got.stdout)
		}
	}
}

// TestAuditUnnamed: rows without an id, and with one that is no text, cannot be
// sent, so they are missing, whatever has no id on the other side; and rows without
// a creation time are counted, until they have one by the statement that is told.
func TestAuditUnnamed(t *testing.T) { onEach(t, testAuditUnnamed) }

func testAuditUnnamed(t *testing.T, on source) {
	r := on.rig(t)
	r.inbox()
	r.exec("DROP TABLE outbox", "CREATE TABLE outbox (id VARCHAR(60) CHARACTER SET cp1251 UNIQUE, aggregate_id VARCHAR(40) NOT NULL, topic VARCHAR(100) NOT NULL, payload TEXT, created_at DATETIME(6), KEY (created_at))")
	row := func(id string) string { return "(" + id + ", 'x', 't', '{}', UTC_TIMESTAMP(6) - INTERVAL 10 MINUTE)" }
	r.exec("INSERT INTO outbox VALUES " + row("''"))
	got := r.run("audit")
	if s := got.wantFound(t, 3, "missing "); s.Missing != 1 {
		t.Errorf("got %+v", s)
	}
	got.want(t, 3, "type the same with --republish")
	got.oneLine(t)
	r.exec("INSERT INTO outbox VALUES " + row("NULL") + ", " + row("NULL") + ", " + row("x'98'") + ", " + row("'a'"))
	r.process("UTC_TIMESTAMP(6) - INTERVAL 6 MINUTE", "", "a")
	if s := r.run("audit").wantFound(t, 3, "unknown ", "missing  *3", "missing \ufffd"); s.Missing != 4 || s.Unknown != 1 || s.Rows != 5 || s.Messages != 2 {
		t.Errorf("got %+v", s)
	}
	r.declare("x-consistent-hash", false)
	got = r.run("audit", "--republish")
	if s := got.wantFound(t, 65, "unknown ", "missing  *3", "missing \ufffd", "bad "); s.Bad != 1 || s.Republished != 0 {
		t.Errorf("got %+v", s)
	}
	got.oneLine(t)

	r.exec("DELETE FROM outbox WHERE id IS NULL OR id <> 'a'")
	got = r.run("audit")
	got.wantFound(t, 3, "unknown ")
	got.want(t, 3, "type relay explain ID")
	got.oneLine(t)
	r.exec("DELETE FROM processed_messages WHERE message_id = ''", "INSERT INTO outbox VALUES ('b', 'x', 't', '{}', NULL)")
	got = r.run("audit")
	if s := got.wantFound(t, 3); s.Rows != 1 || s.Undated != 1 {
		t.Errorf("got %+v", s)
	}
	got.oneLine(t)
	statement := regexp.MustCompile("type: (UPDATE .*)").FindStringSubmatch(got.stderr)
	if statement == nil {
		t.Fatalf("no statement in %s", got.stderr)
	}
	r.exec(statement[1])
	if s := r.run("audit", "--grace", "0s").wantFound(t, 3, "missing b"); s.Rows != 2 || s.Undated != 0 {
		t.Errorf("got %+v", s)
	}
}

// TestAuditRefuses: each with its exit code, and in one line what to type.
func TestAuditRefuses(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inbox()
	r.exec("CREATE TABLE other (id INT)", "CREATE TABLE untimed (id CHAR(36) PRIMARY KEY, aggregatetype VARCHAR(9), aggregateid VARCHAR(9), type VARCHAR(9), payload JSON)")
	classic := r.exchange + ".classic"
	r.bindQueue(r.exchange, classic, "classic")
	wrong := mustDSN(t, r.dsn)
	wrong.Passwd = "hunter2-wrong"
	denied := relaytest.Name(t)
	r.exec("CREATE USER " + denied + " IDENTIFIED BY '" + secret + "'")
	t.Cleanup(func() { r.exec("DROP USER " + denied) })
	without := mustDSN(t, r.dsn)
	without.User = denied
	for _, tt := range []struct {
		name string
		args string
		code int
		text string
	}{
		{"a window of no length", "--window 0s", 64, "ends before it begins"},
		{"a window that ends before it begins", "--since 2026-01-02T00:00:00Z --until 2026-01-01T00:00:00Z", 64, "before it begins at 2026-01-02T00:00:00Z"},
		{"all of it in the grace", "--since " + time.Now().UTC().Add(-time.Minute).Format(time.RFC3339), 64, "--grace"},
		{"no time", "--since yesterday", 64, "type: --since 2"},
		{"a time before all others", "--since 0001-01-01T00:00:00Z", 64, "type: --since 1970-01-01T00:00:00Z"},
		{"an end before all others", "--until 0001-01-01T00:00:00Z", 64, "before 1970"},
		{"grace below 0", "--grace -1s", 64, "--grace 5m"},
		{"two other sides", "--inbox-dsn u@tcp(h:1)/d --audit-queue a", 64, "type one of them"},
		{"a queue and the table of an inbox", "--inbox-table processed_messages --audit-queue a", 64, "--inbox-table and --audit-queue"},
		{"a queue against itself", "--audit-queue b --audit-queue a --against-queue a", 64, "type: --audit-queue b --against-queue"},
		{"the shadow against itself", "--against-queue " + r.exchange + ".shadow", 64, "both sides"},
		{"by without against", "--by message_id", 64, "--against-queue"},
		{"by what", "--against-queue a --by body", 64, "header:NAME"},
		{"against and republish", "--against-queue a --republish", 64, "leave one of them away"},
		{"no DSN", "--inbox-dsn nonsense", 64, "not of the form"},
		{"no database", "--inbox-dsn u@tcp(h:1)/", 64, "--inbox-table billing.processed_messages"},
		{"an inbox that cannot be reached", "--inbox-dsn relay:hunter2-x@tcp(127.0.0.1:1)/billing", 75, "127.0.0.1:1"},
		{"an inbox that takes no such password", "--inbox-dsn " + wrong.FormatDSN(), 78, "--inbox-password-file"},
		{"an inbox without the privilege", "--inbox-dsn " + without.FormatDSN(), 78, "GRANT SELECT ON"},
		{"an inbox that is not there", "--inbox-table none", 78, "CREATE TABLE IF NOT EXISTS `none`"},
		{"an inbox with other columns", "--inbox-table other", 78, "processed_at"},
		{"an outbox without times", "--table untimed", 78, "ADD COLUMN created_at"},
		{"no outbox", "--table none", 78, "relay schema sql"},
		{"no queue", "--audit-queue none", 78, "--type stream"},
		{"a queue, and no management API", "--audit-queue " + classic + " --amqp-management-url http://127.0.0.1:1", 78, "management API"},
		{"a textfile nowhere", "--textfile /no/such/relay.prom", 78, "--collector.textfile.directory"},
		{"a textfile that is a directory", "--textfile " + t.TempDir(), 78, "relay.prom"},
	} {
		got := r.run(append([]string{"audit"}, strings.Fields(tt.args)...)...)
		if got.code != tt.code || !strings.Contains(got.stderr, tt.text) {
			t.Errorf("%s: exit code %d, want %d with %q:\n%s", tt.name, got.code, tt.code, tt.text, got.stderr)
		}
		got.oneLine(t)
	}
}

// TestAuditKilled: an audit that is killed while it reads leaves no file, and
// the textfile as the last one wrote it; another one at the same time finds the
// same.
func TestAuditKilled(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inbox()
	r.insert(r.db, 1, 3)
	r.process("UTC_TIMESTAMP(6)", idText(1), idText(3))
	spool, textfile := t.TempDir(), filepath.Join(t.TempDir(), "relay.prom")
	via := mustDSN(t, r.dsn)
	link := relaytest.NewProxy(t, via.Addr)
	via.Addr = link.Addr()
	args := []string{"--grace", "0s", "--inbox-dsn", via.FormatDSN(), "--textfile", textfile}
	r.run(append([]string{"audit"}, args...)...).wantFound(t, 3, "missing 000000000002")
	before := string(mustRead(t, textfile))

	reads := make(chan struct{})
	var once sync.Once
	link.Watch(relaytest.Up, func(b []byte) {
		if bytes.Contains(b, []byte("processed_at >=")) {
			once.Do(func() { link.Stall(relaytest.Down); close(reads) })
		}
	})
	d := r.startWith([]string{"TMPDIR=" + spool}, "audit", args...)
	select {
	case <-reads:
	case <-time.After(patience):
		t.Fatal("the audit does not ask for the inbox")
	}
	if err := d.Kill(); err != nil {
		t.Fatal(err)
	}
	link.Flow(relaytest.Down)
	if left, err := os.ReadDir(spool); err != nil || len(left) > 0 {
		t.Errorf("files left: %v, %v", left, err)
	}
	if after := string(mustRead(t, textfile)); after != before {
		t.Errorf("the textfile was changed:\n%s", after)
	}
	var both sync.WaitGroup
	for range 2 {
		both.Go(func() { r.run(append([]string{"audit"}, args...)...).wantFound(t, 3, "missing 000000000002") })
	}
	both.Wait()
	if left, err := os.ReadDir(filepath.Dir(textfile)); err != nil || len(left) != 1 {
		t.Errorf("beside the textfile: %v, %v", left, err)
	}
}

// TestAuditExamples runs those of the help, at the rig's addresses.
func TestAuditExamples(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.inbox()
	shadow := r.exchange + ".shadow"
	r.bindQueue(r.exchange, r.exchange+".audit", "stream")
	r.bindQueue(shadow, shadow, "stream")
	r.bindQueue(r.exchange+".legacy", r.exchange+".legacy.q", "stream")
	both := amqp.Publishing{MessageId: "a", Headers: amqp.Table{"created_at": time.Now().UTC().Add(-time.Hour).Format(time.RFC3339)}}
	r.send(r.exchange+".audit", oldMessage) // an empty one is waited for
	r.sendTo(shadow, "1", both)
	r.sendTo(r.exchange+".legacy", "1", both)
	help := run(t, nil, "audit", "--help").stdout
	_, text, _ := strings.Cut(help, "Examples:\n")
	text, _, _ = strings.Cut(text, "\n\n")
	text = strings.ReplaceAll(text, "\\\n", " ")
	n := 0
	for example := range strings.Lines(text) {
		for old, here := range map[string]string{
			"'relay:pw@tcp(127.0.0.1:3306)/shop'": r.dsn, "'relay:pw@tcp(127.0.0.1:3306)/billing'": r.dsn, "amqp://relay:pw@127.0.0.1:5672/": r.amqp,
			"outbox.audit": r.exchange + ".audit", "legacy.q": r.exchange + ".legacy.q",
		} {
			example = strings.ReplaceAll(example, old, here)
		}
		words := strings.Fields(example)
		if len(words) < 2 || words[0] != "relay" || regexp.MustCompile(`127\.0\.0\.1:(3306|5672)`).MatchString(example) {
			t.Fatalf("no example: %q", example)
		}
		n++
		var hours []string
		if strings.Contains(example, "--against-queue") {
			hours = []string{"hour "}
		}
		run(t, []string{"RELAY_EXCHANGE=" + r.exchange, "RELAY_WINDOW=4096"}, words[1:]...).wantFound(t, 0, hours...)
	}
	if n != 3 {
		t.Errorf("%d examples", n)
	}
}
