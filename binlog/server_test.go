package binlog_test

import (
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/schema"
)

// TestSeedTable: the table that the relay prints is one that it takes.
func TestSeedTable(t *testing.T) { onEach(t, testSeedTable) }

func testSeedTable(t *testing.T, on flavor) {
	r := on.rig(t, schema.SQL)
	server := r.open()
	table := r.table(server)
	if table.Layout != schema.Relay || table.String() != server.TableName() || len(table.Columns) != 7 {
		t.Errorf("got %s of layout %s with %d columns", table, table.Layout, len(table.Columns))
	}
	payload := schema.Column{Name: "payload", Type: "json", Kind: schema.JSON}
	if r.mariadb() {
		payload = schema.Column{Name: "payload", Type: "longtext", Kind: schema.Text, Charset: "utf8mb4", Checked: true}
	}
	for role, want := range map[schema.Role]schema.Column{
		schema.RoleID:          {Name: "id", Type: "binary(16)", Kind: schema.Binary, Length: 16},
		schema.RoleAggregateID: {Name: "aggregate_id", Type: r.pick("bigint", "bigint(20)"), Kind: schema.Integer},
		schema.RoleTopic:       {Name: "topic", Type: "varchar(120)", Kind: schema.Text, Charset: "utf8mb4"},
		schema.RolePayload:     payload,
		schema.RoleStatus:      {Name: "status", Type: "enum('pending','published')", Kind: schema.Enum, Charset: "utf8mb4", Values: []string{"pending", "published"}},
		schema.RoleCreatedAt:   {Name: "created_at", Type: "datetime(6)", Kind: schema.Time},
	} {
		got, _ := table.Column(role)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", role, diff)
		}
	}
	if retention, err := server.Retention(r.ctx); err != nil || retention < time.Hour {
		t.Errorf("retention %v, %v", retention, err)
	}
}

// randomSet is a set of GTIDs on two servers, with and without tags, and with
// gaps, as text.
func randomSet(random *rand.Rand) string {
	var parts []string
	for _, server := range []string{"11111111-2222-3333-4444-555555555555", "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"} {
		for _, tag := range []string{"", ":blue", ":_r3d"} {
			for range random.IntN(3) {
				first := 1 + random.IntN(8)
				interval := strconv.Itoa(first)
				if n := random.IntN(4); n > 0 {
					interval += "-" + strconv.Itoa(first+n)
				}
				parts = append(parts, server+tag+":"+interval)
			}
		}
	}
	random.Shuffle(len(parts), func(i, k int) { parts[i], parts[k] = parts[k], parts[i] })
	return strings.Join(parts, ",")
}

// TestGTIDSetAsServer compares sets with what the server makes of them.
func TestGTIDSetAsServer(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t, "")
	r.exec(schema.SQL)
	server := r.open()
	for range 200 {
		textA, textB := randomSet(random), randomSet(random)
		a, b := parse(r, textA), parse(r, textB)
		if want := strings.ReplaceAll(r.text("SELECT GTID_SUBTRACT(?, '')", textA), "\n", ""); a.String() != want {
			t.Errorf("%s: got %s, want %s", textA, a, want)
		}
		rest, err := server.Subtract(r.ctx, a, b)
		if err != nil {
			t.Fatal(err)
		}
		if subset := r.text("SELECT GTID_SUBSET(?, ?)", textA, textB) == "1"; subset != b.Contains(a) || subset != rest.IsEmpty() {
			t.Errorf("%s in %s: got %t, rest %s, want %t", a, b, b.Contains(a), rest, subset)
		}
		common, err := server.Subtract(r.ctx, a, rest)
		if err != nil || common.Count()+rest.Count() != a.Count() || !a.Contains(common) || !b.Contains(common) {
			t.Errorf("%s and %s: common %s of %d, rest %s of %d, %v", a, b, common, common.Count(), rest, rest.Count(), err)
		}
	}
}

// TestStreamAltered: without the columns' names in the log, the table's
// definition is read again after each ALTER.
func TestStreamAltered(t *testing.T) {
	t.Parallel()
	r := newRig(t, schema.SQL)
	server := r.open()
	stream := r.follow(server)
	for _, ddl := range []string{
		"DO 0",
		"ALTER TABLE outbox ADD note INT NOT NULL DEFAULT 5 FIRST",
		"ALTER TABLE outbox MODIFY payload JSON NOT NULL FIRST, DROP note",
		"ALTER TABLE outbox ADD headers JSON, MODIFY payload TEXT",
		"RENAME TABLE outbox TO old, old TO outbox",
	} {
		r.exec(ddl)
		r.insert(newID(), `{"a": 1}`)
		if e := r.events(stream, 1)[0]; string(e.Payload) != `{"a": 1}` || e.Topic != "orders" || e.AggregateID != "7" {
			t.Errorf("after %s: got %+v", ddl, e)
		}
	}
	from := r.executed(server)
	r.insert(newID(), `{"a": 1}`)
	r.exec("ALTER TABLE outbox DROP headers")
	wantNext(r, r.followFrom(server, from), binlog.ErrChanged, "(ALTER TABLE outbox DROP headers) changed the table later")
}

// TestStreamMinimalImage: a column that is not in the row image is not NULL.
func TestStreamMinimalImage(t *testing.T) { onEach(t, testStreamMinimalImage) }

func testStreamMinimalImage(t *testing.T, on flavor) {
	r := on.rig(t, schema.SQL)
	server := r.open()
	stream := r.follow(server)
	conn := r.conn("SET SESSION binlog_row_image = MINIMAL")
	r.on(conn, "INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (0x01, 1, 't', '{}', NOW(6))")
	if e := r.events(stream, 1)[0]; e.ID != "01000000-0000-0000-0000-000000000000" {
		t.Errorf("got event %s", e.ID)
	}
	r.exec("ALTER TABLE outbox ALTER topic SET DEFAULT 'orders'")
	r.on(conn, "INSERT INTO outbox (id, aggregate_id, payload) VALUES (0x02, 1, '{}')")
	bad := r.events(stream, 1)[0].Bad
	if bad == nil || bad.ID != "02000000-0000-0000-0000-000000000000" || !strings.HasPrefix(bad.GTID, server.UUID) ||
		bad.Reason != "column topic is not in the row image: SET GLOBAL binlog_row_image = FULL" {
		t.Errorf("got %+v", bad)
	}
}

// TestStreamIdle: what the server sends when there is nothing to send.
func TestStreamIdle(t *testing.T) { onEach(t, testStreamIdle) }

func testStreamIdle(t *testing.T, on flavor) {
	r := on.rig(t, schema.SQL)
	server := r.open()
	stream := r.follow(server)
	timer := time.NewTimer(6 * time.Second) // a heartbeat comes every five
	defer timer.Stop()
	<-timer.C
	r.insert(newID(), "{}")
	r.events(stream, 1)
}
