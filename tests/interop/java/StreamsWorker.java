import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The program in the middle of an exactly-once pipeline, with Kafka Streams: passes each record on, and keeps the last
 * number of each key in a store with a changelog. A number that the store has already goes out as "twice".
 *
 * <p>Arguments: bootstrap servers, input topic, output topic, application id, state directory. To be killed at any time.
 */
public final class StreamsWorker {
    private static final String STORE = "last";

    private static final class PassOn implements Processor<String, String, String, String> {
        private ProcessorContext<String, String> context;
        private KeyValueStore<String, String> last;

        @Override
        public void init(ProcessorContext<String, String> context) {
            this.context = context;
            this.last = context.getStateStore(STORE);
        }

        @Override
        public void process(Record<String, String> record) {
            String before = last.get(record.key());
            boolean twice = before != null && Long.parseLong(before) >= Long.parseLong(record.value());
            last.put(record.key(), record.value());
            context.forward(twice ? record.withValue("twice") : record);
        }
    }

    public static void main(String[] arguments) {
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        config.put("application.id", arguments[3]);
        config.put("state.dir", arguments[4]);
        config.put("processing.guarantee", "exactly_once_v2");
        config.put("num.stream.threads", "2");
        config.put("replication.factor", "1");
        config.put("default.key.serde", Serdes.String().getClass().getName());
        config.put("default.value.serde", Serdes.String().getClass().getName());
        config.put("auto.offset.reset", "earliest");
        config.put("session.timeout.ms", "3000");
        config.put("heartbeat.interval.ms", "500");
        config.put("reconnect.backoff.max.ms", "500");
        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(Stores.inMemoryKeyValueStore(STORE), Serdes.String(), Serdes.String()));
        builder.<String, String>stream(arguments[1]).process(PassOn::new, STORE).to(arguments[2]);
        KafkaStreams streams = new KafkaStreams(builder.build(), config);
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
