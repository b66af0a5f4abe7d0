// A copier by franz-go: `franz BOOTSTRAP SOURCE TARGET GROUP classic|consumer` makes the two topics where they are
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

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func main() {
	bootstrap, source, target, group, protocol := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap), kgo.ConsumeTopics(source), kgo.ConsumerGroup(group),
		kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(time.Second), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.BlockRebalanceOnPoll(),
	}
	if protocol == "consumer" {
		options = append(options, kgo.ServerSideBalancer(), kgo.Balancers(kgo.StickyBalancer()))
	}
	client, err := kgo.NewClient(options...)
	check(err)
	defer client.CloseAllowingRebalance()
	for _, topic := range []string{source, target} {
		create(ctx, client, topic)
	}
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		records := fetches.Records()
		copied := make([]*kgo.Record, len(records))
		for number, each := range records {
			copied[number] = &kgo.Record{Topic: target, Key: each.Key, Value: bytes.ToUpper(each.Value)}
		}
		check(client.ProduceSync(context.Background(), copied...).FirstErr())
		if err := client.CommitRecords(context.Background(), records...); err != nil {
			log.Print(err) // of a generation that has passed: the next one has them again
		}
		client.AllowRebalance()
	}
}

func create(ctx context.Context, client *kgo.Client, name string) {
	topic := kmsg.NewCreateTopicsRequestTopic()
	topic.Topic, topic.NumPartitions, topic.ReplicationFactor = name, 2, 1
	request := kmsg.NewPtrCreateTopicsRequest()
	request.Topics = append(request.Topics, topic)
	answer, err := request.RequestWith(ctx, client)
	check(err)
	if err := kerr.ErrorForCode(answer.Topics[0].ErrorCode); !errors.Is(err, kerr.TopicAlreadyExists) {
		check(err)
	}
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
