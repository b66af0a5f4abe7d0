import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaAdmin;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.ContainerProperties.AckMode;
import org.springframework.kafka.listener.DefaultAfterRollbackProcessor;
import org.springframework.kafka.transaction.KafkaTransactionManager;
import org.springframework.util.backoff.FixedBackOff;

/**
 * A copier by Spring Kafka: {@code Spring BOOTSTRAP SOURCE TARGET GROUP classic|consumer [ID]} makes the two topics
 * where they are missing, and writes each record of SOURCE to the same partition of TARGET in upper case, as a member
 * of GROUP, at least once. With ID it does so exactly once, by a transaction manager whose transactional ids begin
 * with that; every tenth time it writes "aborted" and fails, and it prints the offset that each answer has.
 */
@Configuration
@EnableKafka
public class Spring {
    int times;

    public static void main(String[] args) {
        String[] names = {"bootstrap", "source", "target", "group", "protocol", "id"};
        for (int number = 0; number < args.length; number++) {
            System.setProperty("copier." + names[number], args[number]);
        }
        new AnnotationConfigApplicationContext(Spring.class).registerShutdownHook();
    }

    static String told(String name) {
        return System.getProperty("copier." + name);
    }

    @Bean
    KafkaAdmin admin() {
        return new KafkaAdmin(Map.of("bootstrap.servers", told("bootstrap")));
    }

    @Bean
    KafkaAdmin.NewTopics topics() {
        short one = 1;
        return new KafkaAdmin.NewTopics(new NewTopic(told("source"), 2, one), new NewTopic(told("target"), 2, one));
    }

    @Bean
    DefaultKafkaProducerFactory<String, String> producers() {
        var producers = new DefaultKafkaProducerFactory<String, String>(Map.of(
                ProducerConfig.BOOTSTRAP_SERVERS_CONFIG, told("bootstrap"),
                ProducerConfig.KEY_SERIALIZER_CLASS_CONFIG, StringSerializer.class,
                ProducerConfig.VALUE_SERIALIZER_CLASS_CONFIG, StringSerializer.class));
        if (told("id") != null) {
            producers.setTransactionIdPrefix(told("id"));
        }
        return producers;
    }

    @Bean
    KafkaTemplate<String, String> template() {
        return new KafkaTemplate<>(producers());
    }

    @Bean
    ConcurrentKafkaListenerContainerFactory<String, String> kafkaListenerContainerFactory() {
        Map<String, Object> config = new HashMap<>(Map.of(
                ConsumerConfig.BOOTSTRAP_SERVERS_CONFIG, told("bootstrap"),
                ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class,
                ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class,
                ConsumerConfig.AUTO_OFFSET_RESET_CONFIG, "earliest",
                ConsumerConfig.GROUP_PROTOCOL_CONFIG, told("protocol")));
        if (told("protocol").equals("classic")) {
            config.put(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG, 6000);
            config.put(ConsumerConfig.HEARTBEAT_INTERVAL_MS_CONFIG, 1000);
        }
        var factory = new ConcurrentKafkaListenerContainerFactory<String, String>();
        factory.setConsumerFactory(new DefaultKafkaConsumerFactory<>(config));
        factory.getContainerProperties().setAckMode(AckMode.RECORD);
        if (told("id") != null) {
            var manager = new KafkaTransactionManager<>(producers());
            factory.getContainerProperties().setKafkaAwareTransactionManager(manager);
            var always = new FixedBackOff(0, FixedBackOff.UNLIMITED_ATTEMPTS);
            factory.setAfterRollbackProcessor(new DefaultAfterRollbackProcessor<>(always));
        }
        return factory;
    }

    @KafkaListener(topics = "#{systemProperties['copier.source']}", groupId = "#{systemProperties['copier.group']}")
    void copy(ConsumerRecord<String, String> record) throws Exception {
        boolean aborts = told("id") != null && times++ % 10 == 0;
        String value = aborts ? "aborted" : record.value().toUpperCase();
        var sent = template().send(told("target"), record.partition(), record.key(), value).get();
        if (told("id") != null) {
            System.out.println("offset " + sent.getRecordMetadata().offset());
        }
        if (aborts) {
            throw new IllegalStateException("it aborts");
        }
    }
}
