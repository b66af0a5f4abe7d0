// A copier by kafka-go: `kafka-go BOOTSTRAP SOURCE TARGET GROUP classic` makes the two topics where they are
// missing, and writes each record of SOURCE to TARGET in upper case, at least once, as a member of GROUP.
package main

import (
	"bytes"
	"context"
	"errors"
	"log"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/segmentio/kafka-go"
)

func main() {
	bootstrap, source, target, group := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	client := &kafka.Client{Addr: kafka.TCP(bootstrap)}
	answer, err := client.CreateTopics(ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
		{Topic: source, NumPartitions: 2, ReplicationFactor: 1},
		{Topic: target, NumPartitions: 2, ReplicationFactor: 1},
	}})
	check(err)
	for _, err := range answer.Errors {
		if !errors.Is(err, kafka.TopicAlreadyExists) {
			check(err)
		}
	}
	writer := &kafka.Writer{
		Addr: kafka.TCP(bootstrap), Topic: target, Balancer: kafka.Murmur2Balancer{},
		RequiredAcks: kafka.RequireAll, MaxAttempts: 100, BatchTimeout: time.Millisecond,
	}
	reader := kafka.NewReader(kafka.ReaderConfig{
		Brokers: []string{bootstrap}, GroupID: group, Topic: source, StartOffset: kafka.FirstOffset,
		SessionTimeout: 6 * time.Second, HeartbeatInterval: time.Second, MaxWait: 100 * time.Millisecond,
	})
	for {
		message, err := reader.FetchMessage(ctx)
		if ctx.Err() != nil {
			break
		}
		check(err)
		check(writer.WriteMessages(context.Background(), kafka.Message{Key: message.Key, Value: bytes.ToUpper(message.Value)}))
		if err := reader.CommitMessages(context.Background(), message); err != nil {
			log.Print(err) // of a generation that has passed: the next one has it again
		}
	}
	check(reader.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
