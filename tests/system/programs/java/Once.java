import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A copier by transactions of kafka-clients: {@code Once BOOTSTRAP SOURCE TARGET GROUP classic|consumer ID} writes each
 * record of SOURCE to the same partition of TARGET in upper case, exactly once, as a member of GROUP. Every third batch
 * it writes as "aborted" first, and aborts that. It prints the offset that each answer has.
 */
public class Once {
    static int batches = 0;

    public static void main(String[] args) throws Exception {
        while (true) {
            try (var consumer = consumer(args); var producer = producer(args)) {
                producer.initTransactions();
                consumer.subscribe(List.of(args[1]));
                copy(consumer, producer, args[2]);
            } catch (KafkaException error) { // whoever does not know what became of a transaction begins again
                error.printStackTrace();
            }
        }
    }

    static KafkaConsumer<String, String> consumer(String[] args) {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("group.id", args[3]);
        config.put("group.protocol", args[4]);
        if (args[4].equals("classic")) {
            config.put("session.timeout.ms", 6000);
            config.put("heartbeat.interval.ms", 1000);
        }
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", false);
        config.put("isolation.level", "read_committed");
        config.put("max.poll.records", 20);
        return new KafkaConsumer<>(config, new StringDeserializer(), new StringDeserializer());
    }

    static KafkaProducer<String, String> producer(String[] args) {
        Properties config = new Properties();
        config.put("bootstrap.servers", args[0]);
        config.put("transactional.id", args[5]);
        config.put("transaction.timeout.ms", 10000);
        config.put("delivery.timeout.ms", 8000);
        config.put("request.timeout.ms", 5000);
        return new KafkaProducer<>(config, new StringSerializer(), new StringSerializer());
    }

    static void copy(
            KafkaConsumer<String, String> consumer, KafkaProducer<String, String> producer, String target)
            throws Exception {
        while (true) {
            ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
            if (records.isEmpty()) {
                continue;
            }
            if (batches++ % 3 == 0) {
                write(consumer, producer, records, target, true);
                producer.abortTransaction();
            }
            write(consumer, producer, records, target, false);
            producer.commitTransaction();
        }
    }

    static void write(
            KafkaConsumer<String, String> consumer,
            KafkaProducer<String, String> producer,
            ConsumerRecords<String, String> records,
            String target,
            boolean aborts)
            throws Exception {
        producer.beginTransaction();
        Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (ConsumerRecord<String, String> record : records) {
            String value = aborts ? "aborted" : record.value().toUpperCase();
            sent.add(producer.send(new ProducerRecord<>(target, record.partition(), record.key(), value)));
            var at = new TopicPartition(record.topic(), record.partition());
            offsets.put(at, new OffsetAndMetadata(record.offset() + 1));
        }
        producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
        producer.flush();
        for (Future<RecordMetadata> each : sent) {
            try {
                System.out.println("offset " + each.get().offset());
            } catch (ExecutionException error) {
                throw new KafkaException(error);
            }
        }
    }
}
