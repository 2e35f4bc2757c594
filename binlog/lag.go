package binlog

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/outboxrelay/relay/schema"
)

// Behind is how much log the server has written past a place, in bytes, by
// the sizes of its files. It needs REPLICATION CLIENT.
func (s *Server) Behind(ctx context.Context, place Place) (int64, error) {
	files, err := s.logFiles(ctx)
	if err != nil {
		return 0, err
	}
	return bytesFrom(files, place.File, int64(place.Offset)), nil
}

// bytesFrom is the size of the log from an offset of a file on; 0 where there is
// no such file.
func bytesFrom(files []logFile, name string, offset int64) (bytes int64) {
	reached := false
	for _, f := range files {
		if f.name == name {
			reached = true
			bytes -= offset
		}
		if reached {
			bytes += f.size
		}
	}
	return bytes
}

// Retention is how long the server keeps its log; 0: for ever.
func (s *Server) Retention(ctx context.Context) (time.Duration, error) {
	values, err := s.variables(ctx)
	if err != nil {
		return 0, err
	}
	keeps, _ := kept(values)
	return keeps, nil
}

// kept reads from the server's variables how long it keeps its log, and up to
// how many bytes; 0: for ever, and without limit. Limits are of MariaDB 11.4
// (max_binlog_total_size) and of Percona's MySQL (binlog_space_limit).
func kept(values map[string]string) (keeps time.Duration, limit int64) {
	number := func(name string) int64 {
		n, _ := strconv.ParseInt(values[name], 10, 64)
		return n
	}
	seconds := number("binlog_expire_logs_seconds")
	if seconds == 0 {
		seconds = number("expire_logs_days") * 86400 // of MySQL 8.0
	}
	if strings.EqualFold(values["binlog_expire_logs_auto_purge"], "OFF") { // which is about the time alone
		seconds = 0
	}
	for _, name := range []string{"max_binlog_total_size", "binlog_space_limit"} {
		if n := number(name); n > 0 && (limit == 0 || n < limit) {
			limit = n
		}
	}
	return time.Duration(seconds) * time.Second, limit
}

// Log is what the server has of its log, and how much of it it keeps.
type Log struct {
	Retention time.Duration // 0: for ever
	Limit     int64         // bytes; 0: none
	Files     int
	Bytes     int64
	Since     time.Time     // when the oldest file was begun, by the server's clock; zero: not known
	Age       time.Duration // of the oldest file
}

// Growth is about how many bytes are written in a second, 0 where the log is too
// young to tell: less than ten minutes.
func (l Log) Growth() float64 {
	if l.Age < 10*time.Minute {
		return 0
	}
	return float64(l.Bytes) / l.Age.Seconds()
}

// Log looks at the server's log files, and with aged at the time of the oldest.
// It needs REPLICATION CLIENT, and for that time REPLICATION SLAVE. With an error
// it returns what needs neither: how long the log is kept.
func (s *Server) Log(ctx context.Context, aged bool) (Log, error) {
	values, err := s.variables(ctx)
	if err != nil {
		return Log{}, err
	}
	var l Log
	l.Retention, l.Limit = kept(values)
	files, err := s.logFiles(ctx)
	if err != nil {
		return l, err
	}
	l.Files, l.Bytes = len(files), bytesFrom(files, files[0].name, 0)
	if !aged {
		return l, nil
	}
	now, err := s.now(ctx)
	if err != nil {
		return l, err
	}
	if found, err := s.seek(ctx, s.dialect.fromFile(passingID(), files[0].name), false); err == nil {
		l.Since, l.Age = found.Created, max(0, now.Sub(found.Created))
	}
	return l, nil
}

// seekTime is how long the server may take to find a position in a file of its
// log, which it reads from the beginning.
const seekTime = 3 * time.Second

// Seek finds where in the log the first transaction stands that the position
// lacks. There must be one, and the server must be one that can be followed from
// the position. It needs REPLICATION SLAVE. With exact false only the file is
// looked for: to find the place in it can be a GB to read for the server.
func (s *Server) Seek(ctx context.Context, position *GTIDSet, exact bool) (Start, error) {
	seeking, cancel := context.WithTimeout(ctx, seekTime)
	defer cancel()
	found, err := s.seek(seeking, s.dialect.behind(passingID(), position), exact)
	if err != nil && (found.Created.IsZero() || ctx.Err() != nil) {
		return Start{}, err
	}
	return found, nil
}

// Past is how much log the server has written from there on, in bytes; where the
// start is not exact, it is that at most. It needs REPLICATION CLIENT. The error
// wraps ErrPlace when the file is purged.
func (s *Server) Past(ctx context.Context, from Start) (int64, error) {
	files, err := s.logFiles(ctx)
	if err != nil {
		return 0, err
	}
	if !slices.ContainsFunc(files, func(f logFile) bool { return f.name == from.File }) {
		return 0, fmt.Errorf("%w: the server has no log file %q; it has %s", ErrPlace, from.File, nameFiles(files))
	}
	return bytesFrom(files, from.File, from.Offset), nil
}

// Start is where a server began to send its log.
type Start struct {
	File    string
	Created time.Time // the file, by the server's clock in whole seconds
	Offset  int64     // of the first transaction that was sent; 0: not known
	Exact   bool      // Offset is known
}

// seek asks for the log and reads as far as to the first transaction, or only
// to the head of the file that has it. With an error it returns what it knew by
// then.
func (s *Server) seek(ctx context.Context, ask request, transaction bool) (found Start, err error) {
	st, err := s.stream(ctx, &schema.Table{}, heartbeat, ask)
	if err != nil {
		return found, err
	}
	defer st.Close()
	defer st.release()
	checksum := false // the events after the first format description end in one
	for {
		raw, err := st.event(ctx)
		if err != nil {
			return found, err
		}
		h, body, err := splitEvent(raw, checksum && replication.EventType(raw.bytes[4]) != replication.FORMAT_DESCRIPTION_EVENT)
		if err != nil {
			return found, err
		}
		switch h.typ {
		case replication.ROTATE_EVENT: // one comes before each file
			if len(body) > 8 {
				found = Start{File: string(body[8:])}
			}
		case replication.FORMAT_DESCRIPTION_EVENT:
			if checksum, err = hasChecksum(raw.bytes); err != nil {
				return found, err
			}
			if found.Created = time.Unix(int64(h.timestamp), 0).UTC(); !transaction {
				return found, nil
			}
		case replication.GTID_EVENT, replication.GTID_TAGGED_LOG_EVENT, replication.ANONYMOUS_GTID_EVENT, replication.MARIADB_GTID_EVENT:
			found.Offset = int64(h.end) - int64(h.size)
			found.Exact = h.end > h.size
			return found, nil
		}
	}
}
