-- A log that a reader without a server can make everything of: every type of
-- column that an event can come from, and what moves and undoes rows.
CREATE DATABASE shop;
USE shop;
CREATE TABLE notes (id INT PRIMARY KEY, document JSON, text TEXT);
INSERT INTO notes VALUES (1, JSON_OBJECT('a', REPEAT('x', 200), 'b', 1), REPEAT('y', 2000));
CREATE TABLE outbox (
  made           YEAR,
  price          DECIMAL(10,2) UNSIGNED,
  ratio          DOUBLE UNSIGNED,
  flags          SET('x','y') CHARACTER SET latin1,
  id             BIGINT UNSIGNED NOT NULL PRIMARY KEY,
  small          TINYINT,
  aggregate_id   VARCHAR(40) CHARACTER SET ascii NOT NULL,
  aggregate_type ENUM('cart','it''s','é') CHARACTER SET utf8mb4 COLLATE utf8mb4_bin,
  event_type     CHAR(20) CHARACTER SET utf8mb3,
  raw            VARBINARY(20),
  legacy         VARCHAR(20) CHARACTER SET latin1,
  topic          TINYTEXT NOT NULL,
  payload        MEDIUMTEXT COLLATE utf8mb4_general_ci NOT NULL,
  version        MEDIUMINT UNSIGNED,
  headers        JSON,
  place          POINT,
  created_at     TIMESTAMP(3) NOT NULL,
  status         ENUM('pending','published') NOT NULL DEFAULT 'pending'
) DEFAULT CHARSET=utf8mb4;
SET SESSION time_zone = '+02:00';
INSERT INTO outbox (id, aggregate_id, aggregate_type, event_type, raw, legacy, topic, payload, version, headers, created_at) VALUES
  (18446744073709551615, 'a', 'é', 'Filled', 0x00FF, 'é', 'carts', 'text ä 雪', 16777215, '{"n": 3, "traceparent": "00-01"}', '2024-01-02 03:04:05.678'),
  (1, 'b', 'it''s', NULL, NULL, NULL, 'carts', '', NULL, NULL, '2024-07-02 03:04:05');

-- a tag, and a savepoint in a compressed transaction with it
SET SESSION binlog_transaction_compression = ON;
SET SESSION gtid_next = 'AUTOMATIC:blue';
BEGIN;
UPDATE notes SET document = JSON_SET(document, '$.b', 2), text = REPEAT('z', 2000);
INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (2, 'a', 'carts', 'kept', '2024-01-02');
SAVEPOINT s;
INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (3, 'a', 'phantom', '', '2024-01-02');
ROLLBACK TO s;
INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (4, 'a', 'carts', 'kept too', '2024-01-02');
COMMIT;
SET SESSION gtid_next = 'AUTOMATIC';
SET SESSION binlog_transaction_compression = OFF;

-- partial JSON updates, of the outbox too
UPDATE notes SET document = JSON_SET(document, '$.b', 3);
UPDATE outbox SET headers = JSON_SET(headers, '$.n', 4) WHERE headers IS NOT NULL;

-- XA: committed, rolled back
XA START 'one';
INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (5, 'a', 'carts', 'xa', '2024-01-02');
XA END 'one';
XA PREPARE 'one';
XA COMMIT 'one';
XA START 'two';
INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (6, 'a', 'phantom', '', '2024-01-02');
XA END 'two';
XA PREPARE 'two';
XA ROLLBACK 'two';

-- other collations, and columns that change
DELETE FROM outbox;
ALTER TABLE outbox MODIFY id CHAR(36) COLLATE utf8mb4_0900_bin NOT NULL, MODIFY payload JSON NOT NULL FIRST, MODIFY created_at DATETIME NOT NULL, DROP price;
INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES ('text id', 'a', 'carts', '{"n": [1, 2.50]}', '2024-01-02 03:04:05');
ALTER TABLE outbox MODIFY id VARBINARY(40) NOT NULL, MODIFY aggregate_id BINARY(4) NOT NULL, MODIFY payload BLOB NOT NULL;
INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (0x00FF00, 0x01, 'carts', 0x00FF, '2024-01-02 03:04:05');

-- prepared, and not decided in this file
XA START 'three';
INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (7, 'a', 'phantom', '', '2024-01-02');
XA END 'three';
XA PREPARE 'three'
