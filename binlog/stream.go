package binlog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"

	"github.com/outboxrelay/relay/schema"
)

const (
	heartbeat   = 5 * time.Second  // between signs of life of an idle server
	readTimeout = 20 * time.Second // without any: the link is dead
	partingTime = 2 * time.Second  // to tell the server that a stream ends
)

// Stream follows the server's log as a replica. It is used by one goroutine;
// after an error it is of no more use than to be closed.
type Stream struct {
	dump      *dump
	assembler *assembler
	server    *Server

	gathered gathered    // read, and not handed out
	parted   bool        // parts of the transaction under way are handed out
	unwatch  func() bool // nil: the context has no hold of the reading
	failed   error       // what comes behind those gathered; nil: nothing yet

	size   int64         // bytes of the events that were read
	seen   *GTIDSet      // the position behind what was read; nil: it is not followed
	behind *schema.Table // the definition in force at the position where the stream began; nil: not known

	until *GTIDSet      // a position ahead; nil: what the server has executed
	there *schema.Table // the definition in force at until
	ahead []alteration  // those that were met ahead when that was last looked at

	looked    *GTIDSet       // up to where the log was looked at for redefinitions; nil: nowhere
	redefined []redefinition // that were met there and are still ahead
}

// Follow begins to read behind the position. The set is not kept. table is the
// outbox as it is now; which definition it had at the position is found out
// when it must be known. A second stream with the same server id can end the
// first.
//
// Transactions without outbox rows come as Tx.Before of the next one, or of the
// last of them when nothing else comes for a moment, or they have become many.
func (s *Server) Follow(ctx context.Context, position *GTIDSet, table *schema.Table) (*Stream, error) {
	return s.FollowFrom(ctx, position, table, nil)
}

// FollowFrom is Follow where it is known which definition the table had at the
// position; nil: it is not.
func (s *Server) FollowFrom(ctx context.Context, position *GTIDSet, table, behind *schema.Table) (*Stream, error) {
	st, err := s.follow(ctx, s.cfg.ServerID, position, table, behind)
	if err == nil {
		st.assembler.gather = st.gather
	}
	return st, err
}

// glance is FollowFrom for a short look at the log, beside a stream that may be
// open. It hands out each transaction: who looks may want to stop behind any.
func (s *Server) glance(ctx context.Context, position *GTIDSet, table, behind *schema.Table) (*Stream, error) {
	return s.follow(ctx, passingID(), position, table, behind)
}

// passingID is a replica id for a short time: MariaDB ends a stream when another
// begins under its id.
func passingID() uint32 { return 1<<30 + rand.Uint32N(1<<30) }

func (s *Server) follow(ctx context.Context, id uint32, position *GTIDSet, table, behind *schema.Table) (*Stream, error) {
	position = position.Clone()
	st, err := s.stream(ctx, table, heartbeat, s.dialect.behind(id, position))
	if err != nil {
		return nil, err
	}
	st.seen, st.behind = position.Clone(), behind
	a := st.assembler
	a.decoder.options, a.decoder.present = s.cfg.Options, table
	if behind == nil || !sameColumns(behind, table) {
		a.decoder.use(nameOnly(table))
	}
	a.redefine = func() error { return st.define(ctx) }
	a.verify = func() error { return st.verify(ctx) }
	a.unlike = func(why error) error { return st.unlike(ctx, why) }
	a.versioned = func() error { return st.unversioned(ctx) }
	a.moved = func(gtid GTID, statement string) error { return s.awaitTable(ctx, gtid, statement) }
	a.fetch = func(gtid GTID, ins *insertion, ids []any, generated bool, from schema.Origin) ([]schema.Event, string, error) {
		return s.fetch(ctx, a.decoder.table, gtid, ins, ids, generated, from)
	}
	a.domain = func(gtid GTID) (*reach, error) { return st.domain(ctx, gtid) }
	a.reached = position.Clone().domains
	a.recall = func(wanted string) (map[string]prepared, bool, error) {
		return s.undecided(ctx, position, table, behind, wanted)
	}
	return st, nil
}

// stream asks the server to send its log, with signs of life at every beat.
func (s *Server) stream(ctx context.Context, table *schema.Table, beat time.Duration, ask request) (*Stream, error) {
	d, err := s.openDump(ctx, beat, ask)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, s.explainStream(err)
	}
	a := newAssembler(table)
	d.keep = a.keep
	return &Stream{dump: d, assembler: a, server: s}, nil
}

// Next waits for the next transaction, or part of a large one.
func (st *Stream) Next(ctx context.Context) (*Tx, error) {
	if st.failed != nil {
		return nil, st.failed
	}
	for {
		tx, err := st.next(ctx)
		if err == errAgain {
			if err = st.again(ctx); err == nil {
				continue
			}
		} else {
			err = st.stuck(err)
		}
		switch {
		case err == nil:
			st.hand(tx)
		case err == errDue:
			return st.gathered.take(), nil
		case st.gathered.any() && !st.parted:
			st.failed = err
			return st.gathered.take(), nil
		}
		return tx, err
	}
}

// hand notes that a transaction, or a part of it, is handed out, and puts those
// before it to its end.
func (st *Stream) hand(tx *Tx) {
	if st.seen != nil {
		st.seen.Cover(tx)
	}
	if st.parted = !tx.Last; tx.Last && st.gathered.any() {
		st.gathered.takeWith(tx)
	}
}

// gather takes in a transaction without outbox rows.
func (st *Stream) gather(g *group) {
	st.seen.Add(g.tx.GTID)
	st.gathered.add(g, st.assembler.place, st.size)
}

// stuck adds to what cannot be relayed of which transaction it is.
func (st *Stream) stuck(err error) error {
	if !errors.Is(err, ErrUnreadable) && !errors.Is(err, ErrDamaged) {
		return err
	}
	a := st.assembler
	switch {
	case a.group != nil:
		return &TxError{GTID: a.group.tx.GTID, Prepared: a.group.tx.Prepared, Err: err}
	case errors.Is(err, ErrDamaged):
		return fmt.Errorf("%w; it may have been damaged on its way: relay run; if it comes again, the next lines of SHOW BINLOG EVENTS IN '%s' FROM %d have the GTID that is to be skipped: relay resume --from-gtid with it and the checkpoint's set, which relay status prints",
			err, a.place.File, a.place.Offset)
	}
	return err
}

func (st *Stream) next(ctx context.Context) (*Tx, error) {
	defer st.release()
	return st.assembler.next(func() (rawEvent, error) { return st.event(ctx) })
}

// errAgain: the transaction under way is to be read again.
var errAgain = errors.New("binlog: to be read again")

// again begins to read anew behind what was handed out.
func (st *Stream) again(ctx context.Context) error {
	fresh, err := st.server.stream(ctx, st.assembler.decoder.table, heartbeat, st.server.dialect.behind(st.server.cfg.ServerID, st.seen))
	if err != nil {
		return err
	}
	st.dump.close()
	st.dump = fresh.dump
	st.dump.keep = st.assembler.keep
	st.assembler.rewind()
	st.assembler.reached = st.seen.Clone().domains
	return nil
}

// release ends what the context has to do with the reading.
func (st *Stream) release() {
	if st.unwatch != nil {
		st.unwatch()
		st.unwatch = nil
	}
}

// event reads the next event, and needs a release after it; errDue: what is gathered is to be handed out first.
func (st *Stream) event(ctx context.Context) (rawEvent, error) {
	idle := st.gathered.any() && !st.parted
	if idle && st.gathered.full(st.size) {
		return rawEvent{}, errDue
	}
	if !st.dump.ready() { // it will be waited for
		if ctx.Err() != nil {
			return rawEvent{}, ctx.Err()
		}
		st.dump.due = time.Time{}
		if idle {
			st.dump.due = st.gathered.due()
		}
		if st.unwatch == nil {
			st.unwatch = context.AfterFunc(ctx, st.dump.interrupt)
		}
	}
	raw, err := st.dump.event()
	switch {
	case err == nil:
		st.size += int64(le.Uint32(raw.bytes[9:]))
		return raw, nil
	case ctx.Err() != nil:
		return rawEvent{}, ctx.Err()
	case err == errDue:
		return rawEvent{}, err
	}
	return rawEvent{}, st.server.explainStream(err)
}

// Close ends the stream, on the server too when that can be told within two
// seconds.
func (st *Stream) Close() {
	st.dump.close()
	st.assembler.close()
}

// explainStream sorts the refusals of a dump. 1236 stands for many causes,
// which only the server's text tells apart: this is the one place where a
// text is looked at.
func (s *Server) explainStream(err error) error {
	var refusal *mysql.MyError
	var disk *fs.PathError
	if errors.Is(err, ErrDamaged) || errors.As(err, &disk) {
		return err
	}
	if unsafe := s.explainTLS(err); unsafe != nil {
		return unsafe
	}
	if !errors.As(err, &refusal) {
		return fmt.Errorf("binlog: stream from %s at %s: %w", s.Flavor.Product(), s.dsn.Addr, err)
	}
	text := refusal.Message
	if err := s.dialect.refused(refusal); err != nil {
		return err
	}
	switch refusal.Code {
	case mysql.ER_ACCESS_DENIED_ERROR: // also for whom it lets in, but not as a replica
		if s.login() != "" {
			return fmt.Errorf("%w: %s at %s: as a replica: %s; type: GRANT REPLICATION SLAVE ON *.* TO %s", ErrGrant, s.Flavor.Product(), s.dsn.Addr, text, s.account())
		}
		return fmt.Errorf("%w: %s at %s: %s; check the user and password of --mysql-dsn, or --mysql-password-file", ErrAuth, s.Flavor.Product(), s.dsn.Addr, text)
	case mysql.ER_SPECIFIC_ACCESS_DENIED_ERROR:
		return fmt.Errorf("%w: %s at %s: %s; type: GRANT REPLICATION SLAVE ON *.* TO %s", ErrGrant, s.Flavor.Product(), s.dsn.Addr, text, s.account())
	case mysql.ER_MASTER_FATAL_ERROR_READING_BINLOG:
		switch {
		case strings.Contains(text, "purged required binary logs"), strings.Contains(text, "missing transactions"):
			return fmt.Errorf("%w: %s at %s: %s; to send what the table still has of the gap, and go on behind it: relay resume --gap backfill", ErrPurged, s.Flavor.Product(), s.dsn.Addr, text)
		case strings.Contains(text, "has more GTIDs than"):
			return fmt.Errorf("%w: %s at %s: %s; relay status shows both sets", ErrDiverged, s.Flavor.Product(), s.dsn.Addr, text)
		case strings.Contains(text, "log event entry exceeded max_allowed_packet"):
			return fmt.Errorf("%w: %s at %s: %s; SET GLOBAL max_allowed_packet = 1073741824", ErrUnreadable, s.Flavor.Product(), s.dsn.Addr, text)
		}
	}
	return fmt.Errorf("binlog: stream from %s at %s: %w", s.Flavor.Product(), s.dsn.Addr, err)
}
