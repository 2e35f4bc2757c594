package exchange

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// duplicateEntry is MySQL's and MariaDB's ER_DUP_ENTRY.
const duplicateEntry = 1062

// Inbox makes at-least-once deliveries effectively once: the id of each message
// is inserted into a table in the same SQL transaction as the message's effect,
// and a second time that insert fails. Safe for concurrent use.
//
// It is as good as the database: the effect has to be in this database, and the
// rows of the table have to be kept for as long as a message may come again
// (delete by processed_at).
type Inbox struct {
	// DB is the consumer's own MySQL or MariaDB database. Required.
	DB *sql.DB

	// Table is the inbox table, "table" or "db.table". Defaults to
	// processed_messages.
	Table string
}

// Schema returns the statement that creates the inbox table where it is absent.
//
// The id is VARBINARY because ids are compared byte by byte: the default
// collations take "A" for "a", and utf8mb4_bin takes "a " for "a", so that the
// second message would be dropped as a duplicate. utf8mb4_0900_bin does not,
// but MariaDB has none. 255 bytes are what AMQP lets a message_id have.
func (i *Inbox) Schema() string {
	return "CREATE TABLE IF NOT EXISTS " + i.table() + ` (
  message_id   VARBINARY(255) NOT NULL,
  processed_at DATETIME(6)    NOT NULL,
  PRIMARY KEY (message_id),
  KEY processed_at (processed_at)
) ENGINE=InnoDB`
}

// Process runs effect in one SQL transaction with the insert of messageID into
// the inbox, and commits. Fresh is false, and effect was not called, when the
// message had been processed before. An error of effect rolls both back and is
// returned as it is, wrapped; so are deadlocks (1213) and lock waits (1205),
// after which the message should come again. After an error of the commit
// itself, fresh is false and the outcome unknown: calling again tells.
//
// Effect must use tx alone, and neither commit nor roll back.
//
// While another transaction processes the same id, Process waits for its end.
func (i *Inbox) Process(ctx context.Context, messageID string, effect func(ctx context.Context, tx *sql.Tx) error) (fresh bool, err error) {
	// Outside strict mode MySQL would cut a longer id, and two would become one.
	if messageID == "" || len(messageID) > maxShort {
		return false, fmt.Errorf("exchange: inbox: message id has %d bytes, 1 to %d are possible: %.40q", len(messageID), maxShort, messageID)
	}
	tx, err := i.DB.BeginTx(ctx, nil)
	if err != nil {
		return false, fmt.Errorf("exchange: inbox: begin for message id %q: %w", messageID, err)
	}
	defer tx.Rollback() //nolint:errcheck // after Commit it does nothing

	// A plain INSERT, whose one expected error is looked at. INSERT IGNORE would
	// turn every other error of the row into a warning too, and the affected
	// rows of ON DUPLICATE KEY UPDATE depend on the DSN's clientFoundRows.
	_, err = tx.ExecContext(ctx, "INSERT INTO "+i.table()+" (message_id, processed_at) VALUES (?, UTC_TIMESTAMP(6))", []byte(messageID))
	var refused *mysql.MySQLError
	if errors.As(err, &refused) && refused.Number == duplicateEntry {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("exchange: inbox: insert message id %q: %w", messageID, err)
	}
	if err := effect(ctx, tx); err != nil {
		return false, fmt.Errorf("exchange: inbox: effect of message id %q: %w", messageID, err)
	}
	if err := tx.Commit(); err != nil {
		return false, fmt.Errorf("exchange: inbox: commit message id %q: %w", messageID, err)
	}
	return true, nil
}

func (i *Inbox) table() string {
	name := i.Table
	if name == "" {
		name = "processed_messages"
	}
	parts := strings.SplitN(name, ".", 2)
	for n, part := range parts {
		parts[n] = "`" + strings.ReplaceAll(part, "`", "``") + "`"
	}
	return strings.Join(parts, ".")
}
