package cli

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/relay"
)

// ways are the flags of which resume takes one.
var ways = []relay.Way{relay.FromGTID, relay.FromTime, relay.FromFile, relay.Undo, relay.Gap}

func resumeCommand() *cli.Command {
	return &cli.Command{
		Name:  "resume",
		Usage: "go on from another place than the checkpoint's",
		Description: `Takes the place by one of five flags, checks it against the server, prints how
many transactions are sent again and how many are skipped compared with the
checkpoint, keeps the old checkpoint beside the new one, and goes on as run
does. A place that skips transactions is refused without --yes. --dry-run only
prints.

--from-time and --from-file are translated to a GTID set by reading the log: all
that stands before the first transaction committed at that time or later, or
before that place. --undo puts back the checkpoint that the last resume replaced;
a second --undo undoes the first. --gap backfill goes on behind what the server
has purged before it was relayed: the rows of that time which are still in the
table and not stamped published are sent from there, some of them again.

Examples; the first only tells what would happen:
   relay resume --from-gtid 3e11fa47-71ca-11e1-9e33-c80aa9429562:1-57 --dry-run \
                --mysql-dsn 'relay:pw@tcp(127.0.0.1:3306)/shop' \
                --amqp-url amqp://relay:pw@127.0.0.1:5672/
   relay resume --from-time 2026-01-02T15:04:05Z
   relay resume --from-file binlog.000042:4
   relay resume --undo
   relay resume --gap backfill`,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "from-gtid", Usage: "all transactions that are to count as relayed, as @@gtid_executed prints them"},
			&cli.StringFlag{Name: "from-time", Usage: "what was committed before this time (RFC 3339) is to count as relayed"},
			&cli.StringFlag{Name: "from-file", Usage: "what stands in the log before FILE:POS is to count as relayed"},
			&cli.BoolFlag{Name: "undo", Usage: "put the checkpoint before the last resume back"},
			&cli.StringFlag{Name: "gap", Usage: "backfill: go on behind history that is purged, with its rows out of the table"},
			&cli.BoolFlag{Name: "dry-run", Usage: "print what would happen and change nothing"},
			&cli.BoolFlag{Name: "yes", Usage: "go on although transactions are skipped"},
		}, runFlags()...),
		Action: func(c *cli.Context) error {
			order, err := override(c)
			if err != nil {
				return err
			}
			cfg, err := config(c)
			if err != nil {
				return err
			}
			cfg.Signals = signals()
			return relay.Resume(c.Context, cfg, order, c.App.Writer)
		},
	}
}

// override reads the one way that was given.
func override(c *cli.Context) (relay.Override, error) {
	order := relay.Override{DryRun: c.Bool("dry-run"), Yes: c.Bool("yes")}
	var given []string
	for _, way := range ways {
		if name := string(way); c.IsSet(name) && (way != relay.Undo || c.Bool(name)) {
			given = append(given, "--"+name)
			order.Way = way
			if way != relay.Undo {
				order.Value = c.String(name)
			}
		}
	}
	switch len(given) {
	case 0:
		return order, usage("--from-gtid is missing, and so are --from-time, --from-file, --undo and --gap; relay status prints the checkpoint's set and the server's")
	case 1:
		return order, nil
	}
	return order, usage("%s exclude each other; type one of them: relay resume --help", strings.Join(given, " and "))
}
