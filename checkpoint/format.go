package checkpoint

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// The last two lines of every file, of every version.
const (
	sumBefore = `  "checksum": "`
	sumKind   = `sha256:`
	sumAfter  = "\"\n}\n"
	sumDigits = 2 * sha256.Size
)

// yearOne is how encoding/json and early relays say that committed_at is
// unknown, and unknown is how it is written. Both are read.
const (
	yearOne = `  "committed_at": "0001-01-01T00:00:00Z",` + "\n"
	unknown = `  "committed_at": null,` + "\n"
)

// maxSize bounds, in bytes, what is read or written. A GTID set of 100,000
// intervals takes about 2 MB.
const maxSize = 16 << 20

// encode gives the one form of s as a file.
func encode(s State) ([]byte, error) {
	head, err := fields(s)
	if err != nil {
		return nil, err
	}
	return seal(head)
}

// fields is encode's form of s, without the last two lines.
func fields(s State) ([]byte, error) {
	s = s.clone() // times in UTC
	if err := s.validate(); err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(struct {
		plain
		Checksum string `json:"checksum"`
	}{plain: plain(s)})
	if err != nil {
		return nil, err // a year beyond 9999
	}
	return written(bytes.TrimSuffix(buf.Bytes(), []byte(sumBefore+sumAfter))), nil
}

// written puts unknown for yearOne.
func written(head []byte) []byte {
	return bytes.Replace(head, []byte(yearOne), []byte(unknown), 1)
}

// seal puts the last two lines, with the checksum, after head.
func seal(head []byte) ([]byte, error) {
	if n := len(head) + len(sumBefore+sumKind+sumAfter) + sumDigits; n > maxSize {
		return nil, fmt.Errorf("takes %d bytes, at most %d are allowed", n, maxSize)
	}
	b := make([]byte, 0, len(head)+len(sumBefore+sumKind+sumAfter)+sumDigits)
	b = append(b, head...)
	b = append(b, sumBefore...)
	b = append(b, sum(head)...)
	return append(b, sumAfter...), nil
}

// sum is the checksum's value for a file whose part before the last two lines
// is head.
func sum(head []byte) string {
	h := sha256.New()
	h.Write(head)
	h.Write([]byte(sumBefore + sumAfter))
	return sumKind + hex.EncodeToString(h.Sum(nil))
}

// parse reads a file's bytes: what it accepts is exactly what encode gives,
// or gave with yearOne. Errors wrap ErrCorrupt or ErrVersion.
func parse(b []byte) (State, error) {
	head, found, err := open(b)
	if err != nil {
		return State{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if want := sum(head); found != want {
		return State{}, fmt.Errorf("%w: it was edited or damaged: its checksum is %.16s…, its content has %.16s…",
			ErrCorrupt, found, want) // not whole: nobody should paste it in
	}

	// From here on the file is what some relay, or a careful forger, wrote.
	var v struct {
		Version *int `json:"version"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		return State{}, fmt.Errorf("%w: not JSON: %w", ErrCorrupt, err)
	}
	if v.Version == nil {
		return State{}, fmt.Errorf("%w: it has no version", ErrCorrupt)
	}
	if *v.Version > Version {
		return State{}, fmt.Errorf("%w: its version is %d, this relay reads up to %d", ErrVersion, *v.Version, Version)
	}

	var file struct {
		State
		Checksum string `json:"checksum"`
	}
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return State{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	again, err := fields(file.State)
	if err != nil {
		return State{}, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if head = written(head); !bytes.Equal(head, again) {
		return State{}, fmt.Errorf("%w: the checksum is right but the fields are not those of version %d: byte %d differs",
			ErrCorrupt, Version, mismatch(head, again))
	}
	return file.State, nil
}

// open splits a file into the part before the last two lines and the
// checksum's value, and says what is wrong where there are no such lines.
func open(b []byte) (head []byte, found string, err error) {
	body, ok := bytes.CutSuffix(b, []byte(sumAfter))
	if at := len(body) - sumDigits - len(sumBefore+sumKind); ok && at >= 0 {
		line := string(body[at:])
		digits, ok := strings.CutPrefix(line, sumBefore+sumKind)
		if ok && strings.Trim(digits, "0123456789abcdef") == "" {
			return body[:at], sumKind + digits, nil
		}
	}
	switch {
	case len(b) == 0:
		return nil, "", errors.New("it is empty (0 bytes)")
	case len(bytes.Trim(b, "\x00")) == 0:
		return nil, "", fmt.Errorf("it is all zeros (%d bytes)", len(b))
	case b[0] != '{':
		return nil, "", fmt.Errorf("it is not a checkpoint: %d bytes that begin with %+q", len(b), b[:min(len(b), 16)])
	case !json.Valid(b):
		return nil, "", fmt.Errorf("it is cut short or damaged: %d bytes that end with %+q", len(b), b[max(0, len(b)-16):])
	}
	return nil, "", fmt.Errorf("its last two lines are not a checksum and a brace: %d bytes that end with %+q",
		len(b), b[max(0, len(b)-16):])
}

// mismatch is the offset of the first byte that differs.
func mismatch(a, b []byte) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}
