package binlog

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"time"
)

// Now is the time by the server's clock.
func (s *Server) Now(ctx context.Context) (time.Time, error) { return s.now(ctx) }

// History is the number of transactions whose old versions of rows InnoDB has
// not purged yet; known is false for a user who may not see it: MySQL wants
// PROCESS for that.
func (s *Server) History(ctx context.Context) (n int64, known bool, err error) {
	return s.dialect.history(ctx)
}

// ReplicaLag is how far a replica is behind its sources, the largest of it. That
// it is no replica is an error, and so is one that does not apply what it gets.
// It needs REPLICATION CLIENT, on MariaDB SLAVE MONITOR.
func (s *Server) ReplicaLag(ctx context.Context) (lag time.Duration, err error) {
	query, column := s.dialect.behindSource()
	rows, err := s.db.QueryContext(ctx, query)
	if err != nil {
		if denied(err) {
			return 0, fmt.Errorf("%w: %s at %s: %w; type there: GRANT %s ON *.* TO %s", ErrGrant, s.Flavor.Product(), s.dsn.Addr, err, s.seesReplication(), s.account())
		}
		return 0, s.explain(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return 0, s.explain(err)
	}
	sources := 0
	for rows.Next() {
		cells := make([]sql.RawBytes, len(columns))
		if err := rows.Scan(pointers(cells)...); err != nil {
			return 0, s.explain(err)
		}
		for i, name := range columns {
			if name != column {
				continue
			}
			seconds, err := strconv.ParseInt(string(cells[i]), 10, 64)
			if err != nil { // NULL
				return 0, fmt.Errorf("binlog: the replica at %s does not say how far it is behind: its replication has stopped", s.dsn.Addr)
			}
			sources++
			lag = max(lag, time.Duration(seconds)*time.Second)
		}
	}
	if err := rows.Err(); err != nil {
		return 0, s.explain(err)
	}
	if sources == 0 {
		return 0, fmt.Errorf("%w: %s at %s is no replica: %s gives nothing; look at --replica-dsn", ErrSettings, s.Flavor.Product(), s.dsn.Addr, query)
	}
	return lag, nil
}

// seesReplication is the privilege that ReplicaLag needs.
func (s *Server) seesReplication() string {
	if s.Flavor == MariaDB {
		return "SLAVE MONITOR"
	}
	return "REPLICATION CLIENT"
}
