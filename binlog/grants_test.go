package binlog_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/schema"
)

const (
	grantSlave  = "REPLICATION SLAVE ON *.*"
	grantClient = "REPLICATION CLIENT ON *.*"
)

var grantStatement = regexp.MustCompile(`GRANT [A-Z ]+ ON \S+ TO '[^']*'@'[^']*'`)

// mend executes the GRANT statement that an error holds, as it is printed.
func mend(r *rig, err error) {
	r.Helper()
	wantError(r, err, binlog.ErrGrant, "; type: GRANT ")
	if strings.Contains(fmt.Sprint(err), "secret-pw") {
		r.Errorf("%v holds the password", err)
	}
	r.exec(grantStatement.FindString(fmt.Sprint(err)))
}

// clientHost is how the server names this machine.
func clientHost(r *rig) string { return r.text("SELECT SUBSTRING_INDEX(USER(), '@', -1)") }

// TestGrants: each privilege that is missing is named, with the statement that
// mends it, whatever the account's host.
func TestGrants(t *testing.T) { onEach(t, testGrants) }

func testGrants(t *testing.T, on flavor) {
	tests := []struct {
		name   string
		grants []string // with %s for the database
		unmet  string
	}{
		{"none but on another table", []string{"SELECT ON %s.other"}, "table"},
		{"SELECT", []string{"INSERT ON %s.outbox", grantSlave, grantClient}, "grant SELECT"},
		{"SELECT on some columns", []string{"SELECT (id, aggregate_id, topic, payload, created_at) ON %s.outbox", grantSlave, grantClient}, "grant SELECT"},
		{"REPLICATION SLAVE", []string{"SELECT ON %s.*", grantClient}, "grant REPLICATION SLAVE"},
		{"REPLICATION CLIENT", []string{"SELECT ON *.*", grantSlave}, "grant REPLICATION CLIENT"},
		{"nothing", []string{"SELECT ON %s.outbox", grantSlave, grantClient}, ""},
	}
	for _, tt := range tests {
		for _, anyHost := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s, any host %t", tt.name, anyHost), func(t *testing.T) {
				t.Parallel()
				r := on.rig(t, schema.SQL)
				r.exec("CREATE TABLE other (id INT)")
				host := "%"
				if !anyHost {
					host = clientHost(r)
				}
				database := r.text("SELECT DATABASE()")
				var grants []string
				for _, g := range tt.grants {
					grants = append(grants, strings.ReplaceAll(g, "%s", database))
				}
				_, dsn := r.user(host, grants...)
				server := r.open(as(dsn))
				for tries := 0; ; tries++ {
					list := unmet(r, server)
					for i := len(list) - 1; i >= 0; i-- {
						if list[i].Advice {
							list = append(list[:i], list[i+1:]...)
						}
					}
					if want := r.pick(tt.unmet, strings.Replace(tt.unmet, "REPLICATION CLIENT", "BINLOG MONITOR", 1)); tries == 0 && names(list) != want {
						t.Errorf("unmet: got %s, want %s", names(list), want)
					}
					if len(list) == 0 {
						break
					}
					if tries == 3 {
						t.Fatalf("still unmet: %s", names(list))
					}
					for _, q := range list {
						mend(r, q.Err())
					}
					server = r.open(as(dsn)) // a global privilege is for new connections
				}
				r.insert(newID(), "{}")
				if got := r.backfill(server, "", ""); len(got) != 1 {
					t.Errorf("backfill: got %d rows, want 1", len(got))
				}
			})
		}
	}
}

// TestGrantsWhereUsed: the same without a check before.
func TestGrantsWhereUsed(t *testing.T) { onEach(t, testGrantsWhereUsed) }

func testGrantsWhereUsed(t *testing.T, on flavor) {
	r := on.rig(t, schema.SQL)
	name, dsn := r.user(clientHost(r))
	_, err := r.tryOpen(as(dsn))
	mend(r, err)
	server := r.open(as(dsn))
	follow := func() error {
		stream, err := server.Follow(r.ctx, r.executed(server), r.table(server))
		if err == nil {
			stream.Close()
		}
		return err
	}
	mend(r, follow())
	if err := follow(); err != nil {
		t.Error(err)
	}
	r.exec("ALTER USER '" + name + "'@'" + clientHost(r) + "' IDENTIFIED BY 'another'")
	wantError(t, follow(), binlog.ErrAuth, "check the user and password")
}

// TestRefused: what a configuration names and the server has not.
func TestRefused(t *testing.T) { onEach(t, testRefused) }

func testRefused(t *testing.T, on flavor) {
	r := on.rig(t, "CREATE TABLE outbox (id BIGINT PRIMARY KEY, aggregate_id BIGINT, topic TEXT, created_at DATETIME(6))")
	database := r.text("SELECT DATABASE()")
	_, dsn := r.user("%", "SELECT ON *.*", grantSlave)
	tests := []struct {
		name   string
		change func(*binlog.Config)
		want   error
		text   string
	}{
		{"wrong password", func(c *binlog.Config) { c.DSN, c.Password = dsn, "wrong-pw" }, binlog.ErrAuth, "check the user and password"},
		{"wrong password in the DSN", func(c *binlog.Config) { c.DSN = strings.Replace(dsn, "secret-pw", "wrong-pw", 1) }, binlog.ErrAuth, "using password: YES"},
		{"no password", func(c *binlog.Config) { c.DSN = strings.Replace(dsn, ":secret-pw", "", 1) }, binlog.ErrAuth, "using password: NO"},
		{"unknown database", func(c *binlog.Config) { c.DSN = strings.Replace(dsn, database, "nowhere", 1) }, schema.ErrTable, "Unknown database 'nowhere'; check the database"},
		{"unknown database, of MySQL or MariaDB", func(c *binlog.Config) { c.DSN = strings.Replace(dsn, database, "nowhere", 1) }, schema.ErrTable, ": the database server at "},
		{"unknown database of the table", func(c *binlog.Config) { c.Table = "nowhere.outbox" }, schema.ErrTable, r.pick("Unknown database 'nowhere'", "'nowhere.outbox' doesn't exist")},
		{"unknown table", func(c *binlog.Config) { c.Table = "outbax" }, schema.ErrTable, ".outbax' doesn't exist; check --table, or create it: relay schema sql"},
		{"missing column", nil, schema.ErrTable, database + ".outbox lacks the column payload of layout relay; it has id, aggregate_id, topic, created_at"},
		{"chosen column", func(c *binlog.Config) { c.Options.Columns = map[schema.Role]string{schema.RolePayload: "body"} }, schema.ErrTable, "lacks the column body"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if tt.change == nil {
				tt.change = as(dsn)
			}
			server, err := r.tryOpen(tt.change)
			if err == nil {
				_, err = server.Table(r.ctx)
				list := unmet(r, server)
				if len(list) == 0 || fmt.Sprint(list[len(list)-1].Err()) != fmt.Sprint(err) {
					t.Errorf("check: got %v, want %v", list, err)
				}
			}
			wantError(t, err, tt.want, tt.text)
			for _, secret := range []string{"secret-pw", "wrong-pw"} {
				if strings.Contains(fmt.Sprint(err), secret) {
					t.Errorf("%v holds a password", err)
				}
			}
		})
	}
}

// TestConfigParse: what is wrong with a configuration without asking anyone.
func TestConfigParse(t *testing.T) {
	tests := []struct {
		config   binlog.Config
		database string
		table    string
		text     string // of the error
	}{
		{binlog.Config{DSN: "u:pw@tcp(h:1)/shop", Table: "outbox"}, "shop", "outbox", ""},
		{binlog.Config{DSN: "u:pw@tcp(h:1)/shop", Table: "other.events"}, "other", "events", ""},
		{binlog.Config{DSN: "u@tcp(h)/", Table: "other.events"}, "other", "events", ""},
		{binlog.Config{Table: "outbox"}, "", "", "no DSN: give --mysql-dsn"},
		{binlog.Config{DSN: "u:hidden@tcp(h:1)/", Table: "outbox"}, "", "", `the table "outbox" names no database`},
		{binlog.Config{DSN: "u:hidden@tcp(h:1)/shop", Table: ""}, "", "", "names no database"},
		{binlog.Config{DSN: "u:hidden@h:1/shop", Table: "outbox"}, "", "", "is not of the form"},
		{binlog.Config{DSN: "u:hidden@tcp(h:1)", Table: "outbox"}, "", "", "is not of the form"},
		{binlog.Config{DSN: "u:hidden@tcp(h:1)/shop?tls=hidden", Table: "outbox"}, "", "", "is not of the form"},
		{binlog.Config{DSN: "u:hid@den@tcp(h:1)/shop?timeout=x", Table: "outbox"}, "", "", "is not of the form"},
		{binlog.Config{DSN: "mysql://u:hidden@h/shop", Table: "outbox"}, "", "", "is not of the form"},
		{binlog.Config{DSN: "hidden", Table: "outbox"}, "", "", "is not of the form"},
	}
	for _, tt := range tests {
		dsn, database, table, err := tt.config.Parse()
		if tt.text == "" && (err != nil || database != tt.database || table != tt.table || dsn.User != "u") {
			t.Errorf("%+v: got %s.%s, %v", tt.config, database, table, err)
		}
		if tt.text != "" && (err == nil || !strings.Contains(err.Error(), tt.text) || strings.Contains(err.Error(), "hid")) {
			t.Errorf("%s: got error %v, want %q without the password", tt.config.DSN, err, tt.text)
		}
	}
	dsn, _, _, err := binlog.Config{DSN: "u:pw@tcp(h)/shop", Password: "other", Table: "t"}.Parse()
	if err != nil || dsn.Passwd != "other" {
		t.Errorf("got password %q, %v, want the one beside the DSN", dsn.Passwd, err)
	}
}
