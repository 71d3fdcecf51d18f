import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.Arrays;
import java.util.Base64;

import org.apache.kafka.common.utils.Exit;

/**
 * Runs Kafka's command-line tools one after another in one process: most of a tool's time is the start of its JVM.
 * Each line of the input is a main class and its arguments, with tabs between them. Each line of the output is the exit
 * code, a space, and what the tool wrote on both outputs in base64.
 */
public final class RunTools {
    /** The end of a tool. Some tools catch it, and end once more: the first exit code counts. */
    private static final class Ended extends Error {
        Ended(String message) {
            super(message, null, false, false);
        }
    }

    private static Integer exitCode;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = System.out;
        ByteArrayOutputStream written = new ByteArrayOutputStream();
        PrintStream both = new PrintStream(written, true, "UTF-8");
        System.setOut(both);
        System.setErr(both);
        Exit.setExitProcedure((code, message) -> {
            if (exitCode == null) {
                exitCode = code;
            }
            throw new Ended(message);
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            int code = run(line.split("\t"));
            both.flush();
            answers.println(code + " " + Base64.getEncoder().encodeToString(written.toByteArray()));
            answers.flush();
            written.reset();
        }
    }

    private static int run(String[] words) {
        exitCode = null;
        try {
            Object arguments = Arrays.copyOfRange(words, 1, words.length);
            Class.forName(words[0]).getMethod("main", String[].class).invoke(null, arguments);
        } catch (InvocationTargetException error) {
            if (error.getCause() instanceof Ended) {
                String message = error.getCause().getMessage();
                System.err.println(message == null ? "" : message);
            } else {
                error.getCause().printStackTrace();
                return 1;
            }
        } catch (ReflectiveOperationException error) {
            error.printStackTrace();
            return 1;
        }
        return exitCode == null ? 0 : exitCode;
    }
}
