-- Every way in which rows of the outbox come into a log of MariaDB, and some that are none.
CREATE DATABASE shop;
USE shop;
CREATE TABLE orders (id INT PRIMARY KEY, note TEXT);
CREATE TABLE outbox (
  id           BINARY(16)   NOT NULL PRIMARY KEY,
  aggregate_id BIGINT       NOT NULL,
  topic        VARCHAR(120) NOT NULL,
  payload      JSON         NOT NULL,
  status       ENUM('pending','published') NOT NULL DEFAULT 'pending',
  created_at   DATETIME(6)  NOT NULL,
  published_at DATETIME(6)  NULL,
  KEY idx_dispatch (status, created_at)
) DEFAULT CHARSET=utf8mb4;
CREATE TABLE outbox_archive LIKE outbox;

-- 1: one statement, ids that end in zero bytes
INSERT INTO outbox VALUES
  (0x01000000000000000000000000000000, 1, 'orders', '{"n": 1, "text": "ä 雪 \\"<>&"}', 'pending', '2024-01-02 03:04:05.678901', NULL),
  (0x00000000000000000000000000000000, -9223372036854775808, 'orders', '[]', 'published', '2024-01-02 03:04:05', '2024-01-02 03:04:05');

-- 2: a transaction with business rows
BEGIN;
INSERT INTO orders VALUES (1, 'INSERT INTO outbox');
INSERT INTO outbox VALUES (0x02, 9223372036854775807, '', '{"f": 1.5, "e": 1e30, "big": 18446744073709551615}', 'pending', '1000-01-01', NULL);
INSERT INTO outbox VALUES (0x03, 2, 'orders', 'null', 'pending', '9999-12-31 23:59:59.999999', NULL);
COMMIT;

-- rolled back: not in the log at all
BEGIN;
INSERT INTO outbox VALUES (0xFF01, 1, 'phantom', '{}', 'pending', '2024-01-01', NULL);
ROLLBACK;

-- 3: rolled back in part
BEGIN;
INSERT INTO outbox VALUES (0x04, 2, 'orders', '{}', 'pending', '2024-01-01', NULL);
SAVEPOINT `a b`;
INSERT INTO outbox VALUES (0xFF02, 2, 'phantom', '{}', 'pending', '2024-01-01', NULL);
ROLLBACK TO `a b`;
INSERT INTO outbox VALUES (0x05, 2, 'orders', '{}', 'pending', '2024-01-01', NULL);
COMMIT;

-- 4 to 6: no inserts into the outbox
UPDATE outbox SET status = 'published', published_at = '2024-01-03' WHERE aggregate_id = 2;
DELETE FROM outbox WHERE id = 0x03000000000000000000000000000000;
INSERT INTO outbox_archive SELECT * FROM outbox;

-- 7: XA, committed in two phases, with a transaction in between; rolled back; committed in one phase
XA START 'one', 'branch', 7;
INSERT INTO outbox VALUES (0x06, 3, 'orders', '{}', 'pending', '2024-01-01', NULL);
XA END 'one', 'branch', 7;
XA PREPARE 'one', 'branch', 7;
XA COMMIT 'one', 'branch', 7;
XA START 'two';
INSERT INTO outbox VALUES (0xFF03, 3, 'phantom', '{}', 'pending', '2024-01-01', NULL);
XA END 'two';
XA PREPARE 'two';
XA ROLLBACK 'two';
XA START 'three';
INSERT INTO outbox VALUES (0x07, 3, 'orders', '{}', 'pending', '2024-01-01', NULL);
XA END 'three';
XA COMMIT 'three' ONE PHASE;

-- 8: another domain and server
SET SESSION gtid_domain_id = 5, server_id = 3;
INSERT INTO outbox VALUES (0x08, 4, 'orders', '{}', 'pending', '2024-01-01', NULL);
SET SESSION gtid_domain_id = 0, server_id = 1;

-- 9: compressed
SET GLOBAL log_bin_compress_min_len = 10, log_bin_compress = ON;
BEGIN;
INSERT INTO orders VALUES (2, REPEAT('x', 1000));
INSERT INTO outbox VALUES (0x09, 5, 'orders', '{}', 'pending', '2024-01-01', NULL), (0x0A, 5, 'orders', '{}', 'pending', '2024-01-01', NULL);
COMMIT;
XA START 'four';
INSERT INTO outbox VALUES (0x0B, 5, 'orders', '{}', 'pending', '2024-01-01', NULL);
XA END 'four';
XA PREPARE 'four';
XA COMMIT 'four';
SET GLOBAL log_bin_compress = OFF;

-- 10: statements with rows behind them
CREATE TABLE copy AS SELECT * FROM outbox;
REPLACE INTO outbox VALUES (0x0C, 6, 'orders', '{}', 'pending', '2024-01-01', NULL);
INSERT INTO outbox VALUES (0x0C, 6, 'again', '{}', 'pending', '2024-01-01', NULL) ON DUPLICATE KEY UPDATE status = 'published';

-- 11: one of several rows that are there already
INSERT IGNORE INTO outbox VALUES (0x0C, 6, 'again', '{}', 'pending', '2024-01-01', NULL), (0x0D, 6, 'orders', '{}', 'pending', '2024-01-01', NULL);

-- 12: text, of another table
SET SESSION binlog_format = STATEMENT;
INSERT INTO outbox_archive VALUES (0xFF04, 1, 'phantom', '{}', 'pending', '2024-01-01', NULL);
SET SESSION binlog_format = ROW;
TRUNCATE TABLE orders;
DROP TABLE copy;
INSERT INTO outbox VALUES (0x0E, 7, 'orders', '{}', 'pending', '2024-01-01', NULL);

-- 13: spacing of JSON is the writer's
INSERT INTO outbox VALUES (0x0F, 7, 'orders', '{"a":  1}', 'pending', '2024-01-01 00:00:00.5', NULL);
