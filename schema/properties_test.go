package schema

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseProperties(t *testing.T) {
	tests := []struct {
		text string
		want map[string]string
		err  string
	}{
		{"", map[string]string{}, ""},
		{"#Mon Nov 30 17:23:04 UTC 2026\n", map[string]string{}, ""},
		{"#Mon Nov 30 17:23:04 UTC 2026\ntraceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01\ntracestate=a\\=1\n",
			map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "tracestate": "a=1"}, ""},
		{"uber-trace-id=3f1\\:2a\\:0\\:1\r\n", map[string]string{"uber-trace-id": "3f1:2a:0:1"}, ""},
		{"  a b\n! no\nc : d \n\n\te\\ f\\=g=\\ h\\u00e9\\t\\n\\r\\f\\\\\\q\nk", map[string]string{"a": "b", "c": "d ", "e f=g": " hé\t\n\r\f\\q", "k": ""}, ""},
		{"a=b\\\n   c\\\\\nd=e\\", map[string]string{"a": `bc\`, "d": "e"}, ""},
		{"a=1\na=2", map[string]string{"a": "2"}, ""},
		{"a=\\u12", nil, `\u12 is no escape`},
		{"\\u12x4=1", nil, `\u12x4 is no escape`},
	}
	for _, tt := range tests {
		got, err := parseProperties(tt.text)
		if diff := cmp.Diff(tt.want, got); diff != "" || (err != nil) != (tt.err != "") || (err != nil && !strings.Contains(err.Error(), tt.err)) {
			t.Errorf("%q: error %v, want %q (-want +got):\n%s", tt.text, err, tt.err, diff)
		}
	}
}
