// A copier by transactions of kafkajs: `node kafkajs_once.js BOOTSTRAP SOURCE TARGET GROUP ID` writes each record of
// SOURCE to the same partition of TARGET in upper case, exactly once, as a member of GROUP. Every third batch it
// writes as "aborted" first, and aborts that. It prints the offset that each answer has.
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, source, target, group, id] = process.argv.slice(2);
const brokers = bootstrap.split(",");
const kafka = new Kafka({ brokers, logLevel: logLevel.WARN, retry: { retries: 10, maxRetryTime: 300 } });
let batches = 0;
let ending = false;

async function copied(producer, { topic, partition, messages }, aborts) {
  const transaction = await producer.transaction();
  try {
    const values = messages.map(({ key, value }) => ({
      key,
      partition,
      value: aborts ? "aborted" : value.toString().toUpperCase(),
    }));
    for (const answer of await transaction.send({ topic: target, acks: -1, messages: values })) {
      console.log(`offset ${answer.baseOffset}`);
    }
    const offset = (BigInt(messages[messages.length - 1].offset) + 1n).toString();
    await transaction.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions: [{ partition, offset }] }] });
    await (aborts ? transaction.abort() : transaction.commit());
  } catch (error) {
    if (transaction.isActive()) {
      await transaction.abort();
    }
    throw error;
  }
}

// Until an error: whoever does not know what became of a transaction begins again at what the group has committed.
async function copy() {
  const producer = kafka.producer({ transactionalId: id, idempotent: true, maxInFlightRequests: 1, transactionTimeout: 10000 });
  const consumer = kafka.consumer({ groupId: group, sessionTimeout: 6000, heartbeatInterval: 1000, maxWaitTimeInMs: 200 });
  let failed;
  const failure = new Promise((_, reject) => (failed = reject));
  failure.catch(() => {});
  try {
    await producer.connect();
    await consumer.connect();
    await consumer.subscribe({ topic: source, fromBeginning: true });
    await consumer.run({
      autoCommit: false,
      eachBatchAutoResolve: false,
      partitionsConsumedConcurrently: 1,
      eachBatch: async ({ batch, resolveOffset, isStale, heartbeat }) => {
        for (let first = 0; first < batch.messages.length && !isStale(); first += 20) {
          const messages = batch.messages.slice(first, first + 20);
          const part = { topic: batch.topic, partition: batch.partition, messages };
          try {
            if (batches++ % 3 == 0) {
              await copied(producer, part, true);
            }
            await copied(producer, part, false);
          } catch (error) {
            failed(error);
            await new Promise(() => {}); // the consumer may not go on behind what has failed
          }
          resolveOffset(messages[messages.length - 1].offset);
          await heartbeat();
        }
      },
    });
    await failure;
  } finally {
    consumer.disconnect().catch(() => {}); // waits for the batch that has failed
    await producer.disconnect();
  }
}

async function main() {
  while (!ending) {
    await copy().catch((error) => console.error(error));
  }
}

process.on("SIGTERM", () => process.exit(0));
main();
