-- Columns that move while the log has their names (binlog_row_metadata=FULL).
CREATE DATABASE shop;
USE shop;
CREATE TABLE outbox (
  created_at   DATETIME(6)  NOT NULL,
  payload      JSON         NOT NULL,
  topic        VARCHAR(120) NOT NULL,
  id           BINARY(16)   NOT NULL PRIMARY KEY,
  aggregate_id BIGINT       NOT NULL,
  status       ENUM('pending','published') NOT NULL DEFAULT 'pending'
) DEFAULT CHARSET=utf8mb4;
INSERT INTO outbox VALUES ('2024-01-02 03:04:05.678901', '{"n": 1}', 'orders', 0x01, 1, 'pending');
ALTER TABLE outbox ADD note INT NOT NULL DEFAULT 5 FIRST, MODIFY topic VARCHAR(300) NOT NULL AFTER status;
INSERT INTO outbox VALUES (7, '2024-01-02 03:04:05.678901', '{"n": 2}', 0x02, 1, 'pending', 'orders');
ALTER TABLE outbox ADD total INT AS (note * 2) STORED FIRST, ADD secret INT NOT NULL DEFAULT 3 INVISIBLE FIRST, ADD KEY ((note + 1));
INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES (0x03, 1, 'orders', '{"n": 3}', '2024-01-02 03:04:05.678901');
