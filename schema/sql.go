package schema

import _ "embed"

// SQL is the statement that creates the seed table of layout relay.
//
//go:embed outbox.sql
var SQL string
