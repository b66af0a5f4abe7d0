import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.Comparator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.configuration.CheckpointingOptions;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.configuration.ExternalizedCheckpointRetention;
import org.apache.flink.configuration.RestartStrategyOptions;
import org.apache.flink.configuration.StateRecoveryOptions;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.lineage.DefaultKafkaDatasetFacet;
import org.apache.flink.connector.kafka.lineage.DefaultKafkaDatasetIdentifier;
import org.apache.flink.connector.kafka.lineage.KafkaDatasetFacet;
import org.apache.flink.connector.kafka.lineage.KafkaDatasetFacetProvider;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.sink.TransactionNamingStrategy;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.TopicExistsException;

/**
 * A copier by Flink, on a MiniCluster: {@code Flink BOOTSTRAP SOURCE TARGET GROUP NAMING [ID]} makes the two topics
 * where they are missing, and writes each record of SOURCE to the same partition of TARGET in upper case: exactly
 * once by transactional ids that begin with ID, which its sink names by the strategy NAMING, else at least once. It
 * begins at its last checkpoint in the directory where it runs; the group only shows how far it is.
 */
public class Flink {
    static final Path CHECKPOINTS = Path.of("checkpoints").toAbsolutePath();

    public static void main(String[] args) throws Exception {
        String bootstrap = args[0], source = args[1], target = args[2], group = args[3];
        create(bootstrap, source, target);
        Configuration config = new Configuration();
        config.set(CheckpointingOptions.CHECKPOINTING_INTERVAL, Duration.ofMillis(200));
        config.set(CheckpointingOptions.CHECKPOINTS_DIRECTORY, CHECKPOINTS.toUri().toString());
        config.set(CheckpointingOptions.EXTERNALIZED_CHECKPOINT_RETENTION,
                ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION);
        config.set(RestartStrategyOptions.RESTART_STRATEGY, "fixed-delay");
        config.set(RestartStrategyOptions.RESTART_STRATEGY_FIXED_DELAY_ATTEMPTS, 1000);
        lastCheckpoint().ifPresent(path -> config.set(StateRecoveryOptions.SAVEPOINT_PATH, path.toUri().toString()));
        var environment = StreamExecutionEnvironment.createLocalEnvironment(1, config);
        environment
                .fromSource(read(bootstrap, source, group), WatermarkStrategy.noWatermarks(), "read")
                .uid("read")
                .sinkTo(write(bootstrap, target, args[4], args.length > 5 ? args[5] : null))
                .uid("write");
        environment.execute("copier");
    }

    static KafkaSource<Pair> read(String bootstrap, String topic, String group) {
        return KafkaSource.<Pair>builder()
                .setBootstrapServers(bootstrap)
                .setTopics(topic)
                .setGroupId(group)
                .setStartingOffsets(OffsetsInitializer.earliest())
                .setDeserializer(new Upper())
                .build();
    }

    static KafkaSink<Pair> write(String bootstrap, String topic, String naming, String id) {
        var sink = KafkaSink.<Pair>builder().setBootstrapServers(bootstrap).setRecordSerializer(new Records(topic));
        if (id == null) {
            return sink.setDeliveryGuarantee(DeliveryGuarantee.AT_LEAST_ONCE).build();
        }
        return sink.setDeliveryGuarantee(DeliveryGuarantee.EXACTLY_ONCE)
                .setTransactionalIdPrefix(id)
                .setTransactionNamingStrategy(TransactionNamingStrategy.valueOf(naming))
                .setProperty("transaction.timeout.ms", "60000")
                .build();
    }

    static Optional<Path> lastCheckpoint() throws IOException {
        if (!Files.exists(CHECKPOINTS)) {
            return Optional.empty();
        }
        try (var files = Files.walk(CHECKPOINTS)) {
            return files.filter(file -> file.endsWith("_metadata"))
                    .max(Comparator.comparing(file -> file.toFile().lastModified()))
                    .map(Path::getParent);
        }
    }

    static void create(String bootstrap, String... topics) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            for (String topic : topics) {
                try {
                    admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
                } catch (ExecutionException error) {
                    if (!(error.getCause() instanceof TopicExistsException)) {
                        throw error;
                    }
                }
            }
        }
    }

    public static class Pair {
        public int partition;
        public byte[] key;
        public byte[] value;
    }

    /** Names its topic, by which a sink that pools its ids finds the transactions that an earlier one left open. */
    record Records(String topic) implements KafkaRecordSerializationSchema<Pair>, KafkaDatasetFacetProvider {
        @Override
        public ProducerRecord<byte[], byte[]> serialize(Pair pair, KafkaSinkContext context, Long time) {
            return new ProducerRecord<>(topic, pair.partition, pair.key, pair.value);
        }

        @Override
        public Optional<KafkaDatasetFacet> getKafkaDatasetFacet() {
            var topics = DefaultKafkaDatasetIdentifier.ofTopics(List.of(topic));
            return Optional.of(new DefaultKafkaDatasetFacet(topics, new Properties()));
        }
    }

    public static class Upper implements KafkaRecordDeserializationSchema<Pair> {
        @Override
        public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Pair> out) {
            Pair pair = new Pair();
            pair.partition = record.partition();
            pair.key = record.key();
            pair.value = new String(record.value()).toUpperCase().getBytes();
            out.collect(pair);
        }

        @Override
        public TypeInformation<Pair> getProducedType() {
            return TypeInformation.of(Pair.class);
        }
    }
}
