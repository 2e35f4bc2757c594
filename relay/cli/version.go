package cli

import (
	"fmt"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/relay"
)

func versionCommand() *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "print the version",
		Description: `Example:
   relay version`,
		Action: func(c *cli.Context) error {
			_, err := fmt.Fprintln(c.App.Writer, "relay", relay.Version(), runtime.Version())
			return err
		},
	}
}
