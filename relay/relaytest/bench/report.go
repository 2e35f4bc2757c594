package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"
)

// report writes the table, and the raw figures as JSON.
func (b *bench) report(w io.Writer, path string) error {
	if len(b.results) == 0 {
		return nil
	}
	if _, err := io.WriteString(w, table(b.results)); err != nil {
		return err
	}
	fmt.Fprintf(w, "\nMedians (least–greatest) of %s; ratio: relay / reference, of each pair of runs.\n", counted(b.runs, "run"))
	if b.quick {
		fmt.Fprintln(w, "**-quick: small sizes, to see that it works; no figures to quote.**")
	}
	fmt.Fprintln(w, b.around)
	raw, err := json.MarshalIndent(struct {
		Surroundings surroundings `json:"surroundings"`
		MeasuredAt   time.Time    `json:"measured_at"`
		Quick        bool         `json:"quick"`
		Results      []result     `json:"results"`
	}{b.around, time.Now().UTC().Truncate(time.Second), b.quick, b.results}, "", "\t")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(path, append(raw, '\n'), 0o644); err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, "Raw figures: %s\n", path)
	return err
}

// table is the results in Markdown, with their notes below.
func table(results []result) string {
	lines := [][]string{{"", "case", "unit", "relay", "reference", "", "ratio", "goal", ""}}
	var notes []string
	section := ""
	for _, r := range results {
		name := r.Section
		if name == section {
			name = ""
		}
		section = r.Section
		what := r.Case
		if r.Note != "" {
			notes = append(notes, r.Note)
			what += fmt.Sprintf(" [%d]", len(notes))
		}
		lines = append(lines, []string{name, what, r.Unit, spread(r.Relay), spread(r.Reference), r.Against,
			spread(r.ratios()), r.goal(), r.verdict()})
	}
	var text strings.Builder
	widths := make([]int, len(lines[0]))
	for _, line := range lines {
		for i, cell := range line {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for i, line := range lines {
		writeLine(&text, line, widths, " ")
		if i == 0 {
			writeLine(&text, make([]string, len(widths)), widths, "-")
		}
	}
	for i, note := range notes {
		if i == 0 {
			text.WriteByte('\n')
		}
		fmt.Fprintf(&text, "[%d] %s\n", i+1, note)
	}
	return text.String()
}

// writeLine writes a line of a table, its cells filled up to their widths.
func writeLine(text *strings.Builder, cells []string, widths []int, fill string) {
	for i, cell := range cells {
		text.WriteString("|" + fill + cell + strings.Repeat(fill, widths[i]-utf8.RuneCountInString(cell)) + fill)
	}
	text.WriteString("|\n")
}

// counted is a number of things: "1 run", "5 runs".
func counted(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}
