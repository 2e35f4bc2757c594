package cli

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/mattn/go-isatty"
	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/relay"
	"github.com/outboxrelay/relay/schema"
)

func replayCommand() *cli.Command {
	return &cli.Command{
		Name:  "replay",
		Usage: "send chosen events again: from the table, what was parked, or binlog files",
		Description: `Sends the events that fit all of --id, --aggregate, --topic, --since and
--until, of which the first three can be given more than once. What is sent has
the header replayed, and no sequence unless it was parked; the position in the
checkpoint is never touched. More than 1000 events, unless they are parked and so were never sent, go
out only when you say yes, or with --yes; --dry-run tells what would be sent. --to - prints lines of JSON, --to queue:NAME
sends to one queue, past the exchange.

From the table, unless it is told otherwise: rows as they stand there, stamped
published or not, in the order of an integer id, else of created_at and id. A relay
may run meanwhile. 0: all is confirmed. An --id that is not there is 64.

With --parked: sends the events in <checkpoint>.parked, in the order of each
aggregate, and takes out what the broker has confirmed. Stop the relay first; only
--dry-run, which lists them, --to - and --to queue:NAME, which leave all of them
parked, work beside it. An event that still cannot be sent stays, with those behind
it, and the exit code is 3; so does one that is not chosen. --drop lets one go, with
all others of its id. An end before that is 75; type the same again. --drop-all is
the way out where the file is damaged or missing: it sends nothing. It needs
--checkpoint and, but for --dry-run and --drop-all, --amqp-url; no MySQL server.

With --from-binlog: reads binlog files of MySQL or MariaDB, in the order in which
the server wrote them, plain or packed by gzip or zstd; --to must be given, or
--dry-run, which counts. --gtid takes only the transactions of a set: of MariaDB
0-1-42 is one, 0-1-23..57 are those with these numbers. The checkpoint is not read.
No server is needed where the log has the columns' names
(binlog_row_metadata=FULL), else --mysql-dsn, whose table must still have the
same columns: a server that may have changed it behind the files is refused.
0: all is confirmed. An end before that names the set that is left.

Examples:
   relay replay --id 7d44a1a0-3c55-4c5b-9f0e-3f2f0f6c1c11 \
                --mysql-dsn 'relay:pw@tcp(127.0.0.1:3306)/shop' \
                --amqp-url amqp://relay:pw@127.0.0.1:5672/
   relay replay --topic 'invoice.*' --since 2026-11-30T00:00:00Z --to queue:invoices.again \
                --mysql-dsn 'relay:pw@tcp(127.0.0.1:3306)/shop' \
                --amqp-url amqp://relay:pw@127.0.0.1:5672/
   relay replay --from-binlog testdata/binlog/full.bin --table shop.outbox --to -
   relay replay --from-binlog archive/binlog.00001* --table shop.outbox --to exchange \
                --gtid 3e11fa47-71ca-11e1-9e33-c80aa9429562:23-57 \
                --amqp-url amqp://relay:pw@127.0.0.1:5672/
   relay replay --parked --dry-run --checkpoint checkpoint.json
   relay replay --parked --checkpoint checkpoint.json \
                --amqp-url amqp://relay:pw@127.0.0.1:5672/`,
		Flags: slices.Concat([]cli.Flag{
			list("id", "the event with this id"),
			list("aggregate", "events of the aggregate with this id"),
			list("topic", "events of this topic, or of all that a glob takes, as 'order.*'"),
			&cli.StringFlag{Name: "since", Usage: "events created at this time or later, as 2026-11-30T12:00:00Z"},
			&cli.StringFlag{Name: "until", Usage: "events created before this time"},
			&cli.BoolFlag{Name: "parked", Usage: "the parked events"},
			list("drop", "id of the parked event, or events, to let go; can be given more than once"),
			&cli.BoolFlag{Name: "drop-all", Usage: "let all that is parked go, whatever has become of the file, which is kept under another name"},
			list("from-binlog", "the outbox's events in binlog `FILE`s"),
			&cli.StringFlag{Name: "to", Usage: "where to: exchange, queue:NAME, or - (lines of JSON on standard output)", DefaultText: "exchange; out of binlog files none"},
			&cli.StringFlag{Name: "gtid", Usage: "out of binlog files, only the transactions of this set"},
			&cli.BoolFlag{Name: "dry-run", Usage: "tell what would be sent, and change nothing"},
			&cli.BoolFlag{Name: "yes", Usage: "send more than 1000 events without a question"},
		}, placeFlags(), paceFlags()),
		Action: func(c *cli.Context) error {
			order, err := again(c)
			parked, files := c.Bool("parked"), c.IsSet("from-binlog")
			switch {
			case parked && files:
				return usage("--parked and --from-binlog are two places to take events from; leave one of them away")
			case !parked && !files && order.All() && err == nil:
				return usage("say which events to replay; type: relay replay --id ID, relay replay --parked, or relay replay --from-binlog FILE --to -")
			case err != nil:
				return err
			case !parked && (c.IsSet("drop") || c.IsSet("drop-all")):
				return usage("--drop is for parked events; leave others out by what you choose them with, a transaction in binlog files with --gtid")
			case parked && !order.All() && (c.IsSet("drop") || c.IsSet("drop-all")):
				return usage("--drop itself names the event; leave --id, --aggregate, --topic, --since and --until away")
			case !files && c.IsSet("gtid"):
				return usage("--gtid is for binlog files; type: relay replay --from-binlog FILE --gtid SET --to -")
			case files:
				return replayFiles(c, order)
			case parked:
				return replayParked(c, order)
			}
			return replayRows(c, order)
		},
	}
}

// again reads which events to send again, and where to.
func again(c *cli.Context) (order relay.Again, err error) {
	order = relay.Again{To: relay.Destination(c.String("to")), DryRun: c.Bool("dry-run"), Yes: c.Bool("yes"), Ask: asking(c)}
	switch to := c.String("to"); {
	case to == "" && c.IsSet("to"):
		return order, usage("--to '' names no place; it is exchange, queue:NAME, or -")
	case to == "" && c.IsSet("from-binlog") && !order.DryRun:
		return order, usage("out of binlog files --to must be given: exchange, queue:NAME, or -; to see what they hold: relay replay --from-binlog %s --to -", c.StringSlice("from-binlog")[0])
	case to == "" && !c.IsSet("from-binlog"):
		order.To = relay.ToExchange
	case order.To == relay.ToExchange, order.To == relay.ToLines, strings.TrimPrefix(to, relay.QueuePrefix) != "" && strings.HasPrefix(to, relay.QueuePrefix), to == "" && order.DryRun:
	default:
		return order, usage("--to %q is none of exchange, queue:NAME, -; to see what there is: --to -", to)
	}
	order.IDs, order.Aggregates = c.StringSlice("id"), c.StringSlice("aggregate")
	if order.Topics, err = schema.NewTopics(c.StringSlice("topic"), nil); err != nil {
		return order, usage("--topic: %v", err)
	}
	for flag, at := range map[string]*time.Time{"since": &order.Since, "until": &order.Until} {
		if *at, err = moment(c, flag); err != nil {
			return order, err
		}
	}
	if !order.Since.IsZero() && !order.Until.IsZero() && !order.Since.Before(order.Until) {
		return order, usage("--until %s is not behind --since %s: there is nothing between them", c.String("until"), c.String("since"))
	}
	return order, nil
}

// moment reads a flag's time; zero: it is not given.
func moment(c *cli.Context, flag string) (time.Time, error) {
	if !c.IsSet(flag) {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, c.String(flag))
	if err != nil {
		return at, usage("--%s %q is not a time such as %s", flag, c.String(flag), time.Now().UTC().Format(time.RFC3339))
	}
	return at, nil
}

// asking asks on the terminal; nil where there is none.
func asking(c *cli.Context) func(string) (bool, error) {
	if in, ok := c.App.Reader.(*os.File); !ok || !isatty.IsTerminal(in.Fd()) {
		return nil
	}
	return func(question string) (bool, error) {
		fmt.Fprint(c.App.ErrWriter, question, " Type yes: ")
		answer, err := bufio.NewReader(c.App.Reader).ReadString('\n')
		if errors.Is(err, io.EOF) { // Ctrl-D
			err = nil
		}
		return strings.TrimSpace(answer) == "yes", err
	}
}

func replayRows(c *cli.Context, order relay.Again) error {
	var cfg relay.Config
	var err error
	if cfg.Logger, err = logger(c); err != nil {
		return err
	}
	if cfg.Source, err = source(c); err != nil {
		return err
	}
	if err := destination(c, &cfg, order); err != nil {
		return err
	}
	return relay.ReplayRows(c.Context, cfg, order, c.App.Writer)
}

// destination reads what sending needs, if anything is to be sent.
func destination(c *cli.Context, cfg *relay.Config, order relay.Again) (err error) {
	if !order.DryRun && order.To != relay.ToLines {
		if cfg.Broker, err = broker(c); err != nil {
			return err
		}
		cfg.BrokerPasswordFile, cfg.BrokerTLS = passwordFile(c, "amqp-password-file"), tlsFiles(c, "amqp")
	}
	return pace(c, cfg)
}

func replayParked(c *cli.Context, again relay.Again) error {
	order := relay.ReplayOrder{Again: again, Drop: c.StringSlice("drop"), DropAll: c.Bool("drop-all")}
	var cfg relay.Config
	var err error
	if cfg.Logger, err = logger(c); err != nil {
		return err
	}
	if cfg.Source, err = outbox(c); err != nil {
		return err
	}
	cfg.Checkpoint = checkpointPath(c.String("checkpoint"))
	if order.DropAll {
		again.DryRun = true // nothing is sent
	}
	if err := destination(c, &cfg, again); err != nil {
		return err
	}
	return relay.Replay(c.Context, cfg, order, c.App.Writer)
}

func replayFiles(c *cli.Context, again relay.Again) error {
	order := relay.HistoryOrder{Again: again, Files: c.StringSlice("from-binlog")}
	var cfg relay.Config
	var err error
	if slices.Contains(order.Files, "") {
		return usage("--from-binlog '' names no file; type: relay replay --from-binlog FILE --to -")
	}
	if c.IsSet("gtid") {
		if order.Only, err = binlog.ParseTransactions(c.String("gtid")); err != nil {
			return usage("--gtid: %v", err)
		}
		if order.Only.IsEmpty() {
			return usage("--gtid %q names no transaction; leave it out to replay all that the files have", c.String("gtid"))
		}
	}
	if cfg.Logger, err = logger(c); err != nil {
		return err
	}
	if cfg.Source, err = outbox(c); err != nil {
		return err
	}
	if err := destination(c, &cfg, again); err != nil {
		return err
	}
	return relay.ReplayHistory(c.Context, cfg, order, c.App.Writer)
}

// spreadFiles gives each of several files its own flag, as a shell's pattern
// makes them: --from-binlog a b c.
func spreadFiles(args []string) (spread []string) {
	const flag = "from-binlog"
	files := 0 // given behind the flag
	for _, arg := range args {
		switch name := strings.TrimPrefix(strings.TrimPrefix(arg, "-"), "-"); {
		case name != arg && (name == flag || strings.HasPrefix(name, flag+"=")):
			files = 1
			if name != flag {
				files++
			}
			spread = append(spread, arg)
			continue
		case strings.HasPrefix(arg, "-"):
			files = 0
		}
		if files > 1 {
			spread = append(spread, "--"+flag)
		}
		if files > 0 {
			files++
		}
		spread = append(spread, arg)
	}
	return spread
}
