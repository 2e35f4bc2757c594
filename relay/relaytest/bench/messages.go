package main

import (
	"bufio"
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// message is what the relay published, to be published again without it.
type message struct {
	Key        string
	Publishing amqp.Publishing
}

// record takes n messages out of the queues, and writes them to path in the
// order in which the relay had them from the log.
func (q queues) record(ctx context.Context, n int, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	var list []message
	err := q.on(func(channel *amqp.Channel) error {
		arrived := make(chan amqp.Delivery, 4000)
		for _, name := range q.names() {
			deliveries, err := channel.ConsumeWithContext(ctx, name, "", true, false, false, false, nil)
			if err != nil {
				return err
			}
			go func() {
				for d := range deliveries {
					select {
					case arrived <- d:
					case <-ctx.Done():
						return
					}
				}
			}()
		}
		for len(list) < n {
			select {
			case d := <-arrived:
				list = append(list, messageOf(d))
			case <-ctx.Done():
				return fmt.Errorf("%d of %d messages came out of the queues: %w", len(list), n, ctx.Err())
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	slices.SortStableFunc(list, func(x, y message) int {
		return int(x.sequence() - y.sequence())
	})
	return saveMessages(path, list)
}

func (m message) sequence() int64 {
	n, _ := m.Publishing.Headers["sequence"].(int64) // 0 without one
	return n
}

func messageOf(d amqp.Delivery) message {
	for name := range d.Headers {
		if strings.HasPrefix(name, "x-") { // the queue's own
			delete(d.Headers, name)
		}
	}
	return message{d.RoutingKey, amqp.Publishing{
		Headers: d.Headers, ContentType: d.ContentType, ContentEncoding: d.ContentEncoding, DeliveryMode: d.DeliveryMode,
		Priority: d.Priority, CorrelationId: d.CorrelationId, ReplyTo: d.ReplyTo, Expiration: d.Expiration,
		MessageId: d.MessageId, Timestamp: d.Timestamp, Type: d.Type, UserId: d.UserId, AppId: d.AppId, Body: d.Body,
	}}
}

func saveMessages(path string, list []message) error {
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(file, 1<<20)
	encoder := gob.NewEncoder(w)
	err = encoder.Encode(len(list))
	for i := 0; i < len(list) && err == nil; i++ {
		err = encoder.Encode(list[i])
	}
	return errors.Join(err, w.Flush(), file.Close())
}

// loadMessages reads the first n messages of a file.
func loadMessages(path string, n int) ([]message, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	decoder := gob.NewDecoder(bufio.NewReaderSize(file, 1<<20))
	var held int
	if err := decoder.Decode(&held); err != nil {
		return nil, err
	}
	if held < n {
		return nil, fmt.Errorf("%s holds %d messages, want %d", path, held, n)
	}
	list := make([]message, n)
	for i := range list {
		if err := decoder.Decode(&list[i]); err != nil {
			return nil, err
		}
	}
	return list, nil
}
