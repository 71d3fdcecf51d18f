import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * A worker of a share group with Kafka's own client: arguments bootstrap, group, topic, type of acknowledgement, idle ms.
 * It writes "partition offset delivery-count" of each record that was acknowledged well, and ends after so long without
 * a record.
 */
public final class ShareWorker {
    private ShareWorker() { }

    public static void main(String[] arguments) {
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        config.put("group.id", arguments[1]);
        config.put("share.acknowledgement.mode", "explicit");
        config.put("max.poll.records", "50");
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        AcknowledgeType type = AcknowledgeType.valueOf(arguments[3]);
        long idle = Long.parseLong(arguments[4]);
        try (KafkaShareConsumer<byte[], byte[]> consumer = new KafkaShareConsumer<>(config)) {
            consumer.subscribe(List.of(arguments[2]));
            long last = System.currentTimeMillis();
            while (System.currentTimeMillis() - last < idle) {
                StringBuilder lines = new StringBuilder();
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    lines.append(record.partition()).append(' ').append(record.offset()).append(' ')
                            .append(record.deliveryCount().orElse((short) 0)).append('\n');
                    consumer.acknowledge(record, type);
                    last = System.currentTimeMillis();
                }
                if (lines.length() == 0) {
                    continue;
                }
                Map<TopicIdPartition, Optional<KafkaException>> outcomes = consumer.commitSync();
                if (outcomes.values().stream().noneMatch(Optional::isPresent)) {
                    System.out.print(lines);
                    System.out.flush();
                }
            }
        }
    }
}
