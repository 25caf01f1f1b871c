import jakarta.jms.BytesMessage;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.Locale;
import org.apache.activemq.ActiveMQConnection;
import org.apache.activemq.ActiveMQConnectionFactory;
import org.apache.activemq.command.ActiveMQQueue;

/**
 * A load of 200-byte messages for ActiveMQ, through its own client: {@code ActiveMqLoad URL}. It stays for many runs,
 * so that it is compiled. Each line of the standard input is a run, and is answered with one JSON object:
 *
 * <ul>
 *   <li>{@code produce QUEUE MESSAGES SECONDS SLICES}: persistent messages, sent without waiting for answers, until
 *       MESSAGES are sent or SECONDS have passed. The last one waits, and the broker takes them in order.
 *   <li>{@code consume QUEUE MESSAGES SLICES}: takes as many, acknowledged automatically, and compares each.
 *   <li>{@code delete QUEUE}
 * </ul>
 */
public final class ActiveMqLoad {
    private static final int MESSAGE_BYTES = 200;
    private static final long MOST_WAIT_MS = 60_000;
    private static final byte[] BODY = new byte[MESSAGE_BYTES];

    private final ActiveMQConnection connection;

    private ActiveMqLoad(ActiveMQConnection connection) {
        this.connection = connection;
    }

    public static void main(String[] arguments) throws Exception {
        for (int i = 0; i < MESSAGE_BYTES; i++) BODY[i] = (byte) ('a' + i % 26);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0]);
            ActiveMQConnection connection = (ActiveMQConnection) factory.createConnection();
            try {
                System.out.println(new ActiveMqLoad(connection).run(line.split(" ")));
            } finally {
                connection.close();
            }
        }
    }

    private String run(String[] words) throws JMSException {
        ActiveMQQueue queue = new ActiveMQQueue(words[1]);
        connection.start();
        switch (words[0]) {
            case "produce":
                double seconds = Double.parseDouble(words[3]);
                return produce(queue, Long.parseLong(words[2]), seconds, Integer.parseInt(words[4]));
            case "consume":
                return consume(queue, Long.parseLong(words[2]), Integer.parseInt(words[3]));
            case "delete":
                connection.destroyDestination(queue);
                return "{}";
            default:
                throw new IllegalArgumentException(words[0]);
        }
    }

    private String produce(ActiveMQQueue queue, long messages, double seconds, int count) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(queue);
        Slices slices = new Slices(messages, count);
        long endNs = slices.startedNs + (long) (seconds * 1e9), sent = 0;
        while (sent < messages - 1 && System.nanoTime() < endNs) {
            send(session, producer);
            slices.mark(++sent);
        }
        connection.setUseAsyncSend(false);
        connection.setAlwaysSyncSend(true);
        send(session, producer);
        return slices.end(sent + 1);
    }

    private static void send(Session session, MessageProducer producer) throws JMSException {
        BytesMessage message = session.createBytesMessage();
        message.writeBytes(BODY);
        producer.send(message);
    }

    private String consume(ActiveMQQueue queue, long messages, int count) throws JMSException {
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Slices slices = new Slices(messages, count);
        MessageConsumer consumer = session.createConsumer(queue);
        byte[] body = new byte[MESSAGE_BYTES];
        for (long taken = 1; taken <= messages; taken++) {
            Message message = consumer.receive(MOST_WAIT_MS);
            if (message == null) throw new IllegalStateException("message " + taken + " does not come");
            BytesMessage bytes = (BytesMessage) message;
            long size = bytes.getBodyLength();
            if (size != MESSAGE_BYTES || bytes.readBytes(body) != size || !Arrays.equals(body, BODY))
                throw new IllegalStateException("message " + taken + " is not as it was produced");
            slices.mark(taken);
        }
        return slices.end(messages);
    }

    /** When each equal part of a run was through. */
    private static final class Slices {
        private final long startedNs = System.nanoTime();
        private final long step;
        private final StringBuilder marks = new StringBuilder();
        private long next;

        Slices(long messages, int count) {
            step = Math.max(1, messages / count);
            next = step;
        }

        void mark(long messages) {
            if (messages < next) return;
            add(messages);
            next += step;
        }

        /** The run is over: its last slice ends now, whatever was marked for it before. */
        String end(long messages) {
            if (next - step == messages) marks.setLength(Math.max(0, marks.lastIndexOf("[")));
            double seconds = add(messages);
            String numbers = String.format(Locale.ROOT, "\"messages\": %d, \"seconds\": %.6f", messages, seconds);
            return "{" + numbers + ", \"slices\": [" + marks.substring(0, marks.length() - 2) + "]}";
        }

        private double add(long messages) {
            double seconds = (System.nanoTime() - startedNs) / 1e9;
            marks.append(String.format(Locale.ROOT, "[%d, %.6f], ", messages, seconds));
            return seconds;
        }
    }
}
