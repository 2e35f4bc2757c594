CREATE TABLE outbox (
  id           BINARY(16)   NOT NULL,
  aggregate_id BIGINT       NOT NULL,
  topic        VARCHAR(120) NOT NULL,
  payload      JSON         NOT NULL,
  status       ENUM('pending','published') NOT NULL DEFAULT 'pending',
  created_at   DATETIME(6)  NOT NULL DEFAULT (UTC_TIMESTAMP(6)),
  published_at DATETIME(6)  NULL,
  PRIMARY KEY (id),
  KEY idx_dispatch (status, created_at)
) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4;
