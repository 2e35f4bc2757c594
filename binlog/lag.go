package binlog

import (
	"context"
	"database/sql"
	"strconv"
	"time"
)

// Behind is how much log the server has written past a place, in bytes, by
// the sizes of its files. It needs REPLICATION CLIENT.
func (s *Server) Behind(ctx context.Context, place Place) (int64, error) {
	rows, err := s.db.QueryContext(ctx, "SHOW BINARY LOGS")
	if err != nil {
		return 0, s.explain(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return 0, s.explain(err)
	}
	var bytes int64
	reached := false
	for rows.Next() {
		var file string
		var size int64
		fields := []any{&file, &size}
		for range columns[2:] {
			fields = append(fields, new(sql.RawBytes))
		}
		if err := rows.Scan(fields...); err != nil {
			return 0, s.explain(err)
		}
		if file == place.File {
			reached = true
			size -= int64(place.Offset)
		}
		if reached {
			bytes += size
		}
	}
	return bytes, rows.Err()
}

// Retention is how long the server keeps its log; 0: for ever.
func (s *Server) Retention(ctx context.Context) (time.Duration, error) {
	values, err := s.variables(ctx)
	if err != nil {
		return 0, err
	}
	seconds, _ := strconv.ParseInt(values["binlog_expire_logs_seconds"], 10, 64)
	return time.Duration(seconds) * time.Second, nil
}
