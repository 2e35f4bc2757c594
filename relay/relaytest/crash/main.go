// Command crash is the long fault soak: the main job of the relay on servers of
// its own, through rounds of faults of the relay, of MySQL, of the broker and of
// the links to both. It ends with a table, and with exit code 0 only when
// nothing was lost, invented, reordered or applied twice, duplicates stayed
// within their bound, and the relay did not grow.
package main

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/outboxrelay/relay/relay/relaytest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx)
	stop()
	os.Exit(code)
}

func run(ctx context.Context) int {
	config := relaytest.SoakConfig{}
	flag.StringVar(&config.Relay, "relay", "bin/relay", "the relay's binary")
	flag.Uint64Var(&config.Seed, "seed", rand.Uint64N(1e9), "repeats the load and the faults (default random)")
	flag.DurationVar(&config.Duration, "duration", 20*time.Minute, "how long the rounds go on")
	flag.DurationVar(&config.Longest, "longest", 20*time.Second, "the longest stall of a link")
	flag.Float64Var(&config.Rate, "rate", 300, "events per second")
	flag.Parse()
	if config.Duration < time.Second || config.Rate <= 0 || flag.NArg() > 0 {
		fmt.Fprintf(os.Stderr, "crash: -duration %v -rate %v %q: want a second or more, more than 0, and no word besides\n",
			config.Duration, config.Rate, flag.Args())
		return 64
	}

	_ = mysql.SetLogger(new(mysql.NopLogger)) // connections are lost all the time; fails on nil only
	fmt.Printf("crash: %v of faults, seed %d (to repeat: make crash SEED=%[2]d)\n", config.Duration, config.Seed)
	report, err := relaytest.Soak(ctx, config, os.Stdout)
	if err == nil || report.Committed > 0 {
		fmt.Println()
		_ = report.WriteTable(os.Stdout) // nobody is left to tell
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "crash:", err)
	}
	if err != nil || !report.OK() {
		return 1
	}
	return 0
}
