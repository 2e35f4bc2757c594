package binlog

import (
	"context"
	"database/sql"
	"errors"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// mySQL is the dialect of MySQL 8.0 and later.
type mySQL struct{ *Server }

func (s mySQL) executed(ctx context.Context) (*GTIDSet, error) {
	return s.set(ctx, "SELECT @@GLOBAL.gtid_executed")
}

func (s mySQL) purged(ctx context.Context) (*GTIDSet, error) {
	return s.set(ctx, "SELECT @@GLOBAL.gtid_purged")
}

var (
	// ownedBy is what gtid_owned has behind a transaction's number: its sessions.
	ownedBy = regexp.MustCompile(`(#\d+)+`)
	// ownedOf is what it has before those of a server. Nothing need stand between
	// that and the session before.
	ownedOf = regexp.MustCompile(`[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}`)
)

// ownedSet reads gtid_owned.
func ownedSet(text string) (*GTIDSet, error) {
	var list []string
	servers := ownedOf.FindAllStringIndex(text, -1)
	for i, server := range servers {
		end := len(text)
		if i+1 < len(servers) {
			end = servers[i+1][0]
		}
		list = append(list, text[server[0]:server[1]]+strings.Trim(ownedBy.ReplaceAllString(text[server[1]:end], ""), ", \n"))
	}
	return ParseGTIDSet(strings.Join(list, ","))
}

// visible has what sessions own as well: rows can be seen a moment before their
// transaction is in gtid_executed, into which it goes out of gtid_owned. So the
// latter is asked first.
func (s mySQL) visible(ctx context.Context) (*GTIDSet, error) {
	var text string
	if err := s.db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_owned").Scan(&text); err != nil {
		return nil, s.explain(err)
	}
	owned, err := ownedSet(text)
	if err != nil {
		return nil, err
	}
	executed, err := s.executed(ctx)
	if err != nil {
		return nil, err
	}
	return executed.Union(owned), nil
}

// history needs PROCESS.
func (s mySQL) history(ctx context.Context) (n int64, known bool, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT count FROM information_schema.innodb_metrics WHERE name = 'trx_rseg_history_len'").Scan(&n)
	switch {
	case denied(err), errors.Is(err, sql.ErrNoRows):
		return 0, false, nil
	case err != nil:
		return 0, false, s.explain(err)
	}
	return n, true, nil
}

func (s mySQL) behindSource() (query, column string) {
	if old(s.Version, "8.0.") { // which until 8.0.22 has only the old words
		return "SHOW SLAVE STATUS", "Seconds_Behind_Master"
	}
	return "SHOW REPLICA STATUS", "Seconds_Behind_Source"
}

func (s mySQL) ahead(ctx context.Context, position, executed *GTIDSet) (*GTIDSet, error) {
	return s.Subtract(ctx, position, executed)
}

// received needs REPLICATION CLIENT.
func (s mySQL) received(ctx context.Context) (*GTIDSet, error) {
	return s.replicaStatus(ctx, "SHOW REPLICA STATUS", "Retrieved_Gtid_Set")
}

// replicaStatus is the union of the sets in a column that has one for each
// source.
func (s *Server) replicaStatus(ctx context.Context, query, column string) (*GTIDSet, error) {
	set, err := ParseGTIDSet("")
	if err != nil {
		return nil, err
	}
	rows, err := s.db.QueryContext(ctx, query)
	if err != nil {
		return nil, s.explain(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, s.explain(err)
	}
	for rows.Next() {
		cells := make([]sql.RawBytes, len(columns))
		if err := rows.Scan(pointers(cells)...); err != nil {
			return nil, s.explain(err)
		}
		for i, name := range columns {
			if name != column {
				continue
			}
			one, err := ParseGTIDSet(string(cells[i]))
			if err != nil {
				return nil, err
			}
			set = set.Union(one)
		}
	}
	return set, rows.Err()
}

func (s mySQL) before(ctx context.Context, one, executed *GTIDSet) ([]*GTIDSet, error) {
	others, err := s.Subtract(ctx, executed, one)
	return []*GTIDSet{others}, err
}

func (mySQL) checked(context.Context) (map[string]bool, error) { return nil, nil }

// ownedLimit is how long snapshot waits. A session can own a GTID for longer, one
// that it was given (SET gtid_next); its rows cannot be seen until it commits.
const ownedLimit = time.Second

// snapshot returns when what it has is in gtid_executed, too. A transaction's rows
// can be seen before that; meanwhile its GTID is in gtid_owned.
func (s mySQL) snapshot(ctx context.Context, conn *sql.Conn) error {
	if _, err := conn.ExecContext(ctx, openSnapshot); err != nil {
		return err
	}
	owned, err := s.owned(ctx, conn)
	for deadline := time.Now().Add(ownedLimit); err == nil && len(owned) > 0 && time.Now().Before(deadline); {
		var now map[string]bool
		now, err = s.owned(ctx, conn)
		maps.DeleteFunc(owned, func(one string, _ bool) bool { return !now[one] })
	}
	return err
}

// owned are the GTIDs that sessions have and have not yet committed, each as its
// number and its session: 23#8 (of 4ad2c5f7-…:23#8:24#9,…).
func (mySQL) owned(ctx context.Context, conn *sql.Conn) (map[string]bool, error) {
	var text string
	if err := conn.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_owned").Scan(&text); err != nil {
		return nil, err
	}
	owned := map[string]bool{}
	for one := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ':' || r == '\n' || r == ' ' }) {
		if strings.Contains(one, "#") {
			owned[one] = true
		}
	}
	return owned, nil
}

func (mySQL) precision() time.Duration { return time.Microsecond }

func (mySQL) identify() string { return "SELECT @@server_uuid" }

func (mySQL) behind(id uint32, position *GTIDSet) request {
	gtids := position.set.Encode()
	data := le.AppendUint16([]byte{mysql.COM_BINLOG_DUMP_GTID}, 0)
	data = le.AppendUint32(data, id)
	data = le.AppendUint32(data, 0) // length of a file's name
	data = le.AppendUint64(data, 4) // offset
	data = le.AppendUint32(data, uint32(len(gtids)))
	return request{id: id, command: append(data, gtids...)}
}

func (mySQL) fromFile(id uint32, file string) request {
	return request{id: id, command: dumpFile(id, file)}
}

func (mySQL) refused(*mysql.MyError) error { return nil }

func (mySQL) needs(map[string]string) []setting {
	return []setting{
		{variable: "log_bin", want: "ON", fix: "remove skip-log-bin and disable-log-bin from the server's option file, then restart it"},
		{variable: "gtid_mode", want: "ON", fix: "SET PERSIST enforce_gtid_consistency = ON; SET GLOBAL gtid_mode = OFF_PERMISSIVE; SET GLOBAL gtid_mode = ON_PERMISSIVE; SET PERSIST gtid_mode = ON"},
		{variable: "binlog_format", want: "ROW", fix: "SET PERSIST binlog_format = ROW /* then let clients reconnect: open sessions keep the old format */"},
		{variable: "binlog_row_image", want: "FULL", fix: "SET PERSIST binlog_row_image = FULL /* then let clients reconnect: open sessions keep the old image */"},
		{variable: "binlog_row_metadata", want: "FULL", fix: "SET PERSIST binlog_row_metadata = FULL", advice: true},
	}
}

func (s mySQL) probes() []probe {
	return []probe{
		{privilege: "REPLICATION SLAVE", try: s.trying("SHOW REPLICAS")},
		{privilege: "REPLICATION CLIENT", try: s.trying(s.logStatus())},
	}
}

// logStatus is the statement that prints the end of the log: 8.0 and 8.1 know
// only the old words, and 8.4 only the new ones.
func (s mySQL) logStatus() string {
	if old(s.Version, "8.0.", "8.1.", "5.") {
		return "SHOW MASTER STATUS"
	}
	return "SHOW BINARY LOG STATUS"
}
