package cli

import (
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/outboxrelay/relay/schema"
)

// topicsFlags say which events to carry.
func topicsFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "only-topics", Usage: "carry only events whose type, in most tables the topic, is one of these `GLOBS`: * stands for any characters, ? for one; more with commas between them, or the flag again", EnvVars: env("only-topics")},
		&cli.StringSliceFlag{Name: "except-topics", Usage: "carry no events whose type is one of these `GLOBS`", EnvVars: env("except-topics")},
	}
}

// topics reads them.
func topics(c *cli.Context) (schema.Topics, error) {
	t, err := schema.NewTopics(globs(c, "only-topics"), globs(c, "except-topics"))
	if err != nil {
		return t, usage("--only-topics, --except-topics: %v", err)
	}
	return t, nil
}

// globs are those of a flag. For a comma in a topic stands ?.
func globs(c *cli.Context, flag string) (list []string) {
	for _, value := range c.StringSlice(flag) {
		for glob := range strings.SplitSeq(value, ",") {
			list = append(list, strings.TrimSpace(glob))
		}
	}
	return list
}
