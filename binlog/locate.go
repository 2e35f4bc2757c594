package binlog

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/google/uuid"

	"github.com/outboxrelay/relay/schema"
)

// ErrPlace: the server's log has no such place to go on from.
var ErrPlace = errors.New("binlog: no such place in the log")

// logFile is one of the server's log files.
type logFile struct {
	name string
	size int64 // bytes
}

// locateBeat is the silence after which a server that is asked for a place
// says that it has sent all its log.
const locateBeat = 200 * time.Millisecond

// LocateFile is the set of all transactions whose groups of events stand
// before the offset of a log file: what the server has purged, what the file's
// own previous-GTIDs event names, and what stands in it up to there. An XA
// transaction that is prepared in the file before the place, and not decided
// there, is not in the set; one from an earlier file is, and is recalled by
// Follow when it is decided. Errors wrap ErrPlace when there is no such file,
// or the offset is beyond its end or inside of a group.
func (s *Server) LocateFile(ctx context.Context, file string, offset int64, table *schema.Table) (*GTIDSet, error) {
	files, err := s.logFiles(ctx)
	if err != nil {
		return nil, err
	}
	at := slices.IndexFunc(files, func(f logFile) bool { return f.name == file })
	if at < 0 {
		return nil, fmt.Errorf("%w: the server has no log file %q; it has %s", ErrPlace, file, nameFiles(files))
	}
	beyond := func(end int64) error {
		return fmt.Errorf("%w: %s:%d is beyond the end of that file; the last place in it is %s:%d", ErrPlace, file, offset, file, end)
	}
	if offset > files[at].size {
		return nil, beyond(files[at].size)
	}
	w, err := s.walk(ctx, file, table)
	if err != nil {
		return nil, err
	}
	defer w.close()
	w.oneFile = true
	for {
		tx, err := w.next(ctx)
		switch {
		case err == io.EOF && offset > w.offset:
			return nil, beyond(w.offset)
		case err == io.EOF:
			return w.set, nil
		case err != nil:
			return nil, err
		case offset <= w.begin:
			return w.set, nil
		case offset < w.end:
			return nil, fmt.Errorf("%w: %s:%d is inside of transaction %s; type --from-file %s:%d to send it, or --from-file %s:%d to go on behind it",
				ErrPlace, file, offset, cmp.Or(tx.GTID, tx.Prepared), file, w.begin, file, w.end)
		}
		w.cover(tx)
	}
}

// LocateTime is the set of all transactions that stand in the log before the
// first that was committed at the time or later, and the place of that one; of
// MariaDB, whose log has whole seconds, in that second or later. It treats XA transactions as LocateFile does. Errors wrap ErrPlace when the time
// is in the future, or before the server's oldest log file.
func (s *Server) LocateTime(ctx context.Context, at time.Time, table *schema.Table) (*GTIDSet, Place, error) {
	now, err := s.now(ctx)
	if err != nil {
		return nil, Place{}, err
	}
	if at.After(now) {
		return nil, Place{}, fmt.Errorf("%w: %s is in the future: the server's clock says %s; to go on from all that is committed: relay resume --from-gtid with the server's set, which relay status prints",
			ErrPlace, at.Format(time.RFC3339Nano), now.Format(time.RFC3339Nano))
	}
	at = at.Truncate(s.dialect.precision()) // what was committed in the same moment is not before it
	files, err := s.logFiles(ctx)
	if err != nil {
		return nil, Place{}, err
	}
	// A file holds nothing that was committed after the next one began, by whole
	// seconds of the server's clock.
	first := sort.Search(len(files), func(i int) bool {
		if err != nil {
			return false
		}
		var w *walk
		if w, err = s.walk(ctx, files[i].name, table); err != nil {
			return false
		}
		defer w.close()
		if w.set.IsEmpty() { // there is nothing before it
			return at.Before(w.created)
		}
		return at.Before(w.created.Add(time.Second))
	})
	if err != nil {
		return nil, Place{}, err
	}
	w, err := s.walk(ctx, files[max(first-1, 0)].name, table)
	if err != nil {
		return nil, Place{}, err
	}
	defer w.close()
	// What is purged was committed before the oldest file's first transaction:
	// with that the time is compared where the file began in the same second.
	for known := first > 0; ; known = true {
		tx, err := w.next(ctx)
		switch {
		case err != nil && err != io.EOF:
			return nil, Place{}, err
		case !known && (err == io.EOF || at.Before(tx.CommittedAt)):
			return nil, Place{}, w.tooEarly(at, files[0].name)
		case err == io.EOF:
			return w.set, Place{File: w.file, Offset: uint32(w.offset)}, nil
		case !tx.CommittedAt.Before(at):
			return w.set, Place{File: w.file, Offset: uint32(w.begin)}, nil
		}
		w.cover(tx)
	}
}

// tooEarly is why a time is refused: what was committed then is purged.
func (w *walk) tooEarly(at time.Time, oldest string) error {
	return fmt.Errorf("%w: %s is before the first transaction in the server's oldest log file %s, which begins at %s: what was committed earlier can no longer be read from the log; to send all that it has: relay resume --from-gtid '%s'; to send all rows that the table still has and that are not stamped published: move the checkpoint file away, then type: relay run --start backfill",
		ErrPlace, at.Format(time.RFC3339Nano), oldest, w.created.Format(time.RFC3339), w.set)
}

// Oldest is the commit time of the first transaction that the log still has;
// the server's time when it has none.
func (s *Server) Oldest(ctx context.Context, table *schema.Table) (time.Time, error) {
	files, err := s.logFiles(ctx)
	if err != nil {
		return time.Time{}, err
	}
	w, err := s.walk(ctx, files[0].name, table)
	if err != nil {
		return time.Time{}, err
	}
	defer w.close()
	tx, err := w.next(ctx)
	if err == io.EOF {
		return s.now(ctx)
	}
	if err != nil {
		return time.Time{}, err
	}
	return tx.CommittedAt, nil
}

// now is the server's time.
func (s *Server) now(ctx context.Context) (time.Time, error) {
	var micros int64
	err := s.db.QueryRowContext(ctx, "SELECT CAST(UNIX_TIMESTAMP(NOW(6)) * 1000000 AS SIGNED)").Scan(&micros)
	if err != nil {
		return time.Time{}, s.explain(err)
	}
	return time.UnixMicro(micros).UTC(), nil
}

// logFiles lists the server's log files, oldest first; never none. It needs
// REPLICATION CLIENT.
func (s *Server) logFiles(ctx context.Context) ([]logFile, error) {
	rows, err := s.db.QueryContext(ctx, "SHOW BINARY LOGS")
	if err != nil {
		return nil, s.explain(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, s.explain(err)
	}
	var list []logFile
	for rows.Next() {
		var f logFile
		fields := []any{&f.name, &f.size}
		for range columns[2:] {
			fields = append(fields, new(sql.RawBytes))
		}
		if err := rows.Scan(fields...); err != nil {
			return nil, s.explain(err)
		}
		list = append(list, f)
	}
	if err := rows.Err(); err != nil {
		return nil, s.explain(err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%w: the server lists no log files: SHOW BINARY LOGS", ErrPlace)
	}
	return list, nil
}

// nameFiles names the first and the last few.
func nameFiles(files []logFile) string {
	var names []string
	for _, f := range files {
		names = append(names, f.name)
	}
	if len(names) > 8 {
		return fmt.Sprintf("%d, from %s to %s", len(names), names[0], strings.Join(names[len(names)-3:], ", "))
	}
	return strings.Join(names, ", ")
}

// walk reads the groups of log files, from the beginning of one on, without
// their rows.
type walk struct {
	st      *Stream
	oneFile bool // ends with the file

	set        *GTIDSet  // what was committed before; to be grown by the caller
	created    time.Time // of the file where the walk began: whole seconds of the server's clock
	file       string    // that is being read
	offset     int64     // behind the last event
	begin, end int64     // of the group that next returned last

	before, start int64 // where the last two groups began
}

// walk opens the file and reads its head.
func (s *Server) walk(ctx context.Context, file string, table *schema.Table) (*walk, error) {
	purged, err := s.Purged(ctx)
	if err != nil {
		return nil, err
	}
	st, err := s.stream(ctx, table, locateBeat, s.dialect.fromFile(passingID(), file))
	if err != nil {
		return nil, err
	}
	st.assembler.pass = func(*group) bool { return true }
	w := &walk{st: st, file: file}
	if err := w.head(ctx, purged); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *walk) close() { w.st.Close() }

// head reads the events in front of the file's first group. The previous-GTIDs
// event is the last of them.
func (w *walk) head(ctx context.Context, purged *GTIDSet) error {
	defer w.st.release()
	for w.set == nil {
		raw, err := w.event(ctx)
		if err != nil {
			return err
		}
		a := w.st.assembler
		_, checksum, _ := a.event(func() (rawEvent, error) { return raw, nil })
		h, body, err := splitEvent(raw, checksum)
		if err != nil {
			return err
		}
		switch h.typ {
		case replication.FORMAT_DESCRIPTION_EVENT:
			w.created = time.Unix(int64(h.timestamp), 0).UTC()
		case replication.PREVIOUS_GTIDS_EVENT:
			previous, err := parsePreviousGTIDs(body)
			if err != nil {
				return err
			}
			w.set = previous.Union(purged)
		case replication.MARIADB_GTID_LIST_EVENT:
			list, err := parseGTIDList(body)
			if err != nil {
				return err
			}
			w.set = list.Union(purged)
		case replication.ROTATE_EVENT, replication.MARIADB_START_ENCRYPTION_EVENT:
		default:
			return fmt.Errorf("%w: %s begins with %s and has no previous GTIDs; gtid_mode was not ON when it was written; choose a later file", ErrPlace, w.file, h.typ)
		}
		if _, err := a.feed(h, raw, body); err != nil {
			return err
		}
	}
	return nil
}

// next returns the next group, with begin and end set; io.EOF at the end of
// what is to be read.
func (w *walk) next(ctx context.Context) (*Tx, error) {
	defer w.st.release()
	tx, err := w.st.assembler.next(func() (rawEvent, error) { return w.event(ctx) })
	if err != nil {
		return nil, err
	}
	w.begin, w.end = w.start, w.offset
	if w.st.assembler.group != nil { // the group's end is where this next one begins
		w.begin, w.end = w.before, w.start
	}
	return tx, nil
}

// cover adds a group to the set, but for an XA transaction that is only
// prepared: it comes in with its decision.
func (w *walk) cover(tx *Tx) {
	if !tx.GTID.IsZero() {
		w.set.Cover(tx)
	}
}

// event reads an event and keeps account of the place. Offsets in events have
// 32 bits, and files can be larger.
func (w *walk) event(ctx context.Context) (rawEvent, error) {
	raw, err := w.st.event(ctx)
	if err != nil {
		return rawEvent{}, err
	}
	end := le.Uint32(raw.bytes[13:])
	switch typ := replication.EventType(raw.bytes[4]); typ {
	case replication.HEARTBEAT_EVENT, replication.HEARTBEAT_LOG_EVENT_V2: // there is no more
		return rawEvent{}, io.EOF
	case replication.GTID_EVENT, replication.GTID_TAGGED_LOG_EVENT, replication.ANONYMOUS_GTID_EVENT, replication.MARIADB_GTID_EVENT:
		w.before, w.start = w.start, w.offset
	case replication.ROTATE_EVENT:
		return raw, w.rotate(raw.bytes, end)
	}
	switch {
	case end != 0:
		w.offset += int64(end - uint32(w.offset))
	case w.st.assembler.untold():
		w.offset += int64(le.Uint32(raw.bytes[9:])) // its size
	}
	return raw, nil
}

// rotate goes on to the next file: each begins with an event that names it,
// which stands in no file.
func (w *walk) rotate(raw []byte, end uint32) error {
	if end != 0 { // at the end of a file
		w.offset += int64(end - uint32(w.offset))
		return nil
	}
	if w.set == nil { // whether events end in a checksum is told behind the first of them
		return nil
	}
	s := scanner{rest: raw[headerSize:]}
	s.bytes(8)
	name := string(s.rest)
	if w.st.assembler.checksum && len(name) > checksumSize {
		name = name[:len(name)-checksumSize]
	}
	if name == w.file {
		return nil
	}
	if w.oneFile {
		return io.EOF
	}
	w.file, w.offset, w.start, w.before = name, 0, 0, 0
	return nil
}

// parsePreviousGTIDs reads a previous-GTIDs event's body (MySQL's
// Gtid_set::encode): a count, then for each server and tag its UUID, in the
// tagged form the tag, and its intervals, without their ends. The tagged form
// has a 1 in the first and in the eighth byte, and the count in between.
func parsePreviousGTIDs(body []byte) (*GTIDSet, error) {
	s := scanner{rest: body}
	var text strings.Builder
	count, tagged := uint64(0), false
	if head := s.bytes(8); head != nil {
		count = le.Uint64(head)
		if tagged = head[7] == 1; tagged {
			count = count << 8 >> 16
		}
	}
	for ; count > 0 && !s.bad; count-- {
		server, err := uuid.FromBytes(s.bytes(16))
		if err != nil {
			break
		}
		fmt.Fprintf(&text, ",%s", server)
		if tagged {
			if tag := s.bytes(s.uint8() >> 1); len(tag) > 0 { // a small number of MySQL's serialization is twice itself
				fmt.Fprintf(&text, ":%s", tag)
			}
		}
		intervals := uint64(0)
		if b := s.bytes(8); b != nil {
			intervals = le.Uint64(b)
		}
		for ; intervals > 0 && !s.bad; intervals-- {
			if b := s.bytes(16); b != nil {
				fmt.Fprintf(&text, ":%d-%d", le.Uint64(b), le.Uint64(b[8:])-1)
			}
		}
	}
	if s.bad || count > 0 {
		return nil, fmt.Errorf("%w: previous GTIDs", ErrDamaged)
	}
	set, err := ParseGTIDSet(strings.TrimPrefix(text.String(), ","))
	if err != nil {
		return nil, fmt.Errorf("%w: previous GTIDs: %w", ErrDamaged, err)
	}
	return set, nil
}
