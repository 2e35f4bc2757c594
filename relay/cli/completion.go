package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"
)

func completionCommand() *cli.Command {
	command := &cli.Command{Name: "completion", Usage: "print what makes a shell complete the relay's commands, flags and their values"}
	for _, s := range []struct{ shell, place string }{
		{"bash", "~/.local/share/bash-completion/completions/relay"},
		{"zsh", "~/.zfunc/_relay # with fpath=(~/.zfunc $fpath) before compinit"},
		{"fish", "~/.config/fish/completions/relay.fish"},
	} {
		command.Subcommands = append(command.Subcommands, &cli.Command{
			Name:        s.shell,
			Usage:       "print the completion for " + s.shell,
			Description: "Example:\n   relay completion " + s.shell + " > " + s.place,
			Action:      func(c *cli.Context) error { return writeAsset(c, "completion."+s.shell) },
		})
	}
	return command
}

// values are those of the flags that take one of a few.
var values = map[string][]string{
	"layout":       {"auto", "relay", "debezium", "eventuate"},
	"start":        {"backfill", "latest", "earliest"},
	"order":        {"strict", "pipelined"},
	"on-bad-event": {"stop", "park"},
	"log-level":    {"debug", "info", "warn", "error"},
	"log-format":   {"json", "console"},
	"to":           {"-", "exchange"},
	"gap":          {"backfill"},
	"by":           {"message_id", "header:"},
}

// completeWord is what a shell asks for as the first argument: the words behind
// it are those of the line up to the cursor, the last one unfinished.
const completeWord = "__complete"

// complete prints what the last word can become, one to a line, a tab and a
// help text behind each; nothing where the shell should offer file names.
func complete(app *cli.App, words []string, out io.Writer) {
	commands, flags := app.Commands, []cli.Flag(nil)
	var valueOf string // the flag whose value comes next
	last := ""
	if len(words) > 0 {
		words, last = words[:len(words)-1], words[len(words)-1]
	}
	for _, word := range words {
		name, _, hasValue := strings.Cut(strings.TrimLeft(word, "-"), "=")
		switch {
		case word == "=": // bash makes three words of --start=latest
		case valueOf != "":
			valueOf = ""
		case strings.HasPrefix(word, "-"):
			if !hasValue && takesValue(flags, name) {
				valueOf = name
			}
		default:
			at := find(commands, word)
			if at == nil {
				return
			}
			commands, flags = at.Subcommands, at.Flags
		}
	}
	prefix := ""
	if name, _, ok := strings.Cut(last, "="); ok && valueOf == "" && strings.HasPrefix(name, "-") {
		prefix, valueOf = name+"=", strings.TrimLeft(name, "-")
	}
	if valueOf != "" {
		for _, value := range values[valueOf] {
			fmt.Fprintf(out, "%s%s\t--%s\n", prefix, value, valueOf)
		}
		return
	}
	if !strings.HasPrefix(last, "-") {
		for _, command := range commands {
			fmt.Fprintf(out, "%s\t%s\n", command.Name, command.Usage)
		}
		if len(commands) > 0 {
			return
		}
	}
	for _, flag := range append(flags, cli.HelpFlag) {
		fmt.Fprintf(out, "--%s\t%s\n", flag.Names()[0], strings.ReplaceAll(flag.(cli.DocGenerationFlag).GetUsage(), "`", ""))
	}
}

func find(commands []*cli.Command, name string) *cli.Command {
	for _, command := range commands {
		if command.Name == name {
			return command
		}
	}
	return nil
}

func takesValue(flags []cli.Flag, name string) bool {
	for _, flag := range flags {
		if flag.Names()[0] == name {
			return flag.(cli.DocGenerationFlag).TakesValue()
		}
	}
	return false
}
