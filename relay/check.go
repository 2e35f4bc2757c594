package relay

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/checkpoint"
	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/schema"
)

// Check looks at everything that Run needs, changes nothing, and prints a
// line for each, as text or as JSON. The error wraps ErrDifferences when
// something that Run needs is not as it must be.
func Check(ctx context.Context, cfg Config, asJSON bool, out io.Writer) error {
	cfg.setDefaults()
	if _, _, _, err := cfg.Source.Parse(); err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	list, server, table := checkSource(ctx, cfg)
	if server != nil {
		defer server.Close()
	}
	list = append(list, checkCheckpoint(ctx, cfg, server, table)...)
	list = append(list, checkParked(cfg))
	list = append(list, checkBroker(ctx, cfg)...)
	if err := printRequirements(list, asJSON, out); err != nil {
		return err
	}
	var missing []string
	for _, r := range list {
		if !r.OK && !r.Advice {
			missing = append(missing, r.Name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("%w: %s; the lines above say what to type", ErrDifferences, strings.Join(missing, ", "))
	}
	return nil
}

// checkSource returns a nil server or table where it could not be had.
func checkSource(ctx context.Context, cfg Config) ([]binlog.Requirement, *binlog.Server, *schema.Table) {
	server, err := binlog.Open(ctx, cfg.Source)
	if err != nil {
		return []binlog.Requirement{failed("mysql", "a server that answers and lets the relay in", err)}, nil, nil
	}
	list := []binlog.Requirement{met("mysql", "a server that answers and lets the relay in", server.Flavor.Product()+" "+server.Version+" at "+server.Address()+", "+server.TLS())}
	table, found, err := server.Check(ctx)
	list = append(list, found...)
	if err != nil {
		list = append(list, failed("mysql", "answers", err))
	}
	return list, server, table
}

func checkCheckpoint(ctx context.Context, cfg Config, server *binlog.Server, table *schema.Table) []binlog.Requirement {
	const need = "a file that can be read and written, of this outbox, in the server's history"
	state, exists, err := probe(cfg.Checkpoint)
	if err != nil {
		return []binlog.Requirement{failed("checkpoint", need, err)}
	}
	if !exists {
		return []binlog.Requirement{met("checkpoint", need, cfg.Checkpoint+": none yet; --start "+string(cfg.Start)+" makes the first")}
	}
	if table != nil {
		err = fits(ctx, cfg.Checkpoint, state, server, table)
	}
	if err != nil {
		return []binlog.Requirement{failed("checkpoint", need, err)}
	}
	return []binlog.Requirement{met("checkpoint", need, cfg.Checkpoint+" at "+state.GTIDSet)}
}

func checkParked(cfg Config) binlog.Requirement {
	const name, need = "parked", "nothing parked, or --on-bad-event park"
	path, err := checkpoint.Path(cfg.Checkpoint)
	if err == nil {
		state, readErr := checkpoint.Read(path) // what is wrong with it has its own line
		err = mayRun(path, state, !errors.Is(readErr, fs.ErrNotExist), cfg.OnBadEvent)
	}
	if err != nil {
		return failed(name, need, err)
	}
	return met(name, need, "--on-bad-event "+string(cfg.OnBadEvent))
}

// probe reads the checkpoint and looks whether one can be written there. It
// takes no lock, so that a relay can start meanwhile.
func probe(path string) (state checkpoint.State, exists bool, err error) {
	directory := filepath.Dir(path)
	if err := unix.Access(directory, unix.W_OK|unix.X_OK); err != nil {
		return state, false, fmt.Errorf("%w: directory %s: %w; make it writable for the user that runs the relay", checkpoint.ErrUnwritable, directory, err)
	}
	state, err = checkpoint.Read(path)
	if errors.Is(err, fs.ErrNotExist) {
		return state, false, nil
	}
	return state, err == nil, err
}

func checkBroker(ctx context.Context, cfg Config) []binlog.Requirement {
	const name, need = "rabbitmq", "a broker that answers and lets the relay in"
	topology, err := exchange.Inspect(ctx, cfg.Broker)
	if err != nil {
		return []binlog.Requirement{failed(name, need, err)}
	}
	list := []binlog.Requirement{met(name, need, fmt.Sprintf("%s %s at %s, %s", topology.Product, topology.Version, exchange.Address(cfg.Broker.URL), topology.TLS))}
	return append(list, topologyRequirements(cfg, topology)...)
}

func topologyRequirements(cfg Config, topology exchange.Topology) []binlog.Requirement {
	r := met("exchange", "x-consistent-hash exchange "+cfg.Broker.Exchange, cfg.Broker.Exchange)
	err := topology.ExchangeErr
	if cfg.Broker.Partitions > 0 {
		err = topology.DeclareErr
	}
	switch {
	case err != nil:
		r = failed(r.Name, r.Need, err)
	case !topology.Found:
		r.Found = "not there yet: relay run declares it"
	}
	list := []binlog.Requirement{r}
	for _, q := range topology.Queues {
		found := "not there yet: relay run declares it"
		if q.Found {
			found = fmt.Sprintf("%d messages, %d consumers", q.Messages, q.Consumers)
		}
		r := met("queue "+q.Name, "a durable quorum queue with a single active consumer", found)
		if q.Err != nil {
			r = failed(r.Name, r.Need, q.Err)
		}
		list = append(list, r)
	}
	return list
}

func met(name, need, found string) binlog.Requirement {
	return binlog.Requirement{Name: name, Need: need, Found: found, OK: true}
}

// failed is a requirement that an error stands for; its text has the way out.
func failed(name, need string, err error) binlog.Requirement {
	return binlog.Requirement{Name: name, Need: need, Found: err.Error()}
}

func printRequirements(list []binlog.Requirement, asJSON bool, out io.Writer) error {
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(list)
	}
	for _, r := range list {
		mark := "ok  "
		switch {
		case r.OK:
		case r.Advice:
			mark = "hint"
		default:
			mark = "FAIL"
		}
		if _, err := fmt.Fprintf(out, "%s  %-26s %s\n", mark, r.Name, r.Found); err != nil {
			return err
		}
		if !r.OK && r.Fix != "" {
			fmt.Fprintf(out, "      need %s; type: %s\n", r.Need, r.Fix)
		}
	}
	return nil
}
