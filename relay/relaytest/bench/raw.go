package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// rawJob is what the raw publisher does: it has the relay's messages in memory
// and publishes them with the AMQP library alone, as who knows it would.
type rawJob struct {
	Broker   string
	Exchange string
	Messages string // path
	Count    int    // of messages
	Channels int
	Window   int // messages in flight at most, over all channels
}

// rawDone is what it took.
type rawDone struct {
	Took time.Duration // from dialling to the last confirm
	CPU  time.Duration // user and system
}

// publishRaw is a role of this binary: the argument is a rawJob as JSON.
func publishRaw(args []string) error {
	var job rawJob
	if len(args) != 1 {
		return fmt.Errorf("got %d arguments, want 1", len(args))
	}
	if err := json.Unmarshal([]byte(args[0]), &job); err != nil {
		return err
	}
	list, err := loadMessages(job.Messages, job.Count)
	if err != nil {
		return err
	}
	// Each aggregate has its channel, which keeps its order.
	lanes := make([][]message, job.Channels)
	for _, m := range list {
		sum := fnv.New32a()
		sum.Write([]byte(m.Key))
		i := int(sum.Sum32() % uint32(job.Channels))
		lanes[i] = append(lanes[i], m)
	}
	runtime.GC() // of the reading, which is not measured
	before, began := ownCPU(), time.Now()
	if err := job.publish(lanes); err != nil {
		return err
	}
	done := rawDone{Took: time.Since(began), CPU: ownCPU() - before}
	runtime.KeepAlive(list)
	return json.NewEncoder(os.Stdout).Encode(done)
}

func (j rawJob) publish(lanes [][]message) error {
	conn, err := amqp.Dial(j.Broker)
	if err != nil {
		return err
	}
	defer conn.Close()
	failed := make([]error, len(lanes))
	var done sync.WaitGroup
	for i, lane := range lanes {
		done.Go(func() { failed[i] = publishLane(conn, j.Exchange, lane, max(j.Window/j.Channels, 1)) })
	}
	done.Wait()
	return errors.Join(failed...)
}

// publishLane publishes on a channel of its own and returns after the last
// confirm.
func publishLane(conn *amqp.Connection, exchange string, lane []message, window int) error {
	channel, err := conn.Channel()
	if err != nil {
		return err
	}
	if err := channel.Confirm(false); err != nil {
		return err
	}
	ctx := context.Background()
	inFlight := make([]*amqp.DeferredConfirmation, window) // a ring
	for i := range len(lane) + window {
		slot := i % window
		if confirm := inFlight[slot]; confirm != nil {
			if stored := confirm.Wait(); !stored {
				return fmt.Errorf("message %d was not confirmed", confirm.DeliveryTag)
			}
			inFlight[slot] = nil
		}
		if i < len(lane) {
			if inFlight[slot], err = channel.PublishWithDeferredConfirmWithContext(ctx, exchange, lane[i].Key, true, false, lane[i].Publishing); err != nil {
				return err
			}
		}
	}
	return nil
}

// ownCPU is the processor time of this process.
func ownCPU() time.Duration {
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// raw publishes messages in a process of its own.
func (b *bench) raw(ctx context.Context, job rawJob) (rawDone, error) {
	var done rawDone
	argument, err := json.Marshal(job)
	if err != nil {
		return done, err
	}
	self, err := os.Executable()
	if err != nil {
		return done, err
	}
	var complaint bytes.Buffer
	cmd := exec.CommandContext(ctx, self, "raw", string(argument))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = &complaint
	output, err := cmd.Output()
	if err != nil {
		return done, fmt.Errorf("raw publisher: %w: %s", err, complaint.String())
	}
	return done, json.Unmarshal(output, &done)
}
