package binlog

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
)

// Flavor is the kind of a server, as a checkpoint names it.
type Flavor string

// The flavors. They number transactions in ways of their own, so that a
// position of one means nothing to the other.
const (
	MySQL   Flavor = "mysql"
	MariaDB Flavor = "mariadb"
)

// Product is the flavor's name for people.
func (f Flavor) Product() string {
	switch f {
	case MySQL:
		return "MySQL"
	case MariaDB:
		return "MariaDB"
	}
	return "the database server" // that has not told yet
}

// dialect is how a flavor is asked for what both have.
type dialect interface {
	// executed is what Server.Executed returns, purged what Server.Purged does.
	executed(context.Context) (*GTIDSet, error)
	purged(context.Context) (*GTIDSet, error)
	// visible holds the transaction of every row that a query has seen before,
	// and maybe more.
	visible(context.Context) (*GTIDSet, error)
	// history is the number of transactions that InnoDB has not purged yet; known
	// is false for a user who may not see it.
	history(context.Context) (n int64, known bool, err error)
	// behindSource is the query for how far a replica is behind, and the column
	// of its answer, which has a row for each source.
	behindSource() (query, column string)
	// ahead is what of the position the server has never executed.
	ahead(ctx context.Context, position, executed *GTIDSet) (*GTIDSet, error)
	// received is the set of transactions that a replica has got from its
	// source, applied or not; empty for a server that is none.
	received(context.Context) (*GTIDSet, error)
	// before are the positions, the likeliest first, from which the log brings
	// the one transaction before others that were executed.
	before(ctx context.Context, one, executed *GTIDSet) ([]*GTIDSet, error)
	// snapshot opens one that has the rows of all that executed has told of
	// before.
	snapshot(context.Context, *sql.Conn) error
	// precision is that of commit times in the log.
	precision() time.Duration
	// identify is the query for what tells this server from any other.
	identify() string
	// behind asks for the log behind a position, fromFile from the beginning of
	// a file on.
	behind(id uint32, position *GTIDSet) request
	fromFile(id uint32, file string) request
	// refused explains a refusal to send the log; nil for one that both have.
	refused(*mysql.MyError) error
	// checked are the outbox's columns of text that the server keeps valid JSON.
	checked(context.Context) (map[string]bool, error)
	// needs are the variables that must have one value.
	needs(values map[string]string) []setting
	// probes try the privileges that are needed beside SELECT: the second is that
	// of logStatus.
	probes() []probe
	// logStatus is the statement that prints the end of the log and its filter.
	logStatus() string
}

// meet finds out what server it is.
func (s *Server) meet(ctx context.Context) error {
	mariadb := false // a comment that MariaDB alone executes
	if err := s.db.QueryRowContext(ctx, "SELECT @@version, FALSE /*M! OR TRUE */").Scan(&s.Version, &mariadb); err != nil {
		return err
	}
	if mariadb {
		s.Flavor, s.dialect = MariaDB, mariaDB{s}
	} else {
		s.Flavor, s.dialect = MySQL, mySQL{s}
	}
	if err := s.db.QueryRowContext(ctx, s.dialect.identify()).Scan(&s.identity); err != nil {
		return err
	}
	if !mariadb {
		s.UUID = s.identity
	}
	return nil
}

const openSnapshot = "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY"

// old tells whether the version begins with one of these.
func old(version string, prefixes ...string) bool {
	for _, prefix := range prefixes {
		if strings.HasPrefix(version, prefix) {
			return true
		}
	}
	return false
}
