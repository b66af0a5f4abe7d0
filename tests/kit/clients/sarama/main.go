// A client of Kafka by Sarama: `kafka-sarama BOOTSTRAP TOPIC COUNT [GROUP]` produces COUNT records with a key, a
// header and a value, reads them back (as a member of GROUP, if there is one, else by offsets), and prints a JSON
// object for each. Sarama asks for the versions of its configuration, whatever the other side offers.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/IBM/sarama"
)

type record struct {
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
	Key       string `json:"key"`
	Value     string `json:"value"`
	Header    string `json:"header"`
}

func main() {
	if len(os.Args) < 4 {
		log.Fatal("kafka-sarama BOOTSTRAP TOPIC COUNT [GROUP]")
	}
	count, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	config := sarama.NewConfig()
	config.Version = sarama.V3_0_0_0
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Compression = sarama.CompressionLZ4
	config.Net.MaxOpenRequests = 1
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Return.Errors = true
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	produce(config, os.Args[1], os.Args[2], count)
	if len(os.Args) > 4 {
		join(ctx, config, os.Args[1], os.Args[2], count, os.Args[4])
	} else {
		read(ctx, config, os.Args[1], os.Args[2], count)
	}
}

func produce(config *sarama.Config, bootstrap, topic string, count int) {
	producer, err := sarama.NewSyncProducer([]string{bootstrap}, config)
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close()
	messages := make([]*sarama.ProducerMessage, count)
	for number := range messages {
		text := strconv.Itoa(number)
		messages[number] = &sarama.ProducerMessage{
			Topic:   topic,
			Key:     sarama.StringEncoder(text),
			Value:   sarama.StringEncoder("value " + text),
			Headers: []sarama.RecordHeader{{Key: []byte("number"), Value: []byte(text)}},
		}
	}
	if err := producer.SendMessages(messages); err != nil {
		log.Fatal(err)
	}
}

func read(ctx context.Context, config *sarama.Config, bootstrap, topic string, count int) {
	consumer, err := sarama.NewConsumer([]string{bootstrap}, config)
	if err != nil {
		log.Fatal(err)
	}
	defer consumer.Close()
	partitions, err := consumer.Partitions(topic)
	if err != nil {
		log.Fatal(err)
	}
	messages := make(chan *sarama.ConsumerMessage)
	for _, partition := range partitions {
		part, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		if err != nil {
			log.Fatal(err)
		}
		go func() {
			for message := range part.Messages() {
				messages <- message
			}
		}()
		go func() {
			for err := range part.Errors() {
				log.Fatal(err)
			}
		}()
	}
	for range count {
		select {
		case message := <-messages:
			show(message)
		case <-ctx.Done():
			log.Fatal(ctx.Err())
		}
	}
}

type member struct {
	left int
	done context.CancelFunc
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
			show(message)
			session.MarkMessage(message, "")
			if m.left--; m.left == 0 {
				session.Commit()
				m.done()
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

// join reads with one partition at a time in mind: the tests give it topics of one.
func join(ctx context.Context, config *sarama.Config, bootstrap, topic string, count int, name string) {
	group, err := sarama.NewConsumerGroup([]string{bootstrap}, name, config)
	if err != nil {
		log.Fatal(err)
	}
	defer group.Close()
	reading, done := context.WithCancel(ctx)
	defer done()
	reader := &member{left: count, done: done}
	for reading.Err() == nil {
		if err := group.Consume(reading, []string{topic}, reader); err != nil {
			log.Fatal(err)
		}
	}
	if ctx.Err() != nil {
		log.Fatal(ctx.Err())
	}
}

func show(message *sarama.ConsumerMessage) {
	line, err := json.Marshal(record{
		message.Partition, message.Offset, string(message.Key), string(message.Value),
		string(message.Headers[0].Value),
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(line))
}
