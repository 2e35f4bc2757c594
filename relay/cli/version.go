package cli

import (
	"fmt"
	"runtime"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/relay"
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version, its commit with date, and the Go that built it",
		Description: `Example:
   relay version`,
		Action: func(c *cli.Context) error {
			words := strings.Fields("relay " + relay.Version() + " " + relay.VersionDate() + " " + runtime.Version())
			_, err := fmt.Fprintln(c.App.Writer, strings.Join(words, " "))
			return err
		},
	}
}
