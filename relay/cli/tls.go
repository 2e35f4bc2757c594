package cli

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/relay"
	"github.com/outboxrelay/relay/relay/certs"
)

// tlsFlags say whom to believe, and who the relay is.
func tlsFlags() []cli.Flag {
	var flags []cli.Flag
	for _, side := range []string{"mysql", "amqp"} {
		server := map[string]string{"mysql": "MySQL", "amqp": "RabbitMQ"}[side]
		flags = append(flags,
			text(side+"-tls-ca", "", "PEM file of the authorities that "+server+"'s certificate may be of (default: the system's)"),
			text(side+"-tls-cert", "", "PEM file of the relay's certificate for "+server),
			text(side+"-tls-key", "", "PEM file of that certificate's key"),
			text(side+"-tls-server-name", "", "name that "+server+"'s certificate must have (default: the host that is dialled)"),
		)
	}
	return flags
}

// tlsFiles are those that the flags of a side name.
func tlsFiles(c *cli.Context, side string) certs.Files {
	get := func(name string) string { return c.String(side + "-tls-" + name) }
	return certs.Files{CA: get("ca"), Cert: get("cert"), Key: get("key"), ServerName: get("server-name")}
}

// tlsOf reads the files of a side; nil: no flag asks for any.
func tlsOf(c *cli.Context, side string) (*tls.Config, error) {
	files := tlsFiles(c, side)
	if files == (certs.Files{}) {
		return nil, nil
	}
	if (files.Cert == "") != (files.Key == "") {
		return nil, usage("--%s-tls-cert and --%s-tls-key go together; type both, or none", side, side)
	}
	config, err := files.Config()
	if err != nil {
		return nil, fmt.Errorf("%w: --%s-tls-ca, -cert, -key: %w", relay.ErrUnfit, side, err)
	}
	return config, nil
}

// brokerTLS is tlsOf the broker, whose URL must ask for TLS too, and must not
// say what the flags say.
func brokerTLS(c *cli.Context, address string) (*tls.Config, error) {
	config, err := tlsOf(c, "amqp")
	u, parseErr := url.Parse(address)
	if config == nil || parseErr != nil { // what is wrong with the URL is told by who dials
		return config, err
	}
	if strings.EqualFold(u.Scheme, "amqp") {
		return nil, usage("--amqp-tls-ca, -cert, -key or -server-name ask for TLS, and --amqp-url begins with amqp://; type: --amqp-url amqps://…, with the port of the broker's TLS listener (5671)")
	}
	for _, name := range []string{"cacertfile", "certfile", "keyfile", "server_name_indication"} {
		if u.Query().Has(name) {
			return nil, usage("--amqp-url has %s, and --amqp-tls-ca, -cert, -key or -server-name say it too; take it out of the URL", name)
		}
	}
	return config, nil
}
