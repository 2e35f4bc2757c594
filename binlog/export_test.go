package binlog

import (
	"bytes"
	"errors"
	"io"

	"github.com/outboxrelay/relay/schema"
)

// ReadLog reads a whole log file, for the tests of package binlog_test.
func ReadLog(file []byte, table *schema.Table) (list []*Tx, err error) {
	events, ok := bytes.CutPrefix(file, []byte("\xfebin"))
	if !ok {
		return nil, errors.New("this is no log file")
	}
	a := newAssembler(table)
	defer a.close()
	next := read(cut(events))
	for {
		tx, err := a.next(next)
		if err == io.EOF {
			return list, nil
		}
		if err != nil {
			return list, err
		}
		list = append(list, tx)
	}
}

// Identity is what the server is known by; a test may change it.
func (s *Server) Identity() *string { return &s.identity }

// Kept reads what variables say of the log's retention.
var Kept = kept
