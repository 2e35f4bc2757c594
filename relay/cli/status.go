package cli

import (
	"github.com/dustin/go-humanize"
	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/relay"
)

func statusCommand() *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "tell where the relay stands, whether or not it runs",
		Description: `Reads the checkpoint file and asks both servers, and the relay that runs on the
checkpoint, at --listen. It takes no lock and writes nothing. Exits with 3 when
that relay cannot go on (blocked, waiting, stalled), one that does not run was
ended by an error, the position can no longer be followed, a queue of a running
relay is gone or a critical threshold is reached, with 75 when a server does not
answer, and with 78 when it refuses, the exchange is not there yet (before the
first run with --partitions), or the checkpoint is corrupt. With --watch it
prints until Ctrl-C, and exits with 0.

Example:
   relay status --mysql-dsn 'relay:pw@tcp(127.0.0.1:3306)/shop' \
                --amqp-url amqp://relay:pw@127.0.0.1:5672/ --partitions 4`,
		Flags: append(placeFlags(), managementFlag(),
			listenFlag("where the relay that runs here is asked what it does, its --listen; '': it is not asked"),
			text("warn-behind", "2GB", "warn when so much log is behind; 0: never"),
			text("critical-behind", "10GB", "exit with 3 when so much log is behind; 0: never"),
			share("warn-runway", 0.5, "warn when less than this share of the retention is left; 0: never"),
			share("critical-runway", 0.1, "exit with 3 when less than this share of the retention is left; 0: never"),
			&cli.BoolFlag{Name: "json", Usage: "print JSON; with --watch a line each time"},
			&cli.BoolFlag{Name: "watch", Usage: "again every 2 s, until Ctrl-C"},
		),
		Action: func(c *cli.Context) error {
			cfg, err := config(c)
			if err != nil {
				return err
			}
			options := relay.StatusOptions{JSON: c.Bool("json"), Watch: c.Bool("watch")}
			if out, ok := c.App.Writer.(*output); ok {
				options.Terminal = out.terminal()
			}
			if options.Thresholds, err = thresholds(c); err != nil {
				return err
			}
			return relay.Status(c.Context, cfg, options, c.App.Writer)
		},
	}
}

func share(name string, value float64, help string) cli.Flag {
	return &cli.Float64Flag{Name: name, Value: value, Usage: help, EnvVars: env(name)}
}

func thresholds(c *cli.Context) (t relay.Thresholds, err error) {
	size := func(flag string) (n int64) {
		bytes, parseErr := humanize.ParseBytes(c.String(flag))
		if err == nil && (parseErr != nil || bytes > 1<<62) {
			err = usage("--%s %q is no size; type: --%s 2GB", flag, c.String(flag), flag)
		}
		return int64(bytes)
	}
	t.WarnBehind, t.CriticalBehind = size("warn-behind"), size("critical-behind")
	t.WarnRunway, t.CriticalRunway = c.Float64("warn-runway"), c.Float64("critical-runway")
	for _, flag := range []string{"warn-runway", "critical-runway"} {
		if v := c.Float64(flag); err == nil && !(v >= 0 && v <= 1) {
			err = usage("--%s %v is not between 0 and 1; type: --%s 0.5", flag, v, flag)
		}
	}
	switch {
	case err != nil:
	case t.CriticalBehind > 0 && t.WarnBehind > t.CriticalBehind:
		err = usage("--warn-behind %s is above --critical-behind %s: it would never be reached", c.String("warn-behind"), c.String("critical-behind"))
	case t.WarnRunway > 0 && t.WarnRunway < t.CriticalRunway:
		err = usage("--warn-runway %v is below --critical-runway %v: it would never be reached", t.WarnRunway, t.CriticalRunway)
	}
	return t, err
}
