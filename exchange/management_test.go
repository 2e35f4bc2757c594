package exchange_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/outboxrelay/relay/exchange"
	"github.com/outboxrelay/relay/relay/relaytest"
)

// TestAsk: what is declared at a broker is what its management API is taken to
// say, and a user whom it does not let in is told what to type. In a vhost whose
// name must be escaped.
func TestAsk(t *testing.T) {
	t.Parallel()
	b, api := relaytest.PrivateManagedRabbitMQ(t)
	const vhost, password = "shop/eu 1", "hunter2/?"
	b.Ctl(t, "add_vhost", vhost)
	b.Ctl(t, "add_user", "relay", password)
	b.Ctl(t, "set_permissions", "-p", vhost, "relay", ".*", ".*", ".*")
	b.Ctl(t, "set_policy", "-p", vhost, "short", `^out\.2$`, `{"message-ttl": 60000, "max-length": 50, "overflow": "reject-publish"}`, "--apply-to", "queues")
	cfg := exchange.Config{
		URL:           "amqp://relay:wrong@" + strings.TrimPrefix(b.URL, "amqp://guest:guest@") + "shop%2Feu%201",
		Exchange:      "out",
		Password:      password,
		Partitions:    2,
		ManagementURL: api + "/",
	}
	ask := func(cfg exchange.Config) (exchange.Survey, error) {
		got, err := exchange.Ask(t.Context(), cfg)
		if strings.Contains(fmt.Sprint(err), password) {
			t.Errorf("the password is in %v", err)
		}
		return got, err
	}
	if _, err := ask(cfg); !errors.Is(err, exchange.ErrAuth) || !strings.Contains(err.Error(), "rabbitmqctl set_user_tags relay management") {
		t.Errorf("without the tag: %v", err)
	}
	b.Ctl(t, "set_user_tags", "relay", "management")
	p, err := exchange.Dial(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	conn, err := amqp.Dial(strings.Replace(cfg.URL, "wrong", "hunter2%2F%3F", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ch.QueueDeclare("out.2", false, false, false, false, amqp.Table{"x-max-length": 100, "x-dead-letter-exchange": "dead"}); err != nil {
		t.Fatal(err)
	}
	for _, weight := range []string{"3", "4"} {
		if err := ch.QueueBind("out.2", weight, "out", false, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := ch.ExchangeDeclare("other", "fanout", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	if err := ch.ExchangeBind("other", "1", "out", false, nil); err != nil {
		t.Fatal(err)
	}
	var got exchange.Survey
	relaytest.Wait(t, 20*time.Second, "the policy holds for the queue", func() bool {
		if got, err = ask(cfg); err != nil {
			t.Fatal(err)
		}
		return len(got.Queues) == 3 && got.Queues[2].Policy != ""
	})
	want := exchange.Survey{
		Queues: []exchange.BoundQueue{
			{Name: "out.0", Weights: []string{"1"}, Type: "quorum", Durable: true, SingleActiveConsumer: true},
			{Name: "out.1", Weights: []string{"1"}, Type: "quorum", Durable: true, SingleActiveConsumer: true},
			{Name: "out.2", Weights: []string{"3", "4"}, Type: "classic", Policy: "short"},
		},
		Exchanges: []string{"other"},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreUnexported(exchange.BoundQueue{}), cmpopts.SortSlices(strings.Compare)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	limits := map[string]int64{"max-length": 50, "message-ttl": 60000} // of argument and policy the smaller
	for name, want := range limits {
		if n, ok := got.Queues[2].Limit(name); !ok || n != want {
			t.Errorf("%s is %d, %t; want %d", name, n, ok, want)
		}
	}
	if n, ok := got.Queues[0].Limit("max-length"); ok {
		t.Errorf("a queue without a limit has %d", n)
	}
	if dead, over := got.Queues[2].Setting("dead-letter-exchange"), got.Queues[2].Setting("overflow"); dead != "dead" || over != "reject-publish" {
		t.Errorf("dead letters go to %q, overflow is %q", dead, over)
	}
	cfg.Exchange = "nowhere"
	if got, err := ask(cfg); err != nil || len(got.Queues) > 0 {
		t.Errorf("an exchange that is not there: %+v, %v", got, err)
	}
}

// TestAskInVain: what is not RabbitMQ's management API gives an error that says
// where it was looked for, soon, and never sends a password elsewhere.
func TestAskInVain(t *testing.T) {
	t.Parallel()
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("asked for %s", r.URL) }))
	defer elsewhere.Close()
	serve := func(handler http.HandlerFunc) string {
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		return server.URL
	}
	for name, test := range map[string]struct{ url, want string }{
		"nothing":     {"http://127.0.0.1:1", "rabbitmq-plugins enable rabbitmq_management"},
		"default":     {"", "at http://127.0.0.2:15672"},
		"no URL":      {"127.0.0.1:15672", "--amqp-management-url"},
		"not JSON":    {serve(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") }), "not what RabbitMQ answers"},
		"broken":      {serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }), "500 Internal Server Error"},
		"redirection": {serve(func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, http.StatusFound) }), "302 Found"},
		"other user":  {strings.Replace(serve(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }), "//", "//ada:hunter2@", 1), "set_user_tags ada management"},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		_, err := exchange.Ask(ctx, exchange.Config{URL: "amqp://relay:hunter2@127.0.0.2:1/", Exchange: "outbox", ManagementURL: test.url})
		cancel()
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

// TestAskByTLS: the API is asked as the broker is, with the same authority; one
// that is not trusted is not told the password.
func TestAskByTLS(t *testing.T) {
	t.Parallel()
	asked := false
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked = true
		fmt.Fprint(w, "[]")
	}))
	defer server.Close()
	cfg := exchange.Config{URL: "amqps://relay:hunter2@broker.test/", Exchange: "outbox", ManagementURL: server.URL}
	if _, err := exchange.Ask(t.Context(), cfg); asked || err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("of an unknown authority: asked %t, %v", asked, err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	cfg.TLS = &tls.Config{RootCAs: pool}
	if _, err := exchange.Ask(t.Context(), cfg); !asked || err != nil {
		t.Errorf("of its authority: asked %t, %v", asked, err)
	}
}
