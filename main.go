// Command relay carries the outbox table of a MySQL server to RabbitMQ.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/outboxrelay/relay/relay"
	"github.com/outboxrelay/relay/relay/cli"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	go func() { // the first signal drains; a second one ends the process at once
		<-ctx.Done()
		stop()
	}()
	err := cli.Run(ctx, os.Args, os.Stdout, os.Stderr)
	if code := relay.ExitCode(err); code != relay.ExitOK {
		cli.Complain(os.Stderr, err)
		os.Exit(code)
	}
}
