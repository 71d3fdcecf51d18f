import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HexFormat;
import org.apache.kafka.clients.producer.internals.BuiltInPartitioner;

/** Prints the partition that Java's producer chooses for each key on stdin, which are lines of hexadecimal digits. */
public class Partitions {
    public static void main(String[] arguments) throws Exception {
        int count = Integer.parseInt(arguments[0]);
        StringBuilder out = new StringBuilder();
        try (BufferedReader lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                out.append(BuiltInPartitioner.partitionForKey(HexFormat.of().parseHex(line), count)).append('\n');
            }
        }
        System.out.print(out);
    }
}
