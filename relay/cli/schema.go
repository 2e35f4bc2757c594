package cli

import (
	"fmt"

	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/schema"
)

func schemaCommand() *cli.Command {
	return &cli.Command{
		Name:  "schema",
		Usage: "print what the outbox is made of",
		Subcommands: []*cli.Command{{
			Name:  "sql",
			Usage: "print the statement that creates the outbox table",
			Description: `Example:
   relay schema sql | mysql shop`,
			Action: func(c *cli.Context) error {
				_, err := fmt.Fprint(c.App.Writer, schema.SQL)
				return err
			},
		}},
	}
}
