package relay

import (
	"bufio"
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/schema"
)

// parkedSuffix makes the parked file's path of the checkpoint's.
const parkedSuffix = ".parked"

const dropAllWay = "put the file back as it was; or let all that is parked go: relay replay --parked --drop-all"

// identity tells events apart: one that comes again after a crash has its id
// and its sequence, a corrected one with the same id has another sequence.
type identity struct {
	id       string
	sequence int64
}

func identityOf(e *schema.Event) identity { return identity{e.ID, e.Sequence} }

// What becomes of a parked event, which then waits no more.
const (
	goneSent    = "sent"
	goneDropped = "dropped"
)

// parkedNote is a line of the parked file that is no event.
type parkedNote struct {
	Gone     string `json:"gone,omitempty"` // goneSent or goneDropped
	ID       string `json:"id,omitempty"`
	Sequence int64  `json:"sequence,omitempty"`

	// Of a file's first line: the checksum that it had before it was written
	// anew, and how many lines were then written behind this one.
	Anew   *string `json:"anew,omitempty"`
	Events int     `json:"events,omitempty"`
	// And the ids that were let go before that, so that who types it again is
	// not told that there are none.
	Dropped []string `json:"dropped,omitempty"`
}

// parked is what a parked file holds. Each of its lines ends with a checksum of
// it and of the checksum before, which early relays did not write.
type parked struct {
	path   string
	exists bool
	events []Line // that wait
	// whole is the length of the lines that have an end: a part of one was not
	// synced, and its event is not passed by the position.
	whole  int64
	sum    string          // of all lines
	summed bool            // the first line has its checksum, and so all have
	sums   map[string]bool // that the checkpoint may have
	// dropped are ids that were let go since the file was last empty.
	dropped map[string]bool
}

// readParked reads a parked file, which need not exist. Its events are returned
// beside what else it holds.
func readParked(path string) ([]Line, parked, error) {
	p := parked{path: path, sums: map[string]bool{}, dropped: map[string]bool{}}
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, p, nil
	}
	if err != nil {
		return nil, p, fmt.Errorf("%w: parked events: %w; make it readable for the user that runs the relay", ErrUnfit, err)
	}
	p.exists = true
	if err := p.parse(content); err != nil {
		return nil, p, fmt.Errorf("%w: parked events: %s: %w; %s", ErrUnfit, path, err, dropAllWay)
	}
	return p.events, p, nil
}

func (p *parked) parse(content []byte) error {
	var anew parkedNote
	summed := false
	var all []*Line // nil: gone
	waiting := map[identity]int{}
	for n := 1; ; n++ {
		line, rest, found := bytes.Cut(content[p.whole:], []byte("\n"))
		if !found {
			break
		}
		text, sum := unsealed(line)
		p.sum = chained(p.sum, text)
		if sum != p.sum && (sum != "" || summed) {
			return fmt.Errorf("line %d has the checksum %.16q, and %.16q is right: it, or what stood before it, was changed", n, sum, p.sum)
		}
		summed = sum != ""
		p.summed = p.summed || n == 1 && summed
		var note parkedNote
		if err := json.Unmarshal(text, &note); err != nil {
			return fmt.Errorf("line %d is not one that the relay wrote: %w", n, err)
		}
		who := identity{note.ID, note.Sequence}
		switch at, waits := waiting[who]; {
		case note.Anew != nil && n == 1:
			anew = note
			for _, id := range note.Dropped {
				p.dropped[id] = true
			}
		case note.Anew != nil, note.Gone != "" && !waits:
			return fmt.Errorf("line %d does not belong there: %.80q", n, text)
		case note.Gone != "":
			all[at] = nil
			delete(waiting, who)
			if note.Gone == goneDropped {
				p.dropped[note.ID] = true
			}
		default:
			event, err := readLine(text)
			if err != nil {
				return fmt.Errorf("line %d is not one that the relay wrote: %w", n, err)
			}
			waiting[who] = len(all)
			all = append(all, &event)
		}
		p.sums[p.sum] = true
		if anew.Anew != nil && n > anew.Events {
			p.sums[*anew.Anew] = true
		}
		p.whole = int64(len(content) - len(rest))
	}
	for _, event := range all {
		if event != nil {
			p.events = append(p.events, *event)
		}
	}
	return nil
}

// fits refuses a file that does not hold what the checkpoint says.
func (p *parked) fits(mark *checkpoint.Parked) error {
	switch {
	case mark == nil || p.sums[mark.Sum]:
		return nil
	case !p.exists:
		return fmt.Errorf("%w: the checkpoint tells of %d parked events, and there is no %s; %s", ErrUnfit, mark.Events, p.path, dropAllWay)
	}
	return fmt.Errorf("%w: the checkpoint tells of %d parked events in %s, which has %d and not the checksum %.16q: its end was cut off, or it is another file; %s",
		ErrUnfit, mark.Events, p.path, len(p.events), mark.Sum, dropAllWay)
}

// parkedBeside reads the parked file of a checkpoint and refuses one that does
// not belong to it.
func parkedBeside(path string, state checkpoint.State, exists bool) (parked, error) {
	events, p, err := readParked(path + parkedSuffix)
	if err == nil && !exists && len(events) > 0 {
		err = fmt.Errorf("%w: %d events are parked in %s, and there is no checkpoint %s; put it back, or set the place to go on from: relay resume --from-gtid SET --yes; or, when they are dealt with, let them go: relay replay --parked --drop-all", ErrUnfit, len(events), p.path, path)
	}
	if err == nil {
		if err = p.fits(state.Parked); err != nil {
			err = fmt.Errorf("%w; or go on with what is there: relay resume --from-gtid '%s' --yes", err, state.GTIDSet)
		}
	}
	if err == nil && exists && state.Parked == nil && p.summed {
		err = p.fresh(state)
	}
	return p, err
}

// fresh refuses a file of which the checkpoint does not tell, unless a crash came
// between the two: then the position is before its events.
func (p *parked) fresh(state checkpoint.State) error {
	for _, e := range p.events {
		if e.Sequence > 0 && e.Sequence <= state.Sequence {
			return fmt.Errorf("%w: %d events are parked in %s, and the checkpoint, which is behind them, tells of none: it is an old file, whose events were sent or let go: move it away; or take them as they are, to be sent again: relay resume --from-gtid '%s' --yes",
				ErrUnfit, len(p.events), p.path, state.GTIDSet)
		}
	}
	return nil
}

// resumedMark is what the checkpoint that a resume makes says of the parked
// file, of which the one before it had the mark. A file that does not fit is
// taken as it is when the operator says so.
func resumedMark(path string, mark *checkpoint.Parked, order Override, policy OnBadEvent, out io.Writer) (*checkpoint.Parked, error) {
	events, p, err := readParked(path + parkedSuffix)
	if err == nil {
		err = p.allow(policy)
	}
	if err != nil {
		return nil, err
	}
	if err := p.fits(mark); err != nil {
		if !order.Yes {
			return nil, fmt.Errorf("%w; or go on with what is there: type it again with --yes", err)
		}
		fmt.Fprintf(out, "%-12s the checkpoint told of %d events, and %d are there: taken as they are\n", "parked", mark.Events, len(events))
		mark = nil
	}
	if mark == nil && len(events) > 0 {
		mark = &checkpoint.Parked{Events: int64(len(events)), Sum: p.sum}
	}
	return mark, nil
}

// The end of a line, with its checksum.
const (
	sumBefore = `,"sum":"`
	sumAfter  = `"}`
)

// chained is the checksum of a line, without its own, behind another one.
func chained(before string, text []byte) string {
	h := sha256.New()
	io.WriteString(h, before+"\n") //nolint:errcheck // a hash takes all
	h.Write(text)
	return hex.EncodeToString(h.Sum(nil))
}

// unsealed takes the checksum out of a line; it is empty where there is none.
func unsealed(line []byte) (text []byte, sum string) {
	at := len(line) - len(sumBefore) - hex.EncodedLen(sha256.Size) - len(sumAfter)
	if at < 0 || !bytes.HasPrefix(line[at:], []byte(sumBefore)) || !bytes.HasSuffix(line, []byte(sumAfter)) {
		return line, ""
	}
	sum = string(line[at+len(sumBefore) : len(line)-len(sumAfter)])
	return append(bytes.Clone(line[:at]), '}'), sum
}

// parkedEnd writes lines to the end of a parked file.
type parkedEnd struct {
	path   string
	file   *os.File
	buffer *bufio.Writer
	sum    string // of all lines
}

// open makes a parked file ready for more lines; the half of one is cut off.
func (p *parked) open() (*parkedEnd, error) {
	file, err := os.OpenFile(p.path, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return nil, fmt.Errorf("%w: parked events: %w", ErrUnfit, err)
	}
	_, seekErr := file.Seek(p.whole, io.SeekStart)
	err = errors.Join(file.Truncate(p.whole), seekErr, syncDirectory(p.path))
	if err == nil && !p.exists {
		err = p.own(file)
	}
	if err != nil {
		file.Close()
		return nil, fmt.Errorf("%w: parked events: %w", ErrUnfit, err)
	}
	return &parkedEnd{path: p.path, file: file, buffer: bufio.NewWriter(file), sum: p.sum}, nil
}

// own gives a new file mode and owner of the checkpoint.
func (p *parked) own(file *os.File) error {
	return checkpoint.Own(file, strings.TrimSuffix(p.path, parkedSuffix))
}

// write seals an object of JSON as a line.
func (e *parkedEnd) write(object []byte) error {
	text := bytes.TrimSuffix(object, []byte("\n"))
	e.sum = chained(e.sum, text)
	_, err := e.buffer.Write(text[:len(text)-1])
	_, sumErr := e.buffer.WriteString(sumBefore + e.sum + sumAfter + "\n")
	return e.explain(cmp.Or(err, sumErr))
}

func (e *parkedEnd) line(l *Line) error {
	var object bytes.Buffer
	if err := l.writeTo(&object); err != nil {
		return e.explain(err)
	}
	return e.write(object.Bytes())
}

func (e *parkedEnd) note(n parkedNote) error {
	object, err := json.Marshal(n)
	if err != nil {
		return e.explain(err)
	}
	return e.write(object)
}

// sync returns when all lines are durable where the next start looks for them.
func (e *parkedEnd) sync() error {
	if err := cmp.Or(e.buffer.Flush(), e.file.Sync()); err != nil {
		return e.explain(err)
	}
	mine, err := e.file.Stat()
	if err != nil {
		return e.explain(err)
	}
	if there, err := os.Stat(e.path); err != nil || !os.SameFile(mine, there) {
		return fmt.Errorf("%w: parked events: %s was moved away or replaced while it is used; put it back", ErrUnfit, e.path)
	}
	return nil
}

func (e *parkedEnd) explain(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("relay: parked events: %s: %w", e.path, err)
}

func (e *parkedEnd) close() {
	if e != nil {
		e.file.Close()
	}
}

// rewrite replaces a parked file, durably, by one with these events. The
// checkpoint may go on having the mark until it is saved with the new one,
// which is returned; nil: nothing is parked. drop are ids that were to be let
// go.
func (p *parked) rewrite(events []Line, mark *checkpoint.Parked, drop []string) (*checkpoint.Parked, error) {
	before := p.sum
	if mark != nil {
		before = mark.Sum
	}
	file, err := os.OpenFile(p.path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o640)
	if err != nil {
		return nil, fmt.Errorf("relay: parked events: %w", err)
	}
	e := &parkedEnd{path: p.path, file: file, buffer: bufio.NewWriter(file)}
	for _, id := range drop {
		p.dropped[id] = true
	}
	err = cmp.Or(p.own(file), e.note(parkedNote{Anew: &before, Events: len(events), Dropped: slices.Sorted(maps.Keys(p.dropped))}))
	for i := range events {
		if err == nil {
			err = e.line(&events[i])
		}
	}
	if err = cmp.Or(err, e.buffer.Flush(), file.Sync()); err == nil {
		err = cmp.Or(os.Rename(file.Name(), p.path), syncDirectory(p.path))
	}
	if err = cmp.Or(err, file.Close()); err != nil {
		return nil, e.explain(err)
	}
	if len(events) == 0 {
		return nil, nil
	}
	return &checkpoint.Parked{Events: int64(len(events)), Sum: e.sum}, nil
}

func syncDirectory(path string) error {
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer directory.Close()
	return directory.Sync()
}
