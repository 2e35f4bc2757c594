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

	"github.com/dustin/go-humanize"
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
	list = append(list, checkDirectory(cfg.Checkpoint), checkCheckpoint(ctx, cfg, server, table), checkParked(cfg))
	list = append(list, checkBroker(ctx, cfg)...)
	for _, e := range cfg.exposures() {
		list = append(list, advice("tls of the "+e.side, "TLS to what is not this host", e.what+": "+e.address, e.next))
	}
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
	if err == nil && table != nil && cfg.Stamp {
		found, err = server.CheckStamping(ctx, table)
		list = append(list, found...)
	}
	if err == nil {
		_, running := checkpoint.Held(cfg.Checkpoint)
		found, err = server.Preflight(ctx, running)
		list = append(list, found...)
	}
	if err != nil {
		list = append(list, failed("mysql", "answers", err))
	}
	return list, server, table
}

const (
	leastRoom = 1 << 20 // bytes, for the checkpoint
	ampleRoom = 1 << 30 // for compressed transactions that are too large for memory
)

// checkDirectory looks at the checkpoint's directory: rights and room.
func checkDirectory(path string) binlog.Requirement {
	const name, need = "checkpoint directory", "writable, 1 GB free: compressed transactions that are too large for memory go there"
	directory := filepath.Dir(path)
	if real, err := checkpoint.Path(path); err == nil {
		directory = filepath.Dir(real) // where the file is
	}
	if err := unix.Access(directory, unix.W_OK|unix.X_OK); err != nil {
		return failed(name, need, fmt.Errorf("%w: directory %s: %w; make it writable for the user that runs the relay", checkpoint.ErrUnwritable, directory, err))
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(directory, &disk); err != nil {
		return failed(name, need, fmt.Errorf("%w: directory %s: %w", checkpoint.ErrUnwritable, directory, err))
	}
	return roomRequirement(name, need, directory, disk.Bavail*uint64(disk.Bsize))
}

func roomRequirement(name, need, directory string, room uint64) binlog.Requirement {
	r := binlog.NewRequirement(checkpoint.ErrUnwritable, name, need, fmt.Sprintf("%s, %s free", directory, humanize.Bytes(room)),
		room >= ampleRoom, "df -h "+directory+", and make room")
	r.Advice = room >= leastRoom
	return r
}

func checkCheckpoint(ctx context.Context, cfg Config, server *binlog.Server, table *schema.Table) binlog.Requirement {
	const need = "a file that can be read and written, of this outbox, in the server's history"
	state, err := checkpoint.Read(cfg.Checkpoint)
	if errors.Is(err, fs.ErrNotExist) {
		return met("checkpoint", need, cfg.Checkpoint+": none yet; --start "+string(cfg.Start)+" makes the first")
	}
	if err == nil && table != nil {
		err = fits(ctx, cfg.Checkpoint, state, server, table)
	}
	if err == nil {
		_, err = mayWant(cfg.Checkpoint, state, cfg.Topics)
	}
	if err != nil {
		return failed("checkpoint", need, err)
	}
	return met("checkpoint", need, cfg.Checkpoint+" at "+state.GTIDSet)
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

func checkBroker(ctx context.Context, cfg Config) []binlog.Requirement {
	const name, need = "rabbitmq", "a broker that answers and lets the relay in"
	topology, err := exchange.Inspect(ctx, cfg.Broker)
	if err != nil {
		return []binlog.Requirement{failed(name, need, err)}
	}
	list := []binlog.Requirement{met(name, need, fmt.Sprintf("%s %s at %s, %s", topology.Product, topology.Version, exchange.Address(cfg.Broker.URL), topology.TLS))}
	list = append(list, topologyRequirements(cfg, topology)...)
	var survey exchange.Survey
	if topology.Found {
		survey, err = exchange.Ask(ctx, cfg.Broker)
	}
	_, running := checkpoint.Held(cfg.Checkpoint)
	return append(list, queueRequirements(cfg.Broker, topology, survey, err, running)...)
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
	return []binlog.Requirement{r}
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
		need := ""
		if r.Need != r.Found && (r.OK || r.Fix != "") { // an error that stands for it says all
			need = " (need " + r.Need + ")"
		}
		if _, err := fmt.Fprintf(out, "%s  %-26s %s%s\n", mark, r.Name, r.Found, need); err != nil {
			return err
		}
		if !r.OK && r.Fix != "" {
			fmt.Fprintf(out, "      type: %s\n", r.Fix)
		}
	}
	return nil
}
