package main

import (
	"context"
	"sync"
	"sync/atomic"
)

// turnsPerOutboxRow is how many turns of foreign traffic have one outbox row.
const turnsPerOutboxRow = 48

// trafficWriters is the number of connections that write foreign traffic.
const trafficWriters = 16

// Foreign traffic: what an application writes beside its outbox. A server can
// write it by itself, in a procedure, so that no client is in the way.
var foreignSQL = []string{
	`CREATE TABLE orders (
		id BIGINT AUTO_INCREMENT PRIMARY KEY, customer_id BIGINT NOT NULL, state VARCHAR(16) NOT NULL,
		amount DECIMAL(12,2) NOT NULL, note VARCHAR(200) NOT NULL, created_at DATETIME(6) NOT NULL)`,
	`CREATE TABLE order_items (
		id BIGINT AUTO_INCREMENT PRIMARY KEY, order_id BIGINT NOT NULL, sku CHAR(16) NOT NULL, quantity INT NOT NULL,
		price DECIMAL(10,2) NOT NULL, description VARCHAR(120) NOT NULL)`,
	`CREATE TABLE stock (sku INT PRIMARY KEY, quantity BIGINT NOT NULL, place VARCHAR(80) NOT NULL)`,
	`CREATE TABLE page_views (
		id BIGINT AUTO_INCREMENT PRIMARY KEY, visitor CHAR(32) NOT NULL, path VARCHAR(120) NOT NULL,
		agent VARCHAR(120) NOT NULL, at DATETIME(6) NOT NULL)`,
	`CREATE TABLE metrics (
		id BIGINT AUTO_INCREMENT PRIMARY KEY, name VARCHAR(60) NOT NULL, value DOUBLE NOT NULL,
		labels VARCHAR(200) NOT NULL, at DATETIME(6) NOT NULL)`,
	`CREATE TABLE digits (n INT PRIMARY KEY)`,
	`INSERT INTO digits WITH RECURSIVE c (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM c WHERE n < 99) SELECT n FROM c`,
	`INSERT INTO stock SELECT 100 * a.n + b.n, 1000000, RPAD('aisle ', 60, 'x') FROM digits a, digits b`,
	// One turn, 208 rows: three page views, a transaction of a row each; an order
	// of five rows in three tables; an insert and an update of 100 rows each.
	// Every 48th turn has an outbox row, of a transaction of its own: one row in
	// 10,000.
	`CREATE PROCEDURE traffic (series BIGINT UNSIGNED, start INT, turns INT)
	BEGIN
		DECLARE i INT DEFAULT start;
		WHILE i < start + turns DO
			INSERT INTO page_views (visitor, path, agent, at) VALUES
				(LEFT(SHA2(i, 256), 32), '/catalogue/garden/tools/spades?page=2&sort=price', 'Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101', UTC_TIMESTAMP(6));
			INSERT INTO page_views (visitor, path, agent, at) VALUES
				(LEFT(SHA2(-i, 256), 32), '/catalogue/garden/tools', 'Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15', UTC_TIMESTAMP(6));
			INSERT INTO page_views (visitor, path, agent, at) VALUES
				(LEFT(SHA2(i, 512), 32), '/basket', 'Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36', UTC_TIMESTAMP(6));
			START TRANSACTION;
			INSERT INTO orders (customer_id, state, amount, note, created_at) VALUES
				(i, 'placed', 129.90, 'leave it with the neighbours if nobody opens, they know about it', UTC_TIMESTAMP(6));
			INSERT INTO order_items (order_id, sku, quantity, price, description)
				SELECT LAST_INSERT_ID(), LPAD(i + n, 16, '0'), 1 + n, 43.30, 'spade, hardened steel, ash handle, 1.2 m' FROM digits WHERE n < 3;
			UPDATE stock SET quantity = quantity - 1 WHERE sku = 7 * i % 10000;
			COMMIT;
			INSERT INTO metrics (name, value, labels, at)
				SELECT 'http_request_duration_seconds', i / (n + 1), CONCAT('{"host": "web-', n, '", "handler": "/catalogue", "code": "200", "region": "eu-central-1", "build": "2026.11.3"}'), UTC_TIMESTAMP(6) FROM digits;
			UPDATE stock SET quantity = quantity + 100 WHERE sku BETWEEN 100 * (i % 100) AND 100 * (i % 100) + 99;
			IF i % 48 = 47 THEN
				INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES
					(UNHEX(CONCAT(LPAD(HEX(series), 16, '0'), LPAD(HEX(i DIV 48), 16, '0'))), i DIV 48 % 5000, 'order.placed', JSON_OBJECT('order', i, 'note', RPAD('', 250, 'outbox ')), UTC_TIMESTAMP(6));
			END IF;
			SET i = i + 1;
		END WHILE;
	END`,
}

// traffic has the server write foreign traffic until its log has as many bytes,
// from a file on. It ends with an outbox row. It returns the number of those, of
// the series, and of the bytes.
func (o *outfit) traffic(ctx context.Context, series uint64, file string, bytes int64) (events int, written int64, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var batches atomic.Int64
	var group sync.WaitGroup
	for range trafficWriters {
		group.Go(func() {
			for ctx.Err() == nil {
				if _, size, err := o.logFrom(ctx, file); err != nil {
					cancel(err)
				} else if size >= bytes {
					return
				}
				start := (batches.Add(1) - 1) * turnsPerOutboxRow
				if _, err := o.db.ExecContext(ctx, "CALL traffic(?, ?, ?)", series, start, turnsPerOutboxRow); err != nil {
					cancel(err)
				}
			}
		})
	}
	group.Wait()
	if err := context.Cause(ctx); err != nil {
		return 0, 0, err
	}
	events = int(batches.Load()) + 1
	if err := o.insert(ctx, series, events-1, 1); err != nil {
		return 0, 0, err
	}
	_, written, err = o.logFrom(ctx, file)
	return events, written, err
}

// logFrom is the server's present log file, and the bytes in all files from one
// on; empty: from the first.
func (o *outfit) logFrom(ctx context.Context, file string) (last string, bytes int64, err error) {
	rows, err := o.db.QueryContext(ctx, "SHOW BINARY LOGS")
	if err != nil {
		return "", 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var size int64
		var encrypted string
		if err := rows.Scan(&last, &size, &encrypted); err != nil {
			return "", 0, err
		}
		if last >= file {
			bytes += size
		}
	}
	return last, bytes, rows.Err()
}
