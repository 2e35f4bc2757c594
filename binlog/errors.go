package binlog

import (
	"errors"
	"fmt"
)

// The errors by which callers tell what to do. Each is wrapped with what was
// found and the way out.
var (
	// ErrAuth: the server refused the user, the password or the database.
	ErrAuth = errors.New("binlog: access refused")
	// ErrTLS: the server's certificate was not accepted, or the client's was
	// not, or the server has no TLS, or wants it. A server's certificate that
	// has expired is none of these: it passes when it is renewed.
	ErrTLS = errors.New("binlog: TLS with the server fails")
	// ErrGrant: the user lacks a privilege.
	ErrGrant = errors.New("binlog: privilege missing")
	// ErrSettings: the server's settings do not let its log be followed.
	ErrSettings = errors.New("binlog: server settings")
	// ErrPurged: the server no longer has transactions that were not relayed.
	ErrPurged = errors.New("binlog: history purged")
	// ErrDiverged: the server has never executed transactions that the
	// checkpoint says were relayed.
	ErrDiverged = errors.New("binlog: history diverged")
	// ErrChanged: the outbox table was changed, and its rows in the log cannot
	// be mapped; or it was renamed away.
	ErrChanged = errors.New("binlog: outbox table changed")
	// ErrUnreadable: the log holds what cannot be relayed and must not be
	// passed over.
	ErrUnreadable = errors.New("binlog: cannot be relayed")
	// ErrTorn: a transaction in the stream broke off.
	ErrTorn = errors.New("binlog: transaction broke off")
	// ErrFiles: log files that cannot be read, or not one after the other.
	ErrFiles = errors.New("binlog: log files")
	// ErrDamaged: bytes in the log that are not what their type says.
	ErrDamaged = errors.New("binlog: damaged event")
	// ErrSpool: the directory takes no file for what is too large for memory.
	ErrSpool = errors.New("binlog: no file can be made")
)

// TxError is what cannot be relayed of one transaction: a position that has it
// is behind it.
type TxError struct {
	GTID     GTID
	Prepared GTID // see Tx.Prepared
	Err      error
}

func (e *TxError) Error() string { return e.Err.Error() }

func (e *TxError) Unwrap() error { return e.Err }

// Skip is the position with the transaction, and what that names: of an XA
// transaction both halves.
func (e *TxError) Skip(position *GTIDSet) (behind *GTIDSet, skipped string) {
	behind, skipped = position.Clone(), e.GTID.String()
	behind.Add(e.GTID)
	if !e.Prepared.IsZero() {
		behind.Add(e.Prepared)
		skipped = fmt.Sprintf("%s and its XA PREPARE %s", skipped, e.Prepared)
	}
	return behind, skipped
}
