package binlog

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	"github.com/go-mysql-org/go-mysql/mysql"
	driver "github.com/go-sql-driver/mysql"
)

// mariaDB is the dialect of MariaDB 10.6 and later.
type mariaDB struct{ *Server }

// executed is the end of the log. What a replica has applied and not logged is
// not in it, nor is it ever sent: log_slave_updates must be on.
func (s mariaDB) executed(ctx context.Context) (*GTIDSet, error) {
	return s.set(ctx, "SELECT @@GLOBAL.gtid_binlog_pos")
}

// visible is executed: a transaction is in the log before its rows can be seen.
func (s mariaDB) visible(ctx context.Context) (*GTIDSet, error) { return s.executed(ctx) }

func (s mariaDB) history(ctx context.Context) (n int64, known bool, err error) {
	err = s.db.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE 'Innodb_history_list_length'").Scan(new(string), &n)
	switch {
	case denied(err), errors.Is(err, sql.ErrNoRows):
		return 0, false, nil
	case err != nil:
		return 0, false, s.explain(err)
	}
	return n, true, nil
}

func (s mariaDB) behindSource() (query, column string) {
	return "SHOW ALL SLAVES STATUS", "Seconds_Behind_Master"
}

// purged is where the oldest log file begins. It needs BINLOG MONITOR.
func (s mariaDB) purged(ctx context.Context) (*GTIDSet, error) {
	files, err := s.logFiles(ctx)
	if err != nil {
		return nil, err
	}
	set, err := s.set(ctx, "SELECT COALESCE(BINLOG_GTID_POS(?, 4), 'gone')", files[0].name)
	if err != nil {
		return nil, fmt.Errorf("binlog: the server cannot tell where its log file %s begins, or has just removed it: %w", files[0].name, err)
	}
	return set, nil
}

// ahead follows the server's own rule for replicas: it has a transaction if one
// of the same domain and server with that number or a higher one is in its log,
// or if it is the very one that it last applied as a replica, with an empty log
// since: after it was set up from a backup.
func (s mariaDB) ahead(ctx context.Context, position, _ *GTIDSet) (*GTIDSet, error) {
	var state, applied string
	if err := s.db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_binlog_state, @@GLOBAL.gtid_slave_pos").Scan(&state, &applied); err != nil {
		return nil, s.explain(err)
	}
	last := map[[2]uint32]int64{} // by domain and server
	for text := range strings.SplitSeq(state+","+applied, ",") {
		if text == "" {
			continue
		}
		one, err := parseDomains(text)
		if err != nil {
			return nil, fmt.Errorf("binlog: the server's gtid_binlog_state: %w", err)
		}
		for domain, r := range one {
			last[[2]uint32{domain, r.server}] = max(r.last, last[[2]uint32{domain, r.server}])
		}
	}
	ahead := position.Clone()
	for domain, r := range position.domains {
		there, known := last[[2]uint32{domain, r.server}]
		switch {
		case there >= r.last:
			delete(ahead.domains, domain)
		case known:
			ahead.domains[domain] = run{after: there, last: r.last, server: r.server}
		default: // since when the histories differ cannot be told
			ahead.domains[domain] = run{after: r.last - 1, last: r.last, server: r.server}
		}
	}
	return ahead, nil
}

// received is empty for a user without SLAVE MONITOR.
func (s mariaDB) received(ctx context.Context) (*GTIDSet, error) {
	set, err := s.replicaStatus(ctx, "SHOW ALL SLAVES STATUS", "Gtid_IO_Pos")
	if err != nil && denied(err) {
		return ParseGTIDSet("")
	}
	return set, err
}

// before guesses the name of the transaction before one: its number is known,
// and its server is one of those that have written in that domain.
func (s mariaDB) before(ctx context.Context, one, executed *GTIDSet) ([]*GTIDSet, error) {
	var state string
	if err := s.db.QueryRowContext(ctx, "SELECT @@GLOBAL.gtid_binlog_state").Scan(&state); err != nil {
		return nil, s.explain(err)
	}
	var list []*GTIDSet
	for domain, r := range one.domains {
		others := executed.Clone()
		delete(others.domains, domain)
		if r.last == 1 {
			return []*GTIDSet{others}, nil
		}
		for text := range strings.SplitSeq(state, ",") {
			known, err := parseDomains(text)
			if err != nil {
				return nil, fmt.Errorf("binlog: the server's gtid_binlog_state: %w", err)
			}
			writer, ok := known[domain]
			if !ok {
				continue
			}
			guess := others.Clone()
			guess.domains[domain] = run{last: r.last - 1, server: writer.server}
			if writer.server == r.server { // the likeliest
				list = append([]*GTIDSet{guess}, list...)
			} else {
				list = append(list, guess)
			}
		}
	}
	return list, nil
}

// commitBeat is between two looks at whether what is in the log is committed,
// which a semi-synchronous replica may delay by seconds.
const commitBeat = 5 * time.Millisecond

// snapshot opens one after another until there is one behind the present end of
// the log: a transaction is in gtid_binlog_pos as soon as it is written there,
// and its rows can be seen only when that is synced and the engine has committed.
func (s mariaDB) snapshot(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout) // of a log that is reset meanwhile
	defer cancel()
	var end logFile
	if err := scanFirst(ctx, conn, "SHOW MASTER STATUS", &end.name, &end.size); err != nil {
		return err
	}
	for {
		if _, err := conn.ExecContext(ctx, openSnapshot); err != nil {
			return err
		}
		var at logFile
		err := scanFirst(ctx, conn, "SHOW STATUS LIKE 'binlog_snapshot_file'", new(string), &at.name)
		if err == nil {
			err = scanFirst(ctx, conn, "SHOW STATUS LIKE 'binlog_snapshot_position'", new(string), &at.size)
		}
		if err != nil || !at.before(end) {
			return err
		}
		if _, err := conn.ExecContext(ctx, "ROLLBACK"); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(commitBeat):
		}
	}
}

// before compares places in the log; file numbers can grow a digit longer.
func (f logFile) before(other logFile) bool {
	return cmp.Or(cmp.Compare(len(f.name), len(other.name)), cmp.Compare(f.name, other.name), cmp.Compare(f.size, other.size)) < 0
}

// scanFirst reads the first columns of a query's first row.
func scanFirst(ctx context.Context, conn *sql.Conn, query string, into ...any) error {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	if !rows.Next() {
		return errors.Join(rows.Err(), fmt.Errorf("binlog: %s gives nothing", query))
	}
	for range columns[len(into):] {
		into = append(into, new(sql.RawBytes))
	}
	return rows.Scan(into...)
}

func (mariaDB) precision() time.Duration { return time.Second }

// identify has no UUID to ask for.
func (mariaDB) identify() string {
	return "SELECT CONCAT(@@server_id, ' ', @@hostname, ':', @@port, @@datadir)"
}

// understands is what a replica says that knows MariaDB's GTIDs; else it is
// sent what an older one would take for them.
const understands = "SET @mariadb_slave_capability = 4"

// behind asks as a replica that is strict: the server must have the very
// transactions that the position names (MariaDB's sql/sql_repl.cc).
func (mariaDB) behind(id uint32, position *GTIDSet) request {
	return request{id: id, before: []string{understands,
		"SET @slave_connect_state = '" + position.domains.String() + "', @slave_gtid_strict_mode = 1, @slave_gtid_ignore_duplicates = 0",
	}, command: dumpFile(id, "")}
}

func (mariaDB) fromFile(id uint32, file string) request {
	return request{id: id, before: []string{understands}, command: dumpFile(id, file)}
}

// refused tells the reasons apart by the server's text, like explainStream.
func (s mariaDB) refused(refusal *mysql.MyError) error {
	text := refusal.Message
	switch {
	case strings.Contains(text, "Could not find GTID state requested by slave in any binlog files"):
		return fmt.Errorf("%w: MariaDB at %s: %s; to send what the table still has of the gap, and go on behind it: relay resume --gap backfill", ErrPurged, s.dsn.Addr, text)
	case strings.Contains(text, "which is not in the master's binlog"),
		strings.Contains(text, "The binlog on the master is missing the GTID"): // it has lower and higher ones of that server
		return fmt.Errorf("%w: MariaDB at %s: %s; relay status shows both positions", ErrDiverged, s.dsn.Addr, text)
	}
	return nil
}

// checked goes by the server's own rule for what it calls JSON. It refuses a
// system-versioned table.
func (s mariaDB) checked(ctx context.Context) (map[string]bool, error) {
	var found bool
	if err := s.db.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = ? AND table_name = ? AND table_type = 'SYSTEM VERSIONED')",
		s.database, s.table).Scan(&found); err != nil {
		return nil, s.explain(err)
	}
	if found {
		return nil, versioned(s.database, s.table)
	}
	rows, err := s.db.QueryContext(ctx, `
		SELECT c.column_name FROM information_schema.columns c
		JOIN information_schema.check_constraints k ON k.constraint_schema = c.table_schema AND k.table_name = c.table_name
		WHERE c.table_schema = ? AND c.table_name = ? AND k.check_clause = CONCAT('json_valid(', CHAR(96), c.column_name, CHAR(96), ')')`,
		s.database, s.table)
	if err != nil {
		return nil, s.explain(err)
	}
	defer rows.Close()
	names := map[string]bool{}
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			return nil, s.explain(err)
		}
		names[name] = true
	}
	return names, rows.Err()
}

func (mariaDB) needs(values map[string]string) []setting {
	const reconnect = " /* in the option file as well, then let clients reconnect: open sessions keep the old one */"
	list := []setting{
		{variable: "log_bin", want: "ON", fix: "log_bin = binlog in the server's option file, then restart it"},
		{variable: "gtid_strict_mode", want: "ON", fix: "SET GLOBAL gtid_strict_mode = ON /* in the option file as well */"},
		{variable: "binlog_format", want: "ROW", fix: "SET GLOBAL binlog_format = ROW" + reconnect},
		{variable: "binlog_row_image", want: "FULL", fix: "SET GLOBAL binlog_row_image = FULL" + reconnect},
		{variable: "binlog_row_metadata", want: "FULL", fix: "SET GLOBAL binlog_row_metadata = FULL /* in the option file as well */", advice: true},
		{variable: "sync_binlog", want: "1", fix: "SET GLOBAL sync_binlog = 1 /* in the option file as well: without it a crash of the host can take back what was relayed */", advice: true},
	}
	if values["gtid_slave_pos"] != "" { // it is a replica, or was one
		list = append(list, setting{variable: "log_slave_updates", want: "ON", fix: "log_slave_updates = ON in the server's option file, then restart it"})
	}
	return list
}

func (mariaDB) logStatus() string { return "SHOW MASTER STATUS" }

func (s mariaDB) probes() []probe {
	return []probe{
		{privilege: "REPLICATION SLAVE", try: s.register},
		{privilege: "BINLOG MONITOR", try: s.trying(s.logStatus())},
		{privilege: "SLAVE MONITOR", try: s.trying("SHOW ALL SLAVES STATUS"), advice: true},
	}
}

// register says to the server that a replica is there, which no statement tries
// without a further privilege, and goes away again.
func (s mariaDB) register(ctx context.Context) error {
	conn, err := client.ConnectWithDialer(ctx, s.dsn.Net, s.dsn.Addr, s.dsn.User, s.dsn.Passwd, "",
		func(ctx context.Context, _, _ string) (conn net.Conn, err error) { return s.dial(ctx) },
		func(c *client.Conn) error { c.SetTLSConfig(s.replicaTLS()); return nil })
	if err != nil {
		return asDriver(err)
	}
	defer conn.Close()
	if err := send(conn, registerCommand(passingID())); err != nil {
		return err
	}
	_, err = conn.ReadOKPacket()
	if err = asDriver(err); errors.As(err, new(*driver.MySQLError)) { // ER_ACCESS_DENIED_ERROR, of one who was let in
		return &driver.MySQLError{Number: mysql.ER_SPECIFIC_ACCESS_DENIED_ERROR, Message: err.Error()}
	}
	return err
}

// asDriver is a server's refusal as the other library has it.
func asDriver(err error) error {
	var refusal *mysql.MyError
	if errors.As(err, &refusal) {
		return &driver.MySQLError{Number: refusal.Code, Message: refusal.Message}
	}
	return err
}
