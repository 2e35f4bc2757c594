package relay

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/outboxrelay/relay/checkpoint"
)

const (
	sayLimit = 2 * time.Second // for the running relay to say what it does
	sayBytes = 1 << 20         // of one view
)

// RelayReport is what the relay that runs on the checkpoint says of itself.
type RelayReport struct {
	Address string `json:"address"`         // where it was asked
	Error   string `json:"error,omitempty"` // why it is not known what it does; then the rest is empty
	State   string `json:"state,omitempty"` // following, catching up, backfilling, starting, blocked, …
	Tone    string `json:"tone,omitempty"`  // good, busy, bad
	Reason  string `json:"reason,omitempty"`
	Next    string `json:"next,omitempty"` // to be typed

	Partitions int `json:"partitions,omitempty"` // whose queues it has declared
}

// askRelay asks the relay that holds the checkpoint's lock, with that process,
// at its --listen address.
func askRelay(ctx context.Context, address, path string, process int) *RelayReport {
	r := &RelayReport{Address: address}
	v, err := firstView(ctx, address)
	if err == nil {
		err = sameCheckpoint(v.Checkpoint, path, process)
	}
	if err != nil {
		r.Error = err.Error()
		return r
	}
	r.State, r.Tone, r.Reason, r.Next, r.Partitions = string(v.State), v.Tone, v.Reason, v.Next, v.Partitions
	return r
}

// firstView reads the first message of /events.
func firstView(ctx context.Context, address string) (v view, err error) {
	ctx, cancel := context.WithTimeout(ctx, sayLimit)
	defer cancel()
	if host, port, err := net.SplitHostPort(address); err == nil && host == "" {
		address = net.JoinHostPort("localhost", port)
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/events", nil)
	if err != nil {
		return v, err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}} // and no proxy
	response, err := client.Do(request)
	if err != nil {
		return v, errors.Unwrap(err) // without the address, which is told beside it
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return v, fmt.Errorf("it answers %s", response.Status)
	}
	line, err := bufio.NewReader(io.LimitReader(response.Body, sayBytes)).ReadString('\n')
	if err != nil {
		return v, err
	}
	text, found := strings.CutPrefix(line, "data: ")
	if !found || json.Unmarshal([]byte(text), &v) != nil {
		return v, errors.New("it answers as no relay does")
	}
	return v, nil
}

// sameCheckpoint refuses what another relay says. A relative path is the
// process's.
func sameCheckpoint(its, ours string, process int) error {
	where := its
	if !filepath.IsAbs(its) && process > 0 {
		if directory, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", process)); err == nil {
			where = filepath.Join(directory, its)
		}
	}
	a, errA := checkpoint.Path(where)
	b, errB := checkpoint.Path(ours)
	if errA != nil || errB != nil || a != b {
		return fmt.Errorf("a relay on another checkpoint answers, %q; give the --listen of this one", its)
	}
	return nil
}

// bad is what the relay cannot go on for, and what to type; empty: nothing.
func (r *RelayReport) bad() string {
	if r == nil || r.Tone != "bad" {
		return ""
	}
	return "the relay is " + r.says()
}

// says is the state, with its reason and what to type, in one line.
func (r *RelayReport) says() string {
	text := r.State + ": " + oneLine(r.Reason)
	if r.Next != "" {
		text += " Type: " + r.Next
	}
	return text
}
