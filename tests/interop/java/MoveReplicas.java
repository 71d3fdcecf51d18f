import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.common.TopicPartitionReplica;

/** Usage: MoveReplicas BOOTSTRAP BROKER DIR TOPIC-PARTITION... : moves replicas by the Admin client and prints where each is. */
public class MoveReplicas {
    public static void main(String[] arguments) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        int broker = Integer.parseInt(arguments[1]);
        Map<TopicPartitionReplica, String> wanted = new HashMap<>();
        for (int i = 3; i < arguments.length; i++) {
            int dash = arguments[i].lastIndexOf('-');
            String topic = arguments[i].substring(0, dash);
            wanted.put(new TopicPartitionReplica(topic, Integer.parseInt(arguments[i].substring(dash + 1)), broker), arguments[2]);
        }
        try (Admin admin = Admin.create(properties)) {
            admin.alterReplicaLogDirs(wanted).values().forEach((replica, outcome) -> {
                try {
                    outcome.get();
                } catch (ExecutionException failure) {
                    System.out.println(replica + " " + failure.getCause().getClass().getSimpleName());
                } catch (InterruptedException stopped) {
                    throw new IllegalStateException(stopped);
                }
            });
            boolean moving = true;
            while (moving) {
                moving = false;
                for (var each : admin.describeReplicaLogDirs(wanted.keySet()).all().get().values()) {
                    moving |= each.getFutureReplicaLogDir() != null;
                }
            }
            for (var each : admin.describeReplicaLogDirs(wanted.keySet()).all().get().entrySet()) {
                System.out.println(each.getKey() + " in " + each.getValue().getCurrentReplicaLogDir());
            }
        }
    }
}
