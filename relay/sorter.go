package relay

import (
	"bufio"
	"bytes"
	"cmp"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"
)

// sortMemory is how many bytes of records a sorter holds before it writes them
// out.
const sortMemory = 8 << 20

// sorter puts records into the order of their keys' bytes, those of one key into
// that in which they were added, in limited memory: what is more goes to a file,
// run by run. The file has no name, so that it ends with the process, however
// that ends. The zero sorter is ready; it is used by one goroutine.
type sorter struct {
	memory int // Defaults to sortMemory.

	records []byte   // in the order in which they were added
	at      []record // of those
	file    *os.File // nil: all is in memory
	written int64    // bytes of it
	runs    []*io.SectionReader
	count   int64 // records added
}

// record is where one is, and how its key begins, which is all that most
// comparisons need.
type record struct {
	head  uint64
	start int
}

// add adds a record.
func (s *sorter) add(key string, value []byte) error {
	memory := cmp.Or(s.memory, sortMemory)
	const each = 16 + 2*binary.MaxVarintLen32 // in at, and the lengths
	if len(s.at) > 0 && len(s.records)+len(key)+len(value)+each*(len(s.at)+1) > memory {
		if err := s.spill(); err != nil {
			return err
		}
	}
	var head [8]byte
	copy(head[:], key)
	s.at = append(s.at, record{binary.BigEndian.Uint64(head[:]), len(s.records)})
	s.records = binary.AppendUvarint(s.records, uint64(len(key)))
	s.records = append(s.records, key...)
	s.records = binary.AppendUvarint(s.records, uint64(len(value)))
	s.records = append(s.records, value...)
	s.count++
	return nil
}

// fieldAt is the field that begins at a place, and where the next one does.
func fieldAt(records []byte, start int) (field []byte, end int) {
	n, size := binary.Uvarint(records[start:])
	end = start + size + int(n)
	return records[start+size : end], end
}

func (s *sorter) sort() {
	slices.SortFunc(s.at, func(a, b record) int {
		if a.head != b.head {
			return cmp.Compare(a.head, b.head)
		}
		x, _ := fieldAt(s.records, a.start)
		y, _ := fieldAt(s.records, b.start)
		return cmp.Or(bytes.Compare(x, y), cmp.Compare(a.start, b.start))
	})
}

// spill writes what is held into the file, sorted.
func (s *sorter) spill() (err error) {
	if s.file == nil {
		if s.file, err = os.CreateTemp("", "relay-sort-*"); err == nil {
			err = os.Remove(s.file.Name())
		}
		if err != nil {
			return sortFailed(err)
		}
	}
	s.sort()
	out := bufio.NewWriterSize(s.file, 256<<10)
	for _, r := range s.at {
		_, end := fieldAt(s.records, r.start)
		_, end = fieldAt(s.records, end)
		if _, err := out.Write(s.records[r.start:end]); err != nil {
			return sortFailed(err)
		}
	}
	if err := out.Flush(); err != nil {
		return sortFailed(err)
	}
	s.runs = append(s.runs, io.NewSectionReader(s.file, s.written, int64(len(s.records))))
	s.written += int64(len(s.records))
	s.records, s.at = s.records[:0], s.at[:0]
	return nil
}

// finish tells that all is added. Where not all is in memory nothing is then.
func (s *sorter) finish() error {
	if s.runs == nil || len(s.at) == 0 {
		return nil
	}
	err := s.spill()
	s.records, s.at = nil, nil
	return err
}

// sorted begins to read the records. Nothing is added after it.
func (s *sorter) sorted() (*sorted, error) {
	if s.runs == nil {
		s.sort()
		return &sorted{held: s}, nil
	}
	if err := s.finish(); err != nil {
		return nil, err
	}
	r := &sorted{}
	for i, section := range s.runs {
		run := &run{in: bufio.NewReaderSize(section, 64<<10), number: i}
		switch err := run.next(); err {
		case nil:
			r.runs = append(r.runs, run)
		case io.EOF:
		default:
			return nil, sortFailed(err)
		}
	}
	heap.Init(&r.runs)
	return r, nil
}

// close gives the file's room back.
func (s *sorter) close() {
	if s.file != nil {
		s.file.Close()
	}
}

// sorted are the records of a sorter in order.
type sorted struct {
	held  *sorter // whose memory has all; nil: runs have
	given int     // of held
	runs  runs
	taken *run // the run whose record was given last; nil: none
}

// next gives a record, which is valid until the next call; io.EOF after the last.
func (r *sorted) next() (key, value []byte, err error) {
	if r.held != nil {
		if r.given == len(r.held.at) {
			return nil, nil, io.EOF
		}
		key, end := fieldAt(r.held.records, r.held.at[r.given].start)
		value, _ := fieldAt(r.held.records, end)
		r.given++
		return key, value, nil
	}
	if r.taken != nil {
		switch err := r.taken.next(); err {
		case nil:
			heap.Fix(&r.runs, 0)
		case io.EOF:
			heap.Pop(&r.runs)
		default:
			return nil, nil, sortFailed(err)
		}
		r.taken = nil
	}
	if len(r.runs) == 0 {
		return nil, nil, io.EOF
	}
	r.taken = r.runs[0]
	return r.taken.key, r.taken.value, nil
}

// run is a part of the file that is sorted.
type run struct {
	in         *bufio.Reader
	number     int // by which it was written
	key, value []byte
}

func (r *run) next() (err error) {
	if r.key, err = r.field(r.key); err != nil {
		return err
	}
	if r.value, err = r.field(r.value); err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
}

func (r *run) field(room []byte) ([]byte, error) {
	n, err := binary.ReadUvarint(r.in)
	if err != nil {
		return nil, err
	}
	room = slices.Grow(room[:0], int(n))[:n]
	_, err = io.ReadFull(r.in, room)
	return room, err
}

// runs is a heap of them, by the record that comes next.
type runs []*run

func (r runs) Len() int { return len(r) }
func (r runs) Less(i, j int) bool {
	return cmp.Or(bytes.Compare(r[i].key, r[j].key), cmp.Compare(r[i].number, r[j].number)) < 0
}
func (r runs) Swap(i, j int) { r[i], r[j] = r[j], r[i] }
func (r *runs) Push(x any)   { *r = append(*r, x.(*run)) }
func (r *runs) Pop() any {
	last := (*r)[len(*r)-1]
	*r = (*r)[:len(*r)-1]
	return last
}

// sortFailed sorts the failures of the file: what is full may be emptied.
func sortFailed(err error) error {
	const what = "what is too much to be sorted in memory goes to a file"
	dir := os.TempDir()
	switch {
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT), errors.Is(err, syscall.EFBIG):
		return fmt.Errorf("%w: %s, and there is no room in directory %s: %w; make room, see: df -h %s; or name another: TMPDIR=/var/tmp", ErrUnavailable, what, dir, err, dir)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EROFS), errors.Is(err, syscall.ENOTDIR):
		return fmt.Errorf("%w: %s, and directory %s takes none: %w; name one that does: TMPDIR=/var/tmp", ErrUnfit, what, dir, err)
	}
	return fmt.Errorf("relay: %s, in directory %s: %w", what, dir, err)
}

// side is what one of two sorters has of a key.
type side struct {
	count int
	value []byte // of its first record
}

// merge goes through the records of two sorters side by side, key by key.
func merge(left, right *sorter, each func(key string, left, right side) error) error {
	var sides [2]struct {
		*sorted
		key, value []byte // of the next record
		over       bool   // there is none
	}
	advance := func(i int) error {
		key, value, err := sides[i].next()
		if err != nil && err != io.EOF {
			return err
		}
		sides[i].key, sides[i].value, sides[i].over = key, value, err == io.EOF
		return nil
	}
	for i, s := range []*sorter{left, right} {
		var err error
		if sides[i].sorted, err = s.sorted(); err != nil {
			return err
		}
		if err := advance(i); err != nil {
			return err
		}
	}
	for !sides[0].over || !sides[1].over {
		least := 0
		if sides[0].over || !sides[1].over && bytes.Compare(sides[1].key, sides[0].key) < 0 {
			least = 1
		}
		key := string(sides[least].key)
		var found [2]side
		for i := range sides {
			for !sides[i].over && string(sides[i].key) == key {
				if found[i].count++; found[i].count == 1 {
					found[i].value = bytes.Clone(sides[i].value)
				}
				if err := advance(i); err != nil {
					return err
				}
			}
		}
		if err := each(key, found[0], found[1]); err != nil {
			return err
		}
	}
	return nil
}
