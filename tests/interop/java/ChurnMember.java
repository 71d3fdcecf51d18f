import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * The member of a group that churn_member.py describes, with Kafka's own consumer; the same arguments, less the kind,
 * and the same events.
 */
public final class ChurnMember {
    private static final Map<String, String> STRATEGIES = Map.of(
            "range", "org.apache.kafka.clients.consumer.RangeAssignor",
            "sticky", "org.apache.kafka.clients.consumer.StickyAssignor",
            "cooperative-sticky", "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");

    private final Path events;
    private final String topic;
    private final KafkaConsumer<byte[], byte[]> consumer;
    private final Map<TopicPartition, OffsetAndMetadata> pending = new HashMap<>();
    private volatile boolean stopping = false;

    private ChurnMember(String[] arguments) {
        events = Path.of(arguments[0]);
        topic = arguments[3];
        String protocol = arguments[4];
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[1]);
        config.put("group.id", arguments[2]);
        config.put("auto.offset.reset", "earliest");
        config.put("enable.auto.commit", "false");
        config.put("fetch.max.wait.ms", "100");
        config.put("default.api.timeout.ms", "5000");
        config.put("reconnect.backoff.max.ms", "200");
        config.put("key.deserializer", ByteArrayDeserializer.class.getName());
        config.put("value.deserializer", ByteArrayDeserializer.class.getName());
        if (protocol.equals("consumer")) {
            config.put("group.protocol", "consumer");
        } else {
            config.put("partition.assignment.strategy", STRATEGIES.get(protocol));
            config.put("session.timeout.ms", "3000");
            config.put("heartbeat.interval.ms", "300");
        }
        consumer = new KafkaConsumer<>(config);
    }

    private void write(String event, String fields) {
        String line = String.format("{\"e\": \"%s\", \"t\": %.9f%s}%n", event, System.nanoTime() / 1e9, fields);
        try {
            Files.write(events, line.getBytes(StandardCharsets.UTF_8), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private void owned(String event, Collection<TopicPartition> partitions) {
        pending.keySet().removeAll(partitions);
        List<Integer> numbers = partitions.stream().map(TopicPartition::partition).sorted().collect(Collectors.toList());
        write(event, String.format(", \"p\": %s, \"g\": %d, \"m\": \"%s\"", numbers, consumer.groupMetadata().generationId(),
                consumer.groupMetadata().memberId()));
    }

    private void read(ConsumerRecords<byte[], byte[]> records) {
        List<String> runs = new ArrayList<>();
        for (TopicPartition partition : records.partitions()) {
            long first = -1;
            long last = -1;
            for (ConsumerRecord<byte[], byte[]> record : records.records(partition)) {
                if (first < 0) {
                    first = record.offset();
                } else if (record.offset() != last + 1) {
                    throw new IllegalStateException("a gap in " + partition + " after " + last);
                }
                last = record.offset();
            }
            runs.add(String.format("[%d, %d, %d]", partition.partition(), first, last));
            pending.put(partition, new OffsetAndMetadata(last + 1));
        }
        if (!runs.isEmpty()) {
            write("read", ", \"r\": " + runs);
        }
    }

    private void run() {
        consumer.subscribe(List.of(topic), new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                owned("assigned", partitions);
            }

            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                owned("revoked", partitions);
            }

            @Override
            public void onPartitionsLost(Collection<TopicPartition> partitions) {
                owned("lost", partitions);
            }
        });
        while (!stopping) {
            read(consumer.poll(Duration.ofMillis(100)));
            if (!pending.isEmpty()) {
                try {
                    consumer.commitSync(pending);
                    pending.clear();
                } catch (KafkaException refused) {
                    write("refused", ", \"why\": \"" + refused.getClass().getSimpleName() + "\"");
                }
            }
        }
        consumer.close();
        write("ended", "");
    }

    public static void main(String[] arguments) throws InterruptedException {
        ChurnMember member = new ChurnMember(arguments);
        Thread reader = Thread.currentThread();
        // The virtual machine waits for its hooks, so the exit code of a SIGTERM is set here.
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            member.stopping = true;
            try {
                reader.join();
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
            Runtime.getRuntime().halt(member.stopping && !reader.isAlive() ? 0 : 1);
        }));
        member.write("started", "");
        member.run();
    }
}
