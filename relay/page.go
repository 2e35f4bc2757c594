package relay

import (
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"net/http"
	"strings"
)

// page is the status page. All that it needs is in it; it asks for /events and
// nothing else.
//
//go:embed assets/page.html
var page string

// pagePolicy lets a browser run and fetch that, and nothing else.
var pagePolicy = "default-src 'none'; connect-src 'self'; img-src data:" +
	"; script-src " + hashOf("script") + "; style-src " + hashOf("style") +
	"; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// hashOf is the policy's source for the page's only element of that name.
func hashOf(element string) string {
	_, rest, _ := strings.Cut(page, "<"+element+">")
	content, _, _ := strings.Cut(rest, "</"+element+">")
	sum := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}

func servePage(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", pagePolicy)
	h.Set("Referrer-Policy", "no-referrer")
	w.Write([]byte(page)) //nolint:errcheck // the reader has gone
}
