package binlog

import (
	"cmp"
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/uuid"

	"github.com/outboxrelay/relay/schema"
)

// Config says where the outbox is.
type Config struct {
	DSN      string         // of github.com/go-sql-driver/mysql
	Password string         // stands in for the DSN's where it is not empty
	TLS      *tls.Config    // of all connections. Defaults to what the DSN says.
	Table    string         // db.table, or table in the DSN's database
	Options  schema.Options // how the table's columns are to be taken
	ServerID uint32         // under which the relay follows as a replica
	Spool    string         // directory for what is too large for memory. Defaults to the system's for temporary files.
	// Waiting is called, and must return at once, with true when more of the log
	// or of a backfill is waited for, and with false when it has come, or the
	// server was given up. Nil: nobody wants to know.
	Waiting func(bool)
}

const (
	dialTimeout  = 10 * time.Second // of every connection attempt
	queryTimeout = 30 * time.Second // for an answer, of any query but a backfill's
)

// Server is the MySQL server that holds the outbox. Its methods may be called
// by many goroutines.
type Server struct {
	Flavor  Flavor
	UUID    string // @@server_uuid; empty of MariaDB, which has none
	Version string // @@version

	cfg             Config
	dsn             *mysql.Config
	agreed          atomic.Pointer[tls.ConnectionState] // with the server, last; nil: there is no TLS
	db              *sql.DB
	scans           *sql.DB // for backfills: its queries may take long
	database, table string
	dialect         dialect
	identity        string // what the dialect identifies it by

	accounts sync.Mutex
	user     string // as the server knows it; empty: not yet asked
}

// Parse checks the configuration without any I/O. Its errors are about what
// the user typed.
func (c Config) Parse() (dsn *mysql.Config, database, table string, err error) {
	if c.DSN == "" {
		return nil, "", "", errors.New("binlog: no DSN: give --mysql-dsn 'relay:PASSWORD@tcp(127.0.0.1:3306)/shop'")
	}
	if dsn, err = mysql.ParseDSN(c.DSN); err != nil {
		// The driver's text can repeat a part of the DSN, and so of the password.
		return nil, "", "", errors.New("binlog: the DSN is not of the form relay:PASSWORD@tcp(127.0.0.1:3306)/shop?tls=true; look at its address in parentheses, the slash before the database, and the parameters behind it")
	}
	if c.Password != "" {
		dsn.Passwd = c.Password
	}
	database, table, ok := strings.Cut(c.Table, ".")
	if !ok {
		database, table = dsn.DBName, c.Table
	}
	if strings.Contains(table, ".") {
		return nil, "", "", fmt.Errorf("binlog: the table %q has more than one dot: give --table shop.outbox", c.Table)
	}
	if database == "" || table == "" {
		return nil, "", "", fmt.Errorf("binlog: the table %q names no database, and neither does the DSN: give --table shop.outbox", c.Table)
	}
	if err := c.secure(dsn); err != nil {
		return nil, "", "", err
	}
	dsn.Timeout = cmp.Or(dsn.Timeout, dialTimeout)
	dsn.ReadTimeout, dsn.WriteTimeout = cmp.Or(dsn.ReadTimeout, queryTimeout), cmp.Or(dsn.WriteTimeout, queryTimeout)
	dsn.ParseTime = false
	dsn.InterpolateParams = true
	dsn.Collation = "" // the server's utf8mb4 default
	dsn.MultiStatements = false
	dsn.Logger = &mysql.NopLogger{} // it prints to standard error, and returns the errors as well
	return dsn, database, table, nil
}

// Open connects to the server.
func Open(ctx context.Context, cfg Config) (*Server, error) {
	dsn, database, table, err := cfg.Parse()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, dsn: dsn, database: database, table: table}
	s.observe(dsn)
	connector, err := mysql.NewConnector(dsn)
	if err != nil {
		return nil, errors.New("binlog: the DSN has parameters that do not fit together: look at tls and the timeouts")
	}
	patient := dsn.Clone()
	patient.ReadTimeout = 0
	patient.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		var dialer net.Dialer
		return cfg.watch(dialer.DialContext(ctx, network, address))
	}
	scans, err := mysql.NewConnector(patient)
	if err != nil {
		return nil, errors.New("binlog: the DSN has parameters that do not fit together: look at tls and the timeouts")
	}
	s.db, s.scans = sql.OpenDB(connector), sql.OpenDB(scans)
	s.db.SetMaxOpenConns(4)
	s.db.SetConnMaxIdleTime(time.Minute)
	ctx, cancel := context.WithTimeout(ctx, dialTimeout) // of a server that takes the connection and says nothing
	defer cancel()
	if err := s.meet(ctx); err != nil {
		s.Close()
		return nil, s.explain(s.refused(ctx, err))
	}
	return s, nil
}

// Close ends the connections to the server, those of open streams apart.
func (s *Server) Close() error { return errors.Join(s.db.Close(), s.scans.Close()) }

// Address is the server's host and port, without user and password.
func (s *Server) Address() string { return s.dsn.Addr }

// TableName is db.table, as it was asked for.
func (s *Server) TableName() string { return s.database + "." + s.table }

// explain sorts the server's refusals by their number.
func (s *Server) explain(err error) error { return s.explainFor(err, "SELECT") }

// explainFor is explain of what needs a privilege on the table.
func (s *Server) explainFor(err error, privilege string) error {
	var refusal *mysql.MySQLError
	if unsafe := s.explainTLS(err); unsafe != nil {
		return unsafe
	}
	if !errors.As(err, &refusal) {
		return fmt.Errorf("binlog: %s at %s: %w", s.Flavor.Product(), s.dsn.Addr, err)
	}
	switch refusal.Number {
	case 1045, 1698: // ER_ACCESS_DENIED_ERROR, ER_ACCESS_DENIED_NO_PASSWORD_ERROR
		return fmt.Errorf("%w: %s at %s: %s; check the user and password of --mysql-dsn, or --mysql-password-file%s", ErrAuth, s.Flavor.Product(), s.dsn.Addr, refusal.Message, s.lacks())
	case 1044: // ER_DBACCESS_DENIED_ERROR
		return fmt.Errorf("%w: %s at %s: %s; type: GRANT %s ON %s TO %s", ErrGrant, s.Flavor.Product(), s.dsn.Addr, refusal.Message, privilege, s.quoted(), s.account())
	case 1142, 1143: // ER_TABLEACCESS_DENIED_ERROR, ER_COLUMNACCESS_DENIED_ERROR
		return fmt.Errorf("%w: %s at %s: %s; type: GRANT %s ON %s TO %s", ErrGrant, s.Flavor.Product(), s.dsn.Addr, refusal.Message, privilege, s.quoted(), s.account())
	case 1227: // ER_SPECIFIC_ACCESS_DENIED_ERROR, of what is not a table's
		return fmt.Errorf("%w: %s at %s: %w; type: GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO %s; all that a relay needs: relay print grants", ErrGrant, s.Flavor.Product(), s.dsn.Addr, refusal, s.account())
	case 1265, 1366, 1406, 1644, 1906, 3105: // data truncated, wrong or too long; a trigger's SIGNAL; a generated column, of MariaDB and MySQL
		return fmt.Errorf("%w: %s at %s: %w; %s does not let its rows be stamped: look at its status and published_at, and at its triggers: SHOW CREATE TABLE, SHOW TRIGGERS", schema.ErrTable, s.Flavor.Product(), s.dsn.Addr, refusal, s.quoted())
	case 1290, 1836: // ER_OPTION_PREVENTS_STATEMENT, ER_READ_ONLY_MODE
		return fmt.Errorf("binlog: %s at %s: %w; where it is a replica, give the server that takes writes as --mysql-dsn", s.Flavor.Product(), s.dsn.Addr, refusal)
	case 1193, 1231: // ER_UNKNOWN_SYSTEM_VARIABLE, ER_WRONG_VALUE_FOR_VAR
		return fmt.Errorf("%w: %s at %s: %s; look at the parameters behind the ? of --mysql-dsn", ErrSettings, s.Flavor.Product(), s.dsn.Addr, refusal.Message)
	case 1049: // ER_BAD_DB_ERROR
		return fmt.Errorf("%w: %s at %s: %s; check the database in --mysql-dsn and --table: SHOW DATABASES", schema.ErrTable, s.Flavor.Product(), s.dsn.Addr, refusal.Message)
	case 1146: // ER_NO_SUCH_TABLE
		return fmt.Errorf("%w: %s at %s: %s; check --table, or create it: relay schema sql; if it was renamed away: RENAME TABLE it back", schema.ErrTable, s.Flavor.Product(), s.dsn.Addr, refusal.Message)
	}
	return fmt.Errorf("binlog: %s at %s: %w", s.Flavor.Product(), s.dsn.Addr, err)
}

// account is the user for a GRANT statement, as the server knows it, which is
// asked once, or else with any host.
func (s *Server) account() string {
	s.accounts.Lock()
	defer s.accounts.Unlock()
	if s.user == "" {
		s.user = s.login()
	}
	if at := strings.LastIndexByte(s.user, '@'); at >= 0 {
		return "'" + s.user[:at] + "'@'" + s.user[at+1:] + "'"
	}
	return "'" + s.dsn.User + "'@'%'"
}

// login asks the server on a new connection who the user is to it; empty when
// it does not let it in. It names no database, since that may be refused.
func (s *Server) login() (user string) {
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	dsn := s.dsn.Clone()
	dsn.DBName = ""
	connector, err := mysql.NewConnector(dsn)
	if err != nil {
		return ""
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	if db.QueryRowContext(ctx, "SELECT CURRENT_USER()").Scan(&user) != nil {
		return ""
	}
	return user
}

// Table reads the outbox table's definition.
func (s *Server) Table(ctx context.Context) (*schema.Table, error) {
	database, table, columns, err := s.columns(ctx)
	if err != nil {
		return nil, err
	}
	return schema.NewTable(database, table, columns, s.cfg.Options)
}

// columns are those of the table, and its name as the server spells it, and its
// log.
func (s *Server) columns(ctx context.Context) (database, table string, columns []schema.Column, err error) {
	checked, err := s.dialect.checked(ctx)
	if err != nil {
		return "", "", nil, err
	}
	rows, err := s.db.QueryContext(ctx, `
		SELECT table_schema, table_name, column_name, data_type, column_type, COALESCE(character_octet_length, 0), COALESCE(character_set_name, '')
		FROM information_schema.columns WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position`, s.database, s.table)
	if err != nil {
		return "", "", nil, s.explain(err)
	}
	defer rows.Close()
	database, table = s.database, s.table
	for rows.Next() {
		var name, dataType, columnType, charset string
		var octets int
		if err := rows.Scan(&database, &table, &name, &dataType, &columnType, &octets, &charset); err != nil {
			return "", "", nil, s.explain(err)
		}
		column := schema.NewColumn(name, dataType, columnType, octets, charset)
		column.Checked = checked[name]
		columns = append(columns, column)
	}
	if err := rows.Err(); err != nil {
		return "", "", nil, s.explain(err)
	}
	if len(columns) == 0 { // absent, or hidden for want of a privilege: ask it to know which
		_, err := s.db.ExecContext(ctx, "SELECT 1 FROM "+s.quoted()+" LIMIT 0")
		if err != nil {
			return "", "", nil, s.explain(err)
		}
	}
	return database, table, columns, nil
}

// Unaltered tells whether the table still has the definition that Table told
// before. The error is one that passes.
func (s *Server) Unaltered(ctx context.Context, before *schema.Table) error {
	now, err := s.Table(ctx)
	if err == nil && !sameColumns(now, before) {
		err = fmt.Errorf("binlog: %s was altered just now", before)
	}
	return err
}

// quoted is the table's name for a statement.
func (s *Server) quoted() string { return quote(s.database) + "." + quote(s.table) }

func quote(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// Executed is the set of all transactions that the server has committed.
func (s *Server) Executed(ctx context.Context) (*GTIDSet, error) { return s.dialect.executed(ctx) }

// Purged is the set of those that are no longer in its log.
func (s *Server) Purged(ctx context.Context) (*GTIDSet, error) { return s.dialect.purged(ctx) }

// Subtract is the set a without the transactions of b.
func (s *Server) Subtract(ctx context.Context, a, b *GTIDSet) (*GTIDSet, error) {
	if len(a.domains) > 0 || a.set.IsEmpty() || b.set.IsEmpty() {
		return &GTIDSet{set: a.Clone().set, domains: a.domains.minus(b.domains)}, nil
	}
	return s.set(ctx, "SELECT GTID_SUBTRACT(?, ?)", a.String(), b.String())
}

func (s *Server) set(ctx context.Context, query string, args ...any) (*GTIDSet, error) {
	var text string
	if err := s.db.QueryRowContext(ctx, query, args...).Scan(&text); err != nil {
		return nil, s.explain(err)
	}
	return ParseGTIDSet(text)
}

// CheckPosition tells whether the server can be followed from a position:
// purged ⊆ position ⊆ executed.
func (s *Server) CheckPosition(ctx context.Context, position *GTIDSet) error {
	if flavor := position.Flavor(); flavor != "" && flavor != s.Flavor {
		return fmt.Errorf("%w: %s is a position of %s, and the server at %s is %s; give one as relay status prints it for this server", ErrDiverged, position, flavor.Product(), s.dsn.Addr, s.Flavor.Product())
	}
	purged, err := s.Purged(ctx)
	if err != nil {
		return err
	}
	missing, err := s.Subtract(ctx, purged, position)
	if err != nil {
		return err
	}
	executed, err := s.Executed(ctx)
	if err != nil {
		return err
	}
	ahead, err := s.dialect.ahead(ctx, position, executed)
	if err != nil {
		return err
	}
	has := position.Common(executed) // and nothing that was not relayed
	other, err := s.dialect.ahead(ctx, has, executed)
	if err != nil {
		return err
	}
	has = has.Minus(other)
	if !missing.IsEmpty() {
		return fmt.Errorf("%w: the server no longer has %d transactions that were not relayed: %s; to send what the table still has of their rows, and go on behind the gap: relay resume --gap backfill; to go on without them: relay resume --from-gtid '%s' --yes",
			ErrPurged, missing.Count(), missing, has.Union(missing))
	}
	if !ahead.IsEmpty() {
		received, err := s.dialect.received(ctx)
		if err != nil {
			return err
		}
		if received.Contains(ahead) { // it will have them: after a failover it may take a while
			return fmt.Errorf("binlog: %s at %s is a replica that has received %d transactions that were relayed, and not yet applied them: %s", s.Flavor.Product(), s.dsn.Addr, ahead.Count(), ahead)
		}
		if own, err := s.numbered(ctx, ahead); err != nil || own {
			return cmp.Or(err, fmt.Errorf("%w: %d transactions were relayed that this server (%s) itself numbered and no longer has: %s; it was reset or restored, and what it has now may have the numbers of what was relayed; to send all that its log has now: relay resume --from-gtid '%s' --yes; to go on behind all of it, once that is dealt with: relay resume --from-gtid '%s' --yes",
				ErrDiverged, ahead.Count(), cmp.Or(s.UUID, s.dsn.Addr), ahead, purged, executed))
		}
		return fmt.Errorf("%w: %d transactions were relayed that this server (%s) never executed: %s; it is another server, or a failover lost them; if their events may stand, go on from what it has of those that were relayed: relay resume --from-gtid '%s'",
			ErrDiverged, ahead.Count(), cmp.Or(s.UUID, s.dsn.Addr), ahead, has)
	}
	return nil
}

// numbered tells whether the server itself gave transactions of a set their
// numbers, and not another one that it replicates from.
func (s *Server) numbered(ctx context.Context, set *GTIDSet) (bool, error) {
	if s.UUID != "" {
		_, own := (*set.set)[uuid.MustParse(s.UUID)]
		return own, nil
	}
	var id uint32
	if err := s.db.QueryRowContext(ctx, "SELECT @@server_id").Scan(&id); err != nil {
		return false, s.explain(err)
	}
	for _, r := range set.domains {
		if r.server == id {
			return true, nil
		}
	}
	return false, nil
}

// dial connects as the DSN says, for a replication connection.
func (s *Server) dial(ctx context.Context) (net.Conn, error) {
	dialer := net.Dialer{Timeout: dialTimeout, KeepAlive: 15 * time.Second}
	conn, err := s.cfg.watch(dialer.DialContext(ctx, s.dsn.Net, s.dsn.Addr))
	if err == nil { // the handshake must end; the library sets its own limit behind it
		err = conn.SetReadDeadline(time.Now().Add(dialTimeout))
	}
	return conn, err
}
