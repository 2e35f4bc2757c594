package cli

import (
	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/relay"
)

func printCommand() *cli.Command {
	command := &cli.Command{Name: "print", Usage: "print what a host needs around the relay: units, grants and more"}
	for _, p := range relay.Printables {
		command.Subcommands = append(command.Subcommands, &cli.Command{
			Name:        p.Name,
			Usage:       "print " + p.Usage,
			Description: "Example:\n   relay print " + p.Name + " > " + p.Place,
			Action:      func(c *cli.Context) error { return writeAsset(c, p.File) },
		})
	}
	command.Subcommands = append(command.Subcommands, printGrantsCommand(), printManCommand())
	return command
}

func printGrantsCommand() *cli.Command {
	return &cli.Command{
		Name:  "grants",
		Usage: "print the statements that make the relay's users",
		Description: `The users are those of the two addresses, relay where there are none. They
get what run needs and nothing else. The lines for RabbitMQ are comments, so that
a MySQL client takes the whole. No server is asked.

Example:
   relay print grants --mysql-dsn 'relay@tcp(127.0.0.1:3306)/shop' \
                      --amqp-url amqp://relay@127.0.0.1:5672/ --partitions 4`,
		Flags: only(placeFlags(), "mysql-dsn", "table", "amqp-url", "exchange", "partitions"),
		Action: func(c *cli.Context) error {
			return relay.PrintGrants(relay.Config{
				Source: binlog.Config{DSN: c.String("mysql-dsn"), Table: c.String("table")},
				Broker: exchange.Config{URL: c.String("amqp-url"), Exchange: c.String("exchange"), Partitions: c.Int("partitions")},
			}, c.App.Writer)
		},
	}
}

func printManCommand() *cli.Command {
	return &cli.Command{
		Name:        "man",
		Usage:       "print the manual page relay(1)",
		Description: "Example:\n   relay print man | man -l -",
		Action:      func(c *cli.Context) error { return manual(c.App, c.App.Writer) },
	}
}

// writeAsset prints a file that is in the binary.
func writeAsset(c *cli.Context, file string) error {
	content, err := relay.Asset(file)
	if err == nil {
		_, err = c.App.Writer.Write(content)
	}
	return err
}

// only takes some of the flags.
func only(flags []cli.Flag, names ...string) (some []cli.Flag) {
	for _, flag := range flags {
		for _, name := range names {
			if flag.Names()[0] == name {
				some = append(some, flag)
			}
		}
	}
	return some
}
