package relay

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/outboxrelay/relay/binlog"
	"github.com/outboxrelay/relay/exchange"
)

// managed is a management API that says of the exchange outbox what is given:
// its bindings (a weight for each), and what each queue is.
func managed(t *testing.T, bindings [][2]string, queues map[string]string) exchange.Survey {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name, isQueue := strings.CutPrefix(r.URL.Path, "/api/queues///")
		if isQueue {
			fmt.Fprint(w, queues[name])
			return
		}
		list := []map[string]string{}
		for _, b := range bindings {
			list = append(list, map[string]string{"destination": b[0], "destination_type": "queue", "routing_key": b[1]})
		}
		if err := json.NewEncoder(w).Encode(list); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	survey, err := exchange.Ask(context.Background(), exchange.Config{URL: "amqp://relay:pw@127.0.0.1/", Exchange: "outbox", ManagementURL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	return survey
}

// TestQueueRequirements: what is wrong with bindings and queues, each with what
// to type. Every want fails without its case in queues.go.
func TestQueueRequirements(t *testing.T) {
	const whole = `{"type": "quorum", "durable": true, "arguments": {"x-single-active-consumer": true, "x-delivery-limit": -1}}`
	with := func(arguments, policy string) map[string]string {
		return map[string]string{"a": fmt.Sprintf(`{"type": "quorum", "durable": true, "policy": "mine", "arguments": {"x-single-active-consumer": true%s}, "effective_policy_definition": {%s}}`, arguments, policy)}
	}
	one := [][2]string{{"a", "1"}}
	for name, test := range map[string]struct {
		bindings [][2]string
		queues   map[string]string
		version  string
		ours     int
		want     []string // lines, by their beginnings
	}{
		"whole":          {one, map[string]string{"a": whole}, "4.3.6", 0, []string{"ok queue a: weight 1, quorum, durable, single active consumer, no delivery-limit"}},
		"none":           {nil, nil, "4.3.6", 0, []string{"FAIL bindings: none is: every event comes back | relay run --partitions 4"}},
		"weight 0":       {[][2]string{{"a", "0"}}, map[string]string{"a": whole}, "4.3.6", 0, []string{"FAIL queue a: weight 0, quorum"}},
		"weight in text": {[][2]string{{"a", "all"}}, map[string]string{"a": whole}, "4.3.6", 0, []string{`FAIL queue a: weight "all", quorum`}},
		"unequal": {[][2]string{{"a", "1"}, {"b", "2"}}, map[string]string{"a": whole, "b": whole}, "4.3.6", 0,
			[]string{"ok queue a", "ok queue b: weight 2", "hint weights: a 1, b 2 | rabbitmqadmin delete binding --source outbox"}},
		"twice": {[][2]string{{"a", "1"}, {"a", "3"}}, map[string]string{"a": whole}, "4.3.6", 0,
			[]string{"ok queue a: weight 1 and 3", "hint bound once: a: 2 bindings"}},
		"time to live": {one, with(`, "x-delivery-limit": -1`, `"message-ttl": 60000`), "4.3.6", 0,
			[]string{"ok queue a", "hint time to live: a: messages are dropped after 1m0s | rabbitmqctl set_policy outbox '^a$' '{\"dead-letter-exchange\": \"DEAD\"}' --apply-to queues # a queue has one policy: put in what \"mine\" says"}},
		"expires":              {one, with(`, "x-delivery-limit": -1, "x-expires": 1000`, ``), "4.3.6", 0, []string{"ok queue a", "hint time to live: a: unused it is deleted after 1s"}},
		"length":               {one, with(`, "x-delivery-limit": -1, "x-max-length": 7`, ``), "4.3.6", 0, []string{"ok queue a", "hint queue length: a: drops the oldest when it is full"}},
		"bytes":                {one, with(`, "x-delivery-limit": -1`, `"max-length-bytes": 7, "overflow": "drop-head"`), "4.3.6", 0, []string{"ok queue a", "hint queue length: a: drops the oldest"}},
		"length that refuses":  {one, with(`, "x-delivery-limit": -1`, `"max-length": 7, "overflow": "reject-publish"`), "4.3.6", 0, []string{"ok queue a"}},
		"dead letters":         {one, with(``, `"max-length": 7, "message-ttl": 7, "dead-letter-exchange": "dead"`), "4.3.6", 0, []string{"ok queue a"}},
		"delivery limit of 4":  {one, with(``, ``), "4.3.6", 0, []string{"ok queue a", "hint delivery limit: a: drops a message after 20 deliveries, as RabbitMQ 4 does | rabbitmqctl set_policy"}},
		"none of 3":            {one, with(``, ``), "3.13.7", 0, []string{"ok queue a"}},
		"delivery limit set":   {one, with(``, `"delivery-limit": 5`), "3.13.7", 0, []string{"ok queue a", "hint delivery limit: a: drops a message after 5 deliveries"}},
		"classic, not durable": {one, map[string]string{"a": `{"type": "classic", "durable": false, "arguments": []}`}, "4.3.6", 0, []string{"ok queue a: weight 1, classic", "hint durable: a: not durable", "hint single active consumer: a: without"}},
		"stream":               {one, map[string]string{"a": `{"type": "stream", "durable": true}`}, "4.3.6", 0, []string{"ok queue a: weight 1, stream, durable"}},
		"deleted meanwhile":    {one, nil, "4.3.6", 0, []string{"ok queue a: weight 1"}},
		"a foreign queue": {[][2]string{{"outbox.0", "1"}, {"a", "1"}}, map[string]string{"outbox.0": whole, "a": whole}, "4.3.6", 1,
			[]string{"ok queue outbox.0: weight 1, quorum, durable, single active consumer, no delivery-limit; 7 messages, 2 consumers", "hint queue a: weight 1, quorum | rabbitmqadmin delete binding --source outbox --destination-type queue --destination a --routing-key 1"}},
		"ours unbound": {[][2]string{{"outbox.0", "1"}}, map[string]string{"outbox.0": whole}, "4.3.6", 2,
			[]string{"ok queue outbox.0", "hint queue outbox.1: 7 messages, 2 consumers; not bound | relay run"}},
		"many": {[][2]string{{"outbox.0", "1"}, {"outbox.1", "1"}, {"outbox.2", "1"}, {"outbox.9", "1"}, {"outbox.10", "1"}}, map[string]string{"outbox.0": with("", "")["a"], "outbox.1": with("", "")["a"], "outbox.2": with("", "")["a"], "outbox.9": with("", "")["a"], "outbox.10": with("", "")["a"]}, "4.3.6", 0,
			[]string{"ok", "ok", "ok", "ok", "ok queue outbox.10", "hint delivery limit: outbox.0 … outbox.10 (5): drops | rabbitmqctl set_policy outbox '^outbox\\.'"}},
	} {
		t.Run(name, func(t *testing.T) {
			queues := map[string]string{}
			for _, b := range test.bindings {
				queues[b[0]] = "{}"
			}
			for name, text := range test.queues {
				queues[name] = text
			}
			topology := exchange.Topology{Found: true, Version: test.version}
			for i := range test.ours {
				topology.Queues = append(topology.Queues, exchange.Queue{Name: fmt.Sprintf("outbox.%d", i), Found: true, Messages: 7, Consumers: 2})
			}
			cfg := exchange.Config{URL: "amqp://127.0.0.1/", Exchange: "outbox"}
			wantLines(t, queueRequirements(cfg, topology, managed(t, test.bindings, queues), nil, false), test.want)
		})
	}
}

// wantLines compares requirements with "mark name: found | fix", of which found
// and fix may be beginnings.
func wantLines(t *testing.T, got []binlog.Requirement, want []string) {
	t.Helper()
	var lines []string
	for _, r := range got {
		mark := "FAIL"
		if r.OK {
			mark = "ok"
		} else if r.Advice {
			mark = "hint"
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s | %s", mark, r.Name, r.Found, r.Fix))
	}
	if len(lines) != len(want) {
		t.Fatalf("%d lines, want %d:\n%s", len(lines), len(want), strings.Join(lines, "\n"))
	}
	for i, line := range lines {
		begin, fix, _ := strings.Cut(want[i], " | ")
		_, itsFix, _ := strings.Cut(line, " | ")
		if !strings.HasPrefix(line, begin) || !strings.HasPrefix(itsFix, fix) {
			t.Errorf("got  %s\nwant %s", line, want[i])
		}
		if strings.HasPrefix(line, "ok") != (itsFix == "") {
			t.Errorf("what to type is missing, or there for nothing: %s", line)
		}
	}
}

// TestUnasked: where the management API does not answer one hint says so, and no
// queue is failed for it.
func TestUnasked(t *testing.T) {
	cfg := exchange.Config{URL: "amqp://127.0.0.1/shop", Exchange: "outbox"}
	topology := exchange.Topology{Found: true, Queues: []exchange.Queue{{Name: "outbox.0", Found: true}, {Name: "outbox.1"}}}
	wantLines(t, queueRequirements(cfg, topology, exchange.Survey{}, context.DeadlineExceeded, false), []string{
		"ok queue outbox.0: 0 messages, 0 consumers", "ok queue outbox.1: not there yet",
		"hint bindings: context deadline exceeded | rabbitmqctl list_bindings -p 'shop' source_name destination_name routing_key",
	})
}

// TestGone: a queue that is missing while a relay runs was deleted. It was said
// that run declares it, which had run.
func TestGone(t *testing.T) {
	topology := exchange.Topology{Found: true, Queues: []exchange.Queue{{Name: "outbox.0", Found: true}, {Name: "outbox.1"}}}
	wantLines(t, queueRequirements(exchange.Config{URL: "amqp://127.0.0.1/", Exchange: "outbox"}, topology, exchange.Survey{}, context.DeadlineExceeded, true), []string{
		"ok queue outbox.0: 0 messages, 0 consumers", "FAIL queue outbox.1: not there, and the relay runs | systemctl restart relay", "hint bindings: ",
	})
}

// TestRoom: the checkpoint needs room, and large transactions more.
func TestRoom(t *testing.T) {
	for room, want := range map[uint64]string{0: "FAIL", 1<<20 - 1: "FAIL", 1 << 20: "hint", 1<<30 - 1: "hint", 1 << 30: "ok", 1 << 45: "ok"} {
		wantLines(t, []binlog.Requirement{roomRequirement("room", "1 GB", "/d", room)}, []string{want + " room: /d, "})
	}
}
