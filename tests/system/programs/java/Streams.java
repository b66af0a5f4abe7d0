import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;
import org.apache.kafka.streams.state.WindowStore;

/**
 * An application of Kafka Streams: {@code Streams count|windows|join BOOTSTRAP STATE memory|rocksdb GUARANTEE [MS]}, with a
 * guarantee by Kafka's name; it commits every 200 ms, or every MS.
 *
 * <p>{@code count} counts the words of the topic lines into counts; {@code windows} counts those of each ten
 * seconds of lines into windows, once a window has closed; {@code join} puts the names of the table names to the
 * records of orders, by key, into joined.
 */
public class Streams {
    static final Duration WINDOW = Duration.ofSeconds(10);

    public static void main(String[] args) {
        Properties config = new Properties();
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, "streams-" + args[0]);
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[1]);
        config.put(StreamsConfig.STATE_DIR_CONFIG, args[2]);
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, args.length > 5 ? Integer.parseInt(args[5]) : 200);
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, args[4]);
        config.put("consumer.session.timeout.ms", 6000);
        config.put("consumer.auto.offset.reset", "earliest");
        KafkaStreams streams = new KafkaStreams(topology(args[0], args[3].equals("memory")), config);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }

    static Topology topology(String name, boolean inMemory) {
        StreamsBuilder builder = new StreamsBuilder();
        switch (name) {
            case "count" -> count(builder, inMemory);
            case "windows" -> windows(builder);
            default -> join(builder);
        }
        return builder.build();
    }

    static KStream<String, String> words(StreamsBuilder builder) {
        KStream<String, String> lines = builder.stream("lines");
        return lines.flatMapValues(line -> Arrays.asList(line.split(" ")));
    }

    static void count(StreamsBuilder builder, boolean inMemory) {
        var store = inMemory ? Stores.inMemoryKeyValueStore("counts") : Stores.persistentKeyValueStore("counts");
        words(builder)
                .groupBy((key, word) -> word, Grouped.as("words"))
                .count(Materialized.<String, Long>as(store))
                .toStream()
                .mapValues(String::valueOf)
                .to("counts");
    }

    static void windows(StreamsBuilder builder) {
        words(builder)
                .groupBy((key, word) -> word, Grouped.as("words"))
                .windowedBy(TimeWindows.ofSizeWithNoGrace(WINDOW))
                .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("windows")
                        .withKeySerde(Serdes.String()))
                .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
                .toStream((window, count) -> window.key() + "@" + window.window().start())
                .mapValues(String::valueOf)
                .to("windows");
    }

    static void join(StreamsBuilder builder) {
        var names = builder.<String, String>table("names", Materialized.as("names"));
        builder.<String, String>stream("orders")
                .join(names, (order, name) -> order + " by " + name)
                .to("joined");
    }
}
