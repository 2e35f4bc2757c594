package relay

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/exchange"
)

// queueRequirements looks at the queues: those of the partitions as AMQP tells
// of them, and what is bound to the exchange, which only the management API
// tells; unasked is why that did not answer. Running: a relay has declared them.
func queueRequirements(cfg exchange.Config, topology exchange.Topology, survey exchange.Survey, unasked error, running bool) (list []binlog.Requirement) {
	bound := func(name string) *exchange.BoundQueue {
		if i := slices.IndexFunc(survey.Queues, func(q exchange.BoundQueue) bool { return q.Name == name }); i >= 0 {
			return &survey.Queues[i]
		}
		return nil
	}
	ours := map[string]bool{}
	for _, q := range topology.Queues {
		ours[q.Name] = true
		list = append(list, partition(q, bound(q.Name), unasked == nil, running))
	}
	if !topology.Found { // so nothing is bound
		return list
	}
	if unasked != nil {
		return append(list, advice("bindings", "RabbitMQ's management API, to see which queues are bound, how they share the aggregates, and whether they drop messages",
			unasked.Error(), listBindings(cfg)))
	}
	for _, q := range survey.Queues {
		if ours[q.Name] {
			continue
		}
		r := binding(q)
		r.Found += "; " + load(q.Ready, q.Consumers)
		if len(ours) > 0 && r.OK {
			r = advice(r.Name, "no other queue than those of --partitions: it takes a share of their aggregates", r.Found+"; it is none of the partitions", unbind(cfg, q.Name, q.Weights[0]))
		}
		list = append(list, r)
	}
	for _, name := range survey.Exchanges {
		list = append(list, met("exchange "+name, "what is bound to "+cfg.Exchange+" takes its share of the aggregates", "bound as a queue is"))
	}
	if len(survey.Queues)+len(survey.Exchanges) == 0 && len(ours) == 0 {
		r := binlog.NewRequirement(exchange.ErrExchange, "bindings", "a queue that is bound to the exchange", "none is: every event comes back", false,
			"relay run --partitions 4, which declares four queues; or "+bind(cfg, "QUEUE"))
		list = append(list, r)
	}
	return append(list, concerns(cfg, survey.Queues, !strings.HasPrefix(topology.Version, "3."))...)
}

// declareAgain is what to type where a queue was deleted under a relay.
const declareAgain = "systemctl restart relay # which declares it again"

// partition is the line of one of our queues; asked: bound tells whether it is.
func partition(q exchange.Queue, bound *exchange.BoundQueue, asked, running bool) binlog.Requirement {
	const need = "a durable quorum queue with a single active consumer"
	name, found := "queue "+q.Name, load(q.Messages, q.Consumers)
	switch {
	case q.Err != nil:
		return failed(name, need, q.Err)
	case !q.Found && running:
		return binlog.NewRequirement(exchange.ErrQueue, name, need, "not there, and the relay runs: the other queues get its aggregates", false, declareAgain)
	case !q.Found:
		return met(name, need, "not there yet: relay run declares it")
	case bound != nil:
		r := binding(*bound)
		r.Found += "; " + found
		return r
	case asked:
		return advice(name, "bound to the exchange", found+"; not bound, so that it gets nothing until the relay starts and binds it", "relay run, which binds it; keys move to it from the other queues")
	}
	return met(name, need, found)
}

func load(messages, consumers int) string {
	return fmt.Sprintf("%d messages, %d consumers", messages, consumers)
}

// binding is the line of a queue that is bound.
func binding(q exchange.BoundQueue) binlog.Requirement {
	r := met("queue "+q.Name, "a weight: a whole number above 0", describe(q))
	for _, weight := range q.Weights {
		if n, err := strconv.Atoi(weight); err != nil || n < 1 {
			return binlog.NewRequirement(exchange.ErrQueue, r.Name, r.Need, r.Found, false,
				fmt.Sprintf("rabbitmqctl list_bindings source_name destination_name routing_key; then unbind %s and bind it with the routing key 1", q.Name))
		}
	}
	return r
}

func describe(q exchange.BoundQueue) string {
	parts := []string{"weight " + strings.Join(quoteOdd(q.Weights), " and ")}
	if q.Type != "" { // else it was deleted meanwhile
		parts = append(parts, q.Type)
	}
	if q.Durable {
		parts = append(parts, "durable")
	}
	if q.SingleActiveConsumer {
		parts = append(parts, "single active consumer")
	}
	for _, limit := range []struct{ name, text string }{
		{"max-length", "at most %d messages"}, {"max-length-bytes", "at most %d bytes"}, {"message-ttl", "messages live %d ms"},
		{"expires", "unused it lives %d ms"}, {"delivery-limit", "delivered %d times at most"},
	} {
		switch n, ok := q.Limit(limit.name); {
		case ok && n < 0:
			parts = append(parts, "no "+limit.name)
		case ok:
			parts = append(parts, fmt.Sprintf(limit.text, n))
		}
	}
	for _, name := range []string{"overflow", "dead-letter-exchange"} {
		if text := q.Setting(name); text != "" {
			parts = append(parts, name+" "+text)
		}
	}
	if q.Policy != "" {
		parts = append(parts, "policy "+q.Policy)
	}
	return strings.Join(parts, ", ")
}

// quoteOdd quotes weights that are no numbers.
func quoteOdd(weights []string) (list []string) {
	for _, w := range weights {
		if _, err := strconv.Atoi(w); err != nil {
			w = strconv.Quote(w)
		}
		list = append(list, w)
	}
	return list
}

// concern is something that can cost messages or order.
type concern struct {
	name, need string
	of         func(exchange.BoundQueue) string // what is so; empty: nothing
	fix        func(names []string) string
}

// concerns are hints about the queues that are bound, each of them once for all
// queues that it is about. Limited: the broker sets a delivery limit where nobody
// does.
func concerns(cfg exchange.Config, queues []exchange.BoundQueue, limited bool) (list []binlog.Requirement) {
	if len(queues) == 0 {
		return nil
	}
	weight := func(q exchange.BoundQueue) string { return slices.Min(q.Weights) }
	if slices.ContainsFunc(queues, func(q exchange.BoundQueue) bool { return weight(q) != weight(queues[0]) }) {
		var shares []string
		for _, q := range queues {
			shares = append(shares, q.Name+" "+weight(q))
		}
		list = append(list, advice("weights", "equal ones, unless shares are to differ", strings.Join(shares, ", "),
			unbind(cfg, "QUEUE", "KEY")+"; "+bind(cfg, "QUEUE")+" # keys move: stop the relay and let the queues run empty before"))
	}
	typed := func(text string) func([]string) string { return func([]string) string { return text } }
	policy := func(definition string) func([]string) string {
		return func(names []string) string { return setPolicy(cfg, names, queues, definition) }
	}
	anew := func(argument string) func([]string) string {
		return typed("declare it anew " + argument + ", when it is empty and the relay is stopped")
	}
	for _, c := range []concern{
		{"bound once", "one binding for each queue: RabbitMQ counts only one of them", twice, typed(unbind(cfg, "QUEUE", "KEY"))},
		{"time to live", "none: what no consumer takes in time is lost", lifetime, policy(`{"dead-letter-exchange": "DEAD"}`)},
		{"queue length", "no limit, or the overflow reject-publish: then the relay waits", overflow, policy(`{"overflow": "reject-publish"}`)},
		{"delivery limit", "none, or a dead letter exchange: what a consumer fails on so often is lost",
			func(q exchange.BoundQueue) string { return deliveries(q, limited) }, policy(`{"delivery-limit": -1}`)},
		{"durable", "durable queues: others are gone when the broker restarts", transient, anew("as durable")},
		{"single active consumer", "on each queue: several consumers at once mix up the order of an aggregate", shared, anew("with x-single-active-consumer")},
	} {
		if r, ok := c.look(queues); ok {
			list = append(list, r)
		}
	}
	return list
}

// look tells of all queues that the concern is about.
func (c concern) look(queues []exchange.BoundQueue) (binlog.Requirement, bool) {
	var all, texts []string
	found := map[string][]string{}
	for _, q := range queues {
		if what := c.of(q); what != "" {
			found[what] = append(found[what], q.Name)
			all = append(all, q.Name)
		}
	}
	for what, names := range found {
		texts = append(texts, abridged(names)+": "+what)
	}
	slices.Sort(texts)
	return advice(c.name, c.need, strings.Join(texts, "; "), c.fix(all)), len(all) > 0
}

// setPolicy is the command that sets a policy for the queues of those names.
func setPolicy(cfg exchange.Config, names []string, queues []exchange.BoundQueue, definition string) string {
	if len(names) == 0 {
		return ""
	}
	pattern := "^" + regexp.QuoteMeta(cfg.Exchange+".")
	if slices.ContainsFunc(names, func(name string) bool { return !strings.HasPrefix(name, cfg.Exchange+".") }) {
		pattern = "^" + regexp.QuoteMeta(names[0]) + "$"
	}
	text := fmt.Sprintf("rabbitmqctl set_policy%s %s '%s' '%s' --apply-to queues", vhostOption(cfg), cfg.Exchange, pattern, definition)
	if i := slices.IndexFunc(queues, func(q exchange.BoundQueue) bool { return q.Policy != "" }); i >= 0 {
		text += fmt.Sprintf(" # a queue has one policy: put in what %q says", queues[i].Policy)
	}
	return text
}

func twice(q exchange.BoundQueue) string {
	if len(q.Weights) < 2 {
		return ""
	}
	return fmt.Sprintf("%d bindings", len(q.Weights))
}

func transient(q exchange.BoundQueue) string {
	if q.Durable || q.Type == "" {
		return ""
	}
	return "not durable"
}

func shared(q exchange.BoundQueue) string {
	if q.SingleActiveConsumer || q.Type == "stream" || q.Type == "" {
		return ""
	}
	return "without"
}

func lifetime(q exchange.BoundQueue) string {
	ttl, limited := q.Limit("message-ttl")
	expires, mortal := q.Limit("expires")
	switch {
	case mortal:
		return "unused it is deleted after " + (time.Duration(expires) * time.Millisecond).String()
	case limited && q.Setting("dead-letter-exchange") == "":
		return "messages are dropped after " + (time.Duration(ttl) * time.Millisecond).String()
	}
	return ""
}

func overflow(q exchange.BoundQueue) string {
	_, count := q.Limit("max-length")
	_, bytes := q.Limit("max-length-bytes")
	if (count || bytes) && cmp.Or(q.Setting("overflow"), "drop-head") == "drop-head" && q.Setting("dead-letter-exchange") == "" {
		return "drops the oldest when it is full"
	}
	return ""
}

// defaultDeliveries is RabbitMQ 4's limit of a quorum queue that sets none.
const defaultDeliveries = 20

func deliveries(q exchange.BoundQueue, limited bool) string {
	limit, set := q.Limit("delivery-limit")
	switch {
	case q.Type != "quorum", q.Setting("dead-letter-exchange") != "", set && limit < 0, !set && !limited:
		return ""
	case set:
		return fmt.Sprintf("drops a message after %d deliveries", limit)
	}
	return fmt.Sprintf("drops a message after %d deliveries, as RabbitMQ 4 does by itself", defaultDeliveries)
}

// abridged names a few.
func abridged(names []string) string {
	if len(names) > 4 {
		return fmt.Sprintf("%s … %s (%d)", names[0], names[len(names)-1], len(names))
	}
	return strings.Join(names, ", ")
}

func advice(name, need, found, fix string) binlog.Requirement {
	return binlog.Requirement{Name: name, Need: need, Found: found, Fix: fix, Advice: true}
}

func vhostOption(cfg exchange.Config) string {
	if v := exchange.Vhost(cfg.URL); v != "/" {
		return " -p '" + v + "'"
	}
	return ""
}

func listBindings(cfg exchange.Config) string {
	return "rabbitmqctl list_bindings" + vhostOption(cfg) + " source_name destination_name routing_key"
}

func bind(cfg exchange.Config, queue string) string {
	return fmt.Sprintf("rabbitmqadmin%s declare binding --source %s --destination-type queue --destination %s --routing-key 1", adminOption(cfg), cfg.Exchange, queue)
}

func unbind(cfg exchange.Config, queue, key string) string {
	return fmt.Sprintf("rabbitmqadmin%s delete binding --source %s --destination-type queue --destination %s --routing-key %s", adminOption(cfg), cfg.Exchange, queue, key)
}

func adminOption(cfg exchange.Config) string {
	if v := exchange.Vhost(cfg.URL); v != "/" {
		return " --vhost '" + v + "'"
	}
	return ""
}
