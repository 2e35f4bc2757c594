package binlog

import (
	"fmt"
	"slices"

	"github.com/google/uuid"
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
	if u[6]&0x80 != 0 && u[8]&0x80 == 0 {
		u = uuid.UUID(slices.Concat(u[12:], u[10:12], u[8:10], u[6:8], u[:6]))
	}
	return append(dst, u.String()...), nil
}
