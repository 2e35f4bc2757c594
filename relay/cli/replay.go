package cli

import (
	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/relay"
)

func replayCommand() *cli.Command {
	return &cli.Command{
		Name:  "replay",
		Usage: "send what --on-bad-event park has put aside, or let it go",
		Description: `Sends the events in <checkpoint>.parked, in the order of each aggregate, and
takes out what the broker has confirmed. Stop the relay first. An event that
still cannot be sent stays, with those behind it, and the exit code is 3; --drop
lets it go. What is sent has the header replayed.

Example, which only lists what is parked:
   relay replay --parked --dry-run --mysql-dsn 'relay:pw@tcp(127.0.0.1:3306)/shop' \
                --amqp-url amqp://relay:pw@127.0.0.1:5672/`,
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "parked", Usage: "the parked events"},
			&cli.StringSliceFlag{Name: "drop", Usage: "id of an event to let go; can be given more than once"},
			&cli.BoolFlag{Name: "dry-run", Usage: "list what is parked, as JSON lines, and change nothing"},
		}, placeFlags()...),
		Action: func(c *cli.Context) error {
			if !c.Bool("parked") {
				return usage("say what to replay; type: relay replay --parked")
			}
			cfg, err := config(c)
			if err != nil {
				return err
			}
			return relay.Replay(c.Context, cfg, relay.ReplayOrder{Drop: c.StringSlice("drop"), DryRun: c.Bool("dry-run")}, c.App.Writer)
		},
	}
}
