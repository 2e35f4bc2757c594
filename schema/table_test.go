package schema

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// columns reads "name type" pairs, the type as SHOW CREATE TABLE prints it.
// Text columns are utf8mb4 but for those whose type ends in a character set.
func columns(list ...string) []Column {
	var cs []Column
	for _, text := range list {
		name, columnType, _ := strings.Cut(text, " ")
		columnType, charset, ok := strings.Cut(columnType, " charset ")
		if !ok {
			charset = "utf8mb4"
		}
		dataType, size, _ := strings.Cut(columnType, "(")
		dataType, _, _ = strings.Cut(dataType, " ")
		octets := 0
		switch {
		case strings.HasPrefix(size, "16)"):
			octets = 16
		case size != "":
			octets = 144
		}
		cs = append(cs, NewColumn(name, dataType, columnType, octets, charset))
	}
	return cs
}

// with replaces the column of the same name, or appends.
func with(list []string, column string) []string {
	name, _, _ := strings.Cut(column, " ")
	var out []string
	for _, c := range list {
		if !strings.HasPrefix(c, name+" ") {
			out = append(out, c)
		}
	}
	return append(out, column)
}

var (
	relayColumns = []string{
		"id binary(16)", "aggregate_id bigint", "topic varchar(120)", "payload json",
		"status enum('pending','published')", "created_at datetime(6)", "published_at datetime(6)",
	}
	debeziumColumns  = []string{"id char(36)", "aggregatetype varchar(255)", "aggregateid varchar(255)", "type varchar(255)", "payload json"}
	eventuateColumns = []string{
		"id varchar(767)", "destination varchar(1000)", "headers longtext", "payload longtext",
		"published smallint", "message_partition smallint", "creation_time bigint",
	}
)

func newTable(tb testing.TB, opts Options, list ...string) *Table {
	tb.Helper()
	table, err := NewTable("shop", "outbox", columns(list...), opts)
	if err != nil {
		tb.Fatal(err)
	}
	return table
}

// served lists which column serves which role.
func served(t *Table) string {
	var list []string
	for r := range Role(Roles) {
		if c, ok := t.Column(r); ok {
			list = append(list, r.String()+"="+c.Name)
		}
	}
	return strings.Join(list, " ")
}

func TestNewTable(t *testing.T) {
	tests := []struct {
		name    string
		columns []string
		layout  Layout
		chosen  string
		want    Layout
		served  string
	}{
		{"relay", relayColumns, Auto, "", Relay, "id=id aggregate_id=aggregate_id topic=topic payload=payload created_at=created_at status=status"},
		{"no layout named", relayColumns, "", "", Relay, "id=id aggregate_id=aggregate_id topic=topic payload=payload created_at=created_at status=status"},
		{"relay with everything", append(relayColumns[:7:7], "aggregate_type varchar(9)", "event_type enum('a')", "headers json", "sequence bigint"), Auto, "", Relay,
			"id=id aggregate_id=aggregate_id aggregate_type=aggregate_type event_type=event_type topic=topic payload=payload headers=headers version=sequence created_at=created_at status=status"},
		{"version before sequence", append(relayColumns[:7:7], "sequence bigint", "version int"), Auto, "", Relay,
			"id=id aggregate_id=aggregate_id topic=topic payload=payload version=version created_at=created_at status=status"},
		{"names in another case", []string{"ID bigint", "Aggregate_ID bigint", "TOPIC text", "Payload blob", "Created_At timestamp"}, Auto, "", Relay,
			"id=ID aggregate_id=Aggregate_ID topic=TOPIC payload=Payload created_at=Created_At"},
		{"debezium", debeziumColumns, Auto, "", Debezium, "id=id aggregate_id=aggregateid aggregate_type=aggregatetype event_type=type payload=payload"},
		{"debezium with a time", append(debeziumColumns[:5:5], "timestamp timestamp(6)", "tracingspancontext text"), Debezium, "", Debezium,
			"id=id aggregate_id=aggregateid aggregate_type=aggregatetype event_type=type payload=payload created_at=timestamp trace=tracingspancontext"},
		{"eventuate", eventuateColumns, Auto, "", Eventuate, "id=id topic=destination payload=payload headers=headers created_at=creation_time status=published"},
		{"eventuate with ids of the database", append([]string{"dbid bigint"}, eventuateColumns...), Auto, "", Eventuate, "id=dbid topic=destination payload=payload headers=headers created_at=creation_time status=published"},
		{"single columns", []string{"event_id bigint", "aggregate_id bigint", "topic text", "body json", "created_at datetime"}, Auto, "id=event_id,payload=body", Relay,
			"id=event_id aggregate_id=aggregate_id topic=topic payload=body created_at=created_at"},
		{"a renamed column, before", relayColumns, Auto, "payload=body|payload", Relay, "id=id aggregate_id=aggregate_id topic=topic payload=payload created_at=created_at status=status"},
		{"a renamed column, behind", append(relayColumns[:7:7], "body json"), Auto, "payload=body|payload", Relay, "id=id aggregate_id=aggregate_id topic=topic payload=body created_at=created_at status=status"},
		{"a column against the layout's", append(debeziumColumns[:5:5], "subject varchar(9)"), Debezium, "topic=subject", Debezium,
			"id=id aggregate_id=aggregateid aggregate_type=aggregatetype event_type=type topic=subject payload=payload"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			chosen, err := ParseColumns(tt.chosen)
			if err != nil {
				t.Fatal(err)
			}
			table := newTable(t, Options{Layout: tt.layout, Columns: chosen}, tt.columns...)
			if table.Layout != tt.want {
				t.Errorf("got layout %s, want %s", table.Layout, tt.want)
			}
			if diff := cmp.Diff(tt.served, served(table)); diff != "" {
				t.Errorf("columns (-want +got):\n%s", diff)
			}
			if table.String() != "shop.outbox" || table.Zone() != time.UTC {
				t.Errorf("got %s in %s", table, table.Zone())
			}
		})
	}
}

func TestNewTableRefuses(t *testing.T) {
	const hint = "; name another with --columns role=column, or see: relay schema sql"
	tests := []struct {
		name    string
		columns []string
		opts    Options
		want    string // the error behind "schema: table is not an outbox: "
	}{
		{"one column missing", relayColumns[1:], Options{},
			"shop.outbox lacks the column id of layout relay; it has aggregate_id, topic, payload, status, created_at, published_at" + hint},
		{"two missing", []string{"id int", "aggregate_id int", "topic text"}, Options{Layout: Relay},
			"shop.outbox lacks the column payload, created_at of layout relay; it has id, aggregate_id, topic" + hint},
		{"nearest layout named", debeziumColumns[1:], Options{},
			"shop.outbox lacks the column id of layout debezium; it has aggregatetype, aggregateid, type, payload" + hint},
		{"another layout asked for", relayColumns, Options{Layout: Debezium},
			"shop.outbox lacks the column aggregateid, aggregatetype, type of layout debezium; it has id, aggregate_id, topic, payload, status, created_at, published_at" + hint},
		{"no columns", nil, Options{Layout: Eventuate},
			"shop.outbox lacks the column id, destination, payload, headers of layout eventuate; it has " + hint},
		{"a chosen column missing", relayColumns, Options{Layout: Relay, Columns: map[Role]string{RolePayload: "body"}},
			"shop.outbox lacks the column body of layout relay; it has id, aggregate_id, topic, payload, status, created_at, published_at" + hint},
		{"a chosen column for what need not be", relayColumns, Options{Layout: Relay, Columns: map[Role]string{RoleHeaders: "meta"}},
			"shop.outbox lacks the column meta of layout relay; it has id, aggregate_id, topic, payload, status, created_at, published_at" + hint},
		{"id of a time", with(relayColumns, "id datetime"), Options{}, "shop.outbox: column id is datetime, which cannot hold the id; type: ALTER TABLE shop.outbox MODIFY id VARCHAR(255) NOT NULL; or name another column: --columns id=NAME"},
		{"aggregate of a decimal", with(relayColumns, "aggregate_id decimal(9,2)"), Options{},
			"shop.outbox: column aggregate_id is decimal(9,2), which cannot hold the aggregate_id; type: ALTER TABLE shop.outbox MODIFY aggregate_id VARCHAR(255) NOT NULL; or name another column: --columns aggregate_id=NAME"},
		{"topic of bytes", with(relayColumns, "topic varbinary(16)"), Options{}, "shop.outbox: column topic is varbinary(16), which cannot hold the topic; type: ALTER TABLE shop.outbox MODIFY topic VARCHAR(255) NOT NULL; or name another column: --columns topic=NAME"},
		{"payload of an integer", with(relayColumns, "payload int"), Options{}, "shop.outbox: column payload is int, which cannot hold the payload; type: ALTER TABLE shop.outbox MODIFY payload LONGTEXT; or name another column: --columns payload=NAME"},
		{"created_at of text", with(relayColumns, "created_at varchar(30)"), Options{}, "shop.outbox: column created_at is varchar(30), which cannot hold the created_at; type: ALTER TABLE shop.outbox MODIFY created_at DATETIME(6); or name another column: --columns created_at=NAME"},
		{"headers of bytes", append(relayColumns[:7:7], "headers blob"), Options{}, "shop.outbox: column headers is blob, which cannot hold the headers; type: ALTER TABLE shop.outbox MODIFY headers LONGTEXT; or name another column: --columns headers=NAME"},
		{"a set of types", with(debeziumColumns, "type set('a','b')"), Options{},
			"shop.outbox: column type is set('a','b'), which cannot hold the event_type; type: ALTER TABLE shop.outbox MODIFY type VARCHAR(255); or name another column: --columns event_type=NAME"},
		{"an unknown character set", with(relayColumns, "topic varchar(120) charset klingon"), Options{},
			"shop.outbox: column topic has the character set klingon, which is none of text that the relay knows; type: ALTER TABLE shop.outbox CONVERT TO CHARACTER SET utf8mb4"},
		{"labels of bytes", with(relayColumns, "status enum('pending') charset binary"), Options{},
			"shop.outbox: column status has the character set binary, which is none of text that the relay knows; type: ALTER TABLE shop.outbox CONVERT TO CHARACTER SET utf8mb4"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := NewTable("shop", "outbox", columns(tt.columns...), tt.opts)
			if !errors.Is(err, ErrTable) {
				t.Fatalf("got error %v, want %v", err, ErrTable)
			}
			if diff := cmp.Diff("schema: table is not an outbox: "+tt.want, err.Error()); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseLayout(t *testing.T) {
	for _, name := range []string{"auto", "relay", "debezium", "eventuate"} {
		if l, err := ParseLayout(name); string(l) != name || err != nil {
			t.Errorf("%s: got %q, %v", name, l, err)
		}
	}
	for _, name := range []string{"", "Relay", "maxwell"} {
		if _, err := ParseLayout(name); err == nil || !strings.Contains(err.Error(), "none of auto, relay, debezium, eventuate") {
			t.Errorf("%q: got error %v", name, err)
		}
	}
}

func TestParseColumns(t *testing.T) {
	tests := []struct {
		text string
		want map[Role]string // nil: an error
	}{
		{"", map[Role]string{}},
		{"id=event_id", map[Role]string{RoleID: "event_id"}},
		{"id=event_id, payload=body", map[Role]string{RoleID: "event_id", RolePayload: "body"}},
		{"created_at=a=b", map[Role]string{RoleCreatedAt: "a=b"}},
		{"payload=body|payload", map[Role]string{RolePayload: "body|payload"}},
		{"id", nil}, {"id=", nil}, {"=x", nil}, {"name=x", nil}, {"ID=x", nil}, {"id=x,", nil}, {"id=x,,topic=y", nil}, {" ", nil},
	}
	for _, tt := range tests {
		got, err := ParseColumns(tt.text)
		if diff := cmp.Diff(tt.want, got); diff != "" || (err == nil) != (tt.want != nil) {
			t.Errorf("%q: error %v (-want +got):\n%s", tt.text, err, diff)
		}
		if err != nil && !strings.Contains(err.Error(), "with the roles id, aggregate_id, aggregate_type, event_type, topic, payload, headers, version, created_at, status, trace") {
			t.Errorf("%q: error %v does not name the roles", tt.text, err)
		}
	}
}
