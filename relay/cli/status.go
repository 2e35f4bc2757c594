package cli

import (
	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/relay"
)

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "tell where the relay stands, whether or not it runs",
		Description: `Reads the checkpoint file and asks both servers. Exits with 3 when the
position can no longer be followed, with 75 when a server does not answer, and
with 78 when it refuses, the exchange is not there yet (before the first run
with --partitions), or the checkpoint is corrupt.

Example:
   relay status --mysql-dsn 'relay:pw@tcp(127.0.0.1:3306)/shop' \
                --amqp-url amqp://relay:pw@127.0.0.1:5672/ --partitions 4`,
		Flags: append(placeFlags(), &cli.BoolFlag{Name: "json", Usage: "print JSON"}),
		Action: func(c *cli.Context) error {
			cfg, err := config(c)
			if err != nil {
				return err
			}
			return relay.Status(c.Context, cfg, c.Bool("json"), c.App.Writer)
		},
	}
}
