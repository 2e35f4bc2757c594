// Command demo plays the main job of the relay on the two test servers: orders
// become invoices, once each, while the relay is killed again and again. It
// ends with a table, and with exit code 0 only when nothing was lost, invented,
// reordered or applied twice.
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

	"github.com/outboxrelay/relay/relay/relaytest"
)

// minKills is how often the relay is killed at least.
const minKills = 5

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx)
	stop()
	os.Exit(code)
}

func run(ctx context.Context) int {
	config := relaytest.DemoConfig{}
	flag.StringVar(&config.Relay, "relay", "bin/relay", "the relay's binary")
	flag.Uint64Var(&config.Seed, "seed", rand.Uint64N(1e9), "repeats the load and the moments of the kills (default random)")
	flag.DurationVar(&config.Duration, "duration", 25*time.Second, "how long the writer writes")
	flag.IntVar(&config.Kills, "kills", 6, "how often the relay is killed")
	flag.Float64Var(&config.Rate, "rate", 400, "events per second; 0: as fast as the server takes them")
	flag.Parse()
	if config.Kills < minKills {
		fmt.Fprintf(os.Stderr, "demo: -kills %d is too few to show anything: type %d or more\n", config.Kills, minKills)
		return 64
	}

	fmt.Printf("demo: %v of load, %d kills, seed %d (to repeat: make demo SEED=%[3]d)\n", config.Duration, config.Kills, config.Seed)
	report, err := relaytest.Demo(ctx, config, os.Stdout)
	if err == nil || report.Committed > 0 {
		fmt.Println()
		_ = report.WriteTable(os.Stdout) // nobody is left to tell
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
	}
	if err != nil || !report.OK() {
		return 1
	}
	return 0
}
