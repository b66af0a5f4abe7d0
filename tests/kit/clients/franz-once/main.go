// A copier by transactions of franz-go: `kafka-franz-once BOOTSTRAP SOURCE TARGET GROUP 1|2 ID` writes each record of SOURCE
// to the same partition of TARGET in upper case, exactly once, as a member of GROUP. Every third batch it writes as
// "aborted", and aborts that. With 1 it is a client of Kafka 3.9, which knows transaction version 1 alone. It prints
// the offset that each answer has, and the requests of its transactions with their versions.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

// printer prints the requests of transactions, which franz-go tells of as it writes them.
type printer struct{}

func (printer) Level() kgo.LogLevel { return kgo.LogLevelDebug }

func (printer) Log(level kgo.LogLevel, message string, keyvals ...any) {
	if level <= kgo.LogLevelWarn {
		fmt.Println(append([]any{message}, keyvals...)...)
	}
	if strings.HasPrefix(message, "wrote Produce") || strings.HasPrefix(message, "wrote EndTxn") ||
		strings.Contains(message, "Txn v") && strings.HasPrefix(message, "wrote ") ||
		strings.HasPrefix(message, "wrote TxnOffsetCommit") {
		fmt.Println(message)
	}
}

func main() {
	bootstrap, source, target, group, version, id := os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5], os.Args[6]
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...), kgo.ConsumeTopics(source), kgo.ConsumerGroup(group),
		kgo.TransactionalID(id), kgo.TransactionTimeout(10 * time.Second), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(), kgo.SessionTimeout(6 * time.Second), kgo.HeartbeatInterval(time.Second),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.FetchMaxWait(200 * time.Millisecond), kgo.WithLogger(printer{}),
	}
	if version == "1" {
		options = append(options, kgo.MaxVersions(kversion.V3_9_0()))
	}
	for batches := 0; ctx.Err() == nil; {
		batches = copied(ctx, options, target, batches)
	}
}

// copied copies until a transaction's end is unknown: then a client is made anew. It returns the number of batches.
func copied(ctx context.Context, options []kgo.Opt, target string, batches int) int {
	session, err := kgo.NewGroupTransactSession(options...)
	check(err)
	defer session.Close()
	for ctx.Err() == nil {
		fetches := session.PollRecords(ctx, 20)
		records := fetches.Records()
		if len(records) == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			log.Print(err)
			return batches
		}
		aborts, failed := batches%3 == 0, kgo.AbortingFirstErrPromise(session.Client())
		for _, each := range records {
			value := bytes.ToUpper(each.Value)
			if aborts {
				value = []byte("aborted")
			}
			copy := &kgo.Record{Topic: target, Partition: each.Partition, Key: each.Key, Value: value}
			session.Produce(ctx, copy, func(record *kgo.Record, err error) {
				fmt.Println("offset", record.Offset)
				failed.Promise()(record, err)
			})
		}
		batches++
		commits := failed.Err() == nil && !aborts
		if _, err := session.End(context.Background(), kgo.TransactionEndTry(commits)); err != nil {
			log.Print(err)
			var known *kerr.Error
			if !errors.As(err, &known) || !known.Retriable {
				return batches
			}
		}
	}
	return batches
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
