// A copier by @platformatic/kafka: `node platformatic.mjs BOOTSTRAP SOURCE TARGET GROUP classic|consumer` makes the
// two topics where they are missing, and writes each record of SOURCE to TARGET in upper case, at least once, as a
// member of GROUP.
import { createRequire } from "node:module";

const { Admin, Consumer, ProduceAcks, Producer } = createRequire(import.meta.url)("@platformatic/kafka");

const [bootstrap, source, target, groupId, groupProtocol] = process.argv.slice(2);
const base = { clientId: "copier", bootstrapBrokers: [bootstrap], retries: 100, retryDelay: 100 };

const admin = new Admin(base);
const present = await admin.listTopics();
const topics = [source, target].filter((topic) => !present.includes(topic));
if (topics.length) await admin.createTopics({ topics, partitions: 2, replicas: 1 });
await admin.close();

const producer = new Producer({ ...base, idempotent: true, acks: ProduceAcks.ALL });
const timeouts = groupProtocol === "classic" ? { sessionTimeout: 6000, heartbeatInterval: 1000 } : {};
const consumer = new Consumer({ ...base, groupId, groupProtocol, ...timeouts });
const stream = await consumer.consume({
  topics: [source], mode: "committed", fallbackMode: "earliest", autocommit: false, maxWaitTime: 100,
});
process.on("SIGTERM", async () => {
  await consumer.close(true);
  process.exit(0);
});
for await (const message of stream) {
  const value = Buffer.from(message.value.toString().toUpperCase());
  await producer.send({ messages: [{ topic: target, key: message.key, value }] });
  await message.commit();
}
