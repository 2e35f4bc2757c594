package cli

import (
	"fmt"
	"io"
	"os"

	"github.com/coreos/go-systemd/v22/journal"
	"github.com/rs/zerolog"
)

// Complain writes an error as the last line on standard error.
func Complain(stderr io.Writer, err error) {
	prefix := ""
	if toJournal(stderr) {
		prefix = priority(zerolog.ErrorLevel)
	}
	fmt.Fprintln(stderr, prefix+Line(err))
}

// forJournal makes each line of a log begin with its level, in the form of
// sd-daemon(3), where standard error leads to systemd's journal.
func forJournal(stderr io.Writer) io.Writer {
	if toJournal(stderr) {
		return journalWriter{stderr}
	}
	return stderr
}

func toJournal(stderr io.Writer) bool {
	if stderr != os.Stderr {
		return false
	}
	leads, err := journal.StderrIsJournalStream()
	return err == nil && leads
}

// journalWriter is a zerolog.LevelWriter.
type journalWriter struct{ io.Writer }

func (w journalWriter) WriteLevel(level zerolog.Level, line []byte) (int, error) {
	if _, err := w.Write(append([]byte(priority(level)), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// priority is the prefix for a level, as syslog(3) numbers them.
func priority(level zerolog.Level) string {
	switch level {
	case zerolog.TraceLevel, zerolog.DebugLevel:
		return "<7>"
	case zerolog.WarnLevel:
		return "<4>"
	case zerolog.ErrorLevel, zerolog.FatalLevel, zerolog.PanicLevel:
		return "<3>"
	}
	return "<6>"
}
