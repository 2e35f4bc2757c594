package relay

import (
	"cmp"
	"embed"
	"fmt"
	"io"
	"net/url"
	"regexp"
	"strings"
	"text/template"
)

//go:embed assets/relay.service assets/relay@.service assets/relay.env assets/relayctl assets/grants.sql
//go:embed assets/relay-audit.service assets/relay-audit.timer
//go:embed assets/alerts.yaml assets/dashboard.json
//go:embed assets/relay.1 assets/completion.bash assets/completion.zsh assets/completion.fish
var printed embed.FS

// Printable is a file in the binary that relay print writes as it is.
type Printable struct {
	Name  string // as it is typed
	Usage string
	Place string // where it belongs
	File  string // as Asset takes it
}

// Printables are all of them. A further one is a file in assets, its name in
// a directive above, and a line here.
var Printables = []Printable{
	{"unit", "the systemd unit of a host's only relay", "/etc/systemd/system/relay.service", "relay.service"},
	{"unit@", "the systemd unit of several, one for each outbox", "/etc/systemd/system/relay@.service", "relay@.service"},
	{"env", "the settings that the units read", "/etc/relay/relay.env", "relay.env"},
	{"audit.service", "the systemd unit of an audit", "/etc/systemd/system/relay-audit.service", "relay-audit.service"},
	{"audit.timer", "the timer that starts it every hour", "/etc/systemd/system/relay-audit.timer", "relay-audit.timer"},
	{"ctl", "the script that runs a command with a unit's settings", "/usr/sbin/relayctl", "relayctl"},
	{"alerts", "the Prometheus alert rules", "/etc/prometheus/relay.yaml", "alerts.yaml"},
	{"dashboard", "the Grafana dashboard", "dashboard.json", "dashboard.json"},
}

// Asset is the content of a file in the binary.
func Asset(file string) ([]byte, error) { return printed.ReadFile("assets/" + file) }

var grants = template.Must(template.ParseFS(printed, "assets/grants.sql"))

// PrintGrants writes the statements that make the relay's users, with the
// rights that Run needs and no others. Of cfg it takes the addresses, which
// may be empty, the table, the exchange and the partitions.
func PrintGrants(cfg Config, out io.Writer) error {
	source := cfg.Source
	source.DSN = cmp.Or(source.DSN, "relay@/")
	dsn, database, table, err := source.Parse()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUsage, err)
	}
	broker, err := url.Parse(cfg.Broker.URL)
	if err != nil { // its text would repeat the URL, and so the password
		return fmt.Errorf("%w: the AMQP URL cannot be read; type: --amqp-url amqp://relay:PASSWORD@127.0.0.1:5672/vhost", ErrUsage)
	}
	exchange := regexp.QuoteMeta(cfg.Broker.Exchange)
	return grants.Execute(out, map[string]any{
		"User":       sqlText(cmp.Or(dsn.User, "relay")),
		"Table":      sqlName(database) + "." + sqlName(table),
		"BrokerUser": shellWord(cmp.Or(broker.User.Username(), "relay")),
		"Vhost":      shellWord(cmp.Or(strings.TrimPrefix(broker.Path, "/"), "/")),
		"Partitions": cfg.Broker.Partitions,
		"Exchange":   shellWord("^" + exchange + "$"),
		"Topology":   shellWord("^" + exchange + `(\.[0-9]+)?$`),
	})
}

func sqlText(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, "'", "''").Replace(s) + "'"
}

func sqlName(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }

func shellWord(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
