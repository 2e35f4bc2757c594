package cli

import (
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/rs/zerolog"
	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/relay"
	"github.com/outboxrelay/relay/schema"
)

// env gives an option's variable: --amqp-url is RELAY_AMQP_URL.
func env(flag string) []string {
	return []string{"RELAY_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))}
}

func text(name, value, help string) cli.Flag {
	return &cli.StringFlag{Name: name, Value: value, Usage: help, EnvVars: env(name)}
}

func number(name string, value int, help string) cli.Flag {
	return &cli.IntFlag{Name: name, Value: value, Usage: help, EnvVars: env(name)}
}

// list is a flag that can be given more than once, whose values are taken as they
// are: an id may begin with a space.
func list(name, help string) cli.Flag {
	return &cli.StringSliceFlag{Name: name, Usage: help, KeepSpace: true}
}

func duration(name string, value time.Duration, help string) cli.Flag {
	return &cli.DurationFlag{Name: name, Value: value, Usage: help, EnvVars: env(name)}
}

// placeFlags say where the outbox, the broker and the checkpoint are.
func placeFlags() []cli.Flag {
	return append([]cli.Flag{
		text("mysql-dsn", "", "source, as relay:PASSWORD@tcp(127.0.0.1:3306)/shop?tls=true"),
		text("mysql-password-file", "", "file with the password for --mysql-dsn; under systemd also the credential mysql-password"),
		text("table", "outbox", "outbox table: db.table, or table in the DSN's database"),
		text("layout", "auto", "column convention: auto, relay, debezium, eventuate"),
		text("columns", "", "single columns against the layout, as id=event_id,payload=body; of a renamed one all names, as payload=body|payload"),
		text("time-zone", "UTC", "zone in which the table's DATETIME columns were written"),
		text("amqp-url", "", "broker, as amqp://relay:PASSWORD@127.0.0.1:5672/vhost or amqps://"),
		text("amqp-password-file", "", "file with the password for --amqp-url; under systemd also the credential amqp-password"),
		text("exchange", "outbox", "the consistent-hash exchange"),
		number("partitions", 0, "declare the exchange and so many quorum queues; 0: declare nothing"),
		&cli.StringFlag{Name: "checkpoint", Usage: "checkpoint file (default: $STATE_DIRECTORY/checkpoint.json, else ./checkpoint.json)", EnvVars: env("checkpoint")},
		text("log-level", "info", "debug, info, warn, error"),
		&cli.StringFlag{Name: "log-format", Usage: "json or console (default: console on a terminal, else json)", EnvVars: env("log-format")},
	}, tlsFlags()...)
}

// paceFlags say how fast to send, and how long to wait.
func paceFlags() []cli.Flag {
	return []cli.Flag{
		number("window", 4096, "events in flight at most"),
		text("order", "strict", "strict: an event waits for the one before it of its aggregate; pipelined: without that wait"),
		duration("drain-timeout", 15*time.Second, "time to settle what is in flight after SIGTERM"),
		duration("give-up-after", 0, "exit with 75 when a server is away for longer; 0: never"),
	}
}

// runFlags say how to relay.
func runFlags() []cli.Flag {
	return append(slices.Concat(placeFlags(), paceFlags(), topicsFlags()),
		stampFlag(),
		serverIDFlag(), shadowFlag(),
		text("start", "backfill", "with no checkpoint yet: backfill, latest, earliest"),
		badEventFlag(),
		duration("prune-after", 0, "delete confirmed rows from the table when they are older, beside the relay; 0: never. It needs the privilege DELETE"),
		listenFlag("address of the status page, /metrics, /healthz, /readyz; '': off"),
		&cli.BoolFlag{Name: "debug", Usage: "serve Go's profiles there, under /debug/pprof/", EnvVars: env("debug")},
	)
}

func serverIDFlag() cli.Flag {
	return &cli.Uint64Flag{Name: "server-id", Usage: "replica id", DefaultText: "derived from host and checkpoint path, 2^31 and up", EnvVars: env("server-id")}
}

func stampFlag() cli.Flag {
	return &cli.BoolFlag{Name: "stamp", Usage: "mark rows as published, in batches, when the broker has confirmed their events", EnvVars: env("stamp")}
}

// managementFlag says where what AMQP does not tell is asked.
func managementFlag() cli.Flag {
	return &cli.StringFlag{Name: "amqp-management-url", Usage: "RabbitMQ's management API (default: http:// and port 15672 of the host of --amqp-url, https:// and 15671 with amqps://)", EnvVars: env("amqp-management-url")}
}

func listenFlag(help string) cli.Flag { return text("listen", "127.0.0.1:9347", help) }

func badEventFlag() cli.Flag {
	return text("on-bad-event", "stop", "stop: exit with 65; park: put it into <checkpoint>.parked and hold its aggregate back")
}

// config reads the flags. Its errors wrap relay.ErrUsage.
func config(c *cli.Context) (relay.Config, error) {
	var cfg relay.Config
	var err error
	if cfg.Logger, err = logger(c); err != nil {
		return cfg, err
	}
	if cfg.Source, err = source(c); err != nil {
		return cfg, err
	}
	if cfg.Broker, err = broker(c); err != nil {
		return cfg, err
	}
	cfg.SourcePasswordFile, cfg.BrokerPasswordFile = passwordFile(c, "mysql-password-file"), passwordFile(c, "amqp-password-file")
	cfg.SourceTLS, cfg.BrokerTLS = tlsFiles(c, "mysql"), tlsFiles(c, "amqp")
	cfg.Checkpoint = checkpointPath(c.String("checkpoint"))
	if err := shadow(c, &cfg); err != nil {
		return cfg, err
	}
	if cfg.Topics, err = topics(c); err != nil {
		return cfg, err
	}
	cfg.Start, cfg.Stamp = relay.Backfill, c.Bool("stamp")
	cfg.Listen, cfg.Debug = c.String("listen"), c.Bool("debug")
	if err := pace(c, &cfg); err != nil {
		return cfg, err
	}
	if s := relay.Start(c.String("start")); s != "" {
		if s != relay.Backfill && s != relay.Latest && s != relay.Earliest {
			return cfg, usage("--start %q is none of backfill, latest, earliest", s)
		}
		cfg.Start = s
	}
	if b := relay.OnBadEvent(c.String("on-bad-event")); b != "" {
		if b != relay.StopOnBad && b != relay.ParkBad {
			return cfg, usage("--on-bad-event %q is none of stop, park", b)
		}
		cfg.OnBadEvent = b
	}
	if cfg.PruneAfter = c.Duration("prune-after"); cfg.PruneAfter < 0 {
		return cfg, usage("--prune-after %s is below 0; type: --prune-after 48h, or 0 for never", cfg.PruneAfter)
	}
	cfg.Source.ServerID, err = serverID(c, cfg.Checkpoint)
	return cfg, err
}

// pace reads how fast to send, and how long to wait.
func pace(c *cli.Context, cfg *relay.Config) error {
	cfg.Order = relay.Strict
	cfg.Window, cfg.DrainTimeout, cfg.GiveUpAfter = c.Int("window"), c.Duration("drain-timeout"), c.Duration("give-up-after")
	if c.IsSet("window") && (cfg.Window < 1 || cfg.Window > 1<<16) {
		return usage("--window %d is not between 1 and 65536", cfg.Window)
	}
	if c.IsSet("drain-timeout") && cfg.DrainTimeout <= 0 {
		return usage("--drain-timeout %s is not above 0; type: --drain-timeout 15s", cfg.DrainTimeout)
	}
	if cfg.GiveUpAfter < 0 {
		return usage("--give-up-after %s is below 0; type: --give-up-after 10m, or 0 for never", cfg.GiveUpAfter)
	}
	if o := relay.Order(c.String("order")); o != "" {
		if o != relay.Strict && o != relay.Pipelined {
			return usage("--order %q is none of strict, pipelined", o)
		}
		cfg.Order = o
	}
	return nil
}

func source(c *cli.Context) (binlog.Config, error) {
	if c.String("mysql-dsn") == "" {
		return binlog.Config{}, usage("--mysql-dsn is missing; type: relay %s --mysql-dsn 'relay:PASSWORD@tcp(127.0.0.1:3306)/shop', or set RELAY_MYSQL_DSN", c.Command.Name)
	}
	return outbox(c)
}

// outbox reads what the outbox is; the server that has it may be left out.
func outbox(c *cli.Context) (binlog.Config, error) {
	cfg := binlog.Config{DSN: c.String("mysql-dsn"), Table: c.String("table")}
	var err error
	if cfg.Password, err = secretFile(c, "mysql-password-file"); err != nil {
		return cfg, err
	}
	if cfg.TLS, err = tlsOf(c, "mysql"); err != nil {
		return cfg, err
	}
	if cfg.Options.Layout, err = schema.ParseLayout(c.String("layout")); err != nil {
		return cfg, usage("--layout: %v", err)
	}
	if cfg.Options.Columns, err = schema.ParseColumns(c.String("columns")); err != nil {
		return cfg, usage("--columns: %v", err)
	}
	if cfg.Options.Zone, err = time.LoadLocation(c.String("time-zone")); err != nil {
		return cfg, usage("--time-zone %q is not a zone such as UTC or Europe/Berlin", c.String("time-zone"))
	}
	return cfg, nil
}

func broker(c *cli.Context) (exchange.Config, error) {
	cfg := exchange.Config{URL: c.String("amqp-url"), Exchange: c.String("exchange"), Partitions: c.Int("partitions"), ManagementURL: c.String("amqp-management-url")}
	var err error
	if api := cfg.ManagementURL; api != "" && !strings.HasPrefix(api, "http://") && !strings.HasPrefix(api, "https://") {
		return cfg, usage("--amqp-management-url begins with neither http:// nor https://; type: --amqp-management-url http://127.0.0.1:15672")
	}
	if cfg.URL == "" {
		return cfg, usage("--amqp-url is missing; type: relay %s --amqp-url 'amqp://relay:PASSWORD@127.0.0.1:5672/', or set RELAY_AMQP_URL", c.Command.Name)
	}
	if cfg.Exchange == "" || len(cfg.Exchange) > 240 {
		return cfg, usage("--exchange has %d bytes, and 1 to 240 are possible; type: --exchange outbox", len(cfg.Exchange))
	}
	if cfg.Partitions < 0 || cfg.Partitions > 1024 {
		return cfg, usage("--partitions %d is not between 0 and 1024", cfg.Partitions)
	}
	if cfg.Password, err = secretFile(c, "amqp-password-file"); err != nil {
		return cfg, err
	}
	cfg.TLS, err = brokerTLS(c, cfg.URL)
	return cfg, err
}

func secretFile(c *cli.Context, flag string) (string, error) {
	path := passwordFile(c, flag)
	if path == "" {
		return "", nil
	}
	password, err := relay.ReadSecret(path)
	if err != nil {
		return "", usage("--%s: %v", flag, err)
	}
	return password, nil
}

// checkpointPath takes the first directory that systemd gives, if it gives
// one.
func checkpointPath(path string) string {
	if path != "" {
		return path
	}
	directory, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":")
	return filepath.Join(directory, "checkpoint.json")
}

// serverID is stable for one relay on one host, and far from the small
// numbers that people give to servers.
func serverID(c *cli.Context, checkpoint string) (uint32, error) {
	if id := c.Uint64("server-id"); id != 0 || c.IsSet("server-id") {
		if id == 0 || id > 1<<32-1 {
			return 0, usage("--server-id %d is not between 1 and 4294967295", id)
		}
		return uint32(id), nil
	}
	host, err := os.Hostname()
	if err != nil {
		return 0, fmt.Errorf("cli: the host has no name, so give --server-id: %w", err)
	}
	path, err := filepath.Abs(checkpoint)
	if err != nil {
		return 0, fmt.Errorf("cli: no path for %s, so give --server-id: %w", checkpoint, err)
	}
	sum := fnv.New32a()
	io.WriteString(sum, host+"\x00"+path)
	return sum.Sum32() | 1<<31, nil
}

func logger(c *cli.Context) (zerolog.Logger, error) {
	zerolog.TimeFieldFormat = time.RFC3339Nano
	var level zerolog.Level
	switch name := c.String("log-level"); name {
	case "debug", "info", "warn", "error":
		level, _ = zerolog.ParseLevel(name)
	default:
		return zerolog.Logger{}, usage("--log-level %q is none of debug, info, warn, error", name)
	}
	out := forJournal(c.App.ErrWriter)
	terminal := false
	if file, ok := out.(*os.File); ok {
		terminal = isatty.IsTerminal(file.Fd())
	}
	switch format := c.String("log-format"); format {
	case "json":
	case "console":
		out = zerolog.ConsoleWriter{Out: out, TimeFormat: time.TimeOnly, NoColor: !terminal}
	case "":
		if terminal {
			out = zerolog.ConsoleWriter{Out: out, TimeFormat: time.TimeOnly}
		}
	default:
		return zerolog.Logger{}, usage("--log-format %q is none of json, console", format)
	}
	return zerolog.New(out).Level(level).With().Timestamp().Logger(), nil
}
