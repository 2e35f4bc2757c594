package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// stubProcess is a stub broker in a process of its own.
type stubProcess struct {
	*child
	url string
}

// startStub starts a stub broker. The caller stops it.
func (b *bench) startStub(ctx context.Context) (*stubProcess, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	reader, writer := io.Pipe()
	c, err := b.spawn(writer, surroundingsOfRelay(), self, "stub")
	if err != nil {
		return nil, err
	}
	go func() {
		<-c.ended
		writer.Close()
	}()
	line, err := bufio.NewReader(reader).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the stub broker ended by itself: %s", c.tail())
	}
	return &stubProcess{child: c, url: strings.TrimSpace(line)}, nil
}

// costs are the processor time of all who took part in a run, in µs/event.
type costs struct{ relay, mysqld, stub []float64 }

// note tells of the others, so that one sees where the cores go.
func (c costs) note() string {
	return fmt.Sprintf("beside it mysqld takes %s µs/event, to send its log, and the stub %s", spread(c.mysqld), spread(c.stub))
}

// stubRun has a relay drain a load against a stub broker, and tells where it was
// when the first events were confirmed, and at the end.
func (b *bench) stubRun(ctx context.Context, l load, c *costs) (first, end reading, err error) {
	stub, err := b.startStub(ctx)
	if err != nil {
		return first, end, err
	}
	defer func() {
		if stopped := stub.stop(); err == nil {
			err = stopped
		}
	}()
	place, err := l.begin(b.dir)
	if err != nil {
		return first, end, err
	}
	before, err := b.mysqldCPU()
	if err != nil {
		return first, end, err
	}
	p, err := b.runRelay(l.dsn, stub.url, place, "--partitions", fmt.Sprint(partitions))
	if err != nil {
		return first, end, err
	}
	defer func() {
		if stopped := p.stop(); err == nil {
			err = stopped
		}
	}()
	if first, err = p.await(ctx, 1); err != nil {
		return first, end, err
	}
	if end, err = p.await(ctx, l.events); err != nil {
		return first, end, err
	}
	if end.confirmed <= first.confirmed {
		return first, end, fmt.Errorf("all of %d events were confirmed at the first look, too few to measure", l.events)
	}
	after, err := b.mysqldCPU()
	if err != nil {
		return first, end, err
	}
	stubs, err := cpu(stub.cmd.Process.Pid)
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / float64(l.events) }
	c.relay, c.mysqld, c.stub = append(c.relay, each(end.cpu)), append(c.mysqld, each(after-before)), append(c.stub, each(stubs))
	return first, end, err
}

// ceiling measures the relay against a broker that costs next to nothing.
func ceiling(ctx context.Context, b *bench) error {
	for _, perTx := range []int{1, 10, 1000} {
		l, err := b.load(ctx, perTx, false)
		if err != nil {
			return err
		}
		speed := result{Section: "ceiling", Case: l.name, Unit: "events/s", Goal: atLeast(ofValue, 150_000)}
		var spent costs
		var whole []float64
		for range b.runs {
			first, end, err := b.stubRun(ctx, l, &spent)
			if err != nil {
				return err
			}
			speed.Relay = append(speed.Relay, between(first, end).rate)
			whole = append(whole, between(reading{}, end).rate)
		}
		speed.Note = fmt.Sprintf("from the first confirm to the last, MySQL's dump included; with the start, from exec on: %s events/s", spread(whole))
		b.add(speed)
		b.add(result{Section: "ceiling", Case: l.name + ", CPU", Unit: "µs/event", Relay: spent.relay, Note: spent.note()})
		if b.profile != "" {
			if err := b.profileCeiling(ctx, l); err != nil {
				return err
			}
		}
	}
	return nil
}

// profileCeiling drains once more, for a profile.
func (b *bench) profileCeiling(ctx context.Context, l load) error {
	stub, err := b.startStub(ctx)
	if err != nil {
		return err
	}
	err = b.profileRun(ctx, "ceiling "+l.name, l, stub.url, 8, []string{"--partitions", fmt.Sprint(partitions)})
	if stopped := stub.stop(); err == nil {
		err = stopped
	}
	return err
}
