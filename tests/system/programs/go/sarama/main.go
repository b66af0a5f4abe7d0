// A copier by Sarama: `sarama BOOTSTRAP SOURCE TARGET GROUP classic` makes the two topics where they are missing,
// and writes each record of SOURCE to TARGET in upper case, at least once, as a member of GROUP.
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

	"github.com/IBM/sarama"
)

type member struct {
	producer sarama.SyncProducer
	target   string
}

func (*member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			key, value := sarama.ByteEncoder(message.Key), sarama.ByteEncoder(bytes.ToUpper(message.Value))
			_, _, err := m.producer.SendMessage(&sarama.ProducerMessage{Topic: m.target, Key: key, Value: value})
			if err != nil {
				return err
			}
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

func main() {
	bootstrap, source, target, name := []string{os.Args[1]}, os.Args[2], os.Args[3], os.Args[4]
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.Retry.Max, config.Metadata.Retry.Backoff = 100, 100*time.Millisecond
	config.Producer.Idempotent, config.Producer.RequiredAcks = true, sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Retry.Max, config.Producer.Retry.Backoff = 100, 100*time.Millisecond
	config.Net.MaxOpenRequests = 1
	config.Consumer.Group.Session.Timeout, config.Consumer.Group.Heartbeat.Interval = 6*time.Second, time.Second
	config.Consumer.Offsets.Initial, config.Consumer.Offsets.AutoCommit.Interval = sarama.OffsetOldest, 100*time.Millisecond
	admin, err := sarama.NewClusterAdmin(bootstrap, config)
	check(err)
	for _, topic := range []string{source, target} {
		err := admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 2, ReplicationFactor: 1}, false)
		if !errors.Is(err, sarama.ErrTopicAlreadyExists) {
			check(err)
		}
	}
	producer, err := sarama.NewSyncProducer(bootstrap, config)
	check(err)
	group, err := sarama.NewConsumerGroup(bootstrap, name, config)
	check(err)
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{source}, &member{producer, target}); err != nil {
			log.Print(err) // while there is no gateway
			time.Sleep(100 * time.Millisecond)
		}
	}
	check(group.Close())
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
