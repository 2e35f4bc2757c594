package cli_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// browser is a headless Chromium with one page open.
type browser struct {
	t   testing.TB
	ctx context.Context

	mu       sync.Mutex
	asked    []string // the addresses of all requests
	problems []string // what its console was told, and exceptions
}

// newBrowser starts one, as testdata/servers.sh has it, and ends it with the
// test.
func newBrowser(t testing.TB) *browser {
	t.Helper()
	script, err := filepath.Abs("../../testdata/servers.sh")
	if err != nil {
		t.Fatal(err)
	}
	wrapper := filepath.Join(t.TempDir(), "chromium")
	if err := os.WriteFile(wrapper, []byte("#!/bin/sh\nexec '"+script+"' tool chromium-headless-shell \"$@\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(wrapper), chromedp.NoSandbox)
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	t.Cleanup(end)
	b := &browser{t: t}
	var leave context.CancelFunc
	b.ctx, leave = chromedp.NewContext(allocator)
	t.Cleanup(leave)
	_, networkErr := chromedp.Call(b.ctx, network.Enable, network.EnableParams{}) // the first call starts it
	_, logErr := chromedp.Call(b.ctx, log.Enable, cdp.Empty{})
	if err := errors.Join(networkErr, logErr, chromedp.Listen(b.ctx, b.hear)); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, e.Request.URL)
	case *log.EventEntryAdded:
		b.problems = append(b.problems, e.Entry.Text+" "+e.Entry.URL)
	case *runtime.EventConsoleAPICalled:
		b.problems = append(b.problems, fmt.Sprint("console: ", e.Type))
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, e.ExceptionDetails.Text)
	}
}

// clean wants the console to be empty, and nothing asked for beside prefix.
func (b *browser) clean(prefix string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.problems) > 0 {
		b.t.Errorf("the console has %q", b.problems)
	}
	if len(b.asked) < 2 {
		b.t.Errorf("the page asked for %q only", b.asked)
	}
	for _, address := range b.asked {
		if !strings.HasPrefix(address, prefix) && !strings.HasPrefix(address, "data:") {
			b.t.Errorf("the page asked for %s", address)
		}
	}
}

// do acts on the page, in the time that every wait has.
func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// evaluate runs JavaScript in the page.
func evaluate[T any](b *browser, script string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, patience)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](script))
	if err != nil {
		b.t.Fatalf("%s: %v", script, err)
	}
	return value
}

// text is what an element shows; empty where it is hidden.
func (b *browser) text(id string) string {
	b.t.Helper()
	return evaluate[string](b, fmt.Sprintf("document.getElementById(%q).innerText", id))
}

// until waits until an element shows a text.
func (b *browser) until(id, text string) {
	b.t.Helper()
	var got string
	defer func() {
		if b.t.Failed() {
			b.t.Logf("#%s is %q", id, got)
		}
	}()
	relaytest.Wait(b.t, patience, fmt.Sprintf("#%s shows %q", id, text), func() bool {
		got = b.text(id)
		return strings.Contains(got, text)
	})
}
