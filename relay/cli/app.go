// Package cli is the relay's command line: one file for each command, with
// its flags and its help. It has no logic of its own: a command reads its
// flags into a configuration and calls one function of package relay.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	_ "time/tzdata" // --time-zone must work where no zones are installed

	"github.com/mattn/go-isatty"
	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/relay"
)

// Run does what args say; args[0] is the program's name. Only the caller
// exits: relay.ExitCode tells with which code.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	if len(args) > 1 && args[1] == completeWord {
		complete(app(stdout, stderr), args[2:], stdout)
		return nil
	}
	args = argumentLast(spreadFiles(hideSecrets(args)))
	out := &output{Writer: stdout}
	err := app(out, stderr).RunContext(ctx, args)
	var own cli.ExitCoder
	if errors.As(err, &own) { // of the library: help for a command that there is not
		return usage("%v; type: relay help", err)
	}
	if out.failed != nil { // most commands only print, and all count on being read
		return fmt.Errorf("relay: standard output: %w; not all was printed", out.failed)
	}
	return err
}

// output is standard output, and remembers the first write that failed.
type output struct {
	io.Writer
	failed error
}

func (o *output) Write(p []byte) (int, error) {
	n, err := o.Writer.Write(p)
	if err != nil && o.failed == nil {
		o.failed = err
	}
	return n, err
}

// terminal tells whether it is one.
func (o *output) terminal() bool {
	file, ok := o.Writer.(*os.File)
	return ok && isatty.IsTerminal(file.Fd())
}

// Line is an error as the one line that standard error gets.
func Line(err error) string {
	text := strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
	if strings.HasPrefix(text, "relay: ") {
		return text
	}
	return "relay: " + text
}

func app(stdout, stderr io.Writer) *cli.App {
	app := &cli.App{
		Name:            "relay",
		Usage:           "carry a MySQL outbox table to RabbitMQ: nothing lost, nothing invented, in order",
		Version:         relay.Version(),
		HideVersion:     true, // there is a command for it
		Writer:          stdout,
		ErrWriter:       stderr,
		ExitErrHandler:  func(*cli.Context, error) {},
		CommandNotFound: nil,
		// An id or a path may have a comma.
		DisableSliceFlagSeparator: true,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usage("there is no command %q; type: relay help", c.Args().First())
			}
			cli.ShowAppHelp(c)
			return usage("no command was given; to relay: relay run")
		},
		Commands: []*cli.Command{
			runCommand(), resumeCommand(), pollCommand(), checkCommand(), statusCommand(), pruneCommand(), auditCommand(), replayCommand(), explainCommand(), schemaCommand(), printCommand(), completionCommand(), versionCommand(),
		},
	}
	app.OnUsageError = onUsageError
	for _, command := range app.Commands {
		strict(command)
	}
	return app
}

// strict makes a command refuse what it does not know instead of printing its
// whole help.
func strict(command *cli.Command) {
	command.OnUsageError = onUsageError
	command.HideHelpCommand = true
	for _, sub := range command.Subcommands {
		strict(sub)
	}
	action := command.Action
	command.Action = func(c *cli.Context) error {
		wanted := 0
		if command.ArgsUsage != "" {
			wanted = 1
		}
		switch {
		case c.NArg() > wanted:
			return usage("%q is not wanted here; type: %s --help", c.Args().Get(wanted), c.Command.HelpName)
		case c.NArg() < wanted:
			return usage("the %s is missing; type: %s %[1]s", command.ArgsUsage, c.Command.HelpName)
		case action == nil:
			return usage("%s is not all of a command; type: %s --help", c.Command.HelpName, c.Command.HelpName)
		}
		return action(c)
	}
}

func onUsageError(c *cli.Context, err error, _ bool) error {
	name := c.App.Name
	if c.Command != nil && c.Command.HelpName != "" {
		name = c.Command.HelpName
	}
	return usage("%v; type: %s --help", err, name)
}

func usage(format string, args ...any) error {
	return fmt.Errorf("%w: %s", relay.ErrUsage, fmt.Sprintf(format, args...))
}
