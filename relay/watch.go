package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
)

// watchInterval is the time from one look to the next.
const watchInterval = 2 * time.Second

// watch prints where the relay stands until ctx ends. A server that is away, or
// a checkpoint that cannot be read, is shown, and is no end.
func watch(ctx context.Context, cfg Config, options StatusOptions, out io.Writer) error {
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	var l lookout
	for first := true; ; first = false {
		report, _ := l.look(ctx, cfg) // the error is in it
		if ctx.Err() != nil {
			return nil
		}
		report.judge(options.Thresholds)
		if err := options.draw(&report, first, out); err != nil {
			return err
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// draw prints one report of many: a line of JSON; on a terminal over the one
// before; else below it.
func (o StatusOptions) draw(r *Report, first bool, out io.Writer) error {
	if o.JSON {
		return json.NewEncoder(out).Encode(r)
	}
	var text bytes.Buffer
	fmt.Fprintf(&text, "%-12s %s\n", "time", clockTime(r.At))
	r.print(&text, nil)
	if !o.Terminal {
		_, err := fmt.Fprintf(out, "%s\n", text.Bytes())
		return err
	}
	const home, clearLine, clearBelow, clearAll = "\x1b[H", "\x1b[K", "\x1b[J", "\x1b[2J"
	drawn := home + strings.ReplaceAll(text.String(), "\n", clearLine+"\n") + clearBelow
	if first {
		drawn = clearAll + drawn
	}
	_, err := io.WriteString(out, drawn)
	return err
}
