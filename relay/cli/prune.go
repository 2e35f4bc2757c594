package cli

import (
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/relay"
)

func pruneCommand() *cli.Command {
	return &cli.Command{
		Name:  "prune",
		Usage: "delete old rows that the broker has confirmed",
		Description: `Deletes the outbox's rows that are older than --older-than, by created_at and
the server's clock, in transactions of --batch rows. It passes over rows that
somebody has locked, so that writers never wait; several may run at once, beside
the relay or not. It needs the privilege DELETE on the table.

A row goes only when the checkpoint of the relay that runs here covers its
transaction, and no event of it is parked. While the checkpoint is behind, or a
backfill is under way, prune waits, for --give-up-after at most, and then exits
with 75: with --every it tries again at the next turn. What the checkpoint covers
without having sent it goes, too: rows from before a --start latest, or skipped
by a resume --yes, or written with sql_log_bin=0. Rows of topics that the relay
does not carry, as its checkpoint tells, go when they are stamped published.

With --published it is the status that tells: rows that relay poll or relay run
--stamp has stamped go, and no checkpoint is asked. Without that flag and without
a checkpoint nothing is deleted (78).

--max-lag makes it wait while a replica, of those that --replica-dsn names, is
further behind, or InnoDB's history list has more than 1,000,000 transactions,
which to see it needs PROCESS. --drop-partitions drops whole RANGE partitions
instead, whose rows may all go, the last one never; it locks the table for that,
for three seconds at most, and needs LOCK TABLES, ALTER and DROP. An inbox, with
the columns message_id and processed_at, is pruned by processed_at alone.

Examples; the first only counts:
   relay prune --older-than 48h --dry-run --checkpoint checkpoint.json \
               --mysql-dsn 'relay:pw@tcp(127.0.0.1:3306)/shop'
   relay prune --older-than 48h --every 1h
   relay prune --published
   relay prune --table processed_messages --older-than 168h`,
		Flags: slices.Concat(
			[]cli.Flag{
				duration("older-than", 48*time.Hour, "age from which on rows may go"),
				&cli.BoolFlag{Name: "published", Usage: "rows that are stamped published may go, and no others; no checkpoint is asked", EnvVars: env("published")},
				number("batch", 1000, "rows in one transaction"),
				duration("pause", 100*time.Millisecond, "time between two transactions"),
				duration("max-lag", 10*time.Second, "wait while a replica is further behind, or the history list is long; 0: do not look"),
				&cli.StringSliceFlag{Name: "replica-dsn", Usage: "replica to look at, as --mysql-dsn; can be given more than once", EnvVars: env("replica-dsn"), KeepSpace: true},
				duration("give-up-after", time.Minute, "exit with 75 when the checkpoint or --max-lag makes it wait longer; 0: never"),
				&cli.BoolFlag{Name: "drop-partitions", Usage: "drop whole partitions instead of deleting rows", EnvVars: env("drop-partitions")},
				&cli.BoolFlag{Name: "dry-run", Usage: "count what would go and change nothing"},
				duration("every", 0, "again and again, so long after the last beginning; 0: once"),
			},
			only(placeFlags(), "mysql-dsn", "mysql-password-file", "table", "layout", "columns", "time-zone", "checkpoint", "log-level", "log-format",
				"mysql-tls-ca", "mysql-tls-cert", "mysql-tls-key", "mysql-tls-server-name")),
		Action: func(c *cli.Context) error {
			var cfg relay.Config
			var err error
			if cfg.Logger, err = logger(c); err != nil {
				return err
			}
			if cfg.Source, err = source(c); err != nil {
				return err
			}
			cfg.SourcePasswordFile, cfg.SourceTLS = passwordFile(c, "mysql-password-file"), tlsFiles(c, "mysql")
			cfg.Checkpoint = checkpointPath(c.String("checkpoint"))
			order, err := pruneOrder(c)
			if err != nil {
				return err
			}
			return relay.Prune(c.Context, cfg, order, c.App.Writer)
		},
	}
}

func pruneOrder(c *cli.Context) (o relay.PruneOrder, err error) {
	o = relay.PruneOrder{
		OlderThan: c.Duration("older-than"), Published: c.Bool("published"), Batch: c.Int("batch"), Pause: c.Duration("pause"),
		MaxLag: c.Duration("max-lag"), Replicas: c.StringSlice("replica-dsn"), GiveUpAfter: c.Duration("give-up-after"),
		DropPartitions: c.Bool("drop-partitions"), DryRun: c.Bool("dry-run"), Every: c.Duration("every"),
	}
	for flag, example := range map[string]string{"older-than": "48h", "pause": "100ms", "max-lag": "10s", "give-up-after": "1m", "every": "1h"} {
		if d := c.Duration(flag); d < 0 {
			return o, usage("--%s %s is below 0; type: --%s %s", flag, d, flag, example)
		}
	}
	if o.Batch < 1 || o.Batch > 10_000 {
		return o, usage("--batch %d is not between 1 and 10000; type: --batch 1000", o.Batch)
	}
	return o, nil
}
