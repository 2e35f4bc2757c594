package cli

import (
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/relay"
)

// The limits of --interval and --batch.
const (
	leastInterval, mostInterval = 200 * time.Millisecond, time.Second
	mostBatch                   = 10_000
)

func pollCommand() *cli.Command {
	return &cli.Command{
		Name:  "poll",
		Usage: "publish the outbox's pending rows and stamp them, without the log",
		Description: `For servers without replication rights, or before following the log is worth
it: asks the table for rows with status 'pending', publishes them as run does,
waits for all confirms, and only then stamps them 'published'. It needs SELECT and
UPDATE on the table, MySQL 8.0.1 or MariaDB 10.6, an index on (status, created_at)
as in relay schema sql, and neither a log nor a checkpoint. A message is that of
run without the headers gtid and sequence, which only the log tells.

Any number of pollers may run on a table: each passes over the rows that another
has locked. The rows of one that dies are free at once, or, when its host dies,
after a minute. A crash between confirm and stamp sends a batch again; nothing is
lost. An event that the broker refuses stays pending, with what follows it in its
aggregate, and others go on. One that cannot be sent as it stands ends poll with
65, once those before it are stamped; parking is for run alone.

Order: within an aggregate an event is sent when the one before it is confirmed,
and never while an earlier pending row is locked elsewhere, so that a second
poller, a crash or a refusal does not change it. Before and behind go by
created_at, and where that is equal by the id. That is the time of the statement
or of the application, and not of the commit: a row that is committed later with
an earlier created_at, by a transaction that took longer or a clock that is
behind, comes later. So writers of one aggregate should lock it first, created_at
should have microseconds, and rows of one statement ids that grow. Eventuate's
tables go by the id. With --only-topics or --except-topics the order is among the
events that are carried: others hold nothing up. Only run has the order of the
commits.

SIGTERM or SIGINT stop it: it settles and stamps what is in flight and exits with
0. SIGHUP and SIGUSR1 are as for run. The lag is the age of the oldest pending row.

Example:
   relay poll --mysql-dsn 'relay:pw@tcp(127.0.0.1:3306)/shop' \
              --amqp-url amqp://relay:pw@127.0.0.1:5672/ --partitions 4 \
              --except-topics 'order.*,invoice.*'`,
		Flags: pollFlags(),
		Action: func(c *cli.Context) error {
			cfg, err := config(c)
			if err != nil {
				return err
			}
			polling, err := polling(c)
			if err != nil {
				return err
			}
			cfg.Signals = signals()
			return relay.Poll(c.Context, cfg, polling)
		},
	}
}

// pollFlags are those of run that need no log, and its own.
func pollFlags() []cli.Flag {
	run := slices.DeleteFunc(runFlags(), func(f cli.Flag) bool {
		return !slices.Contains([]string{"listen", "debug", "drain-timeout", "give-up-after"}, f.Names()[0])
	})
	place := slices.DeleteFunc(placeFlags(), func(f cli.Flag) bool { return f.Names()[0] == "checkpoint" })
	return slices.Concat([]cli.Flag{
		duration("interval", 500*time.Millisecond, "from one poll to the next, 200ms to 1s; after a full batch it polls at once"),
		number("batch", 100, "rows that one poll takes at most, up to 10000"),
	}, topicsFlags(), place, run)
}

// polling reads how to ask the table.
func polling(c *cli.Context) (p relay.Polling, err error) {
	p.Interval, p.Batch = c.Duration("interval"), c.Int("batch")
	if p.Interval < leastInterval || p.Interval > mostInterval {
		return p, usage("--interval %s is not between %s and %s; type: --interval 500ms", p.Interval, leastInterval, mostInterval)
	}
	if p.Batch < 1 || p.Batch > mostBatch {
		return p, usage("--batch %d is not between 1 and %d; type: --batch 100", p.Batch, mostBatch)
	}
	p.Topics, err = topics(c)
	return p, err
}
