package relay

import (
	"cmp"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/outboxrelay/relay/checkpoint"
)

const (
	// lastSuffix makes the path of the last error of the checkpoint's.
	lastSuffix = ".error"
	// lastPatience is how long a relay waits for the disk to take its last error.
	lastPatience = time.Second
)

// LastError is the newest error of a relay, kept in a file beside the checkpoint
// for who looks when the relay is gone.
type LastError struct {
	At       time.Time  `json:"at"`
	Error    string     `json:"error"`
	ExitCode int        `json:"exit_code"`         // with which the relay ended; 0: it tries again
	OverAt   *time.Time `json:"over_at,omitempty"` // when a relay followed again; nil: not yet
}

// lastFile writes it. That this fails is no error of the relay. It is used by
// one goroutine, and never waits long for the disk, which may hang. Nil keeps
// nothing.
type lastFile struct {
	checkpoint string // path, after symbolic links
	log        zerolog.Logger
	last       LastError // the zero one: there was none

	writing sync.Mutex
}

func openLast(path string, log zerolog.Logger) *lastFile {
	l := &lastFile{checkpoint: path, log: log}
	if last, err := readLast(path); err == nil && last != nil {
		l.last = *last
	}
	return l
}

// failed notes an error, and the exit code where it ends the relay.
func (l *lastFile) failed(err error, code int) {
	if l == nil {
		return
	}
	l.last = LastError{At: time.Now().UTC(), Error: err.Error(), ExitCode: code}
	l.write()
}

// over notes that the relay follows.
func (l *lastFile) over() {
	if l == nil || l.last.At.IsZero() || l.last.OverAt != nil {
		return
	}
	now := time.Now().UTC()
	l.last.OverAt = &now
	l.write()
}

func (l *lastFile) write() {
	if !l.writing.TryLock() { // the disk still hangs
		return
	}
	last, done := l.last, make(chan struct{})
	go func() {
		defer close(done)
		defer l.writing.Unlock()
		if err := last.save(l.checkpoint); err != nil {
			l.log.Debug().Err(err).Msg("the last error cannot be kept")
		}
	}()
	select {
	case <-done:
	case <-time.After(lastPatience):
	}
}

// save replaces the file beside the checkpoint at path, in one step.
func (e LastError) save(path string) error {
	text, err := json.Marshal(e)
	if err != nil {
		return err
	}
	temporary := path + lastSuffix + ".relay-tmp" // only the holder of the checkpoint's lock writes it
	if err := os.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o640)
	if err != nil {
		return err
	}
	err = checkpoint.Own(f, path)
	if err == nil {
		_, err = f.Write(append(text, '\n'))
	}
	if err = cmp.Or(err, f.Close()); err != nil {
		return cmp.Or(err, os.Remove(temporary))
	}
	return os.Rename(temporary, path+lastSuffix)
}

// readLast reads the file beside the checkpoint at path; nil where there is none.
func readLast(path string) (*LastError, error) {
	text, err := os.ReadFile(path + lastSuffix)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var e LastError
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, err
	}
	return &e, nil
}
