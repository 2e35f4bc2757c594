package schema

import (
	"fmt"
	"strings"
)

// Kind is the way in which a column's values become text.
type Kind int

// The kinds of columns. Other stands for every type that no part of an event
// can be read from.
const (
	Other Kind = iota
	Integer
	Text
	Binary
	JSON
	Time
	Enum
	UUID // of MariaDB: 16 bytes, read as lower-case text
)

// Column is one column of the outbox table, as information_schema.columns
// describes it.
type Column struct {
	Name     string
	Type     string // COLUMN_TYPE, as SHOW CREATE TABLE prints it: "bigint unsigned"
	Kind     Kind
	Length   int      // of a fixed-length BINARY(n) or CHAR(n), in bytes; else 0
	Unsigned bool     // of an Integer
	Charset  string   // of Text and Enum: the MySQL name, "utf8mb4"
	Values   []string // of an Enum, in the order of their index, which counts from 1
	Zoned    bool     // of a Time: TIMESTAMP, stored in UTC; else DATETIME, in the writer's zone
	Checked  bool     // of Text: the server keeps it valid JSON, which is what MariaDB calls JSON
}

// NewColumn describes a column from the fields of information_schema.columns:
// COLUMN_NAME, DATA_TYPE, COLUMN_TYPE, CHARACTER_OCTET_LENGTH (0 when NULL) and
// CHARACTER_SET_NAME ("" when NULL).
func NewColumn(name, dataType, columnType string, octets int, charset string) Column {
	c := Column{Name: name, Type: columnType, Charset: charset}
	switch strings.ToLower(dataType) {
	case "tinyint", "smallint", "mediumint", "int", "bigint":
		c.Kind = Integer
		c.Unsigned = strings.Contains(strings.ToLower(columnType), "unsigned")
	case "char":
		c.Kind, c.Length = Text, octets
	case "varchar", "tinytext", "text", "mediumtext", "longtext":
		c.Kind = Text
	case "binary":
		c.Kind, c.Length = Binary, octets
	case "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		c.Kind = Binary
	case "json":
		c.Kind = JSON
	case "datetime":
		c.Kind = Time
	case "timestamp":
		c.Kind, c.Zoned = Time, true
	case "enum":
		c.Kind, c.Values = Enum, enumValues(columnType)
	case "uuid":
		c.Kind = UUID
	}
	return c
}

// unreadable tells of a type of MariaDB's whose size in the log cannot be told
// from the log: times with a fraction in the form of MariaDB 5.3.
func (c Column) unreadable() bool {
	return strings.HasSuffix(c.Type, "/* mariadb-5.3 */") && strings.Contains(c.Type, "(")
}

// enumValues takes apart enum('a','it”s'), in which a quote is doubled.
func enumValues(columnType string) []string {
	var values []string
	rest := columnType
	for {
		_, after, found := strings.Cut(rest, "'")
		if !found {
			return values
		}
		var value strings.Builder
		for {
			text, tail, closed := strings.Cut(after, "'")
			value.WriteString(text)
			if !closed || !strings.HasPrefix(tail, "'") {
				rest = tail
				break
			}
			value.WriteByte('\'')
			after = tail[1:]
		}
		values = append(values, value.String())
	}
}

// charsets are the character sets whose bytes are UTF-8 as they stand.
var charsets = map[string]bool{"utf8mb4": true, "utf8mb3": true, "utf8": true, "ascii": true}

// can reports why the column cannot serve the role; nil when it can.
func (c Column) can(r Role, table string) error {
	for _, kind := range roleKinds[r] {
		if c.Kind != kind {
			continue
		}
		if (kind == Text || kind == Enum) && !charsets[c.Charset] {
			return fmt.Errorf("column %s has character set %s, and the relay reads utf8mb4, utf8mb3 and ascii; type: ALTER TABLE %s CONVERT TO CHARACTER SET utf8mb4",
				c.Name, c.Charset, table)
		}
		return nil
	}
	return fmt.Errorf("column %s is %s, which cannot hold the %s", c.Name, c.Type, r)
}
