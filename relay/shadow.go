package relay

import (
	"path/filepath"
	"strings"
)

// shadowMark is in the names that a shadow takes.
const shadowMark = ".shadow"

// ShadowExchange is the exchange of a relay that runs beside the publisher of
// another one, to be compared with it.
func ShadowExchange(exchange string) string { return marked(exchange, "") }

// ShadowCheckpoint is its checkpoint file, which never is that of another
// relay: checkpoint.shadow.json beside checkpoint.json.
func ShadowCheckpoint(path string) string {
	extension := filepath.Ext(path)
	if extension == shadowMark {
		extension = ""
	}
	return marked(strings.TrimSuffix(path, extension), extension)
}

func marked(name, extension string) string {
	return strings.TrimSuffix(name, shadowMark) + shadowMark + extension
}
