package relay

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// parkedSuffix makes the parked file's path of the checkpoint's.
const parkedSuffix = ".parked"

// lot is where bad events are put aside, with the later ones of their
// aggregates: a file of JSON lines beside the checkpoint. A line is synced
// before the position moves over its event. It is used by one goroutine, for
// one session: after an error it is opened again, from what is durable.
type lot struct {
	path string
	file *os.File
	ids  map[string]bool   // of all that is parked
	held map[string]string // by aggregate: the id of the bad event that holds it
}

// readParked reads a parked file; none is an empty one. whole is the length of
// what was read: a last line without its end was not synced, and its event is
// not passed by the position.
func readParked(path string) (list []Line, whole int64, err error) {
	content, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, fmt.Errorf("%w: parked events: %w; make it readable for the user that runs the relay", ErrUnfit, err)
	}
	for n := 1; ; n++ {
		line, rest, found := bytes.Cut(content[whole:], []byte("\n"))
		if !found {
			return list, whole, nil
		}
		p, err := readLine(line)
		if err != nil {
			return nil, 0, fmt.Errorf("%w: parked events: %s: line %d is not one that the relay wrote: %w; mend the line or move the file away", ErrUnfit, path, n, err)
		}
		list = append(list, p)
		whole = int64(len(content) - len(rest))
	}
}

// openLot opens the parked file beside a checkpoint.
func openLot(checkpoint string) (*lot, error) {
	l := &lot{path: checkpoint + parkedSuffix, ids: map[string]bool{}, held: map[string]string{}}
	list, whole, err := readParked(l.path)
	if err != nil {
		return nil, err
	}
	for _, p := range list {
		l.note(p)
	}
	if l.file, err = os.OpenFile(l.path, os.O_RDWR|os.O_CREATE, 0o640); err != nil {
		return nil, fmt.Errorf("%w: parked events: %w", ErrUnfit, err)
	}
	err = errors.Join(l.file.Truncate(whole), syncDirectory(l.path))
	if _, seekErr := l.file.Seek(whole, io.SeekStart); err == nil {
		err = seekErr
	}
	if err != nil {
		l.close()
		return nil, fmt.Errorf("%w: parked events: %w", ErrUnfit, err)
	}
	return l, nil
}

func syncDirectory(path string) error {
	directory, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer directory.Close()
	return directory.Sync()
}

func (l *lot) close() {
	if l != nil {
		l.file.Close()
	}
}

func (l *lot) note(p Line) {
	l.ids[p.ID] = true
	if p.Behind == "" {
		l.hold(p.AggregateID, p.ID, p.Broken)
	}
}

// hold makes later events of the aggregate wait for the bad one. Of a row
// whose aggregate could not be read it is not known which those are.
func (l *lot) hold(aggregate, id string, broken bool) {
	if broken && aggregate == "" {
		return
	}
	if _, held := l.held[aggregate]; !held {
		l.held[aggregate] = id
	}
}

// takes tells whether the item is to be parked: it is bad, or an earlier one
// of its aggregate is. A nil lot takes none.
func (l *lot) takes(it *item) bool {
	if l == nil {
		return false
	}
	if bad := it.event.Bad; bad != nil {
		l.hold(it.event.AggregateID, it.event.ID, bad.Broken)
		return true
	}
	_, held := l.held[it.event.AggregateID]
	return held
}

// add writes items and returns when they are durable. One that is there
// already, from before a crash, is not written again.
func (l *lot) add(items []*item) error {
	buffer := bufio.NewWriter(l.file)
	for _, it := range items {
		if l.ids[it.event.ID] {
			continue
		}
		l.ids[it.event.ID] = true
		line := newLine(&it.event)
		line.ParkedAt = time.Now().UTC()
		if it.event.Bad == nil {
			line.Behind = l.held[it.event.AggregateID]
		}
		if err := line.writeTo(buffer); err != nil {
			return fmt.Errorf("relay: parked events: %w", err)
		}
	}
	if err := errors.Join(buffer.Flush(), l.file.Sync()); err != nil {
		return fmt.Errorf("relay: parked events: %s: %w", l.path, err)
	}
	return nil
}
