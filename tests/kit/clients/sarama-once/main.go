// A copier by transactions of Sarama: `kafka-sarama-once BOOTSTRAP SOURCE TARGET GROUP ID` writes each record of SOURCE to
// the same partition of TARGET in upper case, exactly once, as a member of GROUP, by a transactional id for each
// partition. Every third batch it writes as "aborted" first, and aborts that. It prints the offset of each answer.
package main

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

type member struct {
	bootstrap         []string
	target, group, id string
}

func (*member) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*member) Cleanup(sarama.ConsumerGroupSession) error { return nil }

// ConsumeClaim copies until a transaction fails: then the group's session ends, and begins again where it committed.
func (m *member) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	producer, err := sarama.NewSyncProducer(m.bootstrap, configured(fmt.Sprintf("%s-%d", m.id, claim.Partition())))
	if err != nil {
		return err
	}
	defer producer.Close()
	for number := 0; ; number++ {
		select {
		case message, ok := <-claim.Messages():
			if !ok {
				return nil
			}
			messages := []*sarama.ConsumerMessage{message}
			for len(messages) < 20 && len(claim.Messages()) > 0 {
				messages = append(messages, <-claim.Messages())
			}
			if number%3 == 0 {
				err = m.transact(producer, messages, true)
			}
			if err == nil {
				err = m.transact(producer, messages, false)
			}
			if err != nil {
				log.Print(err)
				if producer.TxnStatus()&sarama.ProducerTxnFlagAbortableError != 0 {
					log.Print(producer.AbortTxn())
				}
				return err
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func (m *member) transact(producer sarama.SyncProducer, messages []*sarama.ConsumerMessage, aborts bool) error {
	if err := producer.BeginTxn(); err != nil {
		return err
	}
	copies := make([]*sarama.ProducerMessage, len(messages))
	for number, each := range messages {
		key, value := sarama.ByteEncoder(each.Key), sarama.ByteEncoder(bytes.ToUpper(each.Value))
		if aborts {
			value = sarama.ByteEncoder("aborted")
		}
		copies[number] = &sarama.ProducerMessage{Topic: m.target, Partition: each.Partition, Key: key, Value: value}
	}
	if err := producer.SendMessages(copies); err != nil {
		return err
	}
	for _, each := range copies {
		fmt.Println("offset", each.Offset)
	}
	if err := producer.AddMessageToTxn(messages[len(messages)-1], m.group, nil); err != nil {
		return err
	}
	if aborts {
		return producer.AbortTxn()
	}
	return producer.CommitTxn()
}

func configured(id string) *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.MaxVersion
	config.Metadata.Retry.Max, config.Metadata.Retry.Backoff = 100, 100*time.Millisecond
	config.Consumer.Group.Session.Timeout, config.Consumer.Group.Heartbeat.Interval = 6*time.Second, time.Second
	config.Consumer.Offsets.Initial, config.Consumer.Offsets.AutoCommit.Enable = sarama.OffsetOldest, false
	config.Consumer.IsolationLevel = sarama.ReadCommitted
	config.Consumer.MaxWaitTime = 200 * time.Millisecond
	if id != "" {
		config.Producer.Transaction.ID, config.Producer.Transaction.Timeout = id, 10*time.Second
		config.Producer.Idempotent, config.Producer.RequiredAcks = true, sarama.WaitForAll
		config.Producer.Return.Successes, config.Producer.Partitioner = true, sarama.NewManualPartitioner
		config.Net.MaxOpenRequests = 1
	}
	return config
}

func main() {
	m := &member{strings.Split(os.Args[1], ","), os.Args[3], os.Args[4], os.Args[5]}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	for ctx.Err() == nil {
		group, err := sarama.NewConsumerGroup(m.bootstrap, m.group, configured(""))
		if err != nil {
			log.Print(err) // while there is no gateway
			time.Sleep(100 * time.Millisecond)
			continue
		}
		if err := group.Consume(ctx, []string{os.Args[2]}, m); err != nil {
			log.Print(err)
		}
		group.Close()
	}
}
