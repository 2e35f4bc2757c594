package binlog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/rs/zerolog"

	"github.com/outboxrelay/relay/schema"
)

const (
	heartbeat   = 5 * time.Second  // between signs of life of an idle server
	readTimeout = 20 * time.Second // without any: the link is dead
	readAhead   = 64               // events read ahead of the assembler
	partingTime = 2 * time.Second  // to tell the server that a stream ends
)

// Stream follows the server's log as a replica. It is used by one goroutine;
// after an error it is of no more use than to be closed.
type Stream struct {
	syncer    *replication.BinlogSyncer
	streamer  *replication.BinlogStreamer
	assembler *assembler
	server    *Server
	parting   atomic.Bool
}

// Follow begins to read behind the position. The set is not kept. A second
// stream with the same server id can end the first.
func (s *Server) Follow(ctx context.Context, position *GTIDSet, table *schema.Table) (*Stream, error) {
	return s.follow(ctx, s.cfg.ServerID, position, table)
}

// glance is Follow for a short look at the log, beside a stream that may be
// open.
func (s *Server) glance(ctx context.Context, position *GTIDSet, table *schema.Table) (*Stream, error) {
	return s.follow(ctx, passingID(), position, table)
}

// passingID is a replica id for a short time: MariaDB ends a stream when another
// begins under its id.
func passingID() uint32 { return 1<<30 + rand.Uint32N(1<<30) }

func (s *Server) follow(ctx context.Context, id uint32, position *GTIDSet, table *schema.Table) (*Stream, error) {
	position = position.Clone()
	st := s.stream(id, table, heartbeat)
	st.assembler.redefine = func() error {
		table, err := s.Table(ctx)
		if err == nil {
			st.assembler.decoder.use(table)
		}
		return err
	}
	st.assembler.reached = position.Clone().domains
	st.assembler.recall = func(wanted string) (map[string]prepared, bool, error) {
		return s.undecided(ctx, position, table, wanted)
	}
	var err error
	if st.streamer, err = st.syncer.StartSyncGTID(position.start()); err != nil {
		st.Close()
		return nil, s.explainStream(err)
	}
	return st, nil
}

// stream is one that has not begun; beat is the time between signs of life of
// an idle server.
func (s *Server) stream(id uint32, table *schema.Table, beat time.Duration) *Stream {
	st := &Stream{server: s, assembler: newAssembler(table)}
	host, port := "localhost", uint16(0)
	if h, p, err := net.SplitHostPort(s.dsn.Addr); err == nil {
		n, _ := strconv.ParseUint(p, 10, 16)
		host, port = h, uint16(n)
	}
	st.syncer = replication.NewBinlogSyncer(replication.BinlogSyncerConfig{
		ServerID:         id,
		Flavor:           string(s.Flavor),
		Host:             host,
		Port:             port,
		User:             s.dsn.User,
		Password:         s.dsn.Passwd,
		TLSConfig:        s.dsn.TLS,
		Dialer:           st.dial,
		Logger:           libraryLogger(s.cfg.Logger),
		RawModeEnabled:   true,
		HeartbeatPeriod:  beat,
		ReadTimeout:      readTimeout,
		DisableRetrySync: true,
		DiscardGTIDSet:   true,
		EventCacheCount:  readAhead,
	})
	return st
}

// dial connects to the server. When the stream is ending, that is to have its
// dump thread killed, and must not take longer than that is worth.
func (st *Stream) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	if !st.parting.Load() {
		return st.server.dial(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, partingTime)
	defer cancel()
	conn, err := st.server.dial(ctx)
	if err == nil {
		time.AfterFunc(partingTime, func() { conn.Close() })
	}
	return conn, err
}

// libraryLogger lets the library's log through when the relay debugs: its
// errors are returned as well, and logged once, by main.
func libraryLogger(log zerolog.Logger) *slog.Logger {
	if log.GetLevel() > zerolog.DebugLevel {
		log = zerolog.Nop()
	}
	return slog.New(zerolog.NewSlogHandler(log.With().Str("library", "go-mysql").Logger()))
}

// Next waits for the next transaction, or part of a large one.
func (st *Stream) Next(ctx context.Context) (*Tx, error) {
	return st.assembler.next(func() ([]byte, error) {
		event, err := st.streamer.GetEvent(ctx)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return nil, st.server.explainStream(err)
		}
		return event.RawData, nil
	})
}

// Close ends the stream, on the server too when that can be told within two
// seconds.
func (st *Stream) Close() {
	st.parting.Store(true)
	st.syncer.Close()
	st.assembler.close()
}

// explainStream sorts the refusals of a dump. 1236 stands for many causes,
// which only the server's text tells apart: this is the one place where a
// text is looked at.
func (s *Server) explainStream(err error) error {
	var refusal *mysql.MyError
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
