package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"time"

	"github.com/outboxrelay/relay/relay/relaytest"
)

// starts is how often the relay is started.
const starts = 15

// start measures the time from the relay's exec to its first basic.publish, as
// a proxy in front of the broker sees it go by. A checkpoint is there, and an
// event behind it that waits.
func start(ctx context.Context, b *bench) (err error) {
	o, err := b.outfit(ctx, b.mysql)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	if err := o.begin(ctx); err != nil {
		return err
	}
	broker, err := url.Parse(o.broker)
	if err != nil {
		return errors.New("the test broker's address is not a URL")
	}
	proxy, err := relaytest.StartProxy(broker.Host)
	if err != nil {
		return err
	}
	defer proxy.Close()
	broker.Host = proxy.Addr()
	direct := o.broker
	o.broker = broker.String()
	defer func() { o.broker = direct }()

	r := result{
		Section: "start", Case: "exec to the first publish, with a checkpoint", Unit: "ms", Goal: atMost(ofValue, 200),
	}
	var spent []float64
	for range max(starts, b.runs) {
		took, used, err := o.startOnce(ctx, proxy)
		if err != nil {
			return err
		}
		r.Relay = append(r.Relay, took.Seconds()*1000)
		spent = append(spent, used.Seconds()*1000)
	}
	r.Note = fmt.Sprintf("%d starts. One event waits behind the checkpoint. From before exec until basic.publish passes a TCP proxy in front of the broker; both servers on this machine. CPU of the relay until then: %s ms.", len(r.Relay), spread(spent))
	b.add(r)
	return nil
}

// startOnce starts the relay with an event to send, and stops it when that is
// settled. It returns what it took until it was sent, in time and in CPU.
func (o *outfit) startOnce(ctx context.Context, proxy *relaytest.Proxy) (took, used time.Duration, err error) {
	if err := o.insert(ctx, rand.Uint64(), 0, 1); err != nil {
		return 0, 0, err
	}
	published := make(chan time.Time, 1)
	var sent []byte // until then: little
	proxy.Watch(relaytest.Up, func(p []byte) {
		if sent = append(sent, p...); publishes(sent) {
			select {
			case published <- time.Now():
			default:
			}
		}
	})
	began := time.Now()
	p, err := o.start()
	if err != nil {
		return 0, 0, err
	}
	select {
	case at := <-published:
		used, err := cpu(p.PID())
		return at.Sub(began), used, errors.Join(err, stop(p))
	case <-p.Done():
		return 0, 0, fmt.Errorf("the relay ended with %d before it published:\n%s", p.Wait(), p.Tail())
	case <-time.After(patience):
		return 0, 0, errors.Join(fmt.Errorf("the relay published nothing for %v:\n%s", patience, p.Tail()), p.Kill())
	case <-ctx.Done():
		return 0, 0, errors.Join(ctx.Err(), p.Kill())
	}
}

// publishes tells whether the method basic.publish is in what a client sent: a
// frame of type 1, its channel and size, class 60, method 40.
func publishes(sent []byte) bool {
	for rest := sent; ; {
		at := bytes.Index(rest, []byte{0, 60, 0, 40})
		if at < 0 {
			return false
		}
		if at >= 7 && rest[at-7] == 1 {
			return true
		}
		rest = rest[at+1:]
	}
}
