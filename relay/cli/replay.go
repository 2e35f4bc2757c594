package cli

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/relay"
)

func replayCommand() *cli.Command {
	return &cli.Command{
		Name:  "replay",
		Usage: "send what was parked, or what stands in binlog files",
		Description: `With --parked: sends the events in <checkpoint>.parked, in the order of each
aggregate, and takes out what the broker has confirmed. Stop the relay first;
only --dry-run, which lists them, works beside it. An event that still cannot be
sent stays, with those behind it, and the exit code is 3; --drop lets it go, with
all others of its id. An end before that is 75; type the same again. --drop-all
is the way out where the file is damaged or missing: it sends nothing. It needs
--checkpoint and, but for --dry-run and --drop-all, --amqp-url; no MySQL server.

With --from-binlog: reads binlog files of MySQL or MariaDB, in the order in which
the server wrote them, plain or packed by gzip or zstd. --to - prints the inserts
into the outbox as lines of JSON, --to exchange publishes them as run does, and
--dry-run counts them; --gtid takes only the transactions of a set: of MariaDB
0-1-42 is one, 0-1-23..57 are those with these numbers. The checkpoint is neither
read nor changed. No server is needed where the log has the columns' names
(binlog_row_metadata=FULL), else --mysql-dsn, whose table must still have the
same columns: a server that may have changed it behind the files is refused.
What is published has no header sequence. 0: all is confirmed. An end before that
names the set that is left.

What is sent has the header replayed.

Examples:
   relay replay --from-binlog testdata/binlog/full.bin --table shop.outbox --to -
   relay replay --from-binlog archive/binlog.00001* --table shop.outbox --to exchange \
                --gtid 3e11fa47-71ca-11e1-9e33-c80aa9429562:23-57 \
                --amqp-url amqp://relay:pw@127.0.0.1:5672/
   relay replay --parked --dry-run --checkpoint checkpoint.json
   relay replay --parked --checkpoint checkpoint.json \
                --amqp-url amqp://relay:pw@127.0.0.1:5672/`,
		Flags: slices.Concat([]cli.Flag{
			&cli.BoolFlag{Name: "parked", Usage: "the parked events"},
			&cli.StringSliceFlag{Name: "drop", Usage: "id of the parked event, or events, to let go; can be given more than once"},
			&cli.BoolFlag{Name: "drop-all", Usage: "let all that is parked go, whatever has become of the file, which is kept under another name"},
			&cli.StringSliceFlag{Name: "from-binlog", Usage: "the outbox's events in binlog `FILE`s"},
			&cli.StringFlag{Name: "to", Usage: "where to, out of binlog files: - (lines of JSON on standard output), exchange"},
			&cli.StringFlag{Name: "gtid", Usage: "out of binlog files, only the transactions of this set"},
			&cli.BoolFlag{Name: "dry-run", Usage: "list what is parked, or count what is in the files, and change nothing"},
		}, placeFlags(), paceFlags()),
		Action: func(c *cli.Context) error {
			switch parked, files := c.Bool("parked"), c.IsSet("from-binlog"); {
			case parked == files:
				return usage("say which events to replay; type: relay replay --parked, or relay replay --from-binlog FILE --to -")
			case files:
				return replayFiles(c)
			}
			return replayParked(c)
		},
	}
}

func replayParked(c *cli.Context) error {
	order := relay.ReplayOrder{Drop: c.StringSlice("drop"), DropAll: c.Bool("drop-all"), DryRun: c.Bool("dry-run")}
	var cfg relay.Config
	var err error
	if cfg.Logger, err = logger(c); err != nil {
		return err
	}
	if cfg.Source, err = outbox(c); err != nil {
		return err
	}
	if !order.DryRun && !order.DropAll {
		if cfg.Broker, err = broker(c); err != nil {
			return err
		}
		cfg.BrokerPasswordFile, cfg.BrokerTLS = passwordFile(c, "amqp-password-file"), tlsFiles(c, "amqp")
	}
	cfg.Checkpoint = checkpointPath(c.String("checkpoint"))
	if err := pace(c, &cfg); err != nil {
		return err
	}
	return relay.Replay(c.Context, cfg, order, c.App.Writer)
}

func replayFiles(c *cli.Context) error {
	order := relay.HistoryOrder{Files: c.StringSlice("from-binlog"), DryRun: c.Bool("dry-run")}
	var cfg relay.Config
	var err error
	switch to := c.String("to"); {
	case to == "exchange":
		order.Publish = true
	case to != "-" && (to != "" || !order.DryRun):
		return usage("--to %q is none of -, exchange; to see what the files hold: relay replay --from-binlog %s --to -", to, order.Files[0])
	}
	if slices.Contains(order.Files, "") {
		return usage("--from-binlog '' names no file; type: relay replay --from-binlog FILE --to -")
	}
	if c.IsSet("drop") || c.IsSet("drop-all") {
		return usage("--drop is for parked events; out of binlog files, leave a transaction out with --gtid")
	}
	if c.IsSet("gtid") {
		if order.Only, err = binlog.ParseTransactions(c.String("gtid")); err != nil {
			return usage("--gtid: %v", err)
		}
		if order.Only.IsEmpty() {
			return usage("--gtid %q names no transaction; leave it out to replay all that the files have", c.String("gtid"))
		}
	}
	if cfg.Logger, err = logger(c); err != nil {
		return err
	}
	if cfg.Source, err = outbox(c); err != nil {
		return err
	}
	if order.Publish && !order.DryRun {
		if cfg.Broker, err = broker(c); err != nil {
			return err
		}
		cfg.BrokerPasswordFile, cfg.BrokerTLS = passwordFile(c, "amqp-password-file"), tlsFiles(c, "amqp")
	}
	if err := pace(c, &cfg); err != nil {
		return err
	}
	return relay.ReplayHistory(c.Context, cfg, order, c.App.Writer)
}

// spreadFiles gives each of several files its own flag, as a shell's pattern
// makes them: --from-binlog a b c.
func spreadFiles(args []string) (spread []string) {
	const flag = "from-binlog"
	files := 0 // given behind the flag
	for _, arg := range args {
		switch name := strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"); {
		case name != arg && (name == flag || strings.HasPrefix(name, flag+"=")):
			files = 1
			if name != flag {
				files++
			}
			spread = append(spread, arg)
			continue
		case strings.HasPrefix(arg, "-"):
			files = 0
		}
		if files > 1 {
			spread = append(spread, "--"+flag)
		}
		if files > 0 {
			files++
		}
		spread = append(spread, arg)
	}
	return spread
}
