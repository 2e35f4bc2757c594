package cli

import (
	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/relay"
)

func checkCommand() *cli.Command {
	return &cli.Command{
		Name:  "check",
		Usage: "tell whether run would work, and what to type where it would not",
		Description: `Looks at the server's settings, the grants, the table, how long the log is
kept, the clock, the checkpoint and its disk, and the broker, and prints a line
for each: ok, hint (it runs without) or FAIL, and below what to type. It changes
nothing. Exits with 3 when something that run needs is missing. Which queues are
bound to the exchange is asked of RabbitMQ's management API.

Example:
   relay check --mysql-dsn 'relay:pw@tcp(127.0.0.1:3306)/shop' \
               --amqp-url amqp://relay:pw@127.0.0.1:5672/ --partitions 4`,
		Flags: append(append(placeFlags(), topicsFlags()...), managementFlag(), serverIDFlag(), badEventFlag(), stampFlag(), &cli.BoolFlag{Name: "json", Usage: "print JSON"}),
		Action: func(c *cli.Context) error {
			cfg, err := config(c)
			if err != nil {
				return err
			}
			return relay.Check(c.Context, cfg, c.Bool("json"), c.App.Writer)
		},
	}
}
