package exchange

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxrelay/relay/relay/certs"
)

// InboxConfig says where an inbox is that others fill.
type InboxConfig struct {
	DSN      string      // of github.com/go-sql-driver/mysql
	Password string      // stands in for the DSN's where it is not empty
	TLS      *tls.Config // Defaults to what the DSN says.
	Table    string      // "table" or "db.table". Defaults to processed_messages.
}

// InboxReader reads an inbox. Its methods may be called by many goroutines.
type InboxReader struct {
	inbox Inbox
	dsn   *mysql.Config
}

// Parse checks the configuration without any I/O.
func (c InboxConfig) Parse() (*mysql.Config, error) {
	dsn, err := mysql.ParseDSN(c.DSN)
	if err != nil { // its text can repeat a part of the password
		return nil, errors.New("exchange: the inbox's DSN is not of the form relay:PASSWORD@tcp(127.0.0.1:3306)/billing?tls=true")
	}
	if c.Password != "" {
		dsn.Passwd = c.Password
	}
	if c.TLS != nil {
		dsn.TLS = c.TLS.Clone()
		if host, _, err := net.SplitHostPort(dsn.Addr); err == nil {
			dsn.TLS.ServerName = cmp.Or(dsn.TLS.ServerName, host)
		}
	}
	if !strings.Contains(c.Table, ".") && dsn.DBName == "" {
		return nil, fmt.Errorf("exchange: the inbox table %q names no database, and neither does the DSN: give --inbox-table billing.processed_messages", cmp.Or(c.Table, "processed_messages"))
	}
	dsn.Timeout = cmp.Or(dsn.Timeout, dialTimeout)
	dsn.ParseTime, dsn.InterpolateParams, dsn.MultiStatements = false, true, false
	dsn.Logger = &mysql.NopLogger{} // the errors are returned as well
	return dsn, nil
}

// OpenInbox connects to the inbox's server and looks whether the table is one.
// The error wraps ErrInbox where somebody has to act; it is one that may pass
// where the server cannot be reached.
func OpenInbox(ctx context.Context, c InboxConfig) (*InboxReader, error) {
	dsn, err := c.Parse()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInbox, err)
	}
	connector, err := mysql.NewConnector(dsn)
	if err != nil {
		return nil, fmt.Errorf("%w: the DSN has parameters that do not fit together: look at tls and the timeouts", ErrInbox)
	}
	r := &InboxReader{inbox: Inbox{DB: sql.OpenDB(connector), Table: c.Table}, dsn: dsn}
	r.inbox.DB.SetMaxOpenConns(4)
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if _, err := r.inbox.DB.ExecContext(ctx, "SELECT message_id, processed_at FROM "+r.inbox.table()+" LIMIT 0"); err != nil {
		r.Close()
		return nil, r.explain(err)
	}
	return r, nil
}

// Close ends the connections.
func (r *InboxReader) Close() { r.inbox.DB.Close() }

// Name is db.table, as it was asked for.
func (r *InboxReader) Name() string {
	name := strings.ReplaceAll(r.inbox.table(), "`", "")
	if !strings.Contains(name, ".") {
		name = r.dsn.DBName + "." + name
	}
	return name
}

// Processed calls each with the id and the time of every message that was
// processed at since or later, in no order.
func (r *InboxReader) Processed(ctx context.Context, since time.Time, each func(id string, at time.Time) error) error {
	conn, err := r.inbox.DB.Conn(ctx)
	if err != nil {
		return r.explain(err)
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "SET SESSION net_write_timeout = 3600"); err != nil {
		return r.explain(err)
	}
	rows, err := conn.QueryContext(ctx, "SELECT message_id, processed_at FROM "+r.inbox.table()+" WHERE processed_at >= ?", since.UTC().Format("2006-01-02 15:04:05.000000"))
	if err != nil {
		return r.explain(err)
	}
	defer rows.Close()
	var id, processed sql.RawBytes
	for rows.Next() {
		if err := rows.Scan(&id, &processed); err != nil {
			return r.explain(err)
		}
		at, err := r.time(string(processed))
		if err != nil {
			return err
		}
		if err := each(string(id), at); err != nil {
			return err
		}
	}
	if err := rows.Err(); err != nil {
		return r.explain(err)
	}
	return nil
}

// Has tells which of the messages are processed, whenever that was.
func (r *InboxReader) Has(ctx context.Context, ids []string) (map[string]bool, error) {
	found := map[string]bool{}
	if len(ids) == 0 {
		return found, nil
	}
	args := make([]any, len(ids))
	for i, id := range ids {
		args[i] = []byte(id)
	}
	rows, err := r.inbox.DB.QueryContext(ctx, "SELECT message_id FROM "+r.inbox.table()+" WHERE message_id IN (?"+strings.Repeat(", ?", len(ids)-1)+")", args...)
	if err != nil {
		return nil, r.explain(err)
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, r.explain(err)
		}
		found[id] = true
	}
	if err := rows.Err(); err != nil {
		return nil, r.explain(err)
	}
	return found, nil
}

// ProcessedAt is when a message was processed, in UTC; found is false where it was
// not.
func (r *InboxReader) ProcessedAt(ctx context.Context, id string) (at time.Time, found bool, err error) {
	var processed string
	err = r.inbox.DB.QueryRowContext(ctx, "SELECT processed_at FROM "+r.inbox.table()+" WHERE message_id = ?", []byte(id)).Scan(&processed)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return at, false, nil
	case err != nil:
		return at, false, r.explain(err)
	}
	at, err = r.time(processed)
	return at, true, err
}

// time reads a processed_at.
func (r *InboxReader) time(processed string) (time.Time, error) {
	at, err := time.Parse("2006-01-02 15:04:05.999999", processed)
	if err != nil {
		return at, fmt.Errorf("%w: %s at %s: processed_at is %q, which is no time in UTC; it is to be a DATETIME(6)", ErrInbox, r.Name(), r.dsn.Addr, processed)
	}
	return at, nil
}

// explain sorts the server's refusals by their number.
func (r *InboxReader) explain(err error) error {
	var refusal *mysql.MySQLError
	at := fmt.Sprintf("%s at %s", r.Name(), r.dsn.Addr)
	if trouble := certs.Explain(err, r.dsn.TLS, "mysql"); trouble != nil {
		return fmt.Errorf("%w: %s: TLS: %s", ErrInbox, at, trouble.Text)
	}
	if !errors.As(err, &refusal) {
		return fmt.Errorf("exchange: inbox %s: %w; look at the address in --inbox-dsn, which is that of --mysql-dsn where it is left out", at, err)
	}
	switch refusal.Number {
	case 1045, 1698: // ER_ACCESS_DENIED_ERROR, ER_ACCESS_DENIED_NO_PASSWORD_ERROR
		return fmt.Errorf("%w: %s: %s; check the user and password of --inbox-dsn, or --inbox-password-file", ErrInbox, at, refusal.Message)
	case 1044, 1142, 1143: // of the database, the table, a column
		return fmt.Errorf("%w: %s: %s; type: GRANT SELECT ON %s TO '%s'@'%%'", ErrInbox, at, refusal.Message, r.Name(), r.dsn.User)
	case 1049, 1146: // ER_BAD_DB_ERROR, ER_NO_SUCH_TABLE
		create := strings.Join(strings.Fields(r.inbox.Schema()), " ")
		return fmt.Errorf("%w: %s: %s; check --inbox-dsn and --inbox-table; the table that consumers fill is made by: %s", ErrInbox, at, refusal.Message, create)
	case 1054: // ER_BAD_FIELD_ERROR
		create := strings.Join(strings.Fields(r.inbox.Schema()), " ")
		return fmt.Errorf("%w: %s: %s; check --inbox-table; one that consumers fill is made by: %s", ErrInbox, at, refusal.Message, create)
	}
	return fmt.Errorf("exchange: inbox %s: %w", at, err)
}
