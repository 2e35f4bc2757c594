package binlog

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/google/uuid"

	"github.com/outboxrelay/relay/schema"
)

// appendUUID appends the text of a UUID column, as SELECT prints it. Versions 1
// to 5 are stored with their five groups in reverse, so that they are ordered
// by time; then the variant, whose highest bit is set, stands where the version
// stands in the others, and the version, below 8, where their variant is
// (MariaDB's plugin/type_uuid/sql_type_uuid.h).
func appendUUID(dst, stored []byte) ([]byte, error) {
	if len(stored) > 16 {
		return dst, fmt.Errorf("%w: UUID of %d bytes", errValue, len(stored))
	}
	u := uuid.UUID(padBinary(stored, 16))
	if reversed(u) {
		u = uuid.UUID(slices.Concat(u[12:], u[10:12], u[8:10], u[6:8], u[:6]))
	}
	return append(dst, u.String()...), nil
}

func reversed(stored uuid.UUID) bool { return stored[6]&0x80 != 0 && stored[8]&0x80 == 0 }

// What MariaDB stores as JSON is LONGTEXT COLLATE utf8mb4_bin: a blob with four
// bytes of length, and that collation's number.
const (
	longBlob   = 4
	binaryUTF8 = 46
)

// supposeJSON takes columns that are stored as JSON is for JSON; certain refuses
// a value that is none.
func (tm *tableMap) supposeJSON(table *schema.Table) {
	for i, c := range tm.columns {
		table.Columns[i].Checked = c == column{typeBlob, longBlob} && tm.metadata[i].collation == binaryUTF8
	}
}

// certain refuses a row of which no event can be made without a server: MariaDB
// writes a UUID as it writes a BINARY(16), and JSON as another LONGTEXT. Of
// most values it makes no difference.
func (d *decoder) certain(img *image, from schema.Origin) error {
	for r, at := range img.roles {
		if at < 0 || !d.cells[at].present || d.cells[at].null {
			continue
		}
		defined, data := img.logged[r], d.cells[at].data
		var doubt string
		switch {
		case defined.Kind == schema.Binary && defined.Length == 16 && reversed(uuid.UUID(padBinary(data, 16))):
			doubt = "is a UUID or a BINARY(16)"
		case defined.Checked && !json.Valid(data):
			doubt = "is JSON or text"
		default:
			continue
		}
		return fmt.Errorf("%w: they do not tell whether the column %s of %s %s, which makes a difference in transaction %s; give the server that has the table: --mysql-dsn", ErrFiles, defined.Name, d.table, doubt, from.GTID)
	}
	return nil
}
