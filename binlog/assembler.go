package binlog

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"

	"github.com/go-mysql-org/go-mysql/replication"
	"github.com/outboxrelay/relay/schema"
)

// assembler puts the log's events together to transactions. It is a pure
// state machine: it reads events from a function and does no I/O of its own.
//
// A group of events begins with its GTID and ends with XID, COMMIT, ROLLBACK
// or XA PREPARE, or is a single statement. MySQL writes BEGIN or XA START behind
// the GTID; MariaDB's GTID stands for them. Only what has been committed is in
// the log, so a large group may be handed out in parts before its end is
// seen. There are three exceptions, and none of them is published unseen:
//
//   - a group that ends with ROLLBACK, or holds ROLLBACK TO, which the server
//     writes when a table without transactions was changed along with others:
//     the rows are dropped; if a part with some of them is already out, the
//     assembler stops with ErrUnreadable;
//   - XA PREPARE: the rows are held until XA COMMIT or XA ROLLBACK decides, in
//     a bounded amount of memory. What is beyond that, or cannot be read, stops
//     it with ErrUnreadable or ErrChanged at XA COMMIT;
//   - a group that breaks off: ErrTorn, and the stream is read again.
type assembler struct {
	decoder  decoder
	mentions *regexp.Regexp // finds the outbox table in a statement's text
	// redefine sees to it that the decoder has the table's definition where the
	// log does not name the columns and none is known. nil: one holds for all.
	redefine func() error
	// verify looks whether the table still is what it is taken for, where rows
	// without names come under another table number: a server gives a new one
	// with every definition, and now and then. nil: nobody does.
	verify func() error
	// unlike says how to go on where rows without names are not stored as the
	// definition in force says, for this reason. nil: nobody does.
	unlike func(why error) error
	// versioned says how to go on where the table was system-versioned, and is no
	// longer. nil, and a nil error: nobody does, or it still is.
	versioned func() error
	// moved hears of statements that may have renamed the table away.
	moved func(gtid GTID, statement string) error
	// recall finds the XA transactions that were prepared before the stream
	// began and not decided by then: the wanted one, when it is decided, others
	// along with it, or all of them. Then, and in tests, it is nil.
	recall func(wanted string) (found map[string]prepared, all bool, err error)
	// fetch reads rows from the table by their ids, and domain what else may
	// write to it: for statements that are in the log as text. Both wait until
	// the server has executed the transaction. nil without a server.
	fetch  func(gtid GTID, ins *insertion, ids []any, generated bool, from schema.Origin) (events []schema.Event, fault string, err error)
	domain func(GTID) (*reach, error)
	// heard hears of statements that change no rows. nil: nobody does.
	heard func(query)
	// pass tells of groups whose rows are not looked at; with it, an XA
	// decision without its first half is passed over. Defaults to none.
	pass func(*group) bool
	// gather takes in transactions without outbox rows, and of nothing else that
	// is to be told, so that they are not handed out. nil: they are.
	gather func(*group)
	way    string // how to go on without a transaction that cannot be relayed; empty: the caller tells

	place    Place
	checksum bool
	payload  *payload     // the compressed transaction under way
	group    *group       // nil between groups
	spare    *group       // to be used again; nil: none
	names    schema.Texts // tags and savepoints
	tables   map[uint64]*image
	number   uint64              // of the table in the last map of it without names
	altered  alteration          // the last that was met; zero: none
	told     *Definition         // of which no Tx has told yet; nil: none
	prepared map[string]prepared // by XA id
	held     int                 // bytes in prepared
	decided  map[string]bool     // XA ids since the stream began, while recall may find them
	reached  domains             // of MariaDB: the transactions before this place
	insertID uint64              // of the statement that comes next; 0: not told
	reach    *reach              // nil: to be read
	textWay  string              // way, of a transaction that stands in the log as text. Defaults to way.
	// temporary are the names of temporary tables whose making is in the log.
	temporary map[place]bool
	unseen    bool // a statement as text came of which no domain told what it does
}

const (
	partEvents = 1024     // events after which a part is handed out
	partBytes  = 1 << 20  // bytes of events after which a part is handed out
	heldBytes  = 64 << 20 // bytes of events of undecided XA transactions
	eventBytes = 512      // what an event takes besides its payload
)

// memory is about what an event takes.
func memory(e *schema.Event) int { return len(e.Payload) + eventBytes }

func newAssembler(table *schema.Table) *assembler {
	return &assembler{
		decoder:  decoder{table: table},
		mentions: mentions(table.Name),
		tables:   map[uint64]*image{},
		prepared: map[string]prepared{},
		decided:  map[string]bool{},
		reached:  domains{},
	}
}

// next returns the next transaction or part of one. What read returns need be
// valid only until it is called again.
func (a *assembler) next(read func() (rawEvent, error)) (*Tx, error) {
	for {
		raw, checksum, err := a.event(read)
		if err != nil {
			return nil, err
		}
		h, body, err := splitEvent(raw, checksum)
		if err != nil {
			return nil, err
		}
		tx, err := a.feed(h, raw, body)
		if err = a.postpone(err); tx != nil || err != nil {
			return tx, err
		}
	}
}

// event returns the next event, out of the compressed transaction if one is
// under way.
func (a *assembler) event(read func() (rawEvent, error)) (raw rawEvent, checksum bool, err error) {
	if a.payload != nil {
		raw, err := a.payload.next(a.keep)
		if err != io.EOF {
			return raw, false, err
		}
		a.payload.close()
		a.payload = nil
		if a.group != nil {
			return raw, false, fmt.Errorf("%w: compressed transaction %s has no end", ErrDamaged, a.group.tx.GTID)
		}
	}
	raw, err = read()
	checksum = a.checksum && len(raw.bytes) > 4 && replication.EventType(raw.bytes[4]) != replication.FORMAT_DESCRIPTION_EVENT
	return raw, checksum, err
}

// keep tells where an event is to be put that is too large to be held if that
// can be helped: in memory is what must be taken apart whole, a row of the
// outbox for one.
func (a *assembler) keep(head []byte) keep {
	switch typ := replication.EventType(head[4]); typ {
	case replication.TRANSACTION_PAYLOAD_EVENT:
		return onDisk
	case replication.WRITE_ROWS_EVENTv1, replication.WRITE_ROWS_EVENTv2,
		replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1, mariaWriteRowsCompressed:
		s := scanner{rest: head[headerSize:]}
		if _, ours := a.tables[s.uint48()]; !ours {
			return nowhere
		}
	case replication.PREVIOUS_GTIDS_EVENT, replication.MARIADB_GTID_LIST_EVENT: // a walk takes it apart
	default:
		if passed[typ] {
			return nowhere
		}
	}
	return inMemory
}

// rewind forgets the group under way, which is to be read again, from a new
// beginning of the stream.
func (a *assembler) rewind() {
	a.close()
	a.payload, a.group, a.checksum = nil, nil, false
	clear(a.tables)
}

// close gives back what a compressed transaction holds.
func (a *assembler) close() {
	if a.payload != nil {
		a.payload.close()
	}
}

func (a *assembler) feed(h header, raw rawEvent, body []byte) (*Tx, error) {
	switch {
	case a.payload != nil:
	case h.end > 0:
		a.place.Offset = h.end
	case a.untold():
		a.place.Offset += h.size
	}
	a.timed(h)
	switch h.typ {
	case replication.FORMAT_DESCRIPTION_EVENT:
		var err error
		if a.checksum, err = hasChecksum(raw.bytes); err != nil {
			return nil, err
		}
		return nil, a.between(h)
	case replication.ROTATE_EVENT:
		return nil, a.rotate(h, body)
	case replication.GTID_EVENT, replication.GTID_TAGGED_LOG_EVENT, replication.MARIADB_GTID_EVENT:
		return a.begin(h, body)
	case replication.ANONYMOUS_GTID_EVENT:
		return nil, fmt.Errorf("%w: a transaction without GTID in %s at %d: gtid_mode was not ON when it was written; SET PERSIST gtid_mode = ON, then start from a set that is behind it: relay resume --from-gtid SET",
			ErrSettings, a.place.File, a.place.Offset)
	case replication.QUERY_EVENT:
		return a.query(body)
	case replication.MARIADB_QUERY_COMPRESSED_EVENT:
		plain, err := inflateQuery(body)
		if err != nil {
			return nil, err
		}
		return a.query(plain)
	case replication.EXECUTE_LOAD_QUERY_EVENT:
		return nil, a.load(body)
	case replication.INTVAR_EVENT:
		return nil, a.intvar(body)
	case replication.TABLE_MAP_EVENT:
		return nil, a.tableMap(body)
	case replication.WRITE_ROWS_EVENTv1, replication.WRITE_ROWS_EVENTv2,
		replication.MARIADB_WRITE_ROWS_COMPRESSED_EVENT_V1, mariaWriteRowsCompressed:
		return a.rows(h, body)
	case replication.XID_EVENT:
		return a.commit()
	case replication.XA_PREPARE_LOG_EVENT:
		return a.prepare(body)
	case replication.TRANSACTION_PAYLOAD_EVENT:
		if a.payload != nil {
			return nil, fmt.Errorf("%w: a compressed transaction in another", ErrDamaged)
		}
		var err error
		a.payload, err = openPayload(body, raw.large)
		return nil, err
	case replication.INCIDENT_EVENT:
		return nil, a.unreadable("the server wrote an incident event: its log may lack transactions")
	}
	if !passed[h.typ] && h.flags&replication.LOG_EVENT_IGNORABLE_F == 0 {
		return nil, a.unreadable("event type %d is unknown", h.typ)
	}
	return nil, nil
}

// passed are the events that say nothing about outbox inserts.
var passed = [256]bool{
	replication.STOP_EVENT:                true,
	replication.RAND_EVENT:                true,
	replication.USER_VAR_EVENT:            true,
	replication.BEGIN_LOAD_QUERY_EVENT:    true,
	replication.APPEND_BLOCK_EVENT:        true,
	replication.DELETE_FILE_EVENT:         true,
	replication.UPDATE_ROWS_EVENTv1:       true,
	replication.UPDATE_ROWS_EVENTv2:       true,
	replication.PARTIAL_UPDATE_ROWS_EVENT: true,
	replication.DELETE_ROWS_EVENTv1:       true,
	replication.DELETE_ROWS_EVENTv2:       true,
	replication.HEARTBEAT_EVENT:           true,
	replication.HEARTBEAT_LOG_EVENT_V2:    true,
	replication.IGNORABLE_EVENT:           true,
	replication.ROWS_QUERY_EVENT:          true,
	replication.PREVIOUS_GTIDS_EVENT:      true,
	replication.TRANSACTION_CONTEXT_EVENT: true,
	replication.VIEW_CHANGE_EVENT:         true,

	replication.MARIADB_ANNOTATE_ROWS_EVENT:             true,
	replication.MARIADB_BINLOG_CHECKPOINT_EVENT:         true,
	replication.MARIADB_GTID_LIST_EVENT:                 true,
	replication.MARIADB_START_ENCRYPTION_EVENT:          true,
	replication.MARIADB_UPDATE_ROWS_COMPRESSED_EVENT_V1: true,
	replication.MARIADB_DELETE_ROWS_COMPRESSED_EVENT_V1: true,
	mariaUpdateRowsCompressed:                           true,
	mariaDeleteRowsCompressed:                           true,
}

// between checks that no group is under way at a place between groups.
func (a *assembler) between(h header) error {
	if a.group != nil && a.group.open {
		return fmt.Errorf("%w: %s comes before the end of %s", ErrTorn, h.typ, a.group.tx.GTID)
	}
	return nil
}

// rotate follows the log into its next file (MySQL's Rotate_event: a
// position of eight bytes and a file name).
func (a *assembler) rotate(h header, body []byte) error {
	s := scanner{rest: body}
	position := s.bytes(8)
	if s.bad {
		return fmt.Errorf("%w: rotate", ErrDamaged)
	}
	a.place = Place{File: string(s.rest), Offset: le.Uint32(position)}
	return a.between(h)
}

// begin opens a group. The one before, if it is still there, was a single
// event that says nothing about its end.
func (a *assembler) begin(h header, body []byte) (*Tx, error) {
	if err := a.between(h); err != nil {
		return nil, err
	}
	var before *Tx
	if a.group != nil {
		before, _ = a.commit()
	}
	var err error
	g := a.spare
	if a.spare = nil; g == nil {
		g = new(group)
	}
	if h.typ == replication.MARIADB_GTID_EVENT {
		err = g.openMariaDB(h, body)
	} else {
		g.tx.GTID, g.tx.CommittedAt, err = parseGTID(h, body, &a.names)
	}
	if err != nil {
		return nil, err
	}
	a.group = g
	return before, a.inOrder(g.tx.GTID)
}

func (a *assembler) tableMap(body []byte) error {
	id, database, table, err := peekTableMap(body)
	if err != nil {
		return err
	}
	t := a.decoder.table
	if string(table) != t.Name || string(database) != t.Database || a.passes() || a.group != nil && a.group.fault != nil {
		if len(a.tables) > 0 {
			delete(a.tables, id)
		}
		return nil
	}
	if a.group == nil {
		return fmt.Errorf("%w: a table map outside of a transaction", ErrDamaged)
	}
	a.decoder.mariadb = a.group.tx.GTID.sequential()
	img, err := a.decoder.mapTable(body)
	if err == errUndefined {
		if err = a.define(); err == nil {
			img, err = a.decoder.mapTable(body)
		}
	}
	switch {
	case errors.Is(err, errVersioned):
		return a.refuseVersions(err)
	case errors.Is(err, errUnlike) && a.unlike != nil:
		err = a.unlike(err)
	case errors.Is(err, schema.ErrTable), errors.Is(err, errUnlike), errors.Is(err, errMetadata):
		err = a.changed(err)
	}
	if err == nil && !img.named && id != a.number && a.verify != nil {
		a.number, err = id, a.verify()
	}
	if err != nil {
		return err
	}
	a.tables[id] = img
	return nil
}

// passes tells whether the group under way is none that is read.
func (a *assembler) passes() bool { return a.pass != nil && (a.group == nil || a.pass(a.group)) }

// rows takes the outbox inserts. It returns a part when the group has grown
// beyond what is held.
func (a *assembler) rows(h header, body []byte) (*Tx, error) {
	s := scanner{rest: body}
	img, ours := a.tables[s.uint48()]
	s.bytes(2)
	if s.bad || a.group == nil {
		return nil, fmt.Errorf("%w: rows outside of a transaction", ErrDamaged)
	}
	if !ours || a.group.fault != nil {
		return nil, nil
	}
	g, version := a.group, 1
	if h.typ == replication.WRITE_ROWS_EVENTv2 || h.typ == mariaWriteRowsCompressed {
		version = 2
	}
	if compressedRows(h.typ) {
		var err error
		if s.rest, err = inflateRows(version, s.rest); err != nil {
			return nil, err
		}
	}
	had := len(g.tx.Events)
	var err error
	g.tx.Events, err = a.decoder.rows(g.tx.Events, img, version, s.rest, g.origin())
	for i := range g.tx.Events[had:] {
		g.count(&g.tx.Events[had+i])
	}
	if err != nil {
		return nil, err
	}
	if g.xa != "" {
		return nil, a.hold(g)
	}
	return a.part(), nil
}

// part is what the group has so far, if that is enough to be handed out; else
// nil.
func (a *assembler) part() *Tx {
	g := a.group
	if g.xa != "" || len(g.tx.Events) < partEvents && g.size < partBytes {
		return nil
	}
	part := g.tx
	part.Place = a.place
	g.tx.Events, g.size = nil, 0
	return &part
}

// intvar keeps the AUTO_INCREMENT value of the next statement (MySQL's
// Intvar_event: a type and eight bytes).
func (a *assembler) intvar(body []byte) error {
	s := scanner{rest: body}
	typ, value := s.uint8(), s.bytes(8)
	if s.bad {
		return fmt.Errorf("%w: integer of a statement", ErrDamaged)
	}
	if typ == int(replication.INSERT_ID) {
		a.insertID = le.Uint64(value)
	}
	return nil
}

// commit ends the group and hands it out.
func (a *assembler) commit() (*Tx, error) {
	g := a.group
	if g == nil {
		return nil, fmt.Errorf("%w: the end of a transaction without its beginning", ErrDamaged)
	}
	if g.fault != nil { // an XA transaction of one phase
		g.xa = "" // and not a first half, whose fault can wait
		if !a.passes() {
			return nil, g.fault
		}
	}
	a.group = nil
	if a.gather != nil && a.told == nil && g.idle() {
		a.gather(g)
		clear(g.marks)
		*g = group{marks: g.marks}
		a.spare = g
		return nil, nil
	}
	return a.end(&g.tx), nil
}

// end makes tx a group's last, or only, part.
func (a *assembler) end(tx *Tx) *Tx {
	tx.Last, tx.Place = true, a.place
	tx.Definition, a.told = a.told, nil
	return tx
}

// undo drops the group's events behind the first keep of them.
func (a *assembler) undo(keep int) error {
	g := a.group
	if g.fault != nil {
		return nil
	}
	out := g.events - len(g.tx.Events) // already handed out
	if keep < out {
		return a.unreadable("it was rolled back after %d of its events had been sent as parts of a large transaction; their consumers must be told", out-keep)
	}
	for i := range g.tx.Events[keep-out:] {
		g.size -= memory(&g.tx.Events[keep-out+i])
	}
	g.tx.Events = g.tx.Events[:keep-out]
	g.events = keep
	maps.DeleteFunc(g.marks, func(_ string, at int) bool { return at > keep })
	return nil
}

// unreadable is what stops the relay rather than be passed over.
func (a *assembler) unreadable(format string, args ...any) error {
	gtid := "none"
	if a.group != nil {
		gtid = a.group.tx.GTID.String()
	}
	err := fmt.Errorf("%w: transaction %s in %s before %d: %s", ErrUnreadable, gtid, a.place.File, a.place.Offset, fmt.Sprintf(format, args...))
	if a.way != "" {
		err = fmt.Errorf("%w; %s", err, a.way)
	}
	return err
}
