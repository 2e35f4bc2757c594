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
	Exact    bool     // the Values are the log's: information_schema has ? for characters beyond U+FFFF
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

// Same tells whether information_schema describes both in the same words.
func (c Column) Same(other Column) bool {
	return c.Name == other.Name && c.Type == other.Type && c.Length == other.Length && c.Charset == other.Charset
}

// DataType is what information_schema has as DATA_TYPE: the first word of the
// Type.
func (c Column) DataType() string {
	end := strings.IndexAny(c.Type+" ", " (")
	return c.Type[:end]
}

// unreadable tells of a type of MariaDB's whose size in the log cannot be told
// from the log: times with a fraction in the form of MariaDB 5.3.
func (c Column) unreadable() bool {
	return strings.HasSuffix(c.Type, "/* mariadb-5.3 */") && strings.Contains(c.Type, "(")
}

// enumValues takes apart enum('a','it”s'), in which a quote is doubled and a
// backslash stands before another one and before n, r and 0.
func enumValues(columnType string) []string {
	var values []string
	var value strings.Builder
	inside := false
	for i := 0; i < len(columnType); i++ {
		c, next := columnType[i], byte(0)
		if i+1 < len(columnType) {
			next = columnType[i+1]
		}
		switch {
		case !inside:
			inside = c == '\''
		case c == '\'' && next != '\'':
			values = append(values, value.String())
			value.Reset()
			inside = false
		case (c == '\'' || c == '\\') && next != 0:
			if at := strings.IndexByte("nr0", next); c == '\\' && at >= 0 {
				next = "\n\r\x00"[at]
			}
			value.WriteByte(next)
			i++
		default:
			value.WriteByte(c)
		}
	}
	return values
}

// Label is the text of an Enum's index.
func (c Column) Label(index int) (string, error) {
	switch {
	case index == 0: // the empty text that stands for an invalid value
		return "", nil
	case index < 0 || index > len(c.Values):
		return "", fmt.Errorf("enum index %d of %d", index, len(c.Values))
	}
	label := c.Values[index-1]
	if !c.Exact && strings.Contains(label, "?") {
		switch c.Charset {
		case "utf8mb4", "utf16", "utf16le", "utf32", "gb18030":
			return "", fmt.Errorf("the label %q may have another character in place of each question mark, which only the log tells: SET PERSIST binlog_row_metadata = FULL", label)
		}
	}
	return label, nil
}

// Converted tells whether the column's bytes as they are stored go through
// UTF8 to become what SELECT prints.
func (c Column) Converted() bool {
	return (c.Kind == Text || c.Kind == Enum) && !isUTF8(c.Charset)
}

// can reports why the column cannot serve the role; nil when it can.
func (c Column) can(r Role, table string) error {
	for _, kind := range roleKinds[r] {
		if c.Kind != kind {
			continue
		}
		if (kind == Text || kind == Enum) && !convertible(c.Charset) {
			return fmt.Errorf("column %s has the character set %s, which is none of text that the relay knows; type: ALTER TABLE %s CONVERT TO CHARACTER SET utf8mb4",
				c.Name, c.Charset, table)
		}
		return nil
	}
	return fmt.Errorf("column %s is %s, which cannot hold the %s; type: ALTER TABLE %s MODIFY %s %s; or name another column: --columns %s=NAME",
		c.Name, c.Type, r, table, c.Name, roleTypes[r], r)
}
