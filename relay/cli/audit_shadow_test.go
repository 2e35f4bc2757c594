package cli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	amqp "github.com/rabbitmq/amqp091-go"
)

// TestAuditShadow: a shadow sends what a relay does, to an exchange of its own
// and with a checkpoint of its own; compared with what another publisher sends,
// each planted difference is told, in its hour, and nothing else.
func TestAuditShadow(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	shadow, legacy := r.exchange+".shadow", r.exchange+".legacy"
	r.bindQueue(shadow, shadow, "stream")
	r.bindQueue(legacy, legacy, "stream")
	d := r.start("--shadow", "--start", "latest")
	d.until("it follows", func() bool { return strings.Contains(d.text(), `"message":"following"`) })
	begin := time.Now().UTC().Truncate(time.Hour).Add(-3 * time.Hour)
	var rows []string
	var sent []amqp.Publishing
	for n := 1; n <= 9; n++ { // three an hour
		at := begin.Add(time.Duration((n-1)/3)*time.Hour + time.Minute)
		rows = append(rows, fmt.Sprintf("(x'%032x', %d, 'order.placed', '{\"n\": %d, \"price\": 1.5}', '%s')", n, n, n, at.Format("2006-01-02 15:04:05")))
		sent = append(sent, amqp.Publishing{
			Type: "order.placed", Timestamp: at.Add(time.Second), Headers: amqp.Table{"event": idText(n)},
			MessageId: fmt.Sprint("other ", n), Body: fmt.Appendf(nil, `{"price":1.50,"n":%d}`, n),
		})
	}
	r.exec("INSERT INTO outbox (id, aggregate_id, topic, payload, created_at) VALUES " + strings.Join(rows, ", "))
	sent[1].Body = []byte(`{"n": 2, "price": 1.25, "planted-payload": 1}`)
	sent[5].Type = "order.paid"
	sent[7].Headers["event"] = "another"
	sent = append(sent, sent[0]) // twice
	keys := append([]int{}, 1, 2, 3, 4, 5, 6, 7, 8, 9, 1)
	err := r.onBroker(func(channel *amqp.Channel) error {
		if err := channel.Confirm(false); err != nil {
			return err
		}
		for i, m := range sent {
			confirm, err := channel.PublishWithDeferredConfirm(legacy, fmt.Sprint(keys[i]), true, false, m)
			if err != nil {
				return err
			}
			if _, err := confirm.WaitContext(t.Context()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(r.dir, "checkpoint.shadow.json")
	d.until("the shadow has sent all", func() bool {
		text, err := os.ReadFile(own)
		return err == nil && strings.Contains(string(text), `"sequence": 9`)
	})
	d.stop()
	if r.exists() {
		t.Error("the shadow has made a checkpoint of the relay's name")
	}

	args := []string{"audit", "--against-queue", legacy, "--by", "header:event", "--grace", "0s"}
	// The relay has no such header: what it has in its place is the message's id.
	got := r.run(args...)
	got.want(t, 3, "none of the 9 messages of "+shadow+" has a header:event")
	got.oneLine(t)
	noPayload(t, got.stdout)
	if _, s := findings(t, got); s.OnlyShadow != 9 || s.OnlyLegacy != 9 || s.Both != 0 {
		t.Errorf("by a header that one side lacks: %+v", s)
	}

	r.exec("DELETE FROM outbox")
	for i := range sent {
		sent[i].MessageId = sent[i].Headers["event"].(string)
	}
	again := r.exchange + ".again"
	r.bindQueue(again, again, "stream")
	err = r.onBroker(func(channel *amqp.Channel) error {
		if err := channel.Confirm(false); err != nil {
			return err
		}
		for i, m := range sent {
			confirm, err := channel.PublishWithDeferredConfirm(again, fmt.Sprint(keys[i]), true, false, m)
			if err != nil {
				return err
			}
			if _, err := confirm.WaitContext(t.Context()); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	at := func(i int) string { return begin.Add(time.Duration(i) * time.Hour).Format(time.RFC3339) }
	for range 2 { // it leaves the streams as they are
		got = r.run("audit", "--against-queue", again, "--by", "message_id", "--grace", "0s")
		noPayload(t, got.stdout)
		s := got.wantFoundUnordered(t, 3, "duplicate 000000000001 legacy*2", "different 000000000002 body", "different 000000000006 type",
			"only_shadow 000000000008", "only_legacy another", "hour ", "hour ", "hour ")
		want := found{Kind: "summary", Both: 8, OnlyShadow: 1, OnlyLegacy: 1, Different: 2, Duplicates: 1}
		if diff := cmp.Diff(want, s); diff != "" {
			t.Errorf("sum (-want +got):\n%s", diff)
		}
	}
	var hours []string
	for line := range strings.Lines(got.stdout) {
		if strings.HasPrefix(line, `{"kind":"hour"`) {
			hours = append(hours, strings.TrimSpace(line))
		}
	}
	want := []string{
		`{"kind":"hour","hour":"` + at(0) + `","both":3,"only_shadow":0,"only_legacy":0,"different":1,"duplicates":1}`,
		`{"kind":"hour","hour":"` + at(1) + `","both":3,"only_shadow":0,"only_legacy":0,"different":1,"duplicates":0}`,
		`{"kind":"hour","hour":"` + at(2) + `","both":2,"only_shadow":1,"only_legacy":1,"different":0,"duplicates":0}`,
	}
	if diff := cmp.Diff(want, hours); diff != "" {
		t.Errorf("hours (-want +got):\n%s", diff)
	}
	got = r.run("audit", "--against-queue", again, "--grace", "0s", "--since", begin.Add(-2*time.Hour).Format(time.RFC3339), "--until", begin.Format(time.RFC3339))
	got.wantFound(t, 3)
	got.want(t, 3, "nothing was compared", "--window 672h")
	got.oneLine(t)
}
