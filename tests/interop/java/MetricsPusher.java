import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A producer and a member of a group, of Kafka's own clients, that work until the standard input ends. Arguments: the
 * bootstrap servers, the topic, the group protocol. It writes the client instance ids of both, one a line.
 */
public final class MetricsPusher {
    public static void main(String[] arguments) throws Exception {
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        config.put("client.id", "java-producer");
        config.put("key.serializer", ByteArraySerializer.class.getName());
        config.put("value.serializer", ByteArraySerializer.class.getName());
        Properties member = new Properties();
        member.put("bootstrap.servers", arguments[0]);
        member.put("client.id", "java-consumer");
        member.put("group.id", "java-group-" + arguments[2]);
        member.put("group.protocol", arguments[2]);
        member.put("auto.offset.reset", "earliest");
        member.put("auto.commit.interval.ms", "100");
        member.put("key.deserializer", ByteArrayDeserializer.class.getName());
        member.put("value.deserializer", ByteArrayDeserializer.class.getName());
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(config);
                KafkaConsumer<byte[], byte[]> consumer = new KafkaConsumer<>(member)) {
            consumer.subscribe(List.of(arguments[1]));
            System.out.println(producer.clientInstanceId(Duration.ofSeconds(60)));
            Uuid consumerId = null;
            while (System.in.available() == 0) {
                producer.send(new ProducerRecord<>(arguments[1], new byte[] {1})).get();
                consumer.poll(Duration.ofMillis(50));
                if (consumerId == null) {
                    // Without a poll no thread of the classic consumer would ask.
                    consumerId = consumer.clientInstanceId(Duration.ZERO);
                    if (consumerId != null) {
                        System.out.println(consumerId);
                    }
                }
            }
        }
    }
}
