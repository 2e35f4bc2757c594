package cli

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/relay"
)

func shadowFlag() cli.Flag {
	return &cli.BoolFlag{Name: "shadow", Usage: "run beside another publisher, to be compared with it: publish to <exchange>.shadow, or to another --exchange, with the checkpoint <checkpoint>.shadow.json", EnvVars: env("shadow")}
}

// shadow gives a shadow names of its own. An exchange that stands in the
// environment, or is the default, is that of the other publisher: only one that
// is typed, and is neither, is taken as it is.
func shadow(c *cli.Context, cfg *relay.Config) error {
	if !c.Bool("shadow") {
		return nil
	}
	if c.Bool("stamp") { // it must not change what the other publisher goes by
		return usage("--shadow leaves the table as it is, and --stamp marks rows in it; leave one of them away")
	}
	if c.Duration("prune-after") > 0 {
		return usage("--shadow leaves the table as it is, and --prune-after deletes rows of it; leave one of them away")
	}
	given, known := cfg.Broker.Exchange, os.Getenv("RELAY_EXCHANGE")
	switch {
	case !c.IsSet("exchange") || given == known:
		cfg.Broker.Exchange = relay.ShadowExchange(given)
	case given == "outbox":
		return usage("--shadow --exchange outbox would publish where the other publisher does; leave --exchange away for outbox.shadow, or type another one")
	}
	cfg.Checkpoint = relay.ShadowCheckpoint(cfg.Checkpoint)
	return nil
}
