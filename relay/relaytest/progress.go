package relaytest

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"
)

// screen shows progress: one line that rewrites itself on a terminal, a line
// now and then elsewhere.
type screen struct {
	out      io.Writer
	terminal bool
}

func newScreen(out io.Writer) *screen {
	s := &screen{out: out}
	if file, ok := out.(*os.File); ok {
		info, err := file.Stat()
		s.terminal = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return s
}

// every is the time between two lines.
func (s *screen) every() time.Duration {
	if s.terminal {
		return 200 * time.Millisecond
	}
	return time.Second
}

func (s *screen) line(text string) {
	if s.terminal {
		fmt.Fprint(s.out, "\r\x1b[K", text)
		return
	}
	fmt.Fprintln(s.out, text)
}

// close ends the line that rewrites itself.
func (s *screen) close() {
	if s.terminal {
		fmt.Fprintln(s.out)
	}
}

// showProgress shows where the demo is until ctx ends, and once more then.
func (d *demo) showProgress(ctx context.Context) {
	defer d.screen.close()
	for {
		d.screen.line(d.status())
		if pause(ctx, d.screen.every()) != nil {
			d.screen.line(d.status())
			return
		}
	}
}

func (d *demo) status() string {
	committed, delivered := d.writer.Committed(), d.consumers.Delivered()
	// An event can arrive before its writer has the answer to the commit.
	lag := max(0, committed-delivered)
	return fmt.Sprintf("%5.1fs  committed %d  delivered %d  lag %d  suppressed %d  %s",
		time.Since(d.begun).Seconds(), committed, delivered, lag, d.consumers.Suppressed(), d.news())
}

// examples is the number of ids that a table gives for a fault.
const examples = 3

// WriteTable writes the closing table: a line for each figure, with a few ids
// where a promise was broken.
func (r Report) WriteTable(out io.Writer) error {
	var t table
	t.row("committed", r.Committed, nil)
	t.row("rolled back", r.RolledBack, nil)
	t.row("kills", r.Kills, nil)
	t.row("delivered", r.Delivered, nil)
	t.faults(r.Verdict)
	t.row("duplicates suppressed", r.Duplicates, nil)
	t.row("seed", int(r.Seed), nil)
	_, err := io.WriteString(out, t.String())
	return err
}
