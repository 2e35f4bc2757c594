package cli

import (
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/relay"
)

func auditCommand() *cli.Command {
	return &cli.Command{
		Name:  "audit",
		Usage: "compare the outbox with what was processed or published, or two publishers",
		Description: `Finds what is in the database but not in the stream: rows that were written with
sql_log_bin=0, events that a queue has dropped, consumers that have passed one
over. It compares the rows of a window of created_at with the inbox of the
consumers (--inbox-dsn, --inbox-table) or with what a stream or queue got
(--audit-queue), and prints lines of JSON: missing (a row of which nothing is
there), unknown (a message of the window of which there is no row), duplicate (a
message that came again), and a summary, whose undated are the rows without a
created_at: no window has them. Exits with 3 where something is missing, unknown
or undated; duplicates are counted, and are no difference: a relay that crashes
sends some again. A server that cannot be reached is 75.

The window ends --grace before now, by the server's clock. A row is missing if
its id is nowhere in the inbox, whenever it was processed; of a queue all is read
that came since an hour before the window. Rows have to be kept for as long as
consumers may be late: of a message whose row was pruned the table knows nothing.
An inbox or queue that gets other events than the outbox's has unknown ones.
Memory is limited, whatever the size: what is more goes to files in TMPDIR.

--audit-queue wants what gets every event, best a stream: it is read and left as
it is, as often as you like. Of a classic queue without consumers up to 65535
messages are read and given back. A quorum queue is refused: it drops what was
delivered too often. Of a consistent-hash exchange with several queues, give a
stream for each, or one that is bound before it. The user needs SELECT on the
two tables.

--republish sends the missing again, with the header replayed, in the order of
each aggregate; consumers without an inbox may then see an event twice. It exits
with 3 all the same: something lost them. --textfile writes the counts for the
node exporter; relay print audit.timer and audit.service run it every hour.

--against-queue compares two publishers instead: what relay run --shadow sends
(--audit-queue, by default a stream of the name <exchange>.shadow) with what the
old one does. It asks no database. Messages are the same by --by; their body (as
a JSON value where it is one), type and routing key are compared. It prints each
difference, the counts by hour, and their sum. Exits with 3 where one differs, and
where neither side has a message in the window.

Examples:
   relay audit --mysql-dsn 'relay:pw@tcp(127.0.0.1:3306)/shop' \
               --inbox-dsn 'relay:pw@tcp(127.0.0.1:3306)/billing' --window 24h
   relay audit --mysql-dsn 'relay:pw@tcp(127.0.0.1:3306)/shop' --audit-queue outbox.audit \
               --amqp-url amqp://relay:pw@127.0.0.1:5672/ --republish
   relay audit --against-queue legacy.q --by message_id --window 672h \
               --amqp-url amqp://relay:pw@127.0.0.1:5672/`,
		Flags: slices.Concat(only(placeFlags(), "mysql-dsn", "mysql-password-file", "table", "layout", "columns", "time-zone",
			"amqp-url", "amqp-password-file", "exchange", "log-level", "log-format"), tlsFlags(), inboxFlags(), []cli.Flag{
			managementFlag(),
			&cli.StringSliceFlag{Name: "audit-queue", Usage: "stream or queue that gets all events, in place of an inbox; can be given more than once", EnvVars: env("audit-queue")},
			&cli.StringSliceFlag{Name: "against-queue", Usage: "stream or queue of another publisher, to be compared with --audit-queue; can be given more than once"},
			&cli.StringFlag{Name: "by", Value: "message_id", Usage: "with --against-queue, what both publishers set alike: message_id, header:NAME"},
			// RELAY_WINDOW is that of run.
			&cli.DurationFlag{Name: "window", Value: 24 * time.Hour, Usage: "how far back rows are looked at", EnvVars: env("audit-window")},
			duration("grace", 5*time.Minute, "what is newer is left alone: it may be on its way"),
			&cli.StringFlag{Name: "since", Usage: "begin of the window, in place of --window, as 2026-01-02T15:04:05Z"},
			&cli.StringFlag{Name: "until", Usage: "end of the window, if that is before --grace"},
			&cli.BoolFlag{Name: "republish", Usage: "send again what is missing", EnvVars: env("republish")},
			text("textfile", "", "file for the counts, for Prometheus's node exporter: NAME.prom in its directory"),
		}),
		Action: func(c *cli.Context) error {
			order, err := auditOrder(c)
			if err != nil {
				return err
			}
			var cfg relay.Config
			if cfg.Logger, err = logger(c); err != nil {
				return err
			}
			if len(order.Against) == 0 {
				if cfg.Source, err = source(c); err != nil {
					return err
				}
			}
			if len(order.Queues) > 0 || order.Republish {
				if cfg.Broker, err = broker(c); err != nil {
					return err
				}
			}
			return relay.Audit(c.Context, cfg, order, c.App.Writer)
		},
	}
}

func auditOrder(c *cli.Context) (order relay.AuditOrder, err error) {
	order = relay.AuditOrder{
		Queues: c.StringSlice("audit-queue"), Against: c.StringSlice("against-queue"), By: c.String("by"),
		Window: c.Duration("window"), Grace: c.Duration("grace"),
		Republish: c.Bool("republish"), Textfile: c.String("textfile"),
	}
	if order.Inbox, err = inbox(c); err != nil {
		return order, err
	}
	for _, t := range []struct {
		flag string
		into *time.Time
	}{{"since", &order.Since}, {"until", &order.Until}} {
		if !c.IsSet(t.flag) {
			continue
		}
		if *t.into, err = time.Parse(time.RFC3339, c.String(t.flag)); err != nil {
			return order, usage("--%s %q is no time; type: --%s %s", t.flag, c.String(t.flag), t.flag, time.Now().UTC().Add(-time.Hour).Format(time.RFC3339))
		}
		if t.into.Unix() < 0 {
			return order, usage("--%s %s is before 1970, and no message is that old; type: --%s 1970-01-01T00:00:00Z", t.flag, c.String(t.flag), t.flag)
		}
	}
	against := len(order.Against) > 0
	switch {
	case order.Window <= 0:
		return order, usage("--window %s is a window that ends before it begins; type: --window 24h", order.Window)
	case order.Grace < 0:
		return order, usage("--grace %s is below 0; type: --grace 5m", order.Grace)
	case c.IsSet("since") && c.IsSet("window") && c.Duration("window") != 24*time.Hour:
		return order, usage("--since and --window both say where the window begins; type one of them")
	case slices.Contains(order.Queues, "") || slices.Contains(order.Against, ""):
		return order, usage("--audit-queue or --against-queue '' names no queue; type its name")
	case against && (order.Republish || order.Textfile != ""):
		return order, usage("--republish and --textfile are about the outbox, and --against-queue compares two publishers; leave one of them away")
	case !against && c.IsSet("by"):
		return order, usage("--by is for --against-queue; type: relay audit --against-queue legacy.q --by %s", order.By)
	case len(order.Queues) > 0 && order.Inbox.DSN != "":
		return order, usage("--inbox-dsn and --audit-queue are two other sides; type one of them")
	case len(order.Queues) > 0 && c.IsSet("inbox-table"):
		return order, usage("--inbox-table and --audit-queue are two other sides; type one of them")
	}
	if against && len(order.Queues) == 0 {
		order.Queues = []string{relay.ShadowExchange(c.String("exchange"))}
	}
	return order, nil
}
