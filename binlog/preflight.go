package binlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/go-sql-driver/mysql"
)

const (
	// leastRetention is how long a server should keep its log: so long can the
	// relay be down.
	leastRetention = 24 * time.Hour
	// clockTolerance is by how much the clocks of server and relay may differ.
	clockTolerance = time.Second
)

// Preflight looks at what Check does not: what only matters over time, and what
// a relay that starts must not refuse. Running tells that the relay with this
// configuration's server id is up on this host. What the user may not see is left
// out: Check names the grant.
func (s *Server) Preflight(ctx context.Context, running bool) ([]Requirement, error) {
	var list []Requirement
	for _, look := range []func(context.Context) (Requirement, error){
		s.retention,
		func(ctx context.Context) (Requirement, error) { return s.serverID(ctx, running) },
		s.clock,
	} {
		r, err := look(ctx)
		switch {
		case err != nil && denied(err):
		case err != nil:
			return list, err
		default:
			list = append(list, r)
		}
	}
	return list, nil
}

func (s *Server) retention(ctx context.Context) (Requirement, error) {
	log, err := s.Log(ctx, true)
	if err != nil {
		return Requirement{}, err
	}
	ok := log.Retention == 0 || log.Retention >= leastRetention
	fix := "SET PERSIST binlog_expire_logs_seconds = 604800"
	if s.Flavor == MariaDB {
		fix = "SET GLOBAL binlog_expire_logs_seconds = 604800 /* in the option file as well */"
	}
	r := NewRequirement(ErrSettings, "retention", "a day or longer: so long may the relay be down", log.String(), ok, fix)
	r.Advice = true
	return r, nil
}

// String is how long the log is kept, how much there is, and how much is written
// in a day.
func (l Log) String() string {
	text := "kept for ever"
	if l.Retention > 0 {
		text = "kept for " + Span(l.Retention)
	}
	if l.Limit > 0 {
		text += ", up to " + humanize.Bytes(uint64(l.Limit))
	}
	text += fmt.Sprintf("; %s in %d files", humanize.Bytes(uint64(l.Bytes)), l.Files)
	switch day := l.Growth() * (24 * time.Hour).Seconds(); {
	case l.Since.IsZero():
	case day == 0:
		text += ", of the last " + Span(l.Age)
	default:
		text += fmt.Sprintf(" since %s, about %s a day", l.Since.Format("2006-01-02 15:04 MST"), humanize.Bytes(uint64(day)))
	}
	return text
}

// Span is a length of time for people, in its largest two units: "7 d", "1 d 4 h",
// "3 min".
func Span(d time.Duration) string {
	units := []struct {
		name string
		of   time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}}
	for i, u := range units {
		if d < u.of && i < len(units)-1 {
			continue
		}
		text := fmt.Sprintf("%d %s", d/u.of, u.name)
		if i+1 < len(units) {
			if rest := d % u.of / units[i+1].of; rest > 0 {
				text += fmt.Sprintf(" %d %s", rest, units[i+1].name)
			}
		}
		return text
	}
	return ""
}

// replica is one that is connected to the server.
type replica struct {
	id   uint32
	host string // as it says
}

// replicas lists them. It needs REPLICATION SLAVE, and on MariaDB REPLICATION
// MASTER ADMIN.
func (s *Server) replicas(ctx context.Context) ([]replica, error) {
	query := "SHOW REPLICAS"
	if s.Flavor == MariaDB {
		query = "SHOW SLAVE HOSTS"
	}
	rows, err := s.db.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var list []replica
	for rows.Next() {
		var r replica
		fields := []any{&r.id, &r.host}
		for range columns[2:] {
			fields = append(fields, new(any))
		}
		if err := rows.Scan(fields...); err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, rows.Err()
}

// serverID looks whether another replica has the relay's id. No relay refuses to
// run for that, although MySQL lets both of them and MariaDB ends the older one:
// it may be its own former connection that is seen, which a server misses only
// after a while when the host or the link died, and a relay that a crash ended
// must come up again.
func (s *Server) serverID(ctx context.Context, running bool) (Requirement, error) {
	const name, need = "server id", "one that neither the server nor another replica has"
	values, err := s.variables(ctx)
	if err != nil {
		return Requirement{}, err
	}
	id := s.cfg.ServerID
	list, err := s.replicas(ctx)
	unseen := err != nil && denied(err) && s.Flavor == MariaDB
	if err != nil && !unseen {
		return Requirement{}, s.explain(err)
	}
	fix := fmt.Sprintf("relay run --server-id %d", freeID(list))
	if values["server_id"] == strconv.FormatUint(uint64(id), 10) {
		return NewRequirement(ErrSettings, name, need, fmt.Sprintf("%d, which is the server's own", id), false, fix), nil
	}
	if unseen {
		r := NewRequirement(ErrGrant, name, need, fmt.Sprintf("%d, not the server's; whether another replica has it cannot be seen", id), false,
			"GRANT REPLICATION MASTER ADMIN ON *.* TO "+s.account())
		r.Advice = true
		return r, nil
	}
	same := slices.DeleteFunc(list, func(r replica) bool { return r.id != id })
	host, _ := os.Hostname()
	switch {
	case len(same) == 0:
		return NewRequirement(ErrSettings, name, need, fmt.Sprintf("%d, free", id), true, ""), nil
	case len(same) == 1 && running && same[0].host == host:
		return NewRequirement(ErrSettings, name, need, fmt.Sprintf("%d, of the relay that runs here", id), true, ""), nil
	}
	found := fmt.Sprintf("%d, with which another replica is connected from %s; if that was this relay, and it was killed, look again in a minute", id, cmp.Or(same[0].host, "a host that gives no name"))
	return NewRequirement(ErrSettings, name, need, found, false, fix), nil
}

// freeID is an id like those that are derived, and in nobody's use.
func freeID(list []replica) uint32 {
	for {
		id := 1<<31 + rand.Uint32N(1<<31)
		if !slices.ContainsFunc(list, func(r replica) bool { return r.id == id }) {
			return id
		}
	}
}

// clock compares this host's with the server's. Half of the time that the
// question takes is the error: the shortest of a few counts.
func (s *Server) clock(ctx context.Context) (Requirement, error) {
	var ahead, trip time.Duration
	for i := range 4 { // the first may have to connect
		before := time.Now()
		now, err := s.now(ctx)
		if err != nil {
			return Requirement{}, err
		}
		if took := time.Since(before); i == 0 || took < trip {
			ahead, trip = now.Sub(before.Add(took/2)), took
		}
	}
	r := NewRequirement(ErrSettings, "clock", "not more than "+clockTolerance.String()+" between the server's and this host's", clockText(ahead, trip),
		ahead.Abs()-trip/2 <= clockTolerance, "timedatectl set-ntp true, on the host whose clock is wrong: until then lag and relay_publish_seconds are off by that")
	r.Advice = true
	return r, nil
}

func clockText(ahead, trip time.Duration) string {
	off := max(trip/2, time.Millisecond).Round(time.Millisecond)
	switch {
	case ahead.Abs() < off:
		return fmt.Sprintf("the server's is this host's, give or take %s", off)
	case ahead < 0:
		return fmt.Sprintf("the server's is %s behind this host's, give or take %s", -ahead.Round(time.Millisecond), off)
	}
	return fmt.Sprintf("the server's is %s ahead of this host's, give or take %s", ahead.Round(time.Millisecond), off)
}

// Prepared counts the XA transactions that are prepared on the server and not
// decided, of all tables. MySQL tells only who has XA_RECOVER_ADMIN: known is
// false for others.
func (s *Server) Prepared(ctx context.Context) (n int, known bool, err error) {
	var refusal *mysql.MySQLError
	rows, err := s.db.QueryContext(ctx, "XA RECOVER")
	switch {
	case errors.As(err, &refusal) && refusal.Number == 1401: // ER_XAER_RMERR: what it says for want of the privilege
		return 0, false, nil
	case err != nil:
		return 0, false, s.explain(err)
	}
	defer rows.Close()
	for rows.Next() {
		n++
	}
	if err := rows.Err(); err != nil {
		return 0, false, s.explain(err)
	}
	return n, true, nil
}
