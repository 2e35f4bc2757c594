package schema

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNewColumn(t *testing.T) {
	tests := []struct {
		dataType, columnType string
		octets               int
		charset              string
		want                 Column // without its name and type
	}{
		{"bigint", "bigint", 0, "", Column{Kind: Integer}},
		{"bigint", "bigint unsigned", 0, "", Column{Kind: Integer, Unsigned: true}},
		{"INT", "INT(10) UNSIGNED ZEROFILL", 0, "", Column{Kind: Integer, Unsigned: true}},
		{"tinyint", "tinyint(1)", 0, "", Column{Kind: Integer}},
		{"smallint", "smallint", 0, "", Column{Kind: Integer}},
		{"mediumint", "mediumint", 0, "", Column{Kind: Integer}},
		{"char", "char(36)", 144, "utf8mb4", Column{Kind: Text, Length: 144, Charset: "utf8mb4"}},
		{"varchar", "varchar(120)", 480, "utf8mb4", Column{Kind: Text, Charset: "utf8mb4"}},
		{"text", "text", 65535, "latin1", Column{Kind: Text, Charset: "latin1"}},
		{"tinytext", "tinytext", 255, "ascii", Column{Kind: Text, Charset: "ascii"}},
		{"mediumtext", "mediumtext", 1<<24 - 1, "utf8mb3", Column{Kind: Text, Charset: "utf8mb3"}},
		{"longtext", "longtext", 1<<32 - 1, "utf8mb4", Column{Kind: Text, Charset: "utf8mb4"}},
		{"binary", "binary(16)", 16, "", Column{Kind: Binary, Length: 16}},
		{"varbinary", "varbinary(16)", 16, "", Column{Kind: Binary}},
		{"blob", "blob", 65535, "", Column{Kind: Binary}},
		{"tinyblob", "tinyblob", 255, "", Column{Kind: Binary}},
		{"mediumblob", "mediumblob", 1<<24 - 1, "", Column{Kind: Binary}},
		{"longblob", "longblob", 1<<32 - 1, "", Column{Kind: Binary}},
		{"json", "json", 0, "", Column{Kind: JSON}},
		{"datetime", "datetime(6)", 0, "", Column{Kind: Time}},
		{"timestamp", "timestamp", 0, "", Column{Kind: Time, Zoned: true}},
		{"enum", "enum('a','b')", 4, "utf8mb4", Column{Kind: Enum, Charset: "utf8mb4", Values: []string{"a", "b"}}},
		{"decimal", "decimal(10,2)", 0, "", Column{}},
		{"date", "date", 0, "", Column{}},
		{"set", "set('a')", 4, "utf8mb4", Column{Charset: "utf8mb4"}},
		{"double", "double", 0, "", Column{}},
		{"bit", "bit(1)", 0, "", Column{}},
	}
	for _, tt := range tests {
		tt.want.Name, tt.want.Type = "c", tt.columnType
		if diff := cmp.Diff(tt.want, NewColumn("c", tt.dataType, tt.columnType, tt.octets, tt.charset)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.columnType, diff)
		}
	}
}

func TestEnumValues(t *testing.T) {
	tests := []struct {
		columnType string
		want       []string
	}{
		{"enum('pending','published')", []string{"pending", "published"}},
		{"enum('it''s','''','a,b','')", []string{"it's", "'", "a,b", ""}},
		{"enum('('')')", []string{"(')"}},
		{"enum('ä 雪')", []string{"ä 雪"}},
		{`enum('a\\b','\n\r\0','\\''','\\n')`, []string{`a\b`, "\n\r\x00", `\'`, `\n`}},
		{"enum('never closed", nil},
		{"enum()", nil},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, enumValues(tt.columnType)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.columnType, diff)
		}
	}
}
