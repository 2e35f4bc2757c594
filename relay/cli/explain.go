package cli

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/relay"
)

func explainCommand() *cli.Command {
	return &cli.Command{
		Name:      "explain",
		Usage:     "tell where an event is",
		ArgsUsage: "ID",
		Description: `Looks for the event with this id, its message_id: the row in the table, its
transaction in the log (GTID, and the file and place where it ends), whether the
checkpoint covers that, whether it is parked, when it was confirmed, and with
--inbox-dsn whether a consumer has processed it. It takes no lock and writes
nothing. The log is read from the time on at which the row was created; of a row
that is gone, all of it. What cannot be looked at is told in its place, and makes
the exit code that of its error; an id that is nowhere makes 64.

Example:
   relay explain 7d44a1a0-3c55-4c5b-9f0e-3f2f0f6c1c11 \
                --mysql-dsn 'relay:pw@tcp(127.0.0.1:3306)/shop'`,
		Flags: append(only(placeFlags(), "mysql-dsn", "mysql-password-file", "mysql-tls-ca", "mysql-tls-cert", "mysql-tls-key", "mysql-tls-server-name",
			"table", "layout", "columns", "time-zone", "checkpoint", "log-level", "log-format"), inboxFlags()...),
		Action: func(c *cli.Context) error {
			var cfg relay.Config
			var err error
			if cfg.Logger, err = logger(c); err != nil {
				return err
			}
			if cfg.Source, err = source(c); err != nil {
				return err
			}
			cfg.Checkpoint = checkpointPath(c.String("checkpoint"))
			order := relay.ExplainOrder{ID: c.Args().First()}
			if c.IsSet("inbox-dsn") || c.IsSet("inbox-table") {
				from, err := inbox(c)
				if err != nil {
					return err
				}
				order.Inbox = &from
			}
			return relay.Explain(c.Context, cfg, order, c.App.Writer)
		},
	}
}

// argumentLast puts what explain is about behind its flags, where the library
// wants it.
func argumentLast(args []string) []string {
	if len(args) < 4 || !strings.HasPrefix(args[3], "-") || args[1] != "explain" || strings.HasPrefix(args[2], "-") {
		return args
	}
	return append(slices.Concat(args[:2], args[3:]), args[2])
}
