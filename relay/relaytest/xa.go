package relaytest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"
)

// errXAUnknown is ER_XAER_NOTA: the server knows no such transaction, or no
// longer.
const errXAUnknown = 1397

// distributed runs p as an XA transaction: prepared, then committed or rolled
// back, which is done whatever becomes of the connection.
func (s *scribe) distributed(p plan) (outcome, error) {
	ctx := context.Background()
	conn, err := s.DB.Conn(ctx)
	if err != nil {
		return rolledBack, err
	}
	defer conn.Close()
	run := func(query string, args ...any) (sql.Result, error) {
		return conn.ExecContext(ctx, query, args...)
	}
	xid := "'" + rand.Text() + "'"
	end, decision := committed, "XA COMMIT "+xid
	if p.rollback {
		end, decision = rolledBack, "XA ROLLBACK "+xid
	}
	err = s.prepare(run, xid, p)
	if err != nil {
		end, decision = rolledBack, "XA ROLLBACK "+xid
	} else if _, err = run(decision); err == nil {
		return end, nil
	}
	// The server rolls back what its connection leaves behind, unless it was
	// prepared: that waits for the decision, from anywhere.
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	if err := s.decide(ctx, decision); err != nil {
		return unknown, err
	}
	return end, err
}

// prepare brings p to the point from which it survives its connection.
func (s *scribe) prepare(run execute, xid string, p plan) error {
	if _, err := run("XA START " + xid); err != nil {
		return err
	}
	if err := s.statements(run, p); err != nil {
		return err
	}
	for _, statement := range []string{"XA END " + xid, "XA PREPARE " + xid} {
		if _, err := run(statement); err != nil {
			return err
		}
	}
	return nil
}

// decide repeats a decision until the server has taken it, or has said a few
// times that there is nothing left to decide: the connection that was lost may
// still be at it.
func (s *scribe) decide(ctx context.Context, decision string) error {
	const calm = 5
	ctx, cancel := context.WithTimeout(ctx, settleLimit)
	defer cancel()
	for missing := 0; missing < calm; {
		_, err := s.DB.ExecContext(ctx, decision)
		var refusal *mysql.MySQLError
		switch {
		case err == nil:
			return nil
		case errors.As(err, &refusal) && refusal.Number == errXAUnknown:
			missing++
		default:
			missing = 0
		}
		if pause(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("%w: %s: %v", errUnsettled, decision, err)
		}
	}
	return nil
}
