package cli

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/relay"
)

func runCommand() *cli.Command {
	return &cli.Command{
		Name:  "run",
		Usage: "follow the outbox and publish its events",
		Description: `Follows the MySQL binlog from the checkpoint and publishes each row that is
inserted into the outbox table. SIGTERM or SIGINT stop it: it settles what is
in flight, saves the checkpoint and exits with 0. A second signal ends it at
once, which loses nothing: what was in flight is sent again. SIGHUP makes it
read its password and certificate files again and connect anew; SIGUSR1 makes
it log where it stands.

With --only-topics or --except-topics it carries some types of events, so that
they can move from relay poll, or from another publisher, one by one. The
checkpoint keeps the topics: when a start adds some, their rows that are in the
table and not stamped published are sent first. To move a type here, stop and
start relay poll without it, then this with it; to move it back, this first.
With --stamp rows are marked as published once the broker has confirmed their
events, before the checkpoint covers them; it needs UPDATE on the columns status
and published_at (relay print grants).

--shadow runs beside another publisher, for relay audit --against-queue to tell
whether both send the same: it publishes the same messages to <exchange>.shadow,
with a checkpoint of its own, and touches neither the table nor the exchange. For
it, once:
   rabbitmqadmin declare exchange --name outbox.shadow --type x-consistent-hash --durable true
   rabbitmqadmin declare queue --name outbox.shadow --type stream --durable true
   rabbitmqadmin declare binding --source outbox.shadow --destination-type queue \
                 --destination outbox.shadow --routing-key 1

Examples:
   relay run --mysql-dsn 'relay:pw@tcp(127.0.0.1:3306)/shop' \
             --amqp-url amqp://relay:pw@127.0.0.1:5672/ --partitions 4
   relay run --only-topics 'order.*' --stamp`,
		Flags: runFlags(),
		Action: func(c *cli.Context) error {
			cfg, err := config(c)
			if err != nil {
				return err
			}
			cfg.Signals = signals()
			return relay.Run(c.Context, cfg)
		},
	}
}

// signals are those that a running relay takes.
func signals() <-chan os.Signal {
	taken := make(chan os.Signal, 2)
	signal.Notify(taken, syscall.SIGHUP, syscall.SIGUSR1)
	return taken
}
