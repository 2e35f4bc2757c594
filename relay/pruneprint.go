package relay

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// print tells what the turn did.
func (t *pruneTurn) print(out io.Writer) {
	if t.before.IsZero() { // it did not come to that
		return
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
	by := "that are covered by " + t.path
	switch {
	case t.table.Outbox == nil:
		by = "of an inbox"
	case t.order.Published:
		by = "that are stamped published"
	}
	line("table", "%s, rows from before %s %s", t.table.Name, t.before.Format(time.RFC3339), by)
	verb := map[bool]string{true: "would go", false: "deleted"}[t.order.DryRun]
	if t.order.DropPartitions {
		line(map[bool]string{true: "would drop", false: "dropped"}[t.order.DryRun], "%d partitions%s, with %d rows", len(t.dropped), bracketed(t.dropped), t.tally.Deleted)
		for _, kept := range t.kept {
			line("kept", "%s", kept)
		}
	} else {
		line(verb, "%d rows of %d that were looked at, in %s", t.tally.Deleted, t.looked, t.took.Round(time.Millisecond))
	}
	for _, kept := range []struct {
		rows int64
		why  string
	}{
		{t.pending, "rows, and what is behind them: not covered by the checkpoint yet"},
		{t.parked, "rows: their events are parked"},
		{t.tally.Locked, "rows: locked by somebody else"},
		{t.tally.Changed, "rows: gone or changed since they were found"},
	} {
		if kept.rows > 0 {
			line("kept", "%d %s", kept.rows, kept.why)
		}
	}
	if t.lack != "" {
		line("but first", "they must be confirmed: the checkpoint %s", t.lack)
	}
	if t.held > 0 {
		line("held back", "for %s by --max-lag", t.held.Round(time.Millisecond))
	}
	if t.blind {
		line("not seen", "the history list; type: GRANT PROCESS ON *.* TO the user, or --max-lag 0")
	}
}

func bracketed(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}
