package cli

import (
	"cmp"
	"io"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/relay"
)

// manual writes the manual page: the frame is assets/relay.1, commands and
// options come from the commands themselves.
func manual(app *cli.App, out io.Writer) error {
	frame, err := relay.Asset("relay.1")
	if err != nil {
		return err
	}
	page, err := template.New("relay.1").Funcs(template.FuncMap{"roff": roff, "fill": fill}).Parse(string(frame))
	if err != nil {
		return err
	}
	version, _, _ := strings.Cut(app.Version, " ")
	date, _, _ := strings.Cut(cmp.Or(relay.VersionDate(), time.Now().UTC().Format(time.RFC3339)), "T")
	commands := manualCommands("relay", app.Commands)
	var examples []string
	for _, c := range commands {
		examples = append(examples, c.Example)
	}
	return page.Execute(out, map[string]any{
		"Version": version, "Date": date, "Usage": app.Usage,
		"Commands": commands, "Options": manualOptions(runFlags(), nil), "Examples": examples,
	})
}

// manualCommand is a command in the manual page.
type manualCommand struct {
	Name, Usage string
	Text        []string // paragraphs
	Example     string
	Options     []manualOption // of its own
	Shared      []string       // names of options that run has as well
}

type manualOption struct{ Name, Value, Usage, Default, Variable string }

func manualCommands(parent string, commands []*cli.Command) (list []manualCommand) {
	shared := map[string]bool{}
	for _, flag := range runFlags() {
		shared[flag.Names()[0]] = true
	}
	for _, command := range commands {
		name := parent + " " + command.Name
		list = append(list, manualCommands(name, command.Subcommands)...)
		if len(command.Subcommands) > 0 || command.Name == "help" {
			continue
		}
		c := manualCommand{Name: name, Usage: command.Usage, Options: manualOptions(command.Flags, shared)}
		for block := range strings.SplitSeq(command.Description, "\n\n") {
			if head, example, _ := strings.Cut(block, "\n"); strings.HasPrefix(head, "Example") {
				c.Example = unindent(example)
			} else {
				c.Text = append(c.Text, block)
			}
		}
		for _, flag := range command.Flags {
			if shared[flag.Names()[0]] {
				c.Shared = append(c.Shared, flag.Names()[0])
			}
		}
		slices.Sort(c.Shared)
		list = append(list, c)
	}
	return list
}

// manualOptions leaves out those that are without.
func manualOptions(flags []cli.Flag, without map[string]bool) (list []manualOption) {
	for _, flag := range flags {
		if without[flag.Names()[0]] {
			continue
		}
		f := flag.(cli.DocGenerationFlag)
		o := manualOption{Name: flag.Names()[0], Usage: strings.ReplaceAll(f.GetUsage(), "`", ""), Variable: strings.Join(f.GetEnvVars(), " ")}
		if f.TakesValue() {
			o.Value, o.Default = "value", strings.Trim(f.GetDefaultText(), `"`)
			if quoted := strings.Split(f.GetUsage(), "`"); len(quoted) > 1 {
				o.Value = quoted[1]
			}
		}
		list = append(list, o)
	}
	return list
}

func unindent(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "   ")
	}
	return strings.Join(lines, "\n")
}

// roff escapes a text, of any number of lines, for roff.
func roff(text string) string {
	lines := strings.Split(strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}

// fill is roff for a text that is broken into lines anew.
func fill(text string) string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		if line != "" && len(line)+len(word) > 65 {
			lines, line = append(lines, line), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	return roff(strings.Join(append(lines, line), "\n"))
}
