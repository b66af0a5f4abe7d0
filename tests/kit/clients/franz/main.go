// A client of Kafka by franz-go: `kafka-franz BOOTSTRAP TOPIC COUNT [GROUP]` produces COUNT records with a key,
// a header and a value, reads them back (as a member of GROUP, if there is one, else by offsets), and prints a
// JSON object for each.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
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
		log.Fatal("kafka-franz BOOTSTRAP TOPIC COUNT [GROUP]")
	}
	count, err := strconv.Atoi(os.Args[3])
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	produce(ctx, os.Args[1], os.Args[2], count)
	group := ""
	if len(os.Args) > 4 {
		group = os.Args[4]
	}
	consume(ctx, os.Args[1], os.Args[2], count, group)
}

// produce is idempotent with acks=all, as is franz-go's default.
func produce(ctx context.Context, bootstrap, topic string, count int) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap), kgo.DefaultProduceTopic(topic), kgo.AllowAutoTopicCreation(),
		kgo.ProducerBatchCompression(kgo.ZstdCompression()),
	)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	records := make([]*kgo.Record, count)
	for number := range records {
		text := strconv.Itoa(number)
		records[number] = &kgo.Record{
			Key:     []byte(text),
			Value:   []byte("value " + text),
			Headers: []kgo.RecordHeader{{Key: "number", Value: []byte(text)}},
		}
	}
	if err := client.ProduceSync(ctx, records...).FirstErr(); err != nil {
		log.Fatal(err)
	}
}

func consume(ctx context.Context, bootstrap, topic string, count int, group string) {
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if group != "" {
		options = append(options, kgo.ConsumerGroup(group))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	for found := 0; found < count; {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			log.Fatal(err)
		}
		for _, failed := range fetches.Errors() {
			log.Fatal(failed.Err)
		}
		fetches.EachRecord(func(each *kgo.Record) {
			line, err := json.Marshal(record{
				each.Partition, each.Offset, string(each.Key), string(each.Value), string(each.Headers[0].Value),
			})
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(string(line))
			found++
		})
	}
	if group != "" {
		if err := client.CommitUncommittedOffsets(ctx); err != nil {
			log.Fatal(err)
		}
	}
}
