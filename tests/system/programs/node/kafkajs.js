// A copier by kafkajs: `node kafkajs.js BOOTSTRAP SOURCE TARGET GROUP PROTOCOL` makes the two topics where they are
// missing, and writes each record of SOURCE to TARGET in upper case, at least once, as a member of GROUP.
const { Kafka, logLevel } = require("kafkajs");

const [bootstrap, source, target, group] = process.argv.slice(2);
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.WARN, retry: { retries: 100, maxRetryTime: 500 } });
const consumer = kafka.consumer({ groupId: group, sessionTimeout: 6000, heartbeatInterval: 1000 });
const producer = kafka.producer({ idempotent: true });

async function main() {
  const admin = kafka.admin();
  await admin.connect();
  await admin.createTopics({ topics: [source, target].map((topic) => ({ topic, numPartitions: 2 })) });
  await admin.disconnect();
  await producer.connect();
  await consumer.connect();
  await consumer.subscribe({ topic: source, fromBeginning: true });
  await consumer.run({
    eachBatch: async ({ batch }) => {
      const messages = batch.messages.map(({ key, value }) => ({ key, value: value.toString().toUpperCase() }));
      await producer.send({ topic: target, acks: -1, messages });
    },
  });
}

process.on("SIGTERM", async () => {
  await consumer.disconnect();
  process.exit(0);
});
main().catch((error) => {
  console.error(error);
  process.exit(1);
});
