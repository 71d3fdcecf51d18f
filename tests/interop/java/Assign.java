import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Kafka's own assignors as a filter. Lines: "topic NAME RACKS..." (racks of each partition, comma-separated, or "-"),
 * "member ID INSTANCE RACK GENERATION TOPICS OWNED USERDATA" ("-" for none; owned as topic:number), and "assign CLASS",
 * which prints "ID topic:number ..." for each member and then an empty line.
 */
public class Assign {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        List<PartitionInfo> partitions = new ArrayList<>();
        Map<String, Node> nodes = new TreeMap<>();
        Map<String, Subscription> members = new HashMap<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            switch (words[0]) {
                case "topic":
                    for (int number = 2; number < words.length; number++) {
                        List<Node> replicas = new ArrayList<>();
                        for (String rack : words[number].split(","))
                            replicas.add(nodes.computeIfAbsent(rack, each ->
                                new Node(nodes.size(), "h", 1, each.equals("-") ? null : each)));
                        Node[] all = replicas.toArray(new Node[0]);
                        partitions.add(new PartitionInfo(words[1], number - 2, all[0], all, all));
                    }
                    break;
                case "member":
                    ByteBuffer data = words[7].equals("-") ? null : ByteBuffer.wrap(bytes(words[7]));
                    Subscription subscription = new Subscription(Arrays.asList(words[5].split(",")), data,
                        owned(words[6]), Integer.parseInt(words[4]), Optional.of(words[3]).filter(each -> !each.equals("-")));
                    subscription.setGroupInstanceId(Optional.of(words[2]).filter(each -> !each.equals("-")));
                    members.put(words[1], subscription);
                    break;
                default:
                    ConsumerPartitionAssignor assignor = (ConsumerPartitionAssignor)
                        Class.forName("org.apache.kafka.clients.consumer." + words[1]).getConstructor().newInstance();
                    Cluster cluster = new Cluster("c", nodes.values(), partitions, Set.of(), Set.of());
                    Map<String, Assignment> assigned =
                        assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
                    for (Map.Entry<String, Assignment> each : assigned.entrySet()) {
                        StringBuilder said = new StringBuilder(each.getKey());
                        for (TopicPartition partition : each.getValue().partitions())
                            said.append(' ').append(partition.topic()).append(':').append(partition.partition());
                        System.out.println(said);
                    }
                    System.out.println();
                    partitions = new ArrayList<>();
                    nodes.clear();
                    members = new HashMap<>();
            }
        }
    }

    private static byte[] bytes(String hex) {
        byte[] found = new byte[hex.length() / 2];
        for (int index = 0; index < found.length; index++)
            found[index] = (byte) Integer.parseInt(hex.substring(2 * index, 2 * index + 2), 16);
        return found;
    }

    private static List<TopicPartition> owned(String word) {
        List<TopicPartition> found = new ArrayList<>();
        if (!word.equals("-"))
            for (String each : word.split(",")) {
                String[] parts = each.split(":");
                found.add(new TopicPartition(parts[0], Integer.parseInt(parts[1])));
            }
        return found;
    }
}
