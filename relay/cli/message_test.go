package cli_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"regexp"
	"strings"
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

// TestMessageOfDebezium: the table that Debezium's outbox event router
// documents, with the columns that its Quarkus extension adds.
func TestMessageOfDebezium(t *testing.T) {
	t.Parallel()
	r := rigOn(t, database(t), `CREATE TABLE outbox (id BINARY(16) NOT NULL PRIMARY KEY, aggregatetype VARCHAR(255) NOT NULL,
		aggregateid VARCHAR(255) NOT NULL, type VARCHAR(255) NOT NULL, payload JSON, timestamp TIMESTAMP(6) NOT NULL, tracingspancontext VARCHAR(256))`).begun()
	r.exec(`INSERT INTO outbox VALUES (UUID_TO_BIN('406c07f3-26f0-4eea-a50c-109940064b8f'), 'Order', '17', 'OrderCreated', '{"id": 17}', FROM_UNIXTIME(1772323201.5),
			'#Sun Mar 01 00:00:01 UTC 2026\ntraceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\nuber-trace-id=3f1\\:2a\\:0\\:1\n')`,
		`INSERT INTO outbox VALUES (UUID_TO_BIN('406c07f3-26f0-4eea-a50c-109940064b90'), 'Order', '17', 'OrderDeleted', NULL, FROM_UNIXTIME(1772323202), NULL)`)
	headers := func(sequence int64, event, created string) amqp.Table {
		return amqp.Table{"aggregate_id": "17", "aggregate_type": "Order", "event_type": event, "created_at": created, "sequence": sequence}
	}
	first := headers(1, "OrderCreated", "2026-03-01T00:00:01.500000Z")
	first["traceparent"], first["uber-trace-id"] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "3f1:2a:0:1"
	r.wantMessages(message{
		Exchange: r.exchange, Key: "17", Body: `{"id": 17}`, Mode: 2, ID: "406c07f3-26f0-4eea-a50c-109940064b8f", Type: "OrderCreated", ContentType: "application/json",
		Timestamp: time.Date(2026, 3, 1, 0, 0, 1, 0, time.UTC), App: "relay", Headers: first,
	}, message{ // a tombstone
		Exchange: r.exchange, Key: "17", Mode: 2, ID: "406c07f3-26f0-4eea-a50c-109940064b90", Type: "OrderDeleted", ContentType: "application/json",
		Timestamp: time.Date(2026, 3, 1, 0, 0, 2, 0, time.UTC), App: "relay", Headers: headers(2, "OrderDeleted", "2026-03-01T00:00:02.000000Z"),
	})
}

// TestMessageOfEventuate: the table that Eventuate makes for MySQL, in a
// database of the character set that its images have, and what Eventuate Tram
// puts into it: an event, a command, and a message of no aggregate.
func TestMessageOfEventuate(t *testing.T) { onEach(t, testMessageOfEventuate) }

func testMessageOfEventuate(t *testing.T, on source) {
	r := rigOn(t, on.database(t), `CREATE TABLE message (id VARCHAR(767) PRIMARY KEY, destination LONGTEXT NOT NULL,
		headers LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NOT NULL, payload LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_unicode_ci NOT NULL,
		published SMALLINT DEFAULT 0, message_partition SMALLINT, creation_time BIGINT) CHARSET latin1`, "CREATE INDEX message_published_idx ON message (published, id)")
	r.flags = []string{"--table", "message"}
	r.begun()
	r.exec(`INSERT INTO message (id, destination, headers, payload, creation_time) VALUES ('0000018e-01', 'shop.Örder', '{"PARTITION_ID":"17","event-aggregate-type":"shop.Order",
			"event-type":"shop.Created","event-aggregate-id":"17","DATE":"Sun, 1 Mar 2026 00:00:01 GMT","DESTINATION":"shop.Örder","ID":"0000018e-01"}', '{"total":"é"}', 1772323201678)`,
		`INSERT INTO message (id, destination, headers, payload, creation_time) VALUES ('0000018e-02', 'kitchen', '{"command_type":"Cook","ID":"0000018e-02"}', '{}', 1772323202000)`)
	r.wantMessages(message{
		Exchange: r.exchange, Key: "17", Body: `{"total":"é"}`, Mode: 2, ID: "0000018e-01", Type: "shop.Örder", ContentType: "text/plain;charset=utf-8",
		Timestamp: time.Date(2026, 3, 1, 0, 0, 1, 0, time.UTC), App: "relay",
		Headers: amqp.Table{
			"aggregate_id": "17", "aggregate_type": "shop.Order", "event_type": "shop.Created", "topic": "shop.Örder", "created_at": "2026-03-01T00:00:01.678000Z", "sequence": int64(1),
			"PARTITION_ID": "17", "event-aggregate-type": "shop.Order", "event-aggregate-id": "17", "event-type": "shop.Created",
			"DATE": "Sun, 1 Mar 2026 00:00:01 GMT", "DESTINATION": "shop.Örder", "ID": "0000018e-01",
		},
	}, message{
		Exchange: r.exchange, Key: "0000018e-02", Body: "{}", Mode: 2, ID: "0000018e-02", Type: "kitchen", ContentType: "text/plain;charset=utf-8",
		Timestamp: time.Date(2026, 3, 1, 0, 0, 2, 0, time.UTC), App: "relay",
		Headers: amqp.Table{
			"aggregate_id": "0000018e-02", "topic": "kitchen", "created_at": "2026-03-01T00:00:02.000000Z", "sequence": int64(2), "command_type": "Cook", "ID": "0000018e-02",
		},
	})
}

// TestLayoutTold: --layout auto takes each of the three for what it is, and
// check, status and the log say which.
func TestLayoutTold(t *testing.T) {
	t.Parallel()
	for layout, create := range map[string]string{
		"relay":     schema.SQL,
		"debezium":  "CREATE TABLE outbox (id CHAR(36) PRIMARY KEY, aggregatetype VARCHAR(255), aggregateid VARCHAR(255), type VARCHAR(255), payload JSON)",
		"eventuate": "CREATE TABLE outbox (id VARCHAR(767) PRIMARY KEY, destination LONGTEXT, headers LONGTEXT, payload LONGTEXT, published SMALLINT DEFAULT 0, message_partition SMALLINT, creation_time BIGINT)",
	} {
		t.Run(layout, func(t *testing.T) {
			t.Parallel()
			r := rigOn(t, database(t), create).begun()
			name := r.database() + ".outbox"
			r.run("check", "--partitions", "1").want(t, 0, name+", layout "+layout)
			r.run("status", "--partitions", "1").want(t, 0, "layout       "+layout+", of "+name)
			r.run("status", "--partitions", "1", "--json").want(t, 0, `"layout": "`+layout+`"`)
			d := r.start("--partitions", "1")
			d.settled()
			d.stop()
			if !strings.Contains(d.text(), `"layout":"`+layout+`"`) {
				t.Errorf("the log does not name the layout:\n%s", d.text())
			}
			r.exec("DROP TABLE outbox")
			r.run("status", "--partitions", "1").want(t, 0, "layout       ", "doesn't exist")
		})
	}
}

// TestMessageOfLatin1: a table in another character set, its rows sent by the
// backfill and by the stream alike; and aggregate ids that are empty, that just
// fit a routing key in UTF-8, and that do not.
func TestMessageOfLatin1(t *testing.T) { onEach(t, testMessageOfLatin1) }

func testMessageOfLatin1(t *testing.T, on source) {
	r := rigOn(t, on.database(t), `CREATE TABLE outbox (id VARCHAR(9) PRIMARY KEY, aggregate_id VARCHAR(300) NOT NULL, aggregate_type ENUM('Bücher') NOT NULL,
		topic VARCHAR(120) NOT NULL, payload TEXT NOT NULL, headers TEXT, created_at DATETIME(6) NOT NULL) CHARSET latin1`)
	r.run("check", "--partitions", "1").want(t, 0, "layout relay")
	aggregates := []string{"", strings.Repeat("é", 127) + "k", strings.Repeat("é", 128), strings.Repeat("k", 255), strings.Repeat("k", 300), " a b "}
	write := func(first rune) {
		for i, aggregate := range aggregates {
			if _, err := r.db.Exec("INSERT INTO outbox VALUES (?, ?, 'Bücher', 'Größe', 'œ€\u00a0ÿ', '{\"ä\": \"ß\"}', '2026-03-01 00:00:00')", string(first+rune(i))+"ö", aggregate); err != nil {
				t.Fatal(err)
			}
		}
	}
	write('a')
	r.relay("--partitions", "1")
	write('n')
	got := r.relayed()
	if len(got) != 2*len(aggregates) {
		t.Fatalf("got %d messages", len(got))
	}
	for i, d := range got {
		n := i % len(aggregates)
		key := aggregates[n]
		if len(key) > 255 {
			key = fmt.Sprintf("%x", sha256.Sum256([]byte(key)))
		}
		want := message{
			Exchange: r.exchange, Key: key, Body: "œ€\u00a0ÿ", Mode: 2, ID: string(rune("an"[i/len(aggregates)])+rune(n)) + "ö", Type: "Größe",
			ContentType: "text/plain;charset=utf-8", Timestamp: time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC), App: "relay",
			Headers: amqp.Table{
				"aggregate_id": aggregates[n], "aggregate_type": "Bücher", "topic": "Größe", "ä": "ß", "created_at": "2026-03-01T00:00:00.000000Z", "sequence": int64(i + 1),
			},
		}
		m := messageOf(d)
		delete(m.Headers, "gtid") // a backfill has none
		if diff := cmp.Diff(want, m); diff != "" {
			t.Errorf("message %d (-want +got):\n%s", i, diff)
		}
	}
}

// TestMessageLargest: RabbitMQ 4 takes a body of 16 MiB, and none that is
// larger.
func TestMessageLargest(t *testing.T) {
	t.Parallel()
	r := rigOn(t, database(t), strings.Replace(schema.SQL, "payload      JSON ", "payload LONGBLOB", 1)).begun()
	insert := "INSERT INTO outbox (id, aggregate_id, topic, payload) VALUES (x'%s', 1, 't', REPEAT(x'ff', %d))"
	r.exec(fmt.Sprintf(insert, hexID(1), 16<<20))
	got := r.relayed()
	if len(got) != 1 || len(got[0].Body) != 16<<20 || bytes.Count(got[0].Body, []byte{0xff}) != 16<<20 {
		t.Fatalf("got %d messages", len(got))
	}
	r.exec(fmt.Sprintf(insert, hexID(2), 16<<20+1))
	stopped := r.run("run", "--partitions", "1", "--log-level", "error")
	stopped.want(t, 65, idText(2), "max_message_size", r.text("SELECT @@server_uuid")+":")
	stopped.oneLine(t)
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
