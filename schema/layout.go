package schema

import (
	"fmt"
	"slices"
	"strings"
)

// Role is a part of an event that a column holds.
type Role int

// The roles of columns. Their names are those that --columns takes.
const (
	RoleID Role = iota
	RoleAggregateID
	RoleAggregateType
	RoleEventType
	RoleTopic
	RolePayload
	RoleHeaders
	RoleVersion
	RoleCreatedAt
	RoleStatus
	RoleTrace

	Roles = int(RoleTrace) + 1 // how many there are
)

var roleNames = [Roles]string{
	"id", "aggregate_id", "aggregate_type", "event_type", "topic",
	"payload", "headers", "version", "created_at", "status", "trace",
}

func (r Role) String() string { return roleNames[r] }

// roleKinds says which kinds of columns can serve a role.
var roleKinds = [Roles][]Kind{
	RoleID:            {Integer, Text, Binary, UUID},
	RoleAggregateID:   {Integer, Text, Binary, UUID},
	RoleAggregateType: {Text, Enum},
	RoleEventType:     {Text, Enum},
	RoleTopic:         {Text, Enum},
	RolePayload:       {JSON, Text, Binary},
	RoleHeaders:       {JSON, Text},
	RoleVersion:       {Integer, Text},
	RoleCreatedAt:     {Time, Integer},
	RoleStatus:        {Enum, Text, Integer},
	RoleTrace:         {Text},
}

// roleTypes are types that can serve a role, for whoever has to change one.
var roleTypes = [Roles]string{
	RoleID:            "VARCHAR(255) NOT NULL",
	RoleAggregateID:   "VARCHAR(255) NOT NULL",
	RoleAggregateType: "VARCHAR(255)",
	RoleEventType:     "VARCHAR(255)",
	RoleTopic:         "VARCHAR(255) NOT NULL",
	RolePayload:       "LONGTEXT",
	RoleHeaders:       "LONGTEXT",
	RoleVersion:       "BIGINT",
	RoleCreatedAt:     "DATETIME(6)",
	RoleStatus:        "VARCHAR(20)",
	RoleTrace:         "TEXT",
}

// Layout is a convention of column names.
type Layout string

// The layouts. Auto takes the first of the others whose needed columns the
// table has.
const (
	Auto      Layout = "auto"
	Relay     Layout = "relay"
	Debezium  Layout = "debezium"  // Debezium's outbox event router; a NULL payload is a tombstone, sent without a body
	Eventuate Layout = "eventuate" // Eventuate Tram's message table; the aggregate is in its headers
)

// convention lists the column names that may serve each role, the preferred
// one first, and the roles that must be filled.
type convention struct {
	layout Layout
	names  map[Role][]string
	needed []Role
}

var conventions = []convention{
	{
		layout: Relay,
		names: map[Role][]string{
			RoleID: {"id"}, RoleAggregateID: {"aggregate_id"}, RoleTopic: {"topic"}, RolePayload: {"payload"},
			RoleCreatedAt: {"created_at"}, RoleStatus: {"status"}, RoleAggregateType: {"aggregate_type"},
			RoleEventType: {"event_type"}, RoleHeaders: {"headers"}, RoleVersion: {"version", "sequence"},
		},
		needed: []Role{RoleID, RoleAggregateID, RoleTopic, RolePayload, RoleCreatedAt},
	},
	{
		layout: Debezium,
		names: map[Role][]string{
			RoleID: {"id"}, RoleAggregateID: {"aggregateid"}, RoleAggregateType: {"aggregatetype"},
			RoleEventType: {"type"}, RolePayload: {"payload"}, RoleCreatedAt: {"timestamp"}, RoleStatus: {"status"}, RoleTrace: {"tracingspancontext"},
		},
		needed: []Role{RoleID, RoleAggregateID, RoleAggregateType, RoleEventType, RolePayload},
	},
	{
		layout: Eventuate,
		names: map[Role][]string{
			RoleID:    {"dbid", "id"}, // where there is a dbid, the id is empty
			RoleTopic: {"destination"}, RoleHeaders: {"headers"}, RolePayload: {"payload"},
			RoleStatus: {"published"}, RoleCreatedAt: {"creation_time"},
		},
		needed: []Role{RoleID, RoleTopic, RoleHeaders, RolePayload},
	},
}

// ParseLayout reads a layout's name.
func ParseLayout(name string) (Layout, error) {
	switch l := Layout(name); l {
	case Auto, Relay, Debezium, Eventuate:
		return l, nil
	}
	return "", fmt.Errorf("schema: layout %q is none of auto, relay, debezium, eventuate", name)
}

// ParseColumns reads what --columns takes: role=column pairs with commas
// between them, "id=event_id,payload=body". A column that was renamed has both
// names, "payload=body|payload": the first of them that the table has is taken.
func ParseColumns(text string) (map[Role]string, error) {
	columns := map[Role]string{}
	if text == "" {
		return columns, nil
	}
	for pair := range strings.SplitSeq(text, ",") {
		name, column, ok := strings.Cut(strings.TrimSpace(pair), "=")
		role := slices.Index(roleNames[:], name)
		if !ok || role < 0 || column == "" {
			return nil, fmt.Errorf("schema: columns %q: want role=column pairs such as id=event_id,payload=body, with the roles %s",
				pair, strings.Join(roleNames[:], ", "))
		}
		if before, twice := columns[Role(role)]; twice {
			return nil, fmt.Errorf("schema: columns: %s is given twice, as %s and as %s", Role(role), before, column)
		}
		columns[Role(role)] = column
	}
	return columns, nil
}

// assign finds a column for every role. missing names the needed roles for
// which there is none.
func (c convention) assign(columns []Column, chosen map[Role]string) (roles [Roles]int, missing []string) {
	index := func(name string) int {
		return slices.IndexFunc(columns, func(c Column) bool { return strings.EqualFold(c.Name, name) })
	}
	for r := range Role(Roles) {
		roles[r] = -1
		names := c.names[r]
		if name, ok := chosen[r]; ok {
			names = strings.Split(name, "|")
		}
		for _, name := range names {
			if roles[r] = index(name); roles[r] >= 0 {
				break
			}
		}
		_, asked := chosen[r]
		if roles[r] < 0 && (asked || slices.Contains(c.needed, r)) {
			missing = append(missing, names[len(names)-1])
		}
	}
	return roles, missing
}
