package exchange

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// managementTimeout is for all that is asked of the management API.
const managementTimeout = 4 * time.Second

// errNoObject: the management API knows no such object.
var errNoObject = errors.New("there is no such object")

// Survey is what RabbitMQ's management API tells of an exchange, which AMQP does
// not: what is bound to it.
type Survey struct {
	Queues    []BoundQueue // by name
	Exchanges []string     // bound to it as queues are
}

// BoundQueue is a queue that is bound to the exchange.
type BoundQueue struct {
	Name    string
	Weights []string // routing keys of its bindings; the plugin reads one as the queue's weight

	Type                  string // quorum, classic, stream
	Durable               bool
	SingleActiveConsumer  bool
	Ready, Unacknowledged int // messages
	Consumers             int

	Policy string // that holds for it; empty: none

	arguments, policy map[string]any // "x-max-length" of the queue, "max-length" of the policies
}

// Limit is the number that an argument of the queue or a policy sets, "max-length"
// for one: the smaller where both do.
func (q BoundQueue) Limit(name string) (int64, bool) {
	own, ok := q.arguments["x-"+name].(float64)
	policy, other := q.policy[name].(float64)
	switch {
	case ok && other:
		return int64(min(own, policy)), true
	case ok:
		return int64(own), true
	}
	return int64(policy), other
}

// Setting is the text that an argument of the queue, or else a policy, sets.
func (q BoundQueue) Setting(name string) string {
	own, _ := q.arguments["x-"+name].(string)
	policy, _ := q.policy[name].(string)
	return cmp.Or(own, policy)
}

// Ask asks RabbitMQ's management API for what is bound to the exchange, which is
// nothing where there is no such exchange. Its counts of messages can be five
// seconds old. Errors say what to type where it does not answer, or does not let the user in.
func Ask(ctx context.Context, cfg Config) (Survey, error) {
	m, err := newManagement(cfg)
	if err != nil {
		return Survey{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, managementTimeout)
	defer cancel()
	defer m.client.CloseIdleConnections()
	return m.survey(ctx, cfg.Exchange)
}

// management is RabbitMQ's HTTP API (https://www.rabbitmq.com/docs/http-api-reference).
type management struct {
	base           *url.URL // without user and password
	user, password string
	vhost          string
	client         http.Client
}

func newManagement(cfg Config) (*management, error) {
	amqp, err := parseURL(cfg.URL)
	if err != nil {
		return nil, err
	}
	m := &management{user: amqp.Username, password: cmp.Or(cfg.Password, amqp.Password), vhost: amqp.Vhost}
	m.base = &url.URL{Scheme: "http", Host: net.JoinHostPort(amqp.Host, "15672")}
	if amqp.Scheme == "amqps" {
		m.base = &url.URL{Scheme: "https", Host: net.JoinHostPort(amqp.Host, "15671")}
	}
	if cfg.ManagementURL != "" {
		given, err := url.Parse(cfg.ManagementURL)
		if err != nil || given.Scheme != "http" && given.Scheme != "https" || given.Host == "" {
			return nil, fmt.Errorf("%w: that of the management API is not of the form http://HOST:15672 or https://HOST:15671; next: correct --amqp-management-url", ErrURL)
		}
		if password, ok := given.User.Password(); ok {
			m.user, m.password = given.User.Username(), password
		}
		m.base = &url.URL{Scheme: given.Scheme, Host: given.Host, Path: strings.TrimSuffix(given.Path, "/")}
	}
	security, err := amqp.security(cfg.TLS)
	if err != nil {
		return nil, err
	}
	if security == nil { // AMQP is without, the API need not be
		security = cfg.TLS.Clone()
	} else if security.ServerName == amqp.Host && m.base.Hostname() != amqp.Host { // nobody asked for that name
		security.ServerName = ""
	}
	m.client = http.Client{
		Transport:     &http.Transport{TLSClientConfig: security}, // and no proxy: it would get the password
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return m, nil
}

func (m *management) survey(ctx context.Context, exchange string) (Survey, error) {
	var bindings []struct {
		Destination string `json:"destination"`
		Type        string `json:"destination_type"`
		Key         string `json:"routing_key"`
	}
	var s Survey
	if err := m.get(ctx, &bindings, "exchanges", m.vhost, exchange, "bindings", "source"); err != nil {
		return s, err
	}
	for _, b := range bindings {
		at := slices.IndexFunc(s.Queues, func(q BoundQueue) bool { return q.Name == b.Destination })
		switch {
		case b.Type != "queue":
			s.Exchanges = append(s.Exchanges, b.Destination)
		case at < 0:
			s.Queues = append(s.Queues, BoundQueue{Name: b.Destination, Weights: []string{b.Key}})
		default:
			s.Queues[at].Weights = append(s.Queues[at].Weights, b.Key)
		}
	}
	slices.SortFunc(s.Queues, func(a, b BoundQueue) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name)) // outbox.9 before outbox.10
	})
	for i := range s.Queues {
		if err := m.queue(ctx, &s.Queues[i]); err != nil && !errors.Is(err, errNoObject) { // deleted meanwhile
			return s, err
		}
	}
	return s, nil
}

func (m *management) queue(ctx context.Context, q *BoundQueue) error {
	var found struct {
		Type           string `json:"type"`
		Durable        bool   `json:"durable"`
		Ready          int    `json:"messages_ready"`
		Unacknowledged int    `json:"messages_unacknowledged"`
		Consumers      int    `json:"consumers"`
		Policy         string `json:"policy"`
		Arguments      any    `json:"arguments"`                   // an object; empty, it can be a list
		Effective      any    `json:"effective_policy_definition"` // the same
	}
	if err := m.get(ctx, &found, "queues", m.vhost, q.Name); err != nil {
		return err
	}
	q.Type, q.Durable, q.Policy = found.Type, found.Durable, found.Policy
	q.Ready, q.Unacknowledged, q.Consumers = found.Ready, found.Unacknowledged, found.Consumers
	q.arguments, _ = found.Arguments.(map[string]any)
	q.policy, _ = found.Effective.(map[string]any)
	q.SingleActiveConsumer, _ = q.arguments["x-single-active-consumer"].(bool)
	return nil
}

// get reads an object under /api. Neither the URL with a password nor what a
// wrong server answers is in its errors.
func (m *management) get(ctx context.Context, into any, path ...string) error {
	for i := range path {
		path[i] = url.PathEscape(path[i])
	}
	at := m.base.String() + "/api/" + strings.Join(path, "/")
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return fmt.Errorf("exchange: management API at %s: %w", m.base, err)
	}
	request.SetBasicAuth(m.user, m.password)
	response, err := m.client.Do(request)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err
		}
		return fmt.Errorf("exchange: RabbitMQ's management API does not answer at %s: %w; next: rabbitmq-plugins enable rabbitmq_management, or say where it is: --amqp-management-url", m.base, err)
	}
	defer response.Body.Close()
	switch response.StatusCode {
	case http.StatusOK:
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("%w: RabbitMQ's management API at %s answers user %q with %s; next: rabbitmqctl set_user_tags %s management", ErrAuth, m.base, m.user, response.Status, m.user)
	case http.StatusNotFound:
		return fmt.Errorf("exchange: management API at %s: %s: %w", m.base, strings.Join(path, "/"), errNoObject)
	default:
		return fmt.Errorf("exchange: management API at %s: %s answers %s; next: correct --amqp-management-url", m.base, strings.Join(path, "/"), response.Status)
	}
	const most = 16 << 20
	if err := json.NewDecoder(io.LimitReader(response.Body, most)).Decode(into); err != nil {
		return fmt.Errorf("exchange: management API at %s: %s is not what RabbitMQ answers: %w; next: correct --amqp-management-url", m.base, strings.Join(path, "/"), err)
	}
	return nil
}
