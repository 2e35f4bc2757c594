package cli

import (
	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/exchange"
)

// inboxFlags say where the consumers' inbox is.
func inboxFlags() []cli.Flag {
	return []cli.Flag{
		text("inbox-dsn", "", "server of the consumers' inbox (default: that of --mysql-dsn)"),
		text("inbox-password-file", "", "file with the password for --inbox-dsn; under systemd also the credential inbox-password"),
		text("inbox-table", "processed_messages", "inbox table: db.table, or table in the DSN's database"),
	}
}

// inbox reads them.
func inbox(c *cli.Context) (cfg exchange.InboxConfig, err error) {
	cfg = exchange.InboxConfig{DSN: c.String("inbox-dsn"), Table: c.String("inbox-table")}
	cfg.Password, err = secretFile(c, "inbox-password-file")
	return cfg, err
}
