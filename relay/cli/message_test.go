package cli_test

import (
	"regexp"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/schema"
)

// message is all of a delivery that the contract's section 5 speaks of.
type message struct {
	Exchange, Key         string
	Body                  string
	Mode                  uint8
	ID, Type, ContentType string
	Timestamp             time.Time
	App                   string
	Headers               amqp.Table
	Rest                  string // of the properties: what else is set
}

func messageOf(d amqp.Delivery) message {
	delete(d.Headers, "x-delivery-count")
	return message{
		Exchange: d.Exchange, Key: d.RoutingKey, Body: string(d.Body), Mode: d.DeliveryMode, ID: d.MessageId, Type: d.Type,
		ContentType: d.ContentType, Timestamp: d.Timestamp.UTC(), App: d.AppId, Headers: d.Headers,
		Rest: d.ContentEncoding + d.CorrelationId + d.ReplyTo + d.Expiration + d.UserId,
	}
}

// oneGTID is the name of one transaction, of MySQL or of MariaDB.
var oneGTID = regexp.MustCompile(`^([0-9a-f-]{36}:[0-9]+|[0-9]+-[0-9]+-[0-9]+)$`)

// wantMessages relays what is in the outbox and compares it.
func (r *rig) wantMessages(want ...message) {
	r.t.Helper()
	before := r.state().GTIDSet
	var got []message
	for _, delivery := range r.relayed() {
		m := messageOf(delivery)
		gtid, _ := m.Headers["gtid"].(string)
		one := r.set(gtid)
		if !oneGTID.MatchString(gtid) || r.set(before).Contains(one) || !r.set(r.executed()).Contains(one) {
			r.t.Errorf("message %s has the gtid %q, which is no transaction of this test", m.ID, gtid)
		}
		delete(m.Headers, "gtid")
		got = append(got, m)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		r.t.Errorf("messages (-want +got):\n%s", diff)
	}
}

func TestMessageOfSeedTable(t *testing.T) { onEach(t, testMessageOfSeedTable) }

func testMessageOfSeedTable(t *testing.T, on source) {
	r := on.rig(t).begun()
	r.exec(`INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES
		(0x0123456789ABCDEF0123456789AB0000, -42, 'order.placed', '{"b":1,"a":"x y","n":[1,2.5,null,true],"é":"<&>"}', '2026-03-01 12:34:56.789012')`)
	r.exec(`INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES
		(0x00000000000000000000000000000000, 9223372036854775807, 't', '{}', '2026-03-01 00:00:00')`)
	payload := r.text("SELECT payload FROM outbox WHERE topic = 'order.placed'")
	r.wantMessages(message{
		Exchange: r.exchange, Key: "-42", Body: payload, Mode: 2,
		ID: "01234567-89ab-cdef-0123-456789ab0000", Type: "order.placed", ContentType: "application/json",
		Timestamp: time.Date(2026, 3, 1, 12, 34, 56, 0, time.UTC), App: "relay",
		Headers: amqp.Table{
			"aggregate_id": "-42", "topic": "order.placed", "created_at": "2026-03-01T12:34:56.789012Z", "sequence": int64(1),
		},
	}, message{
		Exchange: r.exchange, Key: "9223372036854775807", Body: "{}", Mode: 2,
		ID: "00000000-0000-0000-0000-000000000000", Type: "t", ContentType: "application/json",
		Timestamp: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), App: "relay",
		Headers: amqp.Table{
			"aggregate_id": "9223372036854775807", "topic": "t", "created_at": "2026-03-01T00:00:00.000000Z", "sequence": int64(2),
		},
	})
}

// TestMessageOfOptionalColumns: what the table has beside the seed's columns.
func TestMessageOfOptionalColumns(t *testing.T) { onEach(t, testMessageOfOptionalColumns) }

func testMessageOfOptionalColumns(t *testing.T, on source) {
	r := rigOn(t, on.database(t), `CREATE TABLE outbox (id BIGINT PRIMARY KEY, aggregate_id VARCHAR(40) NOT NULL, aggregate_type VARCHAR(40),
		event_type VARCHAR(40), topic VARCHAR(120) NOT NULL, payload TEXT NOT NULL, headers JSON, version INT, created_at DATETIME(6) NOT NULL)`).begun()
	r.exec(`INSERT INTO outbox VALUES (7, 'cart:é', 'cart', 'CartFilled', 'carts', 'plain text é',
		'{"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","tries":3,"gtid":"forged"}', 9, '2026-03-01 01:02:03.000004')`,
		`INSERT INTO outbox VALUES (8, 'b', NULL, NULL, 'carts', '', NULL, NULL, '2026-03-01 01:02:03')`)
	at := time.Date(2026, 3, 1, 1, 2, 3, 0, time.UTC)
	r.wantMessages(message{
		Exchange: r.exchange, Key: "cart:é", Body: "plain text é", Mode: 2, ID: "7", Type: "carts",
		ContentType: "text/plain;charset=utf-8", Timestamp: at, App: "relay",
		Headers: amqp.Table{
			"aggregate_id": "cart:é", "aggregate_type": "cart", "event_type": "CartFilled", "topic": "carts", "version": "9",
			"created_at": "2026-03-01T01:02:03.000004Z", "sequence": int64(1), "tries": int64(3),
			"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		},
	}, message{
		Exchange: r.exchange, Key: "b", Mode: 2, ID: "8", Type: "carts", ContentType: "text/plain;charset=utf-8", Timestamp: at, App: "relay",
		Headers: amqp.Table{"aggregate_id": "b", "topic": "carts", "created_at": "2026-03-01T01:02:03.000000Z", "sequence": int64(2)},
	})
}

func TestMessageOfDebezium(t *testing.T) { onEach(t, testMessageOfDebezium) }

func testMessageOfDebezium(t *testing.T, on source) {
	r := rigOn(t, on.database(t), `CREATE TABLE outbox (id CHAR(36) PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL,
		aggregateid VARCHAR(255) NOT NULL, type VARCHAR(255) NOT NULL, payload JSON, timestamp DATETIME(6) NOT NULL)`).begun()
	r.exec(`INSERT INTO outbox VALUES ('a-1', 'Order', '17', 'OrderCreated', '{"id": 17}', '2026-03-01 00:00:01')`)
	r.wantMessages(message{
		Exchange: r.exchange, Key: "17", Body: `{"id": 17}`, Mode: 2, ID: "a-1", Type: "OrderCreated", ContentType: "application/json",
		Timestamp: time.Date(2026, 3, 1, 0, 0, 1, 0, time.UTC), App: "relay",
		Headers: amqp.Table{
			"aggregate_id": "17", "aggregate_type": "Order", "event_type": "OrderCreated",
			"created_at": "2026-03-01T00:00:01.000000Z", "sequence": int64(1),
		},
	})
}

func TestMessageOfEventuate(t *testing.T) { onEach(t, testMessageOfEventuate) }

func testMessageOfEventuate(t *testing.T, on source) {
	r := rigOn(t, on.database(t), `CREATE TABLE message (id VARCHAR(255) PRIMARY KEY, destination LONGTEXT NOT NULL, headers LONGTEXT NOT NULL,
		payload LONGTEXT NOT NULL, published SMALLINT DEFAULT 0, message_partition SMALLINT, creation_time BIGINT)`)
	r.flags = []string{"--table", "message"}
	r.begun()
	r.exec(`INSERT INTO message VALUES ('m1', 'orders', '{"PARTITION_ID":"17","event-aggregate-type":"Order","event-type":"Created"}', 'body', 0, NULL, 1772323201000)`)
	r.wantMessages(message{
		Exchange: r.exchange, Key: "17", Body: "body", Mode: 2, ID: "m1", Type: "orders", ContentType: "text/plain;charset=utf-8",
		Timestamp: time.Date(2026, 3, 1, 0, 0, 1, 0, time.UTC), App: "relay",
		Headers: amqp.Table{
			"aggregate_id": "17", "aggregate_type": "Order", "event_type": "Created", "topic": "orders",
			"PARTITION_ID": "17", "event-aggregate-type": "Order", "event-type": "Created",
			"created_at": "2026-03-01T00:00:01.000000Z", "sequence": int64(1),
		},
	})
}

// TestMessageOfNamedColumns: --columns, --table with its database, --time-zone,
// and a key that is too long for AMQP.
func TestMessageOfNamedColumns(t *testing.T) { onEach(t, testMessageOfNamedColumns) }

func testMessageOfNamedColumns(t *testing.T, on source) {
	r := rigOn(t, on.database(t), "CREATE TABLE events (event_id VARBINARY(8) PRIMARY KEY, aggregate_id VARCHAR(300) NOT NULL, topic VARCHAR(9) NOT NULL, body BLOB NOT NULL, created_at DATETIME NOT NULL)")
	r.flags = []string{"--table", r.database() + ".events", "--columns", "id=event_id,payload=body", "--time-zone", "Europe/Berlin"}
	r.begun()
	r.exec("INSERT INTO events VALUES (0x00FF, REPEAT('k', 256), 't', 0x00FF10, '2026-07-01 12:00:00')")
	long := r.text("SELECT aggregate_id FROM events")
	r.wantMessages(message{
		Exchange: r.exchange, Key: r.text("SELECT SHA2(aggregate_id, 256) FROM events"), Body: "\x00\xff\x10", Mode: 2,
		ID: "00ff", Type: "t", ContentType: "application/octet-stream", Timestamp: time.Date(2026, 7, 1, 10, 0, 0, 0, time.UTC), App: "relay",
		Headers: amqp.Table{"aggregate_id": long, "topic": "t", "created_at": "2026-07-01T10:00:00.000000Z", "sequence": int64(1)},
	})
}

// TestSchemaSQL: the table that the relay prints is the one that it takes.
func TestSchemaSQL(t *testing.T) { onEach(t, testSchemaSQL) }

func testSchemaSQL(t *testing.T, on source) {
	printed := run(t, nil, "schema", "sql")
	printed.want(t, 0)
	if printed.stdout != schema.SQL {
		t.Errorf("relay schema sql prints\n%s", printed.stdout)
	}
	r := rigOn(t, on.database(t), printed.stdout)
	r.run("check", "--partitions", "1").want(t, 0, "layout relay")
}
