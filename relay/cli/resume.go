package cli

import (
	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/relay"
)

func resumeCommand() *cli.Command {
	return &cli.Command{
		Name:  "resume",
		Usage: "go on from another place than the checkpoint's",
		Description: `Checks the GTID set against the server, prints how many transactions are sent
again and how many are skipped compared with the checkpoint, keeps the old
checkpoint beside the new one, and goes on as run does. A set that skips
transactions is refused without --yes.

Example, which only tells what would happen:
   relay resume --from-gtid 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-57 --dry-run \
                --mysql-dsn 'relay:pw@tcp(127.0.0.1:3306)/shop' \
                --amqp-url amqp://relay:pw@127.0.0.1:5672/`,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "from-gtid", Usage: "all transactions that are to count as relayed, as @@gtid_executed prints them"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print what would happen and change nothing"},
			&cli.BoolFlag{Name: "yes", Usage: "go on although transactions are skipped"},
		}, runFlags()...),
		Action: func(c *cli.Context) error {
			if !c.IsSet("from-gtid") {
				return usage("--from-gtid is missing; relay status prints the checkpoint's set and the server's")
			}
			cfg, err := config(c)
			if err != nil {
				return err
			}
			order := relay.Override{Set: c.String("from-gtid"), DryRun: c.Bool("dry-run"), Yes: c.Bool("yes")}
			return relay.Resume(c.Context, cfg, order, c.App.Writer)
		},
	}
}
