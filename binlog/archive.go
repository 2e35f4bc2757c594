package binlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/outboxrelay/relay/schema"
)

// Archive is log files on disk that make up one piece of a server's history:
// an archive has them when the server has purged them. It needs no server
// where the log names the table's columns (binlog_row_metadata=FULL).
type Archive struct {
	Set         *GTIDSet  // all transactions in the files
	First, Last time.Time // commit times of the first and the last; zero: none
	// Ended tells whether the last file ends as its server ends one. Else the
	// server was writing it, or was killed, or what came behind is cut off.
	Ended bool

	cfg     ArchiveConfig
	files   []archiveFile
	changes []alteration // of the table, in the order of the log
	end     *GTIDSet     // the position behind the files
}

// ArchiveConfig says which files, and what of them.
type ArchiveConfig struct {
	Files           []string // paths, in the order in which the server wrote them
	Database, Table string
	Options         schema.Options // how the table's columns are to be taken

	// Define tells the table's definition on a server, and what that has
	// executed, for logs that do not name its columns. It is asked once, when
	// it is needed. Defaults to refusing them.
	Define func(ctx context.Context) (*schema.Table, *GTIDSet, error)
	// Since refuses that definition, with ErrChanged, where the server may have
	// changed the table between the end of the files and executed. Nil: nobody
	// looks.
	Since func(ctx context.Context, table *schema.Table, end, executed *GTIDSet) error
}

type archiveFile struct {
	logHead
	path string
	info fs.FileInfo
	end  int64 // offset behind its last whole transaction
}

// OpenArchive reads the files once, without their rows, and sees to it that
// they are whole and follow each other, so that a Playback does not stop half
// way for one that is not. The end of a file that the server had not closed
// is behind its last whole transaction. Errors wrap ErrFiles or ErrDamaged and
// name the file.
func OpenArchive(ctx context.Context, cfg ArchiveConfig) (*Archive, error) {
	a := &Archive{cfg: cfg, Set: emptySet()}
	if len(cfg.Files) == 0 {
		return nil, fmt.Errorf("%w: none was given", ErrFiles)
	}
	for _, path := range cfg.Files {
		r, err := openLog(path)
		if err != nil {
			return nil, err
		}
		head, err := r.head()
		r.close()
		if err != nil {
			return nil, err
		}
		a.files = append(a.files, archiveFile{logHead: head, path: path, info: r.info})
	}
	if err := a.ordered(); err != nil {
		return nil, err
	}
	return a, a.survey(ctx)
}

// ordered refuses files in another order than that of the server.
func (a *Archive) ordered() error {
	for i := 1; i < len(a.files); i++ {
		if a.files[i].previous.Contains(a.files[i-1].previous) {
			continue
		}
		sorted := slices.Clone(a.files)
		slices.SortStableFunc(sorted, func(x, y archiveFile) int { return cmp.Compare(x.previous.Count(), y.previous.Count()) })
		var paths []string
		for _, f := range sorted {
			paths = append(paths, f.path)
		}
		return fmt.Errorf("%w: %s was written before %s, or on another server; of one server, type: --from-binlog %s", ErrFiles, a.files[i].path, a.files[i-1].path, strings.Join(paths, " "))
	}
	return nil
}

// survey reads all groups, without their rows, and notes where each file ends.
func (a *Archive) survey(ctx context.Context) error {
	p := a.play()
	defer p.Close()
	p.assembler.pass = func(*group) bool { return true }
	p.assembler.way = "leave this file out: replay those before it and those behind it each on their own"
	seen := a.files[0].previous.Clone()
	p.turned = func(i int) error {
		if unknown := a.Set.Minus(a.files[i].previous); !unknown.IsEmpty() {
			return fmt.Errorf("%w: %s was not written behind %s: it does not know %d transactions before it: %s; give files of one server, each once, in their order; those of several servers each on their own",
				ErrFiles, a.files[i].path, a.files[i-1].path, unknown.Count(), unknown)
		}
		if missing := a.files[i].previous.Minus(seen); !missing.IsEmpty() {
			if rest := a.files[i].reached.minus(p.assembler.reached); len(rest) > 0 { // the numbers of all servers in one
				missing = &GTIDSet{set: missing.set, domains: rest}
			}
			return fmt.Errorf("%w: between %s and %s %d transactions are missing: %s; give the files that have them as well, beginning with %s, or replay those before the gap and those behind it each on their own",
				ErrFiles, a.files[i-1].path, a.files[i].path, missing.Count(), missing, cmp.Or(p.following, "the one behind "+a.files[i-1].path))
		}
		return nil
	}
	for {
		tx, err := p.next(ctx)
		if err == io.EOF {
			a.Ended = p.ended
			a.end = &GTIDSet{set: seen.set, domains: maps.Clone(p.assembler.reached)}
			return nil
		}
		if err != nil {
			return err
		}
		gtid := cmp.Or(tx.GTID, tx.Prepared)
		if seen.Has(gtid) {
			return fmt.Errorf("%w: %s has transaction %s, which came before; give each file once, and files of one server only", ErrFiles, p.path(), gtid)
		}
		seen.reach(gtid)
		a.Set.include(gtid)
		if tx.Altered != "" {
			a.changes = append(a.changes, alteration{gtid: tx.GTID, statement: tx.Altered})
		}
		if a.First.IsZero() {
			a.First = tx.CommittedAt
		}
		a.Last = tx.CommittedAt
	}
}

// play is a Playback of everything.
func (a *Archive) play() *Playback {
	p := &Playback{archive: a, assembler: newAssembler(&schema.Table{Database: a.cfg.Database, Name: a.cfg.Table})}
	p.assembler.reached = maps.Clone(a.files[0].reached)
	return p
}

// Play begins to read those of the archive's transactions that are wanted. An
// XA transaction goes by the GTID of its XA COMMIT.
func (a *Archive) Play(ctx context.Context, wanted func(GTID) bool) *Playback {
	p := a.play()
	p.wanted = wanted
	p.assembler.way = "if what it lacks stands in an earlier file, give that one as well"
	p.assembler.textWay = "look for its rows in the table"
	p.assembler.pass = func(g *group) bool { return g.xa == "" && !wanted(g.tx.GTID) }
	p.assembler.decoder.options = a.cfg.Options
	p.assembler.redefine = func() error { return p.define(ctx) }
	if a.files[0].flavor == MariaDB {
		p.assembler.decoder.lone = a.cfg.Define == nil
		p.assembler.decoder.ask = func() (*schema.Table, error) {
			table, _, err := p.ask(ctx)
			return table, err
		}
	}
	return p
}

// Playback reads the transactions of an archive, in the order of the log. It
// is used by one goroutine; after an error it is of no more use than to be
// closed.
type Playback struct {
	archive   *Archive
	assembler *assembler
	wanted    func(GTID) bool
	present   *schema.Table   // as a server has it; nil: not asked yet
	executed  *GTIDSet        // by that server
	defined   bool            // it was taken for what the files do not name
	turned    func(int) error // hears of every file but the first; nil: nobody does

	changed   int        // how many of the archive's changes came
	at        int        // index of the file that is being read
	reader    *logReader // of it; nil: not yet open
	begin     int64      // where the last group began in it
	named     int64      // behind its GTID
	ended     bool       // the last event was one that ends a file
	following string     // the file that the server wrote behind the one before
	failed    error      // of a file, as event returned it
}

// Next returns the next transaction, or part of a large one; io.EOF after the
// last.
func (p *Playback) Next(ctx context.Context) (*Tx, error) {
	for {
		tx, err := p.next(ctx)
		if err == nil && tx.Altered != "" && tx.Last {
			p.changed++
		}
		if err != nil || tx.GTID.IsZero() || p.wanted(tx.GTID) {
			return tx, err
		}
	}
}

// Undecided lists, once Next has come to the end, the XA PREPARE of outbox
// rows of which the files do not tell whether they were committed.
func (p *Playback) Undecided() (list []GTID) {
	for _, half := range p.assembler.prepared {
		if len(half.events) == 0 {
			continue
		}
		if half.gtid.IsZero() { // of MariaDB, which moves the position
			one, err := parseDomains(half.events[0].GTID)
			if err != nil { // of the text of a GTID it cannot be
				panic(err)
			}
			for domain, r := range one {
				half.gtid = GTID{Domain: domain, ServerID: r.server, Number: r.last}
			}
		}
		list = append(list, half.gtid)
	}
	slices.SortFunc(list, func(x, y GTID) int { return strings.Compare(x.String(), y.String()) })
	return list
}

// Mapped tells whether the files so far had any change of the outbox table's
// rows, in the transactions that are wanted.
func (p *Playback) Mapped() bool { return p.assembler.decoder.mapped }

// Unseen tells whether the files so far had statements of other tables as text,
// in the transactions that are wanted: what a trigger of theirs wrote into the
// outbox is not there.
func (p *Playback) Unseen() bool { return p.assembler.unseen }

// Within is the transaction that was being read when Next returned an error;
// zero: none.
func (p *Playback) Within() (gtid GTID) {
	if g := p.assembler.group; g != nil {
		gtid = g.tx.GTID
	}
	return gtid
}

// Close closes the file that is open.
func (p *Playback) Close() {
	if p.reader != nil {
		p.reader.close()
		p.reader = nil
	}
	p.assembler.close()
}

func (p *Playback) path() string { return p.archive.files[min(p.at, len(p.archive.files)-1)].path }

func (p *Playback) next(ctx context.Context) (*Tx, error) {
	tx, err := p.assembler.next(func() (rawEvent, error) {
		var raw rawEvent
		raw, p.failed = p.event(ctx)
		return raw, p.failed
	})
	if err == io.EOF && p.assembler.group != nil { // a single event, which says nothing about its end
		return p.assembler.commit()
	}
	if errors.Is(err, ErrTorn) { // in a file nothing follows that mends it
		err = fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if err != nil && err != p.failed { // it names no file
		if errors.Is(err, ErrDamaged) {
			err = fmt.Errorf("%w; copy the file again", err)
		}
		err = fmt.Errorf("%s before offset %d: %w", p.path(), p.reader.offset, err)
	}
	return tx, err
}

// event returns the next event of any file.
func (p *Playback) event(ctx context.Context) (rawEvent, error) {
	for {
		if err := ctx.Err(); err != nil {
			return rawEvent{}, err
		}
		if p.at == len(p.archive.files) {
			return rawEvent{}, io.EOF
		}
		if p.reader == nil {
			if err := p.open(); err != nil {
				return rawEvent{}, err
			}
		}
		begin := p.reader.offset
		raw, err := p.reader.event()
		if err == io.EOF {
			if err := p.turn(); err != nil {
				return rawEvent{}, err
			}
			continue
		}
		if err != nil {
			return rawEvent{}, err
		}
		typ := replication.EventType(raw.bytes[4])
		p.ended = typ == replication.ROTATE_EVENT || typ == replication.STOP_EVENT
		switch typ {
		case replication.GTID_EVENT, replication.GTID_TAGGED_LOG_EVENT, replication.MARIADB_GTID_EVENT:
			p.begin, p.named = begin, p.reader.offset
		case replication.ANONYMOUS_GTID_EVENT:
			return rawEvent{}, fmt.Errorf("%w: %s has a transaction without GTID at offset %d: gtid_mode was not ON when it was written, and nothing tells which of its events were relayed; leave this file out", ErrFiles, p.path(), begin)
		case replication.ROTATE_EVENT:
			p.following = rotatesTo(raw.bytes, p.assembler.checksum)
		}
		return raw, nil
	}
}

// rotatesTo is the file that a rotate event names.
func rotatesTo(raw []byte, checksum bool) string {
	s := scanner{rest: raw[headerSize:]}
	s.bytes(8)
	if checksum && len(s.rest) >= checksumSize {
		s.rest = s.rest[:len(s.rest)-checksumSize]
	}
	return string(s.rest)
}

// open opens the file whose turn it is.
func (p *Playback) open() (err error) {
	f := p.archive.files[p.at]
	if p.at > 0 && p.turned != nil {
		if err := p.turned(p.at); err != nil {
			return err
		}
	}
	p.following = ""
	if p.reader, err = openLog(f.path); err != nil {
		return err
	}
	if !os.SameFile(p.reader.info, f.info) {
		return fmt.Errorf("%w: %s was replaced while it was read; type the same again when it stays as it is", ErrFiles, f.path)
	}
	p.reader.limit, p.reader.keep = f.end, p.assembler.keep
	p.assembler.place = Place{File: filepath.Base(f.path), Offset: uint32(len(logMagic))}
	return nil
}

// turn ends the file that is being read, and notes where that is.
func (p *Playback) turn() error {
	r, end := p.reader, p.reader.offset
	if g := p.assembler.group; g != nil {
		switch {
		case r.inUse: // it was being written
			end, p.assembler.group = p.begin, nil
		case g.open, end == p.named:
			return r.damaged(fmt.Errorf("the file ends inside of transaction %s", g.tx.GTID))
		}
	}
	if f := &p.archive.files[p.at]; f.end == 0 {
		f.end = end
	}
	r.close()
	p.reader = nil
	p.at++
	return nil
}

// define takes the table's definition as a server has it now, for all that the
// files have of one definition: on which side of a change that stands, only the
// operator can tell.
func (p *Playback) define(ctx context.Context) error {
	a := p.assembler
	if p.defined {
		return fmt.Errorf("%w: they do not name the columns of %s, and transaction %s changed it: %s; replay what stands before that and what stands behind it each on their own, with --gtid and --mysql-dsn of a server whose table has the columns of that time",
			ErrFiles, a.decoder.table, a.altered.gtid, a.altered.statement)
	}
	table, executed, err := p.ask(ctx)
	if err != nil {
		return err
	}
	for _, later := range p.archive.changes[p.changed:] {
		if later.gtid != a.group.tx.GTID && executed.Has(later.gtid) {
			return fmt.Errorf("%w: they do not name the columns of %s in transaction %s, and the server's table is of another time: it has executed %s, which changed it later: %s; give the --mysql-dsn of a server that has not, with a table of the columns of that time, and what stands behind the change on its own, with --gtid",
				ErrFiles, a.decoder.table, a.group.tx.GTID, later.gtid, later.statement)
		}
	}
	if err := p.since(ctx); err != nil {
		return err
	}
	p.defined = true
	a.decoder.use(table)
	return nil
}

// ask asks the server for the table's definition, once.
func (p *Playback) ask(ctx context.Context) (*schema.Table, *GTIDSet, error) {
	cfg := p.archive.cfg
	if p.present != nil {
		return p.present, p.executed, nil
	}
	if cfg.Define == nil {
		return nil, nil, fmt.Errorf("%w: they do not name the columns of %s.%s (binlog_row_metadata was not FULL when they were written); give the server whose table has the same columns still: --mysql-dsn", ErrFiles, cfg.Database, cfg.Table)
	}
	table, executed, err := cfg.Define(ctx)
	if err != nil {
		return nil, nil, err
	}
	if files, there := p.archive.files[0].flavor, executed.Flavor(); there != "" && there != files {
		return nil, nil, fmt.Errorf("%w: they are of %s, and the server of --mysql-dsn is %s; give the one that wrote them, or a replica of it", ErrFiles, files.Product(), there.Product())
	}
	p.present, p.executed = table, executed
	return table, executed, nil
}
